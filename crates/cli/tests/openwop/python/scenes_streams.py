"""Events as they are followed, and runs that are part of others."""

from suite import RUN_ENDS, log, of_type, scenario
from wire import quoted


@scenario("1.8", "stream-modes", "delay")
def stream_modes(walk):
    def watch(query, delay_ms=500):
        run = walk.host.begin("conformance-delay", {"delayMs": delay_ms})
        return walk.host.stream(f"/v1/runs/{quoted(run)}/events{query}")

    updates = watch("?streamMode=updates")
    walk.that("updates: 200", updates.status == 200, updates.status)
    walk.that("updates: closed by the host", updates.closed_by == "server", updates.closed_by)
    for kind in ("run.started", "run.completed"):
        walk.that(f"updates: has {kind}", kind in updates.types, updates.types)
    walk.that("updates: no node.started", "node.started" not in updates.types, updates.types)
    plain = watch("")
    walk.that("without a mode: updates", plain.types == updates.types, plain.types)
    values = watch("?streamMode=values")
    walk.that("values: closed by the host", values.closed_by == "server", values.closed_by)
    walk.that("values: something comes", bool(values.frames))
    walk.that("values: snapshots", set(values.types) == {"state.snapshot"}, values.types)
    debug = watch("?streamMode=debug")
    walk.that("debug: closed by the host", debug.closed_by == "server", debug.closed_by)
    walk.that("debug: more than updates", len(debug.frames) >= len(updates.frames))
    walk.that("debug: all of updates", set(updates.types) <= set(debug.types), debug.types)
    mixed = watch("?streamMode=updates,messages")
    walk.that("two modes: 200", mixed.status == 200, mixed.status)
    walk.that("two modes: closed by the host", mixed.closed_by == "server", mixed.closed_by)
    walk.that("two modes: has run.completed", "run.completed" in mixed.types, mixed.types)
    union = watch("?streamMode=updates,debug")
    walk.that("updates,debug: all of updates", set(updates.types) <= set(union.types), union.types)
    run = walk.host.begin("conformance-delay", {"delayMs": 100})
    for mode in ("does-not-exist", "values,updates", "updates,bogus"):
        reply = walk.host.get(f"/v1/runs/{quoted(run)}/events?streamMode={mode}")
        walk.that(f"{mode}: 400", reply.status == 400, reply)
        walk.that(f"{mode}: unsupported_stream_mode", reply.error == "unsupported_stream_mode",
                  reply)
        walk.that(f"{mode}: says what there is", isinstance(reply.details.get("supported"), list),
                  reply)


@scenario("1.8", "stream-modes-buffer", "delay")
def stream_buffer(walk):
    def watch(query):
        run = walk.host.begin("conformance-delay")
        return walk.host.stream(f"/v1/runs/{quoted(run)}/events?streamMode=updates{query}")

    buffered = watch("&bufferMs=200")
    walk.that("bufferMs=200: 200", buffered.status == 200, buffered.status)
    batches = [frame for frame in buffered.frames if frame.event == "batch"]
    walk.that("bufferMs=200: batches", bool(batches), buffered.types)
    for frame in batches:
        whole = isinstance(frame.json, list) and frame.json and all(
            isinstance(e.get("sequence"), int) and isinstance(e.get("type"), str)
            for e in frame.json
        )
        walk.that("a batch is a list of events", whole, frame.data)
        highest = whole and str(max(e["sequence"] for e in frame.json))
        walk.that("its id is the last sequence", frame.id == highest, frame.id)
    run = walk.host.begin("conformance-delay", {"delayMs": 100})
    path = f"/v1/runs/{quoted(run)}/events"
    for query in ("?bufferMs=99999", "?bufferMs=5001"):
        reply = walk.host.get(path + query)
        walk.that(f"{query}: 400", reply.status == 400, reply)
        walk.that(f"{query}: validation_error", reply.error == "validation_error", reply)
    slow = watch("&bufferMs=4000")
    kinds = {event.get("type") for event in slow.events}
    walk.that("bufferMs=4000: the end is delivered", bool(kinds & RUN_ENDS), kinds)
    walk.that("bufferMs=4000: and at once", slow.seconds < 3.5, f"{slow.seconds:.2f} s")
    plain = watch("&bufferMs=0")
    walk.that("bufferMs=0: no batch", "batch" not in plain.types, plain.types)
    fits = [e.get("type") for e in buffered.events] == [e.get("type") for e in plain.events]
    walk.that("buffered or not, the same events", fits, (buffered.types, plain.types))


