//! What the tests of this door share: a service that counts, and short ways to ask it.
#![allow(dead_code, clippy::unwrap_used, reason = "tests, each of which uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use onetake_engine::{Engine, Memory};
use onetake_http::{Dialect, Idempotency, Settings, SettingsBuilder};
use serde_json::Value;
use tower::ServiceExt;

/// How often a handler ran.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(Arc<AtomicU32>);

impl Count {
    pub(crate) fn up(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn door() -> Idempotency {
    Idempotency::single_tenant(Engine::new(Memory::new()), "acme").unwrap()
}

pub(crate) fn speaking(settings: SettingsBuilder) -> Idempotency {
    door().with(settings.build().unwrap())
}

pub(crate) fn of(dialect: Dialect) -> Idempotency {
    speaking(Settings::builder(dialect))
}

/// A request with a JSON body.
pub(crate) fn request(
    method: &str,
    uri: &str,
    key: Option<&str>,
    body: impl Into<Body>,
) -> Request<Body> {
    let mut request =
        Request::builder().method(method).uri(uri).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    request.body(body.into()).unwrap()
}

/// An answer, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn refusal(&self) -> Option<&str> {
        self.header("onetake-refused")
    }
}

pub(crate) async fn heard(response: Response) -> Heard {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Heard { status: parts.status, headers: parts.headers, body }
}

pub(crate) async fn ask(app: &axum::Router, request: Request<Body>) -> Heard {
    heard(app.clone().oneshot(request).await.unwrap()).await
}
