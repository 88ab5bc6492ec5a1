//! The data plane: the doors that callers come to, on one listener.
//!
//! Built-in doors win over every route of the gateway; whatever is no door's is the gateway's,
//! which also says that all is well. Opens what a configuration names and decides nothing.

use std::time::Duration;

use anyhow::{Context, Result};
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use onetake::Engine;
use onetake_http::gateway::forward::Caller;
use onetake_http::gateway::{Answers, Gateway, GatewayBody};
use onetake_http::identity::Gate;
use onetake_openwop::{
    Bounds, Catalog, Door, Executors, Host, HostSettings, IdentityForm, ReplyBody, owns,
};

use crate::config::OpenwopConfig;
use crate::wiring::AnyStore;

/// The doors on one listener.
pub(crate) struct Plane {
    pub(crate) gateway: Gateway,
    pub(crate) openwop: Option<Door<AnyStore>>,
}

impl Answers for Plane {
    type Body = Either<ReplyBody, GatewayBody>;

    async fn answer(&self, request: Request<Incoming>, caller: Caller) -> Response<Self::Body> {
        match &self.openwop {
            Some(door) if owns(request.uri().path()) => {
                door.answer(request, caller.peer).await.map(Either::Left)
            }
            Some(_) | None => self.gateway.answer(request, caller).await.map(Either::Right),
        }
    }

    fn refuse_head(&self, bytes_max: usize) -> Response<Self::Body> {
        Answers::refuse_head(&self.gateway, bytes_max).map(Either::Right)
    }
}

/// Opens the host that `config` describes, on `engine`; what is under way has this `lease`.
///
/// # Errors
/// When a workflow is wrong, or the store does not answer.
pub(crate) async fn open_host(
    config: &OpenwopConfig,
    lease: Duration,
    engine: &Engine<AnyStore>,
) -> Result<Host<AnyStore>> {
    let catalog = Catalog::load(&config.workflows).context("the workflows cannot be loaded")?;
    let bounds = Bounds {
        executions_max: config.max_node_executions,
        duration_ms_max: u64::try_from(config.max_run_duration.as_millis()).unwrap_or(u64::MAX),
        ..Bounds::default()
    };
    let settings = HostSettings {
        bounds,
        form: if config.has_source_identity { IdentityForm::Source } else { IdentityForm::Current },
        calls_kept: config.call_retention,
        runs_kept: config.run_retention,
        lease,
        is_alone: engine.store().is_alone(),
        allow_private_targets: config.allow_private_targets,
        public_url: config.public_url.as_ref().map(ToString::to_string),
        ..HostSettings::default()
    };
    let opened = Host::open(engine.clone(), catalog, Executors::default(), settings).await;
    opened.context("the workflow host cannot be opened")
}

/// The door of `host`, behind `gate`.
pub(crate) fn door(config: &OpenwopConfig, host: Host<AnyStore>, gate: Gate) -> Door<AnyStore> {
    Door::new(host, gate, config.test_seams)
}
