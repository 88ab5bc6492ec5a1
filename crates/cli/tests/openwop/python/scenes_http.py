"""What every host answers: credentials, discovery, refusals."""

from suite import scenario


@scenario("1.7", "auth")
def auth(walk):
    body = {"workflowId": "conformance-noop"}
    bare = walk.host.post("/v1/runs", body, auth=False)
    walk.that("no key is 401", bare.status == 401, bare)
    walk.that("in the envelope", bare.is_envelope, bare)
    bad = walk.host.post("/v1/runs", body, auth="hk_definitely_not_a_real_key_12345")
    walk.that("a wrong key is 401", bad.status == 401, bad)


@scenario("1.7", "artifact-auth")
def artifact_auth(walk):
    path = "/v1/runs/openwop-conformance-noauth-run/artifacts/openwop-conformance-noauth-artifact"
    bare = walk.host.get(path, auth=False)
    walk.that("an artifact without a key is 401, before 404", bare.status == 401, bare)
    walk.that("unauthenticated", bare.error in (None, "unauthenticated"), bare)
    known = walk.host.get(path)
    walk.that("with a key it is 403, 404 or 501", known.status in (403, 404, 501), known)


@scenario("1.7", "discovery")
def discovery(walk):
    reply = walk.host.get("/.well-known/openwop", auth=False)
    walk.must("discovery is 200 without a key", reply.status == 200, reply)
    for field in ("protocolVersion", "supportedEnvelopes", "schemaVersions", "limits"):
        walk.that(f"has {field}", reply.fields.get(field) is not None)
    version = reply.fields.get("protocolVersion")
    walk.that("protocolVersion is text", isinstance(version, str) and version, version)
    walk.that("has Cache-Control", bool(reply.headers.get("Cache-Control")))
    limits = reply.fields.get("limits") or {}
    for field in ("clarificationRounds", "schemaRounds", "envelopesPerTurn"):
        value = limits.get(field)
        walk.that(f"limits.{field} is a count", isinstance(value, int) and value >= 0, value)
    for field, least in (("maxRunDurationMs", 1000), ("maxLoopIterations", 1)):
        value = limits.get(field)
        if value is None:
            walk.skip(f"limits.{field}", "not advertised")
        else:
            walk.that(f"limits.{field} is {least} at least", isinstance(value, int)
                      and value >= least, value)
    fixtures = reply.fields.get("fixtures", [])
    texts = isinstance(fixtures, list) and all(isinstance(f, str) and f for f in fixtures)
    walk.that("fixtures are texts, each once", texts and len(set(fixtures)) == len(fixtures))
    offered = reply.fields.get("runtimeCapabilities")
    if offered is None:
        walk.skip("runtimeCapabilities", "not advertised")
    else:
        texts = isinstance(offered, list) and all(isinstance(c, str) and c for c in offered)
        walk.that("runtimeCapabilities are texts, each once", texts
                  and len(set(offered)) == len(offered), offered)
    for header in ("ETag", "Capabilities-Etag"):
        tag = reply.headers.get(header)
        if not tag:
            walk.skip(header, "not sent")
            continue
        second = walk.host.get("/.well-known/openwop", auth=False)
        walk.that(f"{header} is stable", second.headers.get(header) == tag)
        if header == "ETag":
            third = walk.host.get("/.well-known/openwop", auth=False,
                                  headers={"If-None-Match": tag})
            walk.that("If-None-Match is 304", third.status == 304, third.status)
    reply = walk.host.get("/v1/openapi.json", auth=False)
    walk.that("openapi is 200 without a key", reply.status == 200, reply.status)
    written = str(reply.fields.get("openapi", ""))
    walk.that("openapi is 3.1 or later", written[:2] == "3." and written[2:3] in "123456789",
              written)
    if walk.family("discovery", "authScoped", "supported") is True:
        scoped = walk.host.get("/.well-known/openwop")
        held = all(scoped.fields.get(f) is not None for f in ("protocolVersion", "limits"))
        walk.that("the view with a key is whole", scoped.status == 200 and held)
    else:
        walk.skip("the view with a key", "discovery.authScoped is not advertised")


@scenario("1.7", "errors")
def errors(walk):
    unknown = walk.host.get("/v1/runs/openwop-conformance-this-run-id-does-not-exist")
    walk.that("an unknown run is 403 or 404", unknown.status in (403, 404), unknown)
    walk.that("in the closed envelope", unknown.is_envelope, unknown)
    empty = walk.host.post("/v1/runs", {})
    walk.that("an empty body is 4xx", 400 <= empty.status < 500, empty)
    walk.that("in the closed envelope too", empty.is_envelope, empty)
    for reply in (unknown, empty):
        walk.that("no correlationId beside the envelope", "correlationId" not in reply.fields)
        inside = reply.details.get("correlationId", "x")
        walk.that("one inside is text", isinstance(inside, str) and inside, inside)


@scenario("1.7", "rate limit")
def rate_limit(walk):
    reply = None
    for _ in range(50):
        reply = walk.host.get("/.well-known/openwop")
        if reply.status == 429:
            break
    if reply.status != 429:
        walk.skip("the envelope of a 429", "none in 50 requests")
        return
    wait = reply.headers.get("Retry-After")
    walk.that("Retry-After is sent", wait is not None)
    walk.that("the code is rate_limited", reply.error == "rate_limited", reply)
    walk.that("the envelope is closed", reply.is_envelope, reply)
    scope = reply.details.get("scope")
    walk.that("the scope is known", scope in ("tenant", "route", "global", "key"), scope)
    after_ms = reply.details.get("retryAfterMs")
    walk.that("retryAfterMs fits Retry-After", isinstance(after_ms, int)
              and abs(after_ms / 1000 - float(wait)) <= 1.5, after_ms)


@scenario("1.7", "test-seam-unauthenticated")
def seams_unauthenticated(walk):
    for path in (
        "test/mock-ai/program",
        "governance/approval-gate",
        "packs/install-gate",
        "subrun/attest",
        "test/idempotency/concurrent-claim",
        "test/multi-region/simulate-partition",
    ):
        reply = walk.host.get(f"/v1/host/sample/{path}", auth=False)
        walk.that(f"{path} answers no stranger", reply.status in (401, 403, 404, 405, 501), reply)
