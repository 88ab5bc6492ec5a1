"""One answer for one key, in one region and in several."""

import time

from suite import MISMATCHES, SEAM_CLAIM, SEAM_PARTITION, scenario
from wire import at_once, fresh


@scenario("1.1", "idempotency", "idempotent")
def idempotency(walk):
    key = fresh("replay")
    inputs = {"nonce": "abc-123"}
    first = walk.host.create("conformance-idempotent", inputs, key=key)
    walk.must("a first request is 201", first.status == 201, first)
    again = walk.host.create("conformance-idempotent", inputs, key=key)
    walk.that("its repeat is 200 or 201", again.status in (200, 201), again)
    same = again.fields.get("runId") == first.fields.get("runId")
    walk.that("its repeat names the same run", same, again)
    walk.that("its repeat is marked", bool(again.replay), again.replay)
    key = fresh("conflict")
    first = walk.host.create("conformance-idempotent", {"nonce": "first"}, key=key)
    walk.must("another first request is 201", first.status == 201, first)
    other = walk.host.create("conformance-idempotent", {"nonce": "DIFFERENT"}, key=key)
    walk.that("another body under its key is 409", other.status == 409, other)
    walk.that("its code is one for a mismatch", other.error in MISMATCHES, other)
    walk.that("and the one that stays", other.error == "idempotency_key_mismatch", other)
    walk.that("it names no run", "runId" not in other.fields, other)
    walk.that("the envelope is closed", other.is_envelope, other)


def five_in_a_row(walk, word):
    """Five requests of one key, a tenth of a second apart: the gap is the scenario."""
    key = fresh(word)
    replies = []
    for n in range(5):
        if n:
            time.sleep(0.1)
        replies.append(walk.host.create("conformance-idempotent", {"nonce": word}, key=key))
    return replies


@scenario("1.2", "idempotencyRetry", "idempotent")
def idempotency_retry(walk):
    key = fresh("header")
    first = walk.host.create("conformance-idempotent", {"nonce": "x"}, key=key)
    walk.must("a first request is 201", first.status == 201, first)
    walk.that("its header is true, false or absent", first.replay in (None, "true", "false"),
              repr(first.replay))
    again = walk.host.create("conformance-idempotent", {"nonce": "x"}, key=key)
    walk.that("its repeat is 200 or 201", again.status in (200, 201), again)
    walk.that("its repeat says true", again.replay == "true", repr(again.replay))
    replies = five_in_a_row(walk, "budget")
    statuses = [r.status for r in replies]
    walk.that("five in a row are all 200 or 201", set(statuses) <= {200, 201}, statuses)
    walk.that("five in a row are one run", len({r.fields.get("runId") for r in replies}) == 1)
    limit = walk.family("limits", "idempotencyAckTimeoutSec")
    if limit is None:
        walk.skip("limits.idempotencyAckTimeoutSec is 5 at least", "not advertised")
    else:
        fits = isinstance(limit, int) and limit >= 5
        walk.that("limits.idempotencyAckTimeoutSec is 5 at least", fits, limit)


@scenario("1.3", "highConcurrency", "idempotent")
def high_concurrency(walk):
    key = fresh("same")
    host = walk.host
    inputs = {"nonce": "parallel-1"}
    replies = at_once(10, lambda _: host.create("conformance-idempotent", inputs, key=key))
    good = [r for r in replies if r.status in (200, 201)]
    busy = [r for r in replies if r.status == 409]
    walk.that("10 at once are a run or 409", len(good) + len(busy) == 10,
              [r.status for r in replies])
    runs = {r.fields.get("runId") for r in good}
    walk.that("10 at once are one run", len(runs) == 1, runs)
    walk.that("409 says in flight", all(r.error == "idempotency_in_flight" for r in busy), busy)
    waits = [r.details.get("retryAfter", r.headers.get("Retry-After")) for r in busy]
    walk.that("409 says when to ask again, if it says", all(w is None or float(w) > 0
                                                              for w in waits), waits)
    inputs = {"nonce": "parallel-2"}
    replies = at_once(10, lambda _: host.create("conformance-idempotent", inputs,
                                                key=fresh("distinct")))
    good = [r for r in replies if r.status in (200, 201)]
    shed = [r for r in replies if r.status in (429, 503)]
    walk.that("10 keys are a run or shed", len(good) + len(shed) == 10,
              [r.status for r in replies])
    runs = {r.fields.get("runId") for r in good}
    walk.that("10 keys are 10 runs", len(runs) == len(good), runs)
    walk.that("what is shed says when", all(float(r.headers.get("Retry-After") or 0) > 0
                                            for r in shed), shed)
    replies = five_in_a_row(walk, "storm")
    walk.that("five in a row succeed", all(r.status in (200, 201) for r in replies))
    walk.that("five in a row are one run", len({r.fields.get("runId") for r in replies}) == 1)
    walk.that("the first is no replay", replies[0].replay != "true", replies[0].replay)
    walk.that("later ones are", any(r.replay == "true" for r in replies[1:]))
    walk.that("limits are advertised", isinstance(walk.family("limits"), dict))


