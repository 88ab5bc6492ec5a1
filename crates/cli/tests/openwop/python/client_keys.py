"""One key, one answer; two tenants, two answers."""

from openwop_client.types import CreateRunRequest

from checks import Section, check, need, refusal
from wire import at_once, eventually, fresh, quoted


class Keys(Section):
    def create_once(self):
        key = fresh("create")
        body = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "abc-123"}}
        first = self.host.post("/v1/runs", body, key=key)
        need("create: 201", first.status == 201, first)
        check("create: is not marked a replay", first.replay in (None, "false"), first.replay)
        for field in ("runId", "status", "eventsUrl"):
            check(f"create: has {field}", isinstance(first.fields.get(field), str), first)
        again = self.host.post("/v1/runs", body, key=key)
        check("create: the same key answers the same", again.json == first.json, again)
        check("create: with the same status", again.status == first.status, again.status)
        check("create: marked as a replay", again.replay == "true", again.replay)
        turned = b'{ "inputs" : {"nonce":"abc-123"},\n "workflowId":"conformance-idempotent" }'
        reordered = self.host.post("/v1/runs", turned, key=key)
        check(
            "create: the order of fields does not matter",
            reordered.json == first.json and reordered.replay == "true",
            reordered,
        )
        by_client = self.client.runs_create(
            CreateRunRequest(workflowId="conformance-idempotent", inputs={"nonce": "abc-123"}),
            idempotency_key=key,
        )
        same = by_client.runId == first.fields["runId"]
        check("create: the client hears it too", same, by_client)
        changed = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "another"}}
        other = self.host.post("/v1/runs", changed, key=key)
        check("mismatch: 409", other.status == 409 and other.is_envelope, other)
        check("mismatch: its code", other.error == "idempotency_key_mismatch", other)
        check("mismatch: tells nothing of the run", first.fields["runId"] not in other.text, other)
        refusal(
            "mismatch: the client sees the code",
            lambda: self.client.runs_create(
                CreateRunRequest(workflowId="conformance-idempotent", inputs={"nonce": "third"}),
                idempotency_key=key,
            ),
            [409],
            "idempotency_key_mismatch",
        )
        bare = self.host.post("/v1/runs", body)
        check("no key: a run of its own", bare.fields.get("runId") != first.fields["runId"], bare)
        check("no key: no empty header", bare.replay in (None, "false"), repr(bare.replay))
        ended = self.host.ended(first.fields["runId"])
        check("create: the run completes", ended["status"] == "completed", ended)
        late = self.host.post("/v1/runs", body, key=key)
        check("create: a late repeat says what was said", late.json == first.json, late)
        look = self.host.get(f"/v1/runs/{quoted(first.fields['runId'])}", key=key)
        check("get: a key means nothing", look.status == 200 and look.replay != "true", look)

    def refusals_with_keys(self):
        key = fresh("refused")
        body = {"workflowId": "there-is-no-such-workflow"}
        first = self.host.post("/v1/runs", body, key=key)
        check(
            "unknown workflow: 404",
            first.status == 404 and first.error == "workflow_not_found" and first.is_envelope,
            first,
        )
        again = self.host.post("/v1/runs", body, key=key)
        check(
            "unknown workflow: is remembered",
            again.status == 404 and again.json == first.json and again.replay == "true",
            f"{again} {again.replay}",
        )
        other = self.host.post("/v1/runs", {"workflowId": "conformance-noop"}, key=key)
        check("unknown workflow: binds its key", other.error == "idempotency_key_mismatch", other)
        key = fresh("corrected")
        wrong = self.host.post("/v1/runs", {"workflowId": "conformance-noop", "x": 1}, key=key)
        check("unknown property: 400", wrong.status == 400 and wrong.is_envelope, wrong)
        right = self.host.post("/v1/runs", {"workflowId": "conformance-noop"}, key=key)
        check("unknown property: does not bind its key", right.status == 201, right)
        key = fresh("stranger")
        nobody = self.host.post("/v1/runs", {"workflowId": "conformance-noop"}, key=key, auth=False)
        check("no key of ours: 401", nobody.status == 401, nobody)
        someone = self.host.post("/v1/runs", {"workflowId": "conformance-noop"}, key=key)
        check(
            "no key of ours: remembers nothing",
            someone.status == 201 and someone.replay != "true",
            someone,
        )

    def key_grammar(self):
        body = {"workflowId": "conformance-noop"}
        for label, key in (
            ("300 characters", "k" * 300),
            ("256 characters", "k" * 256),
            ("a space inside", "two words"),
        ):
            reply = self.host.post("/v1/runs", body, key=key)
            check(
                f"key grammar: {label} is 400",
                reply.status == 400 and reply.is_envelope,
                reply,
            )
        longest = fresh("long").ljust(255, "x")
        first = self.host.post("/v1/runs", body, key=longest)
        again = self.host.post("/v1/runs", body, key=longest)
        check("key grammar: 255 characters are taken", first.status == 201, first)
        check("key grammar: and told apart", again.json == first.json, again)

    def fifty_at_once(self):
        key = fresh("fifty")
        body = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "at once"}}
        replies = at_once(50, lambda _: self.host.post("/v1/runs", body, key=key, timeout=60))
        good = [reply for reply in replies if reply.status in (200, 201)]
        busy = [reply for reply in replies if reply.status == 409]
        check(
            "50 at once: every answer is a run or 409",
            len(good) + len(busy) == 50,
            sorted({str(r) for r in replies})[:3],
        )
        check(
            "50 at once: 409 says that another is in flight, and when to ask again",
            all(
                r.error == "idempotency_in_flight"
                and r.details.get("retryAfter", 0) > 0
                and r.headers.get("Retry-After")
                for r in busy
            ),
            [str(r) for r in busy[:2]],
        )
        runs = {reply.fields.get("runId") for reply in good}
        check("50 at once: one run", len(runs) == 1, runs)
        new = [reply for reply in good if reply.replay != "true"]
        check("50 at once: one answer is new, the others are replays", len(new) == 1, len(new))
        after = eventually(
            lambda: next(
                (r for r in [self.host.post("/v1/runs", body, key=key)] if r.status != 409), None
            ),
            10,
        )
        check("50 at once: asked later, the same run", after.fields.get("runId") in runs, after)

    def two_tenants(self):
        key = fresh("tenants")
        body = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "shared"}}
        ours = self.host.post("/v1/runs", body, key=key)
        theirs = self.other.post("/v1/runs", body, key=key)
        need("two tenants: both begin", ours.status == 201 and theirs.status == 201, theirs)
        mine, yours = ours.fields["runId"], theirs.fields["runId"]
        check("two tenants: two runs", mine != yours, mine)
        check("two tenants: no replay across", theirs.replay in (None, "false"), theirs.replay)
        check("two tenants: no name leaks", mine not in theirs.text, theirs)
        owners = [
            reply.fields.get("owner", {}).get("tenant")
            for reply in (self.host.run(mine), self.other.run(yours))
        ]
        check("two tenants: each run has its owner", len(set(owners)) == 2 and all(owners), owners)
        hidden = [403, 404]
        path = f"/v1/runs/{quoted(mine)}"
        probes = {
            "read": self.other.get(path),
            "events": self.other.get(f"{path}/events"),
            "poll": self.other.get(f"{path}/events/poll?timeout=1"),
            "cancel": self.other.post(f"{path}/cancel", {}),
            "pause": self.other.post(f"{path}:pause", {}),
            "fork": self.other.post(f"{path}:fork", {"mode": "replay"}),
            "resolve": self.other.post(f"{path}/interrupts/gate", {"resumeValue": {}}),
        }
        for word, reply in probes.items():
            check(
                f"two tenants: {word} is refused",
                reply.status in hidden and reply.is_envelope,
                reply,
            )
        bulk = self.other.post("/v1/runs:bulk-cancel", {"runIds": [mine]})
        result = (bulk.fields.get("results") or [{}])[0]
        check(
            "two tenants: bulk cancel finds nothing",
            result.get("ok") is False and result.get("error", {}).get("code") == "not_found",
            bulk,
        )
        check("two tenants: our run is unharmed", self.host.ended(mine)["status"] == "completed")
        foreign = self.host.post("/v1/runs", {**body, "tenantId": owners[1]})
        if foreign.status == 201:
            run = self.host.run(foreign.fields["runId"])
            held = run.fields.get("owner", {}).get("tenant") == owners[0]
        else:
            held = foreign.status in (400, 403, 404) and foreign.is_envelope
        check("two tenants: the body does not choose the tenant", held, foreign)
