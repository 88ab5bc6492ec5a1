"""Runs that are made of others: replays and branches."""

from suite import Skipped, code_of, log, of_type, scenario
from wire import quoted


def alike(events):
    return [(e.get("type"), e.get("nodeId"), e.get("payload")) for e in events]


@scenario("1.9", "replay-fork, replayDeterminism", "noop")
def replay_fork(walk):
    modes = walk.modes()
    if not modes:
        raise Skipped("replay is not advertised")
    host = walk.host
    texts = all(isinstance(mode, str) for mode in modes)
    walk.that("modes are texts", texts, modes)
    source = host.begin("conformance-noop")
    host.ended(source)
    path = f"/v1/runs/{quoted(source)}:fork"
    forks = []
    for mode in modes:
        body = {"fromSeq": 0, "mode": mode}
        if mode == "branch":
            body["runOptionsOverlay"] = {}
        reply = host.post(path, body)
        walk.must(f"{mode}: 201", reply.status == 201, reply)
        found = reply.fields
        fork = found.get("runId")
        walk.that(f"{mode}: a new run", isinstance(fork, str) and fork != source, found)
        walk.that(f"{mode}: names its source", found.get("sourceRunId") == source, found)
        walk.that(f"{mode}: says mode and place", (found.get("mode"), found.get("fromSeq"))
                  == (mode, 0), found)
        walk.that(f"{mode}: eventsUrl and status", all(isinstance(found.get(f), str) for f in (
            "eventsUrl", "status")), found)
        walk.that(f"{mode}: completes", host.ended(fork, 15)["status"] == "completed")
        if mode == "replay":
            forks.append(fork)
    if "replay" in modes:
        bare = host.post(path, {"mode": "replay"})
        walk.must("replay without fromSeq: 201", bare.status == 201, bare)
        walk.that("replay without fromSeq: from 0", bare.fields.get("fromSeq") == 0, bare)
        forks.append(bare.fields["runId"])
        host.ended(forks[1], 15)
        logs = [alike(log(walk, fork, "")) for fork in forks]
        walk.that("two replays: as many events", len(logs[0]) == len(logs[1]), logs)
        walk.that("two replays: the same events", logs[0] == logs[1], logs)
        reply = host.post(path, {"fromSeq": 0, "mode": "replay",
                                 "runOptionsOverlay": {"configurable": {"recursionLimit": 50}}})
        walk.that("replay with other options is 400", reply.status == 400, reply)
    mode = "branch" if "branch" in modes else "replay"
    if mode == "branch":
        reply = host.post(path, {"mode": "branch"})
        walk.that("branch without fromSeq is 400", reply.status == 400, reply)
    reply = host.post(path, {"fromSeq": -1, "mode": mode})
    walk.that("fromSeq -1 is 400", reply.status == 400, reply)
    reply = host.post(path, {"fromSeq": 99999, "mode": mode})
    walk.that("fromSeq beyond the log is 422", reply.status == 422, reply)
    reply = host.post("/v1/runs/openwop-conformance-no-such-run-id:fork",
                      {"fromSeq": 0, "mode": mode})
    walk.that("an unknown run is 403 or 404", reply.status in (403, 404), reply)


@scenario("1.9", "replay-fork-arbitrary", "multi-node")
def replay_fork_arbitrary(walk):
    modes = walk.modes()
    if not modes:
        raise Skipped("replay is not advertised")
    host = walk.host
    source = host.begin("conformance-multi-node")
    host.ended(source, 15)
    done = of_type(log(walk, source), "node.completed", "b")
    walk.must("b completed", bool(done))
    place = done[0]["sequence"] + 1
    tails = []
    for mode in [m for m in ("replay", "replay", "branch") if m in modes]:
        body = {"fromSeq": place, "mode": mode}
        if mode == "branch":
            body["runOptionsOverlay"] = {}
        reply = host.post(f"/v1/runs/{quoted(source)}:fork", body)
        walk.must(f"{mode} from the middle: 201", reply.status == 201, reply)
        fork = reply.fields["runId"]
        ended = host.ended(fork, 15)
        walk.that(f"{mode} from the middle: completes", ended["status"] == "completed", ended)
        if mode == "replay":
            events = log(walk, fork, "")
            tails.append(alike(e for e in events if e["sequence"] >= place))
    if len(tails) == 2:
        walk.that("two tails are alike", tails[0] == tails[1] and tails[0], tails)


@scenario("1.9", "replay-side-effect-suppression", "replay-side-effect")
def replay_side_effect(walk):
    promise = walk.family("replay", "sideEffectSuppression")
    if promise is not None:
        walk.that("the promise is a known word", promise in ("recorded-outcome", "none"), promise)
    if promise != "recorded-outcome" or "replay" not in walk.modes():
        raise Skipped("recorded-outcome is not advertised")
    host = walk.host
    source = host.begin("conformance-replay-side-effect", {"delayMs": 5_000})
    reply = host.post(f"/v1/runs/{quoted(source)}/cancel", {})
    walk.must("the source is cancelled", reply.status in (200, 202, 204), reply)
    host.ended(source, 15)
    done = of_type(log(walk, source), "node.completed", "effect")
    walk.must("the source never came to the effect", not done, done)
    reply = host.post(f"/v1/runs/{quoted(source)}:fork", {"mode": "replay"})
    walk.must("a replay of it is 201", reply.status == 201, reply)
    fork = reply.fields["runId"]
    host.ended(fork, 45)
    events = log(walk, fork)
    walk.that("the effect is not completed", not of_type(events, "node.completed", "effect"))
    codes = [code_of(event) for event in of_type(events, "node.failed", "effect")]
    walk.that("it fails with replay_source_missing", "replay_source_missing" in codes, codes)
