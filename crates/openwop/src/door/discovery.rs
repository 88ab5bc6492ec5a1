//! What the host says of itself: the document of its capabilities, and its surface.
//!
//! Made once when it starts, of what it was built of, so it cannot say anything else.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use onetake_engine::Journal;
use serde_json::{Value, json};

use crate::host::Host;
use crate::reply::{ReplyBody, whole};

/// The surface, as `OpenAPI` describes it.
const OPENAPI: &str = include_str!("../openapi.json");

/// The documents of a host.
pub(super) struct Documents {
    discovery: Bytes,
}

impl Documents {
    pub(super) fn of<S: Journal>(host: &Host<S>) -> Self {
        Self { discovery: discovery(host).to_string().into() }
    }

    pub(super) fn discovery(&self) -> Response<ReplyBody> {
        json_response(self.discovery.clone(), "public, max-age=300")
    }

    #[allow(clippy::unused_self, reason = "it is one of the documents")]
    pub(super) fn openapi(&self) -> Response<ReplyBody> {
        json_response(Bytes::from_static(OPENAPI.as_bytes()), "public, max-age=300")
    }
}

fn json_response(body: Bytes, caching: &'static str) -> Response<ReplyBody> {
    let mut response = Response::new(whole(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    response
}

fn discovery<S: Journal>(host: &Host<S>) -> Value {
    let settings = &host.0.settings;
    let bounds = settings.bounds;
    let ids = host.catalog().workflows().map(|workflow| workflow.id.clone());
    let fixtures: Vec<String> = ids.filter(|id| id.starts_with("conformance-")).collect();
    let idempotency = json!({
        "supported": true,
        "layer1RetentionSeconds": 24 * 60 * 60,
        "layer2RetentionSeconds": settings.calls_kept.as_secs(),
        "crossRegion": "single-region",
    });
    let webhooks = json!({
        "supported": host.0.sender.is_some(), "signatureAlgorithms": ["v1"],
    });
    json!({
        "protocolVersion": "1.0",
        "implementation": {"name": "onetake", "version": env!("CARGO_PKG_VERSION")},
        "supportedEnvelopes": ["clarification.request"],
        "schemaVersions": {},
        "supportedTransports": ["rest"],
        "limits": {
            "clarificationRounds": 10, "schemaRounds": 0, "envelopesPerTurn": 1,
            "maxNodeExecutions": bounds.executions_max,
            "maxRunDurationMs": bounds.duration_ms_max,
        },
        "fixtures": fixtures,
        "idempotency": idempotency,
        "webhooks": webhooks,
        "replay": {
            "supported": true, "modes": ["replay", "branch"],
            "sideEffectSuppression": "recorded-outcome",
        },
        "runs": {
            "pauseResume": {
                "supported": true, "drainPolicies": ["immediate", "drain-current-node"],
            },
            "bulkCancel": {"supported": true},
        },
        "streams": {"modes": crate::stream::MODES, "bufferMsMax": crate::ask::BUFFER_MS_MAX},
        "interrupts": {
            "supported": true,
            "kinds": ["approval", "clarification", "external-event", "custom"],
            "signedTokens": true,
        },
        "subWorkflow": {"supported": true, "inputMapping": true, "outputMapping": true},
        "capabilities": {"idempotency": idempotency, "webhooks": webhooks},
    })
}
