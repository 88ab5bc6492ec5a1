"""Words that runs wait for: approvals, answers, events elsewhere."""

import base64
import json
import os
import secrets

from suite import RUN_ENDS, Skipped, code_of, log, of_type, scenario, token_in
from wire import TERMINAL, at_once, fresh, quoted


@scenario("1.10", "interrupt-approval", "approval")
def approval(walk):
    host = walk.host
    run = host.begin("conformance-approval")
    snapshot = host.until(run, "waiting-approval")
    walk.that("it waits at gate", snapshot.get("currentNodeId") == "gate", snapshot)
    bad = host.resolve(run, "gate", {"action": "maybe"})
    walk.that("maybe is 400 or 422", bad.status in (400, 422), bad)
    unknown = host.resolve(run, "no-such-node", {"action": "accept"})
    walk.that("an unknown node is 404", unknown.status == 404, unknown)
    reply = host.resolve(run, "gate", {"action": "accept"})
    walk.that("accept is 200", reply.status == 200, reply)
    whole = all(isinstance(reply.fields.get(f), str) for f in ("runId", "nodeId", "status"))
    walk.that("with runId, nodeId, status", whole, reply)
    walk.that("it completes", host.ended(run)["status"] == "completed")
    events = log(walk, run)
    for kind in ("interrupt.requested", "approval.received", "interrupt.resolved"):
        walk.that(f"the log has {kind}", len(of_type(events, kind)) == 1)
    said = [e.get("payload") or {} for e in of_type(events, "approval.received")]
    walk.that("approval.received says who", said and said[0].get("decidedBy"), said)


@scenario("1.10", "approval rejected", "approval")
def rejection(walk):
    host = walk.host
    run = host.begin("conformance-approval")
    host.until(run, "waiting-approval")
    reply = host.resolve(run, "gate", {"action": "reject"})
    walk.that("reject is 200", reply.status == 200, reply)
    rejected(walk, run, {"action": "reject", "decision": "rejected"})


def rejected(walk, run, said, timeout=10):
    """A run that failed at its gate."""
    ended = walk.host.ended(run, timeout)
    walk.that("it fails", ended["status"] == "failed", ended)
    code = (ended.get("error") or {}).get("code")
    walk.that("with approval_rejected", code == "approval_rejected", ended.get("error"))
    events = log(walk, run)
    resolved = [e.get("payload") or {} for e in of_type(events, "interrupt.resolved")]
    got = {k: resolved[0].get(k) for k in said} if resolved else None
    walk.that("interrupt.resolved says how", got == said, resolved)
    failed = of_type(events, "node.failed", "gate")
    fault = (failed[0].get("payload") or {}).get("error") if failed else {}
    fits = fault and (fault.get("code"), fault.get("retryable")) == ("approval_rejected", False)
    walk.that("node.failed: approval_rejected, not to be retried", fits, failed)
    last = of_type(events, "run.failed")
    named = (last[0].get("payload") or {}) if last else {}
    walk.that("run.failed names the gate", named.get("failedNodeId") == "gate", named)
    walk.that("run.failed has the code", (named.get("error") or {}).get("code")
              == "approval_rejected", named)


@scenario("1.10", "approval rejected with a way on", "approval-reject-routed")
def routed(walk):
    host = walk.host
    run = host.begin("conformance-approval-reject-routed")
    host.until(run, "waiting-approval")
    reply = host.resolve(run, "gate", {"action": "reject"})
    walk.that("reject is 200", reply.status == 200, reply)
    ended = host.ended(run)
    walk.that("the run completes", ended["status"] == "completed", ended)
    events = log(walk, run)
    codes = [code_of(event) for event in of_type(events, "node.failed", "gate")]
    walk.that("the gate failed", codes == ["approval_rejected"], codes)
    walk.that("on-reject ran", bool(of_type(events, "node.completed", "on-reject")))
    ran = [e for e in events if e.get("nodeId") == "on-accept"
           and e["type"] in ("node.started", "node.completed")]
    walk.that("on-accept did not", not ran, ran)
    run = host.begin("conformance-approval-reject-routed")
    host.until(run, "waiting-approval")
    host.resolve(run, "gate", {"action": "accept"})
    walk.that("accepted, it completes", host.ended(run)["status"] == "completed")
    events = log(walk, run)
    walk.that("on-accept ran", bool(of_type(events, "node.completed", "on-accept")))
    walk.that("on-reject did not", not of_type(events, "node.started", "on-reject"))