@scenario("1.8", "streamReconnect", "cancellable", "noop")
def stream_reconnect(walk):
    run = walk.host.begin("conformance-cancellable", {"delayMs": 2_000})
    path = f"/v1/runs/{quoted(run)}/events"
    walk.host.until(run, "running")
    first = walk.host.stream(path, timeout=1)
    walk.that("a stream is 200", first.status == 200, first.status)
    ids = [int(frame.id) for frame in first.frames if frame.id and frame.id.isdigit()]
    walk.must("its frames have sequences for ids", ids and len(ids) == len(first.frames), ids)
    again = walk.host.stream(path, last=max(ids), timeout=10)
    walk.that("going on is 200", again.status == 200, again.status)
    later = [int(frame.id) for frame in again.frames if frame.id]
    walk.that("only later events", all(n > max(ids) for n in later), (ids, later))
    walk.that("to the end", "run.completed" in again.types, again.types)
    run = walk.host.begin("conformance-noop")
    path = f"/v1/runs/{quoted(run)}/events"
    whole = walk.host.stream(path, timeout=5)
    last = [frame.id for frame in whole.frames if frame.event in RUN_ENDS]
    walk.must("the end has an id", last and last[0].isdigit(), whole.types)
    after = walk.host.stream(path, last=last[0], timeout=5)
    walk.that("after the end it is 200", after.status == 200, after.status)
    walk.that("and closed", after.closed_by == "server", after.closed_by)
    newer = [frame.id for frame in after.frames if frame.id and int(frame.id) > int(last[0])]
    walk.that("with nothing newer", not newer, newer)


@scenario("1.8", "append-ordering", "multi-node")
def append_ordering(walk):
    run = walk.host.begin("conformance-multi-node")
    walk.host.ended(run)
    reply = walk.host.get(f"/v1/runs/{quoted(run)}/events")
    walk.must("events as JSON", isinstance(reply.fields.get("events"), list), reply)
    written = {}
    for event in of_type(reply.fields["events"], "channel.written"):
        written.setdefault(event["payload"].get("channel"), []).append(event["sequence"])
    if not written:
        walk.skip("channels keep their order", "the fixture writes none")
    channels = walk.host.run(run).fields.get("channels") or {}
    for name, sequences in written.items():
        walk.that(f"{name}: in order", sequences == sorted(set(sequences)), sequences)
        if isinstance(channels.get(name), list):
            walk.that(f"{name}: complete", len(channels[name]) == len(sequences), channels)


@scenario("1.8", "subworkflow", "subworkflow-parent", "subworkflow-child")
def subworkflow(walk):
    run = walk.host.begin("conformance-subworkflow-parent")
    ended = walk.host.ended(run)
    walk.must("the parent completes", ended["status"] == "completed", ended)
    got = (ended.get("variables") or {}).get("childOutcome")
    walk.that("childOutcome is child-completed", got == "child-completed", ended.get("variables"))
    done = of_type(log(walk, run), "node.completed", "subwf-call")
    walk.must("node.completed of subwf-call", len(done) == 1, done)
    outputs = (done[0].get("payload") or {}).get("outputs") or {}
    child = outputs.get("childRunId")
    walk.must("outputs.childRunId", isinstance(child, str), outputs)
    walk.that("outputs.childStatus", outputs.get("childStatus") == "completed", outputs)
    reply = walk.host.run(child)
    walk.must("the child can be read", reply.status == 200, reply)
    walk.that("the child completed", reply.fields.get("status") == "completed", reply)
    walk.that("parentRunId", reply.fields.get("parentRunId") == run, reply)
    walk.that("parentNodeId", reply.fields.get("parentNodeId") == "subwf-call", reply)
    listed = [c.get("runId") for c in ended.get("childRuns") or []]
    walk.that("the parent lists the child", listed == [child], listed)
