"""Events as they are followed and polled."""

from openwop_client.types import CreateRunRequest

from checks import Section, check, need
from wire import quoted


class Events(Section):
    def streams(self):
        started = self.client.runs_create(
            CreateRunRequest(workflowId="conformance-delay", inputs={"delayMs": 300})
        )
        run = started.runId
        seen = list(self.client.runs_events(run, stream_mode="debug", timeout_seconds=15))
        types = [event.type for event in seen]
        need("sse: something comes", seen)
        check("sse: begins with run.started", types[0] == "run.started", types)
        check("sse: ends with run.completed", types[-1] == "run.completed", types)
        sequences = [event.sequence for event in seen]
        check("sse: debug has every sequence", sequences == list(range(len(seen))), sequences)
        check("sse: every event has a name", len({e.eventId for e in seen}) == len(seen))
        check("sse: every event is of this run", {e.runId for e in seen} == {run})
        check("sse: the node began and ended", {"node.started", "node.completed"} <= set(types))
        updates = [e.type for e in self.client.runs_events(run, timeout_seconds=15)]
        check("sse: updates leave node.started out", "node.started" not in updates, updates)
        check("sse: updates are among debug", set(updates) <= set(types), updates)
        batched = list(
            self.client.runs_events(run, stream_mode="debug", buffer_ms=200, timeout_seconds=15)
        )
        check(
            "sse: a batch loses nothing",
            [e.sequence for e in batched] == sequences,
            [e.sequence for e in batched],
        )
        later = list(
            self.client.runs_events(
                run, stream_mode="debug", last_event_id=str(sequences[1]), timeout_seconds=15
            )
        )
        check(
            "sse: goes on after Last-Event-ID",
            [e.sequence for e in later] == sequences[2:],
            [e.sequence for e in later],
        )
        raw = self.host.stream(f"/v1/runs/{quoted(run)}/events?streamMode=debug")
        check("sse: the host closes", raw.closed_by == "server", raw.closed_by)
        check("sse: id is the sequence", [f.id for f in raw.frames] == [str(s) for s in sequences])
        check("sse: event is the type", raw.types == types, raw.types)
        both = [
            e.type
            for e in self.client.runs_events(
                run, stream_mode=("updates", "messages"), timeout_seconds=15
            )
        ]
        check("sse: two modes at once", "run.completed" in both, both)

    def polls(self):
        run = self.client.runs_create(
            CreateRunRequest(workflowId="conformance-delay", inputs={"delayMs": 300})
        ).runId
        seen, last, rounds = [], None, 0
        done = False
        while not done and rounds < 50:
            page = self.client.runs_poll_events(run, last_sequence=last, timeout_seconds=5)
            seen.extend(page.events)
            last = seen[-1].sequence if seen else None
            done, rounds = page.isComplete, rounds + 1
        check("poll: comes to an end", done, rounds)
        check(
            "poll: in pieces nothing is lost or doubled",
            [e.sequence for e in seen] == list(range(len(seen))) and len(seen) >= 4,
            [e.sequence for e in seen],
        )
        whole = self.client.runs_poll_events(run, timeout_seconds=1)
        names = [e.eventId for e in seen]
        check("poll: without lastSequence, all", [e.eventId for e in whole.events] == names)
        rest = self.client.runs_poll_events(run, last_sequence=0, timeout_seconds=1)
        check("poll: lastSequence=0 leaves out one", len(rest.events) == len(seen) - 1, rest)
        none = self.client.runs_poll_events(run, last_sequence=99_999, timeout_seconds=1)
        check("poll: beyond the end, nothing", not none.events and none.isComplete, none)
        listed = self.host.get(f"/v1/runs/{quoted(run)}/events")
        check(
            "events: as JSON, all",
            [e.get("eventId") for e in listed.fields.get("events", [])] == names,
            listed,
        )
