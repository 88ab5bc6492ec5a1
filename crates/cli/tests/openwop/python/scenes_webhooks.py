"""Those who are told of events."""

import hashlib
import hmac
import json
import secrets
import time

from suite import SAFE_URL, Skipped, log, scenario
from wire import Receiver, quoted


def tenant_of(walk):
    """The tenant of our key, as a probe run tells it."""
    owner = walk.host.run(walk.host.begin("conformance-noop")).fields.get("owner") or {}
    return owner.get("workspace") or owner.get("tenant")


def subscribe(walk, url):
    body = {"url": url, "events": ["run.completed"]}
    tenant = tenant_of(walk)
    if tenant:
        body["tenantId"] = tenant
    reply = walk.host.post("/v1/webhooks", body)
    if reply.status == 400 and reply.error == "webhook_url_rejected":
        raise Skipped("blocked: the host delivers to no private address")
    walk.must("a subscription is 201", reply.status == 201, reply)
    return reply.fields


def supported(walk):
    if walk.family("webhooks", "supported") is not True:
        raise Skipped("webhooks are not advertised")


@scenario("1.11", "webhook-sig-algorithm")
def webhook_algorithm(walk):
    supported(walk)
    offered = walk.family("webhooks", "signatureAlgorithms")
    if not isinstance(offered, list):
        raise Skipped("signatureAlgorithms are not advertised")
    walk.that("v1 is among them", "v1" in offered, offered)
    walk.that("all are texts", all(isinstance(a, str) and a for a in offered), offered)


@scenario("1.11", "webhook-signed-delivery", "noop")
def webhook_delivery(walk):
    supported(walk)
    with Receiver() as hook:
        made = subscribe(walk, hook.url)
        name, secret = made.get("webhookId"), made.get("secret")
        walk.must("with webhookId", isinstance(name, str), made)
        walk.must("with secret", isinstance(secret, str) and secret, made)
        mark = hashlib.sha256(secret.encode()).hexdigest()[:8]
        walk.that("with its fingerprint", made.get("secretFingerprint") == mark, made)
        run = walk.host.begin("conformance-noop")
        walk.host.ended(run)
        headers, body, _ = hook.wait_for(run, 10)
        value = headers.get("x-openwop-signature-algorithm")
        walk.that("algorithm v1", value == "v1", value)
        value = headers.get("x-openwop-webhook-id")
        walk.that("the id of the subscription", value == name, value)
        value = headers.get("x-openwop-event-type")
        walk.that("the type of the event", value == "run.completed", value)
        stamp = headers.get("x-openwop-timestamp", "")
        near = stamp.isdigit() and abs(time.time() - int(stamp)) < 300
        walk.that("a timestamp in Unix seconds", near, stamp)
        sealed = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256)
        value = headers.get("x-openwop-signature")
        walk.that("the signature holds", value == "sha256=" + sealed.hexdigest(), value)
        if "openwop-signature" in headers:
            pairs = ("webhook-id", "event-type", "timestamp", "signature", "signature-algorithm")
            for pair in pairs:
                same = headers.get(f"openwop-{pair}") == headers.get(f"x-openwop-{pair}")
                walk.that(f"OpenWOP-{pair} says the same", same)
        else:
            walk.skip("the OpenWOP-* headers say the same", "not sent")
        sent = json.loads(body)
        walk.that("the body names the run", sent.get("runId") == run, sent)
        walk.that("the body has a type beside it", isinstance(sent.get("type"), str), sent)
        event = sent.get("event") or {}
        walk.that("and the event itself", event.get("type") == "run.completed", sent)
        gone = walk.host.delete(f"/v1/webhooks/{quoted(name)}")
        walk.that("to unregister is 2xx", gone.is_good, gone)


