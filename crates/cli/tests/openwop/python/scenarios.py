"""Walks through what the public scenarios of the contract look at, as a stranger's suite would.

    python scenarios.py BASE_URL API_KEY [OTHER_TENANT_API_KEY]

Prints PASS, FAIL or SKIP for each assertion and at the end `N passed, N failed, N skipped`. Knows
of the host only what it answers: a scenario runs when the discovery document offers what it needs,
at the root of the document, and is skipped otherwise. Ends with 0 only if nothing failed.
OPENWOP_TEST_LOW_SCOPE_KEY may hold a key without `approvals:respond`.
"""

import os
import sys
import traceback

# Each of these rooms registers its scenarios.
import scenes_keys  # noqa: F401
import scenes_http  # noqa: F401
import scenes_runs  # noqa: F401
import scenes_streams  # noqa: F401
import scenes_forks  # noqa: F401
import scenes_words  # noqa: F401
import scenes_webhooks  # noqa: F401
from suite import SCENARIOS, Skipped, Walk
from wire import Unmet


def main():
    if len(sys.argv) not in (3, 4):
        print(__doc__.strip().splitlines()[2].strip(), file=sys.stderr)
        return 2
    walk = Walk(*sys.argv[1:])
    wanted = os.environ.get("SCENARIOS", "").split()
    for number, title, fixtures, act in SCENARIOS:
        if wanted and number not in wanted:
            continue
        walk.number = number
        print(f"\n{number} {title}", flush=True)
        missing = [name for name in fixtures if name not in walk.fixtures]
        if missing:
            walk.skip(title, f"fixtures that are not advertised: {' '.join(missing)}")
            continue
        try:
            act(walk)
        except Skipped as why:
            walk.skip(title, why)
        except Unmet as unmet:
            if str(unmet):
                walk.line("FAIL", f"{title} went to its end", unmet)
        except Exception as error:  # Whatever it is, the next scenario shall still be tried.
            traceback.print_exc()
            walk.line("FAIL", f"{title} went to its end", repr(error))
    if walk.failed:
        print("\nfailed:\n" + "\n".join(walk.failed))
    counts = walk.counts
    print(f"\n{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 0 if counts["PASS"] and not counts["FAIL"] else 1


if __name__ == "__main__":
    sys.exit(main())