@scenario("1.10", "approval too late", "approval-timeout")
def timed_out(walk):
    run = walk.host.begin("conformance-approval-timeout")
    walk.host.until(run, "waiting-approval")
    said = {"action": "timeout", "decision": "rejected", "reason": "timeout"}
    rejected(walk, run, said, timeout=15)


@scenario("1.10", "interrupt-clarification", "clarification")
def clarification(walk):
    host = walk.host
    run = host.begin("conformance-clarification")
    snapshot = host.until(run, "waiting-input")
    walk.that("it waits at ask", snapshot.get("currentNodeId") == "ask", snapshot)
    asked = of_type(log(walk, run), "clarification.requested")
    questions = (asked[0].get("payload") or {}).get("questions") if asked else None
    fits = isinstance(questions, list) and [q.get("id") for q in questions] == ["q1"]
    walk.that("clarification.requested has the question", fits, asked)
    reply = host.resolve(run, "ask", {"answers": {"q1": "blue"}})
    walk.that("the answer is 200", reply.status == 200, reply)
    walk.that("it completes", host.ended(run)["status"] == "completed")


@scenario("1.10", "interruptRace", "approval")
def race(walk):
    if "clarification.request" not in (walk.family("supportedEnvelopes") or []):
        raise Skipped("clarification.request is not among supportedEnvelopes")
    host = walk.host
    for n in range(5):
        run = host.begin("conformance-approval")
        snapshot = host.until(run, "waiting-approval")
        node = snapshot.get("currentNodeId", "gate")
        path = f"/v1/runs/{quoted(run)}"

        def act(which, path=path, node=node):
            if which == 0:
                return host.post(f"{path}/cancel", {"reason": "race"})
            return host.post(f"{path}/approvals/{quoted(node)}", {"action": "accept"})

        cancelled, resolved = at_once(2, act)
        walk.that(f"{n}: cancel is 200, 202 or 409", cancelled.status in (200, 202, 409), cancelled)
        fits = resolved.status in (200, 202, 400, 404, 409)
        walk.that(f"{n}: resolve is 200, 202, 400, 404 or 409", fits, resolved)
        won = [r.status in (200, 202) for r in (cancelled, resolved)]
        walk.that(f"{n}: one of them succeeds", any(won), (cancelled, resolved))
        ended = host.ended(run, 30)
        walk.that(f"{n}: it ends", ended["status"] in TERMINAL, ended)
        if won == [True, False]:
            walk.that(f"{n}: cancelled", ended["status"] == "cancelled", ended)
        ends = [e["type"] for e in log(walk, run) if e["type"] in RUN_ENDS]
        walk.that(f"{n}: once", len(ends) == 1, ends)
    run = host.begin("conformance-approval")
    host.until(run, "waiting-approval")
    reply = host.post(f"/v1/runs/{quoted(run)}/approvals/gate", {"action": "accept"})
    walk.that("the older path takes a bare action", reply.status == 200, reply)
    if not reply.is_good:
        host.cancel(run)
    run = host.begin("conformance-approval")
    host.until(run, "waiting-approval")
    host.cancel(run)
    host.until(run, "cancelled", 5)
    late = host.post(f"/v1/runs/{quoted(run)}/approvals/gate", {"action": "accept"})
    walk.that("after a cancel it is 400, 404 or 409", late.status in (400, 404, 409), late)


