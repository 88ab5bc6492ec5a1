"""What the checks of the client are made of: one line each, and who is spoken to."""

import json

from openwop_client import OpenwopClient, WopError

from wire import Host, Unmet

HELD, BROKEN = [], []


def check(label, held, seen=""):
    """One line; a failed check does not stop what follows."""
    if held:
        HELD.append(label)
        print(f"ok    {label}", flush=True)
    else:
        BROKEN.append(label)
        print(f"FAIL  {label}   saw: {str(seen)[:400]}", flush=True)
    return bool(held)


def need(label, held, seen=""):
    """A check without which the rest of the section says nothing."""
    if not check(label, held, seen):
        raise Unmet(label)


def refusal(label, act, statuses, code=None):
    """`act` must be refused with one of `statuses`, and in the closed envelope."""
    try:
        seen = act()
    except WopError as refused:
        body = json.loads(refused.raw_text or "null")
        word = refused.envelope.error if refused.envelope else None
        fits = refused.status in statuses and code in (None, word)
        closed = isinstance(body, dict) and set(body) <= {"error", "message", "details"}
        return check(label, fits and closed, f"{refused.status} {refused.raw_text}")
    return check(label, False, seen)


class Section:
    """All that is needed to talk to the host, as two tenants."""

    def __init__(self, base, key, other_key):
        self.client = OpenwopClient(base_url=base, api_key=key)
        self.host = Host(base, key)
        self.other = Host(base, other_key)
        self.base = base.rstrip("/")