@scenario("1.11", "replay-fanout-suppression", "noop")
def webhook_replay(walk):
    supported(walk)
    if "replay" not in walk.modes():
        raise Skipped("replay is not advertised")
    host = walk.host
    with Receiver() as hook:
        made = subscribe(walk, hook.url)
        source = host.begin("conformance-noop")
        host.ended(source)
        walk.that("a live run is delivered", bool(hook.wait_for(source)))
        reply = host.post(f"/v1/runs/{quoted(source)}:fork", {"mode": "replay"})
        walk.must("a replay is 201", reply.status == 201, reply)
        fork = reply.fields["runId"]
        host.ended(fork, 30)
        walk.that("its log is not empty", bool(log(walk, fork, "")))
        # What was to be delivered of the replay would have come before this.
        after = host.begin("conformance-noop")
        host.ended(after)
        walk.that("a later live run is delivered", bool(hook.wait_for(after)))
        named = [d for d in hook.deliveries if json.loads(d[1]).get("runId") == fork]
        walk.that("the replay is not", not named, named)
        if "branch" in walk.modes():
            reply = host.post(f"/v1/runs/{quoted(source)}:fork", {"mode": "branch", "fromSeq": 0})
            walk.must("a branch is 201", reply.status == 201, reply)
            branch = reply.fields["runId"]
            host.ended(branch, 30)
            walk.that("a branch is delivered", bool(hook.wait_for(branch)))
        else:
            walk.skip("a branch is delivered", "branch is not advertised")
        host.delete(f"/v1/webhooks/{quoted(made['webhookId'])}")


@scenario("1.11", "webhook-negative")
def webhook_negative(walk):
    supported(walk)
    host = walk.host
    body = {"url": "http://127.0.0.1:65535/", "events": ["run.completed"]}
    reply = host.post("/v1/webhooks", body)
    if reply.status == 201:
        walk.skip("a loopback address is 400", "the host was told to allow it")
        host.delete(f"/v1/webhooks/{quoted(reply.fields['webhookId'])}")
    else:
        walk.that("a loopback address is 400", reply.status == 400, reply)
        walk.that("webhook_url_rejected", reply.error == "webhook_url_rejected", reply)
    reply = host.post("/v1/webhooks", {"url": "not a url"})
    walk.that("no address is 400 or 422", reply.status in (400, 422), reply)
    known = ("validation_error", "webhook_url_rejected")
    walk.that("with one of two codes", reply.error in known, reply)
    reply = host.post("/v1/webhooks", {"eventTypes": ["run.completed"]})
    walk.that("a missing address is 400", reply.status == 400, reply)
    walk.that("validation_error", reply.error == "validation_error", reply)
    reply = host.post("/v1/webhooks", {"url": SAFE_URL, "events": []})
    walk.that("no events are 400", reply.status == 400, reply)
    reply = host.delete("/v1/webhooks/wh-does-not-exist")
    walk.that("an unknown subscription is 404", reply.status == 404, reply)
    walk.that("subscription_not_found", reply.error == "subscription_not_found", reply)


@scenario("1.11", "webhook-tenant-isolation")
def webhook_tenants(walk):
    supported(walk)
    host = walk.host
    walk.that("supported is a truth value", isinstance(walk.family("webhooks", "supported"), bool))
    foreign = "onetake-foreign-" + secrets.token_hex(4)
    body = {"url": SAFE_URL, "events": ["run.completed"]}
    reply = host.post("/v1/webhooks", {**body, "tenantId": foreign})
    walk.that("for another tenant it is refused", reply.status != 201 and reply.status < 500, reply)
    reply = host.post("/v1/webhooks", body)
    walk.must("for our own, by name and without looking it up, it is 201", reply.status == 201,
              reply)
    path = f"/v1/webhooks/{quoted(reply.fields['webhookId'])}"
    gone = host.delete(f"{path}?tenantId={foreign}")
    walk.that("another tenant cannot end it", gone.status != 204 and 400 <= gone.status < 500, gone)
    if walk.other:
        gone = walk.other.delete(path)
        walk.that("nor can another key", gone.status in (403, 404), gone)
    gone = host.delete(path)
    walk.that("we can", gone.is_good, gone)
    seam = host.post("/v1/host/sample/test/surface",
                     {"tenantId": "tenant-a", "surface": "webhooks", "op": "list", "args": {}})
    if seam.status == 404:
        walk.skip("two tenants through the seam", "the seam is not mounted")


@scenario("1.12", "staleClaim, restart-during-run")
def durability(walk):
    walk.skip("durability", "has to start and kill the host")