@scenario("1.4", "idempotency-concurrent-claim")
def concurrent_claim(walk):
    for count in (2, 5, 50):
        reply = walk.host.post(SEAM_CLAIM, {"executors": count}, timeout=60)
        if reply.status in (404, 403, 501):
            walk.skip(f"{count} executors", "blocked: the seam is not mounted")
            continue
        if count > 2 and reply.status != 200:
            walk.skip(f"{count} executors", f"the host takes fewer: {reply.status}")
            continue
        if not walk.that(f"{count} executors: 200", reply.status == 200, reply):
            continue
        found = reply.fields
        minted = found.get("mintedIds")
        listed = isinstance(minted, list)
        walk.that(f"{count} executors: says what each minted", listed, found)
        walk.that(f"{count} executors: one of each", listed and len(minted) == found.get(
            "attempted"), found)
        walk.that(f"{count} executors: all of them tried", found.get("attempted") == count, found)
        walk.that(f"{count} executors: one identity", listed and len(set(minted)) == 1, minted)
        same = listed and set(minted) == {found.get("logicalInvocationId")}
        walk.that(f"{count} executors: the one it names", same, found)
        walk.that(f"{count} executors: one effect", found.get("delivered") == 1, found)
    bare = walk.host.post(SEAM_CLAIM, {"executors": 2}, auth=False)
    walk.that("the seam knows no strangers", bare.status in (401, 403, 404), bare)


@scenario("1.5", "idempotency-key-determinism")
def key_determinism(walk):
    walk.skip("keys of the http pack", "needs no host: the formula of a pack")


@scenario("1.6", "multi-region-idempotency")
def multi_region(walk):
    for place, found in (
        ("root", walk.family("idempotency")),
        ("capabilities", walk.family("capabilities", "idempotency")),
    ):
        if not isinstance(found, dict) or "crossRegion" not in found:
            walk.skip(f"{place}: crossRegion", "not advertised")
            continue
        known = ("single-region", "best-effort", "strict", "reconciled-records", "fenced-effects")
        region = found["crossRegion"]
        walk.that(f"{place}: crossRegion is one of the words", region in known, region)
        walk.that(f"{place}: and one of every version", region in known[:3], region)
        for layer in ("layer1RetentionSeconds", "layer2RetentionSeconds"):
            value = found.get(layer, 1)
            walk.that(f"{place}: {layer} is positive", value > 0, value)
        if region != "single-region":
            names = walk.family("observability", "metrics", "names") or []
            counter = "openwop.idempotency.cross_region_conflicts_total"
            walk.that(f"{place}: conflicts are counted", counter in names, names)
    several = walk.family("multiRegion")
    if isinstance(several, dict):
        walk.that("multiRegion.supported is a truth value", isinstance(several.get("supported"),
                                                                     bool), several)
        lag = several.get("replicationLagBoundMs", 0)
        walk.that("replicationLagBoundMs is within a minute", 0 <= lag <= 60_000, lag)
    else:
        walk.skip("multiRegion", "not advertised")


def claims_of(key, *pairs, tenant="t1"):
    return [
        {"runId": run, "tenantId": tenant, "endpoint": "POST /v1/runs", "key": key,
         "region": region}
        for run, region in pairs
    ]


@scenario("1.6", "multi-region-idempotency-behavior")
def multi_region_behaviour(walk):
    def ask(claims):
        return walk.host.post(SEAM_PARTITION, {"claims": claims})

    two = claims_of("i1", ("run-b-east", "us-east-1"), ("run-a-west", "eu-west-1"))
    reply = ask(two)
    if reply.status == 404:
        walk.skip("two regions", "the seam is not mounted")
        return
    walk.must("two regions: 200", reply.status == 200, reply)
    winner = reply.fields.get("winner", {})
    walk.that("two regions: the smallest run survives", winner.get("runId") == "run-a-west", reply)
    walk.that("two regions: the winner is a whole claim", winner == two[1], winner)
    reason = reply.fields.get("loserCancelReason")
    walk.that("two regions: the reason", reason == "cross_region_dedup_loss", reason)
    aims = reply.fields.get("cacheRedirects") or []
    walk.that("two regions: a redirect for each", len(aims) == 2, aims)
    walk.that("two regions: all to the winner", {a.get("redirectToRunId") for a in aims}
              == {"run-a-west"}, aims)
    walk.that("two regions: under endpoint and key", {a.get("cacheKey") for a in aims}
              == {"POST /v1/runs:i1"}, aims)
    three = claims_of("i2", ("zzz-3", "r1"), ("aaa-1", "r2"), ("mmm-2", "r3"))
    orders = [three, [three[2], three[0], three[1]], three[::-1]]
    replies = [ask(order) for order in orders]
    walk.that("three regions: 200 in every order", all(r.status == 200 for r in replies))
    winners = [r.fields.get("winner", {}).get("runId") for r in replies]
    walk.that("three regions: the order does not matter", winners == ["aaa-1"] * 3, winners)
    losers = replies[0].fields.get("losers") or []
    walk.that("three regions: two lose", len(losers) == 2, losers)
    mixed = claims_of("i6", ("r1", "r1")) + claims_of("i6", ("r2", "r2"), tenant="t2")
    reply = ask(mixed)
    walk.that("claims for two tenants are 400", reply.status == 400, reply)
    reply = ask(two[:1])
    walk.that("one claim is 400", reply.status == 400, reply)