@scenario("1.10", "interrupt-external-event-correlation, interrupt-token-matrix",
          "interrupt-external-event")
def external_event(walk):
    host = walk.host
    good = {"orderId": "fixture-order-1", "status": "completed", "externalReference": "x-1"}

    def waiting():
        run = host.begin("conformance-interrupt-external-event")
        snapshot = host.until(run, "waiting-external")
        token = token_in(snapshot)
        walk.must("the snapshot has a token", bool(token), snapshot)
        return run, f"/v1/interrupts/{quoted(token)}"

    run, path = waiting()
    look = host.get(path, auth=False)
    walk.that("inspect is 200 without a key", look.status == 200, look)
    whole = look.fields.get("kind") == "external-event" and look.fields.get("key")
    walk.that("inspect says kind, key and data", whole and "data" in look.fields, look)
    wrong = host.post(path, {"resumeValue": {"orderId": "different-order", "status": "completed"}})
    walk.that("another order is 422 or 400", wrong.status in (422, 400), wrong)
    status = str(host.run(run).fields.get("status"))
    walk.that("and it still waits", status.startswith("waiting-"), status)
    right = host.post(path, {"resumeValue": good})
    walk.that("the right order is 2xx", right.is_good, right)
    walk.that("it completes", host.ended(run)["status"] == "completed")
    again = host.post(path, {"resumeValue": good})
    walk.that("a second time is 404, 409 or 410", again.status in (404, 409, 410), again)
    run, path = waiting()
    key = fresh("event")
    first = host.post(path, {"resumeValue": good}, key=key, auth=False)
    walk.that("with an idempotency key it is 2xx", first.is_good, first)
    host.ended(run)
    second = host.post(path, {"resumeValue": good}, key=key, auth=False)
    walk.that("the same key replays it", second.is_good and second.replay == "true", second)
    walk.that("word for word", second.json == first.json, second)
    bad = host.get("/v1/interrupts/" + quoted("!!!not-a-valid-token!!!"))
    walk.that("a malformed token is 400 or 404", bad.status in (400, 404), bad)
    noise = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    unknown = f"/v1/interrupts/tok_{noise}"
    reply = host.get(unknown)
    walk.that("an unknown token is 404", reply.status == 404, reply)
    reply = host.post(unknown, {"correlation": {"orderId": "noop", "status": "whatever"}})
    walk.that("to resolve it is 404, whatever the body", reply.status == 404, reply)


@scenario("1.10", "interrupt-quorum-resolution", "interrupt-quorum")
def quorum(walk):
    host = walk.host

    def waiting():
        run = host.begin("conformance-interrupt-quorum")
        host.until(run, "waiting-approval")
        return run

    run = waiting()
    for n in (1, 2):
        reply = host.resolve(run, "gate", {"action": "accept", "voter": f"approver-{n}"})
        walk.that(f"vote {n} is 2xx", reply.is_good, reply)
        status = host.run(run).fields.get("status")
        walk.that(f"after vote {n} it waits", status == "waiting-approval", status)
    reply = host.resolve(run, "gate", {"action": "accept", "voter": "approver-3"})
    walk.that("vote 3 is 2xx", reply.is_good, reply)
    walk.that("after vote 3 it completes", host.ended(run)["status"] == "completed")
    run = waiting()
    first = host.resolve(run, "gate", {"action": "reject", "voter": "approver-1"})
    walk.that("a rejection is 2xx", first.is_good, first)
    status = host.run(run).fields.get("status")
    walk.that("one rejection does not decide", status == "waiting-approval", status)
    early = of_type(log(walk, run), "interrupt.resolved")
    walk.that("and resolves nothing", not early, early)
    second = host.resolve(run, "gate", {"action": "reject", "voter": "approver-2"})
    walk.that("a second one is 2xx", second.is_good, second)
    ended = host.ended(run)
    walk.that("two rejections fail the run", ended["status"] == "failed", ended)
    code = (ended.get("error") or {}).get("code")
    walk.that("with approval_rejected", code == "approval_rejected", ended.get("error"))


