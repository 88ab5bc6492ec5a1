"""Runs from their beginning to their end, and what ends them."""

from suite import RUN_ENDS, Skipped, log, of_type, scenario
from wire import TERMINAL, fresh, quoted


@scenario("1.8", "runs-lifecycle", "noop")
def lifecycle(walk):
    reply = walk.host.create("conformance-noop")
    walk.must("a run is 201", reply.status == 201, reply)
    walk.must("with runId", isinstance(reply.fields.get("runId"), str), reply)
    walk.that("and status", isinstance(reply.fields.get("status"), str), reply)
    run = reply.fields["runId"]
    ended = walk.host.ended(run)
    walk.that("it completes", ended["status"] == "completed", ended)
    walk.that("its snapshot says runId", ended.get("runId") == run, ended)
    walk.that("and workflowId", ended.get("workflowId") == "conformance-noop", ended)
    unknown = walk.host.run("openwop-conformance-this-run-id-does-not-exist")
    walk.that("an unknown run is 403 or 404", unknown.status in (403, 404), unknown)


@scenario("1.8", "failure-path, node-failed-payload-shape", "failure")
def failure(walk):
    run = walk.host.begin("conformance-failure")
    ended = walk.host.ended(run)
    walk.that("it fails", ended["status"] == "failed", ended)
    fault = ended.get("error") or {}
    texts = isinstance(fault.get("code"), str) and isinstance(fault.get("message"), str)
    walk.that("the snapshot says why", texts, fault)
    walk.that("with nothing but code, message, details", set(fault) <= {"code", "message",
                                                                     "details"}, fault)
    reply = walk.host.get(f"/v1/runs/{quoted(run)}/events")
    walk.that("events as JSON are 200", reply.status == 200, reply)
    events = reply.fields.get("events") or []
    failures = of_type(events, "node.failed")
    walk.that("the log has node.failed", bool(failures), events)
    for event in failures:
        payload = event.get("payload") or {}
        inner = payload.get("error") if isinstance(payload, dict) else None
        walk.that("node.failed names its node", payload.get("nodeId") == event.get("nodeId"),
                  payload)
        texts = isinstance(inner, dict) and all(
            isinstance(inner.get(k), str) and inner.get(k) for k in ("code", "message")
        )
        walk.that("node.failed has an error object", texts, payload)
        attempts = payload.get("attempts", 1)
        walk.that("attempts count from 1", isinstance(attempts, int) and attempts >= 1, payload)


@scenario("1.8", "identity-passthrough", "identity")
def identity(walk):
    payload = {
        "stringField": "hello",
        "intField": 42,
        "boolField": True,
        "arrayField": [1, "two", {"three": 3}],
        "nested": {"deeper": {"stillDeeper": {"value": "leaf"}}},
    }
    run = walk.host.begin("conformance-identity", {"payload": payload})
    ended = walk.host.ended(run)
    walk.that("it completes", ended["status"] == "completed", ended)
    got = (ended.get("variables") or {}).get("payload")
    walk.that("the payload is what went in", got == payload, got)


@scenario("1.8", "multi-node-ordering", "multi-node")
def multi_node(walk):
    run = walk.host.begin("conformance-multi-node")
    ended = walk.host.ended(run)
    walk.that("it completes", ended["status"] == "completed", ended)
    done = sorted(of_type(log(walk, run), "node.completed"), key=lambda e: e["sequence"])
    order = [event.get("nodeId") for event in done]
    walk.that("a, b, c in that order", order == ["a", "b", "c"], order)


@scenario("1.8", "eventOrdering, version-negotiation", "noop")
def event_ordering(walk):
    run = walk.host.begin("conformance-noop")
    walk.host.ended(run)
    events = log(walk, run, "")
    sequences = [event.get("sequence") for event in events]
    walk.that("two events at least", len(events) >= 2, sequences)
    rising = all(isinstance(s, int) for s in sequences) and all(
        a < b for a, b in zip(sequences, sequences[1:])
    )
    walk.that("sequences rise", rising, sequences)
    walk.that("the first is 0", sequences[:1] == [0], sequences)
    walk.that("asked again, the same", log(walk, run, "") == events)
    ends = [event["type"] for event in events if event["type"] in RUN_ENDS]
    walk.that("one end", len(ends) == 1, ends)
    walk.that("and it is last", events[-1]["type"] in RUN_ENDS, events[-1])
    rest = log(walk, run)
    walk.that("lastSequence=0 means after 0", [e["sequence"] for e in rest] == sequences[1:], rest)
    allowed = {"eventId", "runId", "nodeId", "type", "payload", "timestamp", "sequence",
               "schemaVersion", "engineVersion", "causationId"}
    for event in events:
        whole = all(isinstance(event.get(f), str) for f in ("eventId", "runId", "type",
                                                          "timestamp"))
        walk.that(f"{event.get('type')} is whole", whole and "payload" in event, event)
        walk.that(f"{event.get('type')} has no other field", set(event) <= allowed, event)
    reply = walk.host.get(f"/v1/runs/{quoted(run)}/events/poll?lastSequence=99999&timeout=1")
    walk.that("beyond the end is 200 and empty", reply.status == 200
              and reply.fields.get("events") == [], reply)
    walk.that("and complete", reply.fields.get("isComplete") is True, reply)


