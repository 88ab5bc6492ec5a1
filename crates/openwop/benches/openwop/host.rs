//! The host that is measured: its door with one tenant's key, as the binary has it.
//!
//! Workflows are those of the conformance suite, out of the package. Who asks it without HTTP uses
//! the same requests and reads the same answers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use onetake_engine::{Engine, Journal};
use onetake_http::gateway::forward::Caller;
use onetake_http::gateway::{Answers, Lanes, Listening, serve};
use onetake_http::identity::{ApiKeySettings, Gate, TenantKeys, generate_key};
use onetake_openwop::{Catalog, Door, Executors, Host, HostSettings, ReplyBody};
use tokio::net::TcpListener;

use crate::plain;

/// A host behind its door, and the credential of somebody who may do everything.
pub(crate) struct Measured<S> {
    door: Door<S>,
    pub(crate) credential: String,
}

impl<S: Journal> Measured<S> {
    /// Opens one on `store`, with its housekeeping.
    pub(crate) async fn open(store: S) -> Self {
        let engine = Engine::new(store);
        engine.keep_house();
        let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        let catalog = Catalog::load(&catalog).expect("the workflows of the package");
        let settings = HostSettings { is_alone: true, ..HostSettings::default() };
        let host = Host::open(engine, catalog, Executors::default(), settings).await;
        let (credential, digest) = generate_key().expect("random numbers");
        let tenant = TenantKeys {
            name: "acme".to_owned(),
            keys: vec![digest.as_str().into()],
            ..TenantKeys::default()
        };
        let keys = ApiKeySettings::default().build(&[tenant]).expect("one tenant");
        let door = Door::new(host.expect("a host"), Gate::ApiKeys(keys), false);
        Self { door, credential }
    }

    /// Serves it until the process ends.
    pub(crate) async fn serve(self, listener: TcpListener) {
        let (bounds, lanes) = (Listening::default(), Lanes::here());
        serve(listener, Arc::new(self), bounds, &lanes, std::future::pending()).await;
    }

    async fn ask(&self, request: http::request::Builder, body: Vec<u8>) -> Response<ReplyBody> {
        let credential = format!("Bearer {}", self.credential);
        let request = request.header(header::AUTHORIZATION, credential);
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        self.door.answer(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await
    }

    /// Creates a run with the key `n`, without HTTP; its name.
    pub(crate) async fn create(&self, workflow: &str, n: u64) -> String {
        let request = Request::post(plain::PATH).header("idempotency-key", format!("run-{n:016x}"));
        let response = self.ask(request, plain::asked(workflow)).await;
        assert_eq!(response.status(), StatusCode::CREATED);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let created: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        created["runId"].as_str().expect("a name").to_owned()
    }

    /// Follows a run by its stream, without HTTP, until that ends; whether the run has completed.
    pub(crate) async fn follow(&self, run: &str) -> bool {
        let request = Request::get(format!("{}/{run}/events", plain::PATH));
        let response = self.ask(request, Vec::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let said = response.into_body().collect().await.expect("a stream").to_bytes();
        let end = b"event: run.completed\n";
        said.windows(end.len()).any(|window| window == end)
    }

    /// Where a run stands, without HTTP.
    pub(crate) async fn status(&self, run: &str) -> String {
        let request = Request::get(format!("{}/{run}", plain::PATH));
        let response = self.ask(request, Vec::new()).await;
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let shown: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        shown["status"].as_str().expect("a status").to_owned()
    }
}

impl<S: Journal> Answers for Measured<S> {
    type Body = ReplyBody;

    async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<ReplyBody> {
        self.door.answer(request, caller.peer).await
    }

    fn refuse_head(&self, bytes_max: usize) -> Response<ReplyBody> {
        panic!("no head here has {bytes_max} bytes")
    }
}