@scenario("1.10", "interrupt-auth-required-resume", "interrupt-auth-required")
def auth_required(walk):
    host = walk.host
    run = host.begin("conformance-interrupt-auth-required")
    snapshot = host.until(run, "waiting-approval")
    token = token_in(snapshot)
    if token:
        reply = host.post(f"/v1/interrupts/{quoted(token)}",
                          {"resumeValue": {"action": "accept"}}, auth=False)
        walk.that("a token is not enough", reply.status in (401, 403), reply)
        status = host.run(run).fields.get("status")
        walk.that("and it still waits", status == "waiting-approval", status)
    else:
        walk.skip("a token is not enough", "the host gives none")
    low = os.environ.get("OPENWOP_TEST_LOW_SCOPE_KEY")
    if low:
        reply = host.resolve(run, "gate", {"action": "accept"}, auth=low)
        walk.that("a key without the scope is 403", reply.status == 403, reply)
    else:
        walk.skip("a key without the scope is 403", "OPENWOP_TEST_LOW_SCOPE_KEY is not set")
    bare = host.resolve(run, "gate", {"action": "accept"}, auth=False)
    walk.that("no key is 401", bare.status == 401, bare)
    if walk.other:
        theirs = walk.other.resolve(run, "gate", {"action": "accept"})
        walk.that("another tenant's key is 403 or 404", theirs.status in (403, 404), theirs)
    reply = host.resolve(run, "gate", {"action": "accept"})
    walk.that("our key is 2xx", reply.is_good, reply)
    walk.that("it completes", host.ended(run)["status"] == "completed")


@scenario("1.10", "interrupt-parent-child-cascade", "interrupt-parent-child-cancel",
          "interrupt-parent-child-cancel-child")
def cascade(walk):
    host = walk.host
    run = host.begin("conformance-interrupt-parent-child-cancel")
    snapshot = host.until(run, "waiting-approval", 15)
    children = snapshot.get("childRuns") or [{}]
    child = children[0].get("runId")
    walk.must("the parent waits as its child does, and names it", isinstance(child, str), snapshot)
    host.until(child, "waiting-approval", 15)
    reply = host.cancel(run, "conformance-test-cascade")
    walk.that("the cancel is 2xx", reply.is_good, reply)
    walk.that("the parent is cancelled", host.ended(run)["status"] == "cancelled")
    walk.that("the child is cancelled", host.ended(child)["status"] == "cancelled")
    told = of_type(log(walk, child), "run.cancelled")
    said = (told[0].get("payload") or {}) if told else {}
    walk.that("the child says why", said.get("reason") == "parent-cancelled", said)
    walk.that("and by whom", said.get("parentRunId") == run, said)
    told = of_type(log(walk, run), "run.cancelled")
    said = (told[0].get("payload") or {}) if told else {}
    walk.that("the parent names no parent", "parentRunId" not in said, said)
    late = host.resolve(child, "child-gate", {"action": "accept"})
    walk.that("too late for the child: 410, 409 or 404", late.status in (410, 409, 404), late)
    run = host.begin("conformance-interrupt-parent-child-cancel")
    snapshot = host.until(run, "waiting-approval", 15)
    child = snapshot["childRuns"][0]["runId"]
    reply = host.resolve(child, "child-gate", {"action": "accept"})
    walk.that("the child can be answered", reply.is_good, reply)
    walk.that("then the parent completes", host.ended(run)["status"] == "completed")


@scenario("1.10", "approval-payload")
def approval_payload(walk):
    reply = walk.host.get("/.well-known/openwop", auth=False)
    walk.that('discovery says nowhere "edit"', '"edit"' not in json.dumps(reply.json))
