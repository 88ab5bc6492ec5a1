"""Drives a host with the public Python client, from the first run to the last webhook.

    python client_test.py BASE_URL API_KEY OTHER_TENANT_API_KEY

Prints one line for each check and ends with 0 only if every one of them held. The host must have
the workflows of `crates/openwop/conformance` loaded and must allow webhooks to this machine. Uses
openwop-client 1.7.0 where the client has a word for it, and plain urllib for headers and for what
is refused.
"""

import os
import sys
import traceback

import openwop_client

from checks import BROKEN, HELD, check
from client_discovery import Discovery
from client_keys import Keys
from client_events import Events
from client_words import Words
from client_stops import Stops
from client_webhooks import Webhooks
from client_refusals import Refusals
from wire import Unmet

SECTIONS = (
    Discovery.discovery,
    Discovery.openapi,
    Discovery.workflows,
    Keys.create_once,
    Keys.refusals_with_keys,
    Keys.key_grammar,
    Keys.fifty_at_once,
    Keys.two_tenants,
    Events.streams,
    Events.polls,
    Words.approval,
    Words.approval_by_token,
    Words.clarification,
    Words.external_event,
    Words.quorum,
    Stops.cancel,
    Stops.pause,
    Stops.bulk_cancel,
    Stops.fork,
    Webhooks.webhooks,
    Refusals.errors,
)


class Everything(Discovery, Keys, Events, Words, Stops, Webhooks, Refusals):
    """Every room, spoken to by the same two tenants."""


def main():
    if len(sys.argv) != 4:
        print(__doc__.strip().splitlines()[2].strip(), file=sys.stderr)
        return 2
    print(f"openwop_client from {os.path.dirname(openwop_client.__file__)}")
    everything = Everything(*sys.argv[1:])
    for step in SECTIONS:
        try:
            step(everything)
        except Unmet as unmet:
            check(f"{step.__name__}: went to its end", False, unmet)
        except Exception as error:  # Whatever it is, the next section shall still be tried.
            traceback.print_exc()
            check(f"{step.__name__}: went to its end", False, repr(error))
    print(f"{len(HELD)} held, {len(BROKEN)} broken")
    return 0 if HELD and not BROKEN else 1


if __name__ == "__main__":
    sys.exit(main())
