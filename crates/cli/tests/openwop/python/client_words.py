"""Words that runs wait for."""

from openwop_client.types import CreateRunRequest, ResolveInterruptRequest

from checks import Section, check, need, refusal
from wire import fresh, quoted


class Words(Section):
    def waiting(self, workflow, status):
        run = self.client.runs_create(CreateRunRequest(workflowId=workflow)).runId
        return run, self.host.until(run, status)

    def token_of(self, snapshot):
        open_one = snapshot.get("interrupt") or {}
        token = open_one.get("interruptToken")
        need("token: the snapshot has one", isinstance(token, str) and token, snapshot)
        url = open_one.get("callbackUrl", "")
        check("token: so has the callback address", f"/v1/interrupts/{token}" in url, url)
        return token

    def approval(self):
        run, snapshot = self.waiting("conformance-approval", "waiting-approval")
        check("approval: waits at the gate", snapshot.get("currentNodeId") == "gate", snapshot)
        key = fresh("approve")
        wrong = self.host.resolve(run, "gate", {"action": "maybe"}, key=key)
        check("approval: maybe is refused", wrong.status in (400, 422) and wrong.is_envelope, wrong)
        check("approval: no such node", self.host.resolve(run, "nope", {}).status == 404)
        still = self.host.run(run).fields.get("status")
        check("approval: still waits", still == "waiting-approval", still)
        if wrong.status == 422:
            key = fresh("approve")
        answer = self.client.interrupts_resolve_by_run(
            run, "gate", ResolveInterruptRequest({"action": "accept"}), idempotency_key=key
        )
        check("approval: is taken", (answer.runId, answer.nodeId) == (run, "gate"), answer)
        ended = self.host.ended(run)
        check("approval: the run completes", ended["status"] == "completed", ended)
        again = self.host.resolve(run, "gate", {"action": "accept"}, key=key)
        check(
            "approval: the same key hears the same",
            again.status == 200 and again.replay == "true" and again.fields.get("nodeId") == "gate",
            f"{again} {again.replay}",
        )
        late = self.host.resolve(run, "gate", {"action": "accept"})
        check("approval: without it, too late", late.status in (404, 409, 410), late)
        events = self.host.events(run)
        types = [event["type"] for event in events]
        wanted = ["interrupt.requested", "approval.received", "interrupt.resolved"]
        check("approval: is in the log", all(types.count(t) == 1 for t in wanted), types)
        received = [e["payload"] for e in events if e["type"] == "approval.received"]
        check("approval: says who decided", received and received[0].get("decidedBy"), received)

    def approval_by_token(self):
        run, snapshot = self.waiting("conformance-approval", "waiting-approval")
        token = self.token_of(snapshot)
        look = self.client.interrupts_inspect_by_token(token)
        check("token: inspect says the kind", look.kind == "approval", look)
        check("token: and the key", bool(look.key), look)
        check("token: and the actions", "accept" in look.data.get("actions", []), look)
        bare = self.host.get(f"/v1/interrupts/{quoted(token)}", auth=False)
        check("token: needs no key", bare.status == 200, bare)
        self.client.interrupts_resolve_by_token(
            token, ResolveInterruptRequest({"action": "accept"}), idempotency_key=fresh("token")
        )
        check("token: the run completes", self.host.ended(run)["status"] == "completed")
        after = self.host.get(f"/v1/interrupts/{quoted(token)}", auth=False)
        check("token: is spent", after.status in (404, 409, 410) and after.is_envelope, after)
        body, _, seal = token.rpartition(".")
        flipped = body + "." + ("A" if seal[:1] != "A" else "B") + seal[1:]
        forged = self.host.get(f"/v1/interrupts/{quoted(flipped)}", auth=False)
        check("token: a forged seal opens nothing", forged.status in (400, 401, 404), forged)

    def clarification(self):
        run, snapshot = self.waiting("conformance-clarification", "waiting-input")
        check("clarification: waits at ask", snapshot.get("currentNodeId") == "ask", snapshot)
        answer = self.client.interrupts_resolve_by_run(
            run, "ask", ResolveInterruptRequest({"answers": {"q1": "blue"}})
        )
        check("clarification: is taken", answer.nodeId == "ask", answer)
        check("clarification: the run completes", self.host.ended(run)["status"] == "completed")
        types = [event["type"] for event in self.host.events(run)]
        check(
            "clarification: is in the log",
            {"clarification.requested", "clarification.resolved"} <= set(types),
            types,
        )

    def external_event(self):
        run, snapshot = self.waiting("conformance-interrupt-external-event", "waiting-external")
        token = self.token_of(snapshot)
        look = self.client.interrupts_inspect_by_token(token)
        check("external event: kind", look.kind == "external-event", look)
        refusal(
            "external event: of another order is refused",
            lambda: self.client.interrupts_resolve_by_token(
                token,
                ResolveInterruptRequest({"orderId": "another", "status": "completed"}),
                idempotency_key=fresh("wrong"),
            ),
            [400, 422],
        )
        refusal(
            "external event: without the order is refused",
            lambda: self.client.interrupts_resolve_by_token(
                token, ResolveInterruptRequest({"status": "completed"})
            ),
            [400, 422],
        )
        still = self.host.run(run).fields.get("status")
        check("external event: still waits", still == "waiting-external", still)
        value = {"orderId": "fixture-order-1", "status": "completed", "amount": 12}
        key = fresh("event")
        self.client.interrupts_resolve_by_token(
            token, ResolveInterruptRequest(value), idempotency_key=key
        )
        check("external event: the run completes", self.host.ended(run)["status"] == "completed")
        path = f"/v1/interrupts/{quoted(token)}"
        again = self.host.post(path, {"resumeValue": value}, key=key, auth=False)
        check(
            "external event: the same key hears the same",
            again.is_good and again.replay == "true",
            f"{again} {again.replay}",
        )
        late = self.host.post(path, {"resumeValue": value}, auth=False)
        check("external event: without it, too late", late.status in (404, 409, 410), late)

    def quorum(self):
        run, _ = self.waiting("conformance-interrupt-quorum", "waiting-approval")

        def vote(voter, key=None):
            return self.client.interrupts_resolve_by_run(
                run,
                "gate",
                ResolveInterruptRequest({"action": "accept", "voter": voter}),
                idempotency_key=key,
            )

        def status():
            return self.host.run(run).fields.get("status")

        first = fresh("vote")
        check("quorum: the first vote is taken", vote("one", first).nodeId == "gate")
        check("quorum: one is not enough", status() == "waiting-approval", status())
        vote("one", first)
        check("quorum: a repeated request is no vote", status() == "waiting-approval", status())
        self.host.resolve(run, "gate", {"action": "accept", "voter": "one"})
        check("quorum: the same voter twice is one", status() == "waiting-approval", status())
        vote("two", fresh("vote"))
        check("quorum: two are not enough", status() == "waiting-approval", status())
        vote("three", fresh("vote"))
        check("quorum: three are", self.host.ended(run)["status"] == "completed")
