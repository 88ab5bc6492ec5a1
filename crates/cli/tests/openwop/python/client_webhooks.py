"""Those who are told of events."""

import json

from openwop_client.types import RegisterWebhookRequest
from openwop_client.webhook_helpers import read_webhook_headers, verify_webhook_signature

from checks import Section, check, need, refusal
from wire import Receiver, fresh, quoted


class Webhooks(Section):
    def webhooks(self):
        with Receiver() as hook:
            key = fresh("hook")
            asked = RegisterWebhookRequest(url=hook.url, events=["run.completed"])
            made = self.client.webhooks_register(asked, idempotency_key=key)
            again = self.client.webhooks_register(asked, idempotency_key=key)
            check("webhook: has a secret", len(made.secret) >= 32, len(made.secret))
            check(
                "webhook: the same key, the same subscription and secret",
                (made.subscriptionId, made.secret) == (again.subscriptionId, again.secret),
            )
            raw = self.host.post(
                "/v1/webhooks", {"url": hook.url, "events": ["run.completed"]}, key=key
            )
            check("webhook: marked as a replay", raw.replay == "true", raw.replay)
            check("webhook: has its other name", raw.fields.get("webhookId") == made.subscriptionId)
            run = self.host.begin("conformance-noop")
            self.host.ended(run)
            headers, body, _ = hook.wait_for(run)
            found = read_webhook_headers(headers)
            need("webhook: is signed", found is not None, headers)
            seal = headers.get("x-openwop-signature", "")
            stamp = headers.get("x-openwop-timestamp", "")
            for label, pair in (("the client's choice", found[:2]), ("v1", (seal, stamp))):
                result = verify_webhook_signature(made.secret, *pair, body)
                check(f"webhook: the signature holds ({label})", result.valid, result)
            bent = verify_webhook_signature(made.secret, seal, stamp, body + b" ")
            check("webhook: and breaks with the body", not bent.valid, bent)
            check("webhook: algorithm", headers.get("x-openwop-signature-algorithm") == "v1")
            named = headers.get("x-openwop-webhook-id")
            check("webhook: names the subscription", named == made.subscriptionId, named)
            kind = headers.get("x-openwop-event-type")
            check("webhook: names the type", kind == "run.completed", kind)
            sent = json.loads(body)
            check("webhook: names the run", sent.get("runId") == run, sent)
            logged = [e for e in self.host.events(run) if e["type"] == "run.completed"]
            check("webhook: carries the event of the log", sent.get("event") == logged[0], sent)
            names = {d[0].get("x-openwop-webhook-id") for d in hook.of(run)}
            check("webhook: two registrations of one key are one", len(names) == 1, names)
            failed = self.host.begin("conformance-failure")
            self.host.ended(failed)
            foreign = self.other.begin("conformance-noop")
            self.other.ended(foreign)
            after = self.host.begin("conformance-noop")
            self.host.ended(after)
            hook.wait_for(after)
            check("webhook: only the types asked for", not hook.of(failed))
            check("webhook: nothing of another tenant", not hook.of(foreign))
            gone = self.other.delete(f"/v1/webhooks/{quoted(made.subscriptionId)}")
            check("webhook: not another tenant's to remove", gone.status in (403, 404), gone)
            self.webhook_ends(hook, made)

    def webhook_ends(self, hook, made):
        with Receiver(refuse_first=1) as second:
            other = self.client.webhooks_register(
                RegisterWebhookRequest(url=second.url, events=["run.completed"])
            )
            self.client.webhooks_unregister(made.subscriptionId)
            run = self.host.begin("conformance-noop")
            self.host.ended(run)
            second.wait_for(run, 60)
            check("webhook: a refused delivery comes again", second.refused == 1, second.refused)
            check("webhook: nothing after the end", not hook.of(run))
            refusal(
                "webhook: ended twice is 404",
                lambda: self.client.webhooks_unregister(made.subscriptionId),
                [404],
                "subscription_not_found",
            )
            self.client.webhooks_unregister(other.subscriptionId)