@scenario("1.8", "cap-breach", "cap-breach")
def cap_breach(walk):
    reply = walk.host.create("conformance-cap-breach", configurable={"recursionLimit": 3})
    walk.must("a run with a limit is 201", reply.status == 201, reply)
    run = reply.fields["runId"]
    ended = walk.host.ended(run)
    walk.that("it fails", ended["status"] == "failed", ended)
    fault = ended.get("error") or {}
    walk.that("recursion_limit_exceeded", fault.get("code") == "recursion_limit_exceeded", fault)
    walk.that("and a message", isinstance(fault.get("message"), str), fault)
    events = log(walk, run)
    breaches = of_type(events, "cap.breached")
    walk.must("one cap.breached", len(breaches) == 1, [e["type"] for e in events])
    said = breaches[0]["payload"]
    walk.that("of node-executions", said.get("kind") == "node-executions", said)
    walk.that("limit 3", said.get("limit") == 3, said)
    walk.that("observed more", isinstance(said.get("observed"), int) and said["observed"] > 3, said)
    walk.that("at a node", isinstance(said.get("nodeId"), str), said)
    failed = of_type(events, "run.failed")
    before = failed and breaches[0]["sequence"] < failed[0]["sequence"]
    walk.that("before run.failed", before, [e["type"] for e in events])
    begun = len(of_type(events, "node.started"))
    walk.that("three nodes began at most", 0 < begun <= 3, begun)
    run = walk.host.begin("conformance-cap-breach")
    walk.that("without a limit it completes", walk.host.ended(run)["status"] == "completed")


@scenario("1.8", "run-duration breach", "run-duration-breach")
def duration_breach(walk):
    run = walk.host.begin("conformance-run-duration-breach", configurable={"runTimeoutMs": 1000})
    ended = walk.host.ended(run)
    walk.that("it fails", ended["status"] == "failed", ended)
    walk.that("run_timeout", (ended.get("error") or {}).get("code") == "run_timeout", ended)
    breaches = of_type(log(walk, run), "cap.breached")
    walk.must("cap.breached", bool(breaches))
    said = breaches[0]["payload"]
    walk.that("of run-duration", said.get("kind") == "run-duration", said)
    counts = isinstance(said.get("observed"), int) and isinstance(said.get("limit"), int)
    walk.that("observed is more than the limit", counts and said["observed"] > said["limit"], said)


@scenario("1.8", "runtime-capabilities", "capability-missing")
def capability_missing(walk):
    run = walk.host.begin("conformance-capability-missing")
    ended = walk.host.ended(run)
    walk.that("it fails", ended["status"] == "failed", ended)
    fault = ended.get("error") or {}
    walk.that("capability_not_provided", fault.get("code") == "capability_not_provided", fault)
    named = "conformance.never-provided" in str(fault.get("message"))
    walk.that("and names the capability", named, fault)


@scenario("1.8", "cancellation", "cancellable", "noop")
def cancellation(walk):
    run = walk.host.begin("conformance-cancellable", {"delayMs": 10_000})
    walk.host.until(run, "running", 5)
    reply = walk.host.cancel(run, "conformance")
    walk.that("a cancel is 200", reply.status == 200, reply)
    walk.that("cancelled or cancelling", reply.fields.get("status") in ("cancelled", "cancelling"),
              reply)
    ended = walk.host.until(run, "cancelled", 5)
    walk.that("cancelled within 5 s", ended["status"] == "cancelled")
    told = of_type(log(walk, run), "run.cancelled")
    walk.that("run.cancelled is in the log", len(told) == 1, told)
    direct = told and "parentRunId" not in (told[0].get("payload") or {})
    walk.that("and names no parent", direct, told)
    unknown = walk.host.cancel("openwop-conformance-no-such-run")
    walk.that("an unknown run is 403 or 404", unknown.status in (403, 404), unknown)
    done = walk.host.begin("conformance-noop")
    walk.host.ended(done)
    late = walk.host.post(f"/v1/runs/{quoted(done)}/cancel", {})
    walk.that("a completed run is 200", late.status == 200, late)


