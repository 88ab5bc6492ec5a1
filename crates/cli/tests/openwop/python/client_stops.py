"""Runs that are stopped, and runs that are made of others."""

from openwop_client.types import (
    BulkCancelRunsRequest,
    CancelRunRequest,
    CreateRunRequest,
    ForkRunRequest,
    PauseRunRequest,
    ResumeRunRequest,
)

from checks import Section, check, refusal
from wire import fresh, quoted


class Stops(Section):
    def running(self, delay_ms):
        run = self.client.runs_create(
            CreateRunRequest(workflowId="conformance-cancellable", inputs={"delayMs": delay_ms})
        ).runId
        self.host.until(run, "running")
        return run

    def cancel(self):
        run = self.running(30_000)
        key = fresh("cancel")
        answer = self.client.runs_cancel(run, CancelRunRequest("enough"), idempotency_key=key)
        check("cancel: is taken", answer.status in ("cancelled", "cancelling"), answer)
        ended = self.host.until(run, "cancelled", 5)
        check("cancel: within five seconds", ended["status"] == "cancelled")
        again = self.host.cancel(run, "enough", key=key)
        check(
            "cancel: the same key hears the same",
            again.status == 200
            and again.replay == "true"
            and again.fields.get("status") == answer.status,
            f"{again} {again.replay}",
        )
        changed = self.host.cancel(run, "another reason", key=key)
        check("cancel: another body is 409", changed.error == "idempotency_key_mismatch", changed)
        bare = self.host.cancel(run)
        check("cancel: of a cancelled run is 200", bare.status == 200, bare)
        types = [event["type"] for event in self.host.events(run)]
        check("cancel: is in the log once, and last", types.count("run.cancelled") == 1, types)
        check("cancel: nothing follows", types[-1] == "run.cancelled", types)
        second = self.running(30_000)
        crossed = self.host.cancel(second, "enough", key=key)
        own = crossed.status == 200 and crossed.fields.get("runId") == second
        check(
            "cancel: one key on two runs never answers for the other",
            own or crossed.error == "idempotency_key_mismatch",
            crossed,
        )
        self.host.cancel(second)
        done = self.host.begin("conformance-noop")
        self.host.ended(done)
        late = self.host.cancel(done)
        check("cancel: of a completed run is 200", late.status == 200, late)
        check("cancel: and changes nothing", self.host.run(done).fields["status"] == "completed")
        unknown = self.host.cancel("run-that-never-was")
        check("cancel: of no run", unknown.status in (403, 404) and unknown.is_envelope, unknown)

    def pause(self):
        run = self.running(2_000)
        key = fresh("pause")
        asked = PauseRunRequest(reason="a break", drainPolicy="immediate")
        answer = self.client.runs_pause(run, asked, idempotency_key=key)
        check("pause: is taken", answer.runId == run, answer)
        self.host.until(run, "paused")
        path = f"/v1/runs/{quoted(run)}"
        second = self.host.post(f"{path}:pause", {})
        check(
            "pause: twice is 409",
            second.status == 409 and second.details.get("runStatus") == "paused",
            second,
        )
        body = {"reason": "a break", "drainPolicy": "immediate"}
        again = self.host.post(f"{path}:pause", body, key=key)
        check(
            "pause: the same key hears the same",
            again.status == 202 and again.replay == "true",
            f"{again} {again.replay}",
        )
        key = fresh("resume")
        answer = self.client.runs_resume(run, ResumeRunRequest("go on"), idempotency_key=key)
        check("resume: is taken", answer.runId == run, answer)
        again = self.host.post(f"{path}:resume", {"reason": "go on"}, key=key)
        check(
            "resume: the same key hears the same",
            again.status == 202 and again.replay == "true",
            f"{again} {again.replay}",
        )
        other = self.host.post(f"{path}:resume", {})
        check(
            "resume: of a run that is not paused is 409",
            other.status == 409 and isinstance(other.details.get("runStatus"), str),
            other,
        )
        check("resume: the run completes", self.host.ended(run, 15)["status"] == "completed")
        types = [event["type"] for event in self.host.events(run)]
        pauses = [kind for kind in types if kind in ("run.paused", "run.resumed")]
        check("pause: once in the log, then resume", pauses == ["run.paused", "run.resumed"], types)
        late = self.host.post(f"{path}:pause", {})
        check(
            "pause: of an ended run is 409",
            late.status == 409 and late.details.get("runStatus") == "completed",
            late,
        )

    def bulk_cancel(self):
        runs = [self.running(30_000), self.running(30_000)]
        wanted = [runs[0], "run-that-never-was", runs[1]]
        key = fresh("bulk")
        answer = self.client.runs_bulk_cancel(
            BulkCancelRunsRequest(wanted, "all of them"), idempotency_key=key
        )
        names = [result.runId for result in answer.results]
        check("bulk cancel: one result each, in order", names == wanted, answer)
        good = [result.ok for result in answer.results]
        check("bulk cancel: one fault stops nobody", good == [True, False, True], answer)
        code = (answer.results[1].error or {}).get("code")
        check("bulk cancel: an unknown run is not_found", code == "not_found", answer)
        for run in runs:
            self.host.until(run, "cancelled", 5)
        again = self.host.post(
            "/v1/runs:bulk-cancel", {"runIds": wanted, "reason": "all of them"}, key=key
        )
        check("bulk cancel: the same key hears the same", again.replay == "true", again)
        fresh_one = self.host.post("/v1/runs:bulk-cancel", {"runIds": [runs[0]]})
        check(
            "bulk cancel: of a cancelled run is fine",
            fresh_one.fields["results"][0].get("ok") is True,
            fresh_one,
        )
        empty = self.host.post("/v1/runs:bulk-cancel", {"runIds": []})
        check("bulk cancel: of nothing is 400", empty.status == 400, empty)
        many = self.host.post("/v1/runs:bulk-cancel", {"runIds": ["run-x"] * 101})
        check(
            "bulk cancel: of 101 is 400 and says the most",
            many.status == 400 and many.details.get("maxRunIds", 0) >= 1,
            many,
        )

    def fork(self):
        source = self.host.begin("conformance-multi-node")
        self.host.ended(source)
        key = fresh("fork")
        first = self.client.runs_fork(source, ForkRunRequest(0, "replay"), idempotency_key=key)
        check("fork: a run of its own", first.runId != source, first)
        check("fork: names its source", first.sourceRunId == source, first)
        check("fork: says its mode and place", (first.mode, first.fromSeq) == ("replay", 0), first)
        check("fork: completes", self.host.ended(first.runId)["status"] == "completed")
        again = self.client.runs_fork(source, ForkRunRequest(0, "replay"), idempotency_key=key)
        check("fork: the same key, the same fork", again.runId == first.runId, again)
        second = self.client.runs_fork(source, ForkRunRequest(0, "replay"))
        check("fork: without it, another", second.runId != first.runId, second)
        self.host.ended(second.runId)
        logs = [
            [(e["type"], e.get("nodeId"), e["payload"]) for e in self.host.events(run)]
            for run in (first.runId, second.runId)
        ]
        check("fork: two replays are alike", logs[0] == logs[1], logs)
        whole = [(kind, node) for kind, node, _ in logs[0]]
        origin = [(e["type"], e.get("nodeId")) for e in self.host.events(source)]
        check("fork: and like their source", whole == origin, (whole, origin))
        refusal(
            "fork: before the beginning is 400",
            lambda: self.client.runs_fork(source, ForkRunRequest(-1, "replay")),
            [400],
        )
        refusal(
            "fork: beyond the end is 422",
            lambda: self.client.runs_fork(source, ForkRunRequest(99_999, "replay")),
            [422],
        )
        refusal(
            "fork: a replay takes no other options",
            lambda: self.client.runs_fork(
                source, ForkRunRequest(0, "replay", {"configurable": {"recursionLimit": 5}})
            ),
            [400],
        )
