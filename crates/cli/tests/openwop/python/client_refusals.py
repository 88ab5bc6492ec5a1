"""What is refused, and how."""

from openwop_client import OpenwopClient

from checks import Section, check, refusal
from wire import quoted


class Refusals(Section):
    def errors(self):
        body = {"workflowId": "conformance-noop"}
        bare = self.host.post("/v1/runs", body, auth=False)
        check("401: without a key", bare.status == 401 and bare.is_envelope, bare)
        bad = self.host.post("/v1/runs", body, auth="hk_nobody_has_this_key")
        check("401: with a wrong key", bad.status == 401 and bad.is_envelope, bad)
        stranger = OpenwopClient(base_url=self.base, api_key="hk_nobody_has_this_key")
        refusal("401: the client hears it", lambda: stranger.runs_get("run-x"), [401])
        refusal("404: no such run", lambda: self.client.runs_get("run-that-never-was"), [404])
        probes = {
            "400: an unknown property": {**body, "surprise": True},
            "400: no workflow": {},
            "400: inputs that are no object": {**body, "inputs": [1]},
            "400: a missing input": {"workflowId": "conformance-idempotent"},
            "400: an input of the wrong kind": {
                "workflowId": "conformance-idempotent",
                "inputs": {"nonce": 5},
            },
        }
        for label, sent in probes.items():
            reply = self.host.post("/v1/runs", sent)
            check(label, reply.status == 400 and reply.is_envelope, reply)
        broken = self.host.post("/v1/runs", b'{"workflowId": ')
        check("400: half a body", broken.status == 400 and broken.is_envelope, broken)
        run = self.host.begin("conformance-noop")
        self.host.ended(run)
        path = f"/v1/runs/{quoted(run)}/events"
        for mode in ("does-not-exist", "values,updates", "updates,bogus"):
            reply = self.host.get(f"{path}?streamMode={mode}")
            check(
                f"400: stream mode {mode}",
                reply.status == 400
                and reply.error == "unsupported_stream_mode"
                and isinstance(reply.details.get("supported"), list),
                reply,
            )
        for value in ("5001", "99999", "-1", "soon"):
            reply = self.host.get(f"{path}?bufferMs={value}")
            check(
                f"400: bufferMs={value}",
                reply.status == 400 and reply.error == "validation_error",
                reply,
            )
        gone = self.host.get("/v1/interrupts/" + quoted("!!!no token!!!"), auth=False)
        check("404: no such token", gone.status in (400, 404) and gone.is_envelope, gone)
        hook = self.host.post("/v1/webhooks", {"events": ["run.completed"]})
        check("400: a webhook without address", hook.error == "validation_error", hook)
