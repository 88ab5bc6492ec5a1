"""What a host says of itself, and its workflows."""

from checks import Section, check, need, refusal


class Discovery(Section):
    def discovery(self):
        found = self.client.discovery_capabilities()
        check("discovery: protocol version", found.protocolVersion == "1.0", found)
        check("discovery: rest is a transport", "rest" in (found.supportedTransports or []), found)
        limits = found.limits
        rounds = (limits.clarificationRounds, limits.schemaRounds, limits.envelopesPerTurn)
        check("discovery: limits are counts", all(n >= 0 for n in rounds), limits)
        raw = self.host.get("/.well-known/openwop", auth=False)
        check("discovery: needs no key", raw.status == 200, raw)
        check("discovery: may be kept", bool(raw.headers.get("Cache-Control")), raw.headers)
        offered = raw.fields.get("idempotency", {})
        check("discovery: says that keys are honoured", offered.get("supported") is True, offered)
        check(
            "discovery: answers are kept a day at least",
            offered.get("layer1RetentionSeconds", 0) >= 86_400,
            offered,
        )
        check("discovery: one region", offered.get("crossRegion") == "single-region", offered)
        needed = {
            "conformance-" + name
            for name in (
                "noop delay identity failure approval clarification cancellable idempotent "
                "multi-node interrupt-quorum interrupt-external-event subworkflow-parent"
            ).split()
        }
        fixtures = set(raw.fields.get("fixtures", []))
        need("discovery: lists the fixtures", needed <= fixtures, sorted(needed - fixtures))
        check('discovery: says nowhere "edit"', '"edit"' not in raw.text)

    def openapi(self):
        document = self.client.discovery_openapi()
        check("openapi: 3.1", str(document.get("openapi", "")).startswith("3.1"), document)
        paths = document.get("paths", {})
        needed = {
            "/.well-known/openwop",
            "/v1/runs",
            "/v1/runs:bulk-cancel",
            "/v1/runs/{runId}",
            "/v1/runs/{runId}/events",
            "/v1/runs/{runId}/events/poll",
            "/v1/runs/{runId}/cancel",
            "/v1/runs/{runId}:pause",
            "/v1/runs/{runId}:resume",
            "/v1/runs/{runId}:fork",
            "/v1/runs/{runId}/interrupts/{nodeId}",
            "/v1/interrupts/{token}",
            "/v1/webhooks",
            "/v1/webhooks/{webhookId}",
            "/v1/workflows/{workflowId}",
        }
        check("openapi: has every path", needed <= set(paths), sorted(needed - set(paths)))
        names = [
            operation.get("operationId")
            for item in paths.values()
            for method, operation in item.items()
            if method in ("get", "post", "delete", "put", "patch")
        ]
        check("openapi: every operation has a name of its own", len(set(names)) == len(names))
        raw = self.host.get("/v1/openapi.json", auth=False)
        check("openapi: needs no key", raw.status == 200, raw.status)

    def workflows(self):
        found = self.client.workflows_get("conformance-multi-node")
        check("workflow: is the one asked for", found.get("id") == "conformance-multi-node", found)
        ids = [node.get("id") for node in found.get("nodes", [])]
        check("workflow: has its nodes", ids == ["a", "b", "c"], ids)
        refusal(
            "workflow: an unknown one is 404",
            lambda: self.client.workflows_get("there-is-no-such-workflow"),
            [404],
        )
        bare = self.host.get("/v1/workflows/conformance-noop", auth=False)
        check("workflow: needs a key", bare.status == 401 and bare.is_envelope, bare)