@scenario("1.8", "bulk-cancel", "cancellable", "noop")
def bulk_cancel(walk):
    # The public scenario sends an input that the workflow does not declare.
    run = walk.host.begin("conformance-cancellable", {"delaySeconds": 30})
    unknown = "run-does-not-exist-xxxxxxxx"
    reply = walk.host.post("/v1/runs:bulk-cancel", {"runIds": [run, unknown], "reason": "test"})
    walk.must("200", reply.status == 200, reply)
    results = reply.fields.get("results") or []
    walk.must("two results", len(results) == 2, reply)
    walk.that("in order", [r.get("runId") for r in results] == [run, unknown], results)
    good = results[0].get("ok") is True and results[0].get("status") in ("cancelled", "cancelling")
    walk.that("the first is cancelled", good, results)
    walk.that("the second is not", results[1].get("ok") is False, results)
    code = (results[1].get("error") or {}).get("code")
    walk.that("not_found", code == "not_found", results)
    empty = walk.host.post("/v1/runs:bulk-cancel", {"runIds": []})
    walk.that("none is 400 validation_error", empty.status == 400
              and empty.error == "validation_error", empty)
    many = walk.host.post("/v1/runs:bulk-cancel",
                          {"runIds": [f"run-overflow-{n}" for n in range(101)]})
    walk.that("101 is 400 validation_error", many.status == 400
              and many.error == "validation_error", many)
    most = many.details.get("maxRunIds")
    walk.that("and says the most", isinstance(most, int) and most >= 1, many)
    again = walk.host.post("/v1/runs:bulk-cancel", {"runIds": [run]})
    ok = (again.fields.get("results") or [{}])[0].get("ok")
    walk.that("cancelled twice is fine", again.status == 200 and ok is True, again)


@scenario("1.8", "pause-resume", "cancellable", "noop", "approval")
def pause_resume(walk):
    host = walk.host

    def running(delay_ms):
        run = host.begin("conformance-cancellable", {"delayMs": delay_ms})
        host.until(run, "running")
        return run, f"/v1/runs/{quoted(run)}"

    run, path = running(3_000)
    reply = host.post(f"{path}:pause", {"reason": "test", "drainPolicy": "immediate"})
    if reply.status == 404 and walk.family("runs", "pauseResume", "supported") is not True:
        host.cancel(run)
        raise Skipped("pause is not served and not advertised")
    walk.must("pause is 202", reply.status == 202, reply)
    host.until(run, "paused")
    reply = host.post(f"{path}:resume", {"reason": "test"})
    walk.must("resume is 202", reply.status == 202, reply)
    ended = host.ended(run, 60)
    walk.that("it ends well", ended["status"] in ("completed", "cancelled"), ended)
    run, path = running(30_000)
    reply = host.post(f"{path}:resume", {})
    walk.that("resume of a running run is 409", reply.status == 409, reply)
    walk.that("with its status", isinstance(reply.details.get("runStatus"), str), reply)
    reply = host.post(f"{path}:pause", {"drainPolicy": "immediate"})
    walk.that("pause without a key is 202", reply.status == 202, reply)
    host.until(run, "paused")
    reply = host.post(f"{path}:pause", {})
    walk.that("a second pause is 409", reply.status == 409, reply)
    walk.that("with paused", reply.details.get("runStatus") == "paused", reply)
    walk.that("and since when", "pausedAt" in reply.details, reply)
    host.cancel(run)
    host.until(run, "cancelled", 5)
    run, path = running(30_000)
    key = fresh("pause")
    body = {"drainPolicy": "immediate"}
    first = host.post(f"{path}:pause", body, key=key)
    walk.that("pause with a key is 202", first.status == 202, first)
    host.until(run, "paused")
    second = host.post(f"{path}:pause", body, key=key)
    walk.that("the same key is 202 again", second.status == 202, second)
    walk.that("with the same answer", second.json == first.json, second)
    host.cancel(run)
    done = host.begin("conformance-noop")
    host.ended(done)
    reply = host.post(f"/v1/runs/{quoted(done)}:pause", {})
    walk.that("pause of an ended run is 409", reply.status == 409, reply)
    walk.that("with its end", reply.details.get("runStatus") in TERMINAL, reply)
    run, path = running(1_500)
    reply = host.post(f"{path}:pause", {"drainPolicy": "drain-current-node"})
    walk.that("a draining pause is 202", reply.status == 202, reply)
    host.until(run, "paused", 20)
    events = log(walk, run, "")
    types = [event["type"] for event in events]
    drained = "node.completed" in types and types.index("node.completed") < types.index(
        "run.paused")
    walk.that("the node ends before run.paused", drained, types)
    said = of_type(events, "run.paused")[0].get("payload") or {}
    walk.that("run.paused says how", said.get("drainPolicy") == "drain-current-node", said)
    host.cancel(run)
    run = host.begin("conformance-approval")
    host.until(run, "waiting-approval")
    reply = host.post(f"/v1/runs/{quoted(run)}:pause", {"reason": "race"})
    if reply.status == 409:
        status = str(reply.details.get("runStatus"))
        walk.that("pause of a waiting run says what it waits for", status.startswith("waiting-"),
                  reply)
    else:
        status = str(host.run(run).fields.get("status"))
        walk.that("pause of a waiting run forgets nothing", status == "paused"
                  or status.startswith("waiting-"), status)
    host.cancel(run)
    for policy in walk.family("runs", "pauseResume", "drainPolicies") or []:
        run, path = running(30_000)
        reply = host.post(f"{path}:pause", {"drainPolicy": policy})
        walk.that(f"the policy {policy} is taken", reply.status == 202, reply)
        host.cancel(run)
