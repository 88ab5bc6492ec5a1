//! Opens a connection to an upstream, within one limit, and says why it could not.
//!
//! Name, TCP and TLS together have the limit, not each its own. Nothing of a request is ever sent
//! here: whatever fails in this file is certain not to have reached the upstream's application.

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::{NotSentCause, UpstreamError};
use crate::gateway::forward::HostSent;

/// How long a silent peer is believed to be there before the kernel asks.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// A connection that can be spoken on.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Dialling<T> = Pin<Box<dyn Future<Output = Result<T, DialError>> + Send>>;

/// Whom an upstream's certificate must lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Roots {
    /// The certificate authorities that this machine trusts.
    #[default]
    Platform,
    /// These alone.
    Only(Vec<CertificateDer<'static>>),
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct DialError(pub(super) NotSentCause);

/// Opens connections: name, TCP, and TLS for `https`.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    inner: HttpsConnector<Tcp>,
    within: Duration,
}

impl Dial {
    pub(super) fn new(
        base: &Uri,
        roots: Roots,
        host: HostSent,
        within: Duration,
    ) -> Result<Self, UpstreamError> {
        let mut http = HttpConnector::new_with_resolver(Names(GaiResolver::new()));
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE_AFTER));
        // Shared out among the addresses of a name, so that a dead one leaves time for the others.
        http.set_connect_timeout(Some(within));
        let schemes = HttpsConnectorBuilder::new().with_tls_config(tls(base, roots)?);
        let protocols = schemes.https_or_http();
        let tcp = Tcp(http);
        let inner = match host {
            HostSent::Upstream => protocols.enable_all_versions().wrap_connector(tcp),
            // HTTP/2 names the host beside the path, where the pool puts the upstream's.
            HostSent::Caller => protocols.enable_http1().wrap_connector(tcp),
        };
        Ok(Self { inner, within })
    }
}

/// Without early data, which a server could be made to read twice: rustls sends none unless asked.
fn tls(base: &Uri, roots: Roots) -> Result<ClientConfig, UpstreamError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: ring has the suites of every version");
    let mut store = RootCertStore::empty();
    let verifying = match roots {
        Roots::Platform if base.scheme() == Some(&http::uri::Scheme::HTTPS) => {
            versions.with_native_roots().map_err(|_| UpstreamError::NoRoots)?
        }
        // Plain HTTP needs no roots, so a machine without any can use it.
        Roots::Platform => versions.with_root_certificates(store),
        Roots::Only(certificates) => {
            for (at, certificate) in certificates.into_iter().enumerate() {
                let added = store.add(certificate);
                added.map_err(|_| UpstreamError::Certificate { at })?;
            }
            versions.with_root_certificates(store)
        }
    };
    Ok(verifying.with_no_client_auth())
}

impl Service<Uri> for Dial {
    type Response = Stream;
    type Error = DialError;
    type Future = Dialling<Stream>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.inner.poll_ready(context).map_err(|error| cause(&*error, NotSentCause::Unreachable))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let (connecting, within) = (self.inner.call(target), self.within);
        Box::pin(async move {
            let dialled = timeout(within, connecting).await;
            let dialled = dialled.map_err(|_| DialError(NotSentCause::ConnectTimeout))?;
            // What the steps below did not name themselves is what they have on top of them: TLS.
            dialled.map_err(|error| cause(&*error, NotSentCause::Tls))
        })
    }
}

/// TCP, with an error that says what failed.
#[derive(Debug, Clone)]
struct Tcp(HttpConnector<Names>);

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = Dialling<TokioIo<TcpStream>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.0.poll_ready(context).map_err(|error| cause(&error, NotSentCause::Unreachable))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connecting = self.0.call(target);
        Box::pin(async move {
            connecting.await.map_err(|error| {
                let kind = find::<io::Error>(&error).map(io::Error::kind);
                let otherwise = match kind {
                    Some(io::ErrorKind::ConnectionRefused) => NotSentCause::Refused,
                    Some(io::ErrorKind::TimedOut) => NotSentCause::ConnectTimeout,
                    _ => NotSentCause::Unreachable,
                };
                cause(&error, otherwise)
            })
        })
    }
}

/// The platform's resolver, with an error that can be told from those of TCP.
#[derive(Debug, Clone)]
struct Names(GaiResolver);

impl Service<Name> for Names {
    type Response = GaiAddrs;
    type Error = DialError;
    type Future = Dialling<GaiAddrs>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.0.poll_ready(context).map_err(|_| DialError(NotSentCause::Name))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.0.call(name);
        Box::pin(async move { resolving.await.map_err(|_| DialError(NotSentCause::Name)) })
    }
}

/// The cause that a step below has named, or `otherwise`.
fn cause(error: &(dyn Error + 'static), otherwise: NotSentCause) -> DialError {
    find::<DialError>(error).copied().unwrap_or_else(|| {
        // The text of TLS and of the kernel: it names hosts and reasons, nothing of a request.
        tracing::debug!(%error, "an upstream was not reached");
        DialError(otherwise)
    })
}

/// The first error of a type, among `error` and its sources.
pub(super) fn find<'e, E: Error + 'static>(mut error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        error = error.source()?;
    }
}
