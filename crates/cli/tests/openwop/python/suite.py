"""What scenarios are made of: the host under test, the count, and how a log is read."""

from wire import Host, Unmet

SEAM_CLAIM = "/v1/host/sample/test/idempotency/concurrent-claim"
SEAM_PARTITION = "/v1/host/sample/test/multi-region/simulate-partition"
SAFE_URL = "https://example.com/onetake-conformance"
RUN_ENDS = {"run.completed", "run.failed", "run.cancelled"}
MISMATCHES = {
    "idempotency_key_mismatch",
    "idempotency_key_conflict",
    "idempotency_key_replay_mismatch",
}


class Skipped(Exception):
    """The rest of a scenario does not apply here."""


class Walk:
    """The host under test, and the count."""

    def __init__(self, base, key, other=None):
        self.host = Host(base, key)
        self.other = Host(base, other) if other else None
        self.base, self.key = base, key
        self.counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
        self.failed = []
        self.number = ""
        reply = self.host.get("/.well-known/openwop", auth=False)
        self.found = reply.fields
        fixtures = self.found.get("fixtures")
        self.fixtures = set(fixtures) if isinstance(fixtures, list) else set()

    def line(self, word, label, detail=""):
        self.counts[word] += 1
        if word == "FAIL":
            self.failed.append(f"{self.number} {label}")
        tail = f"   ({str(detail)[:400]})" if detail != "" else ""
        print(f"{word} {self.number} {label}{tail}", flush=True)

    def that(self, label, held, seen=""):
        if held:
            self.line("PASS", label)
        else:
            self.line("FAIL", label, f"saw: {seen}")
        return bool(held)

    def must(self, label, held, seen=""):
        """As `that`, and what follows is pointless without it."""
        if not self.that(label, held, seen):
            raise Unmet()

    def skip(self, label, why):
        self.line("SKIP", label, why)

    def family(self, *path):
        """A value of the discovery document, read from its root."""
        value = self.found
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def modes(self):
        """The modes of a fork that are offered."""
        if self.family("replay", "supported") is not True:
            return []
        offered = self.family("replay", "modes")
        return offered if isinstance(offered, list) else []


SCENARIOS = []


def scenario(number, title, *fixtures):
    """Registers a scenario that needs these fixtures, named without their prefix."""

    def keep(act):
        SCENARIOS.append((number, title, ["conformance-" + name for name in fixtures], act))
        return act

    return keep


def log(walk, run, query="?lastSequence=0&timeout=1"):
    return walk.host.events(run, query)


def of_type(events, kind, node=None):
    return [e for e in events if e.get("type") == kind and node in (None, e.get("nodeId"))]


def code_of(event):
    payload = event.get("payload")
    fault = payload.get("error") if isinstance(payload, dict) else None
    return fault.get("code") if isinstance(fault, dict) else None


def token_in(snapshot):
    """The token as a suite finds it: by name, else in the callback address."""
    open_one = snapshot.get("interrupt") or {}
    if open_one.get("interruptToken"):
        return open_one["interruptToken"]
    address = open_one.get("callbackUrl") or ""
    return address.partition("/v1/interrupts/")[2].partition("?")[0] or None
