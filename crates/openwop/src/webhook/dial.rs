//! Opens a connection to the receiver of a webhook: name, check, TCP, TLS.
//!
//! A name is resolved once. Every address that it has is checked, and a connection is made to none
//! but those: a second look-up could be answered with another address. No proxy is used, whatever
//! the environment says, and nothing is sent here.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::guard::{Guard, Rejected, Target, TargetHost};
use super::send::{SenderError, Unreached};

/// The most addresses of one name that are tried. All are checked.
const ADDRESSES_MAX: usize = 4;

/// Where the addresses of a name come from.
pub(crate) trait Resolve: Send + Sync + 'static {
    /// Every address of `name`, with `port`.
    ///
    /// # Errors
    /// Why there is none.
    fn resolve(
        &self,
        name: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// The resolver of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemNames;

impl Resolve for SystemNames {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((name, port)).await?.collect())
    }
}

/// Whom the certificate of a receiver must lead to.
#[derive(Debug, Clone, Default)]
pub(crate) enum Trust {
    /// The certificate authorities that this machine trusts.
    #[default]
    Platform,
    /// These alone.
    #[cfg_attr(not(test), allow(dead_code, reason = "a host trusts what its machine does"))]
    Only(Vec<CertificateDer<'static>>),
}

/// Addresses of one target that the guard has let through. There is no other way to one.
#[derive(Debug)]
pub(super) struct Checked(Vec<SocketAddr>);

/// Why there is no address to connect to.
pub(super) enum Unchecked {
    /// The guard says no.
    Forbidden(Rejected),
    /// The name has no address.
    Unknown,
}

/// Looks a target up once, and checks the target and every address that it has.
pub(super) async fn look_up(
    guard: &Guard,
    names: &impl Resolve,
    target: &Target,
) -> Result<Checked, Unchecked> {
    // The settings may have changed since it was registered.
    guard.check(target).map_err(Unchecked::Forbidden)?;
    let addresses = match target.host() {
        TargetHost::Address(ip) => vec![SocketAddr::new(*ip, target.port())],
        TargetHost::Name(name) => {
            let found = names.resolve(name, target.port()).await;
            found.map_err(|_| Unchecked::Unknown)?
        }
    };
    // One address that is not public spoils them all: an honest name has none.
    if let Some(what) = addresses.iter().find_map(|address| guard.refusal(address.ip())) {
        return Err(Unchecked::Forbidden(Rejected::Resolved(what)));
    }
    if addresses.is_empty() { Err(Unchecked::Unknown) } else { Ok(Checked(addresses)) }
}

/// A connection, with or without TLS.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects to the first of the addresses that answers, and speaks TLS if the target wants it.
pub(super) async fn open(
    addresses: &Checked,
    target: &Target,
    tls: &TlsConnector,
    deadline: Instant,
) -> Result<Box<dyn Stream>, Unreached> {
    let tcp = connect(addresses, deadline).await?;
    if !target.is_secure() {
        return Ok(Box::new(tcp));
    }
    let name = server_name(target.host())?;
    let stream = tls.connect(name, tcp).await.map_err(|error| {
        // The text of TLS: it names hosts and reasons, nothing of a delivery.
        tracing::debug!(%error, "the receiver of a webhook is not to be believed");
        Unreached::Tls
    })?;
    Ok(Box::new(stream))
}

/// Who must be named by the certificate: the host of the URL, not the address behind it.
fn server_name(host: &TargetHost) -> Result<ServerName<'static>, Unreached> {
    match host {
        TargetHost::Address(ip) => Ok(ServerName::from(*ip)),
        TargetHost::Name(name) => {
            ServerName::try_from(String::from(&**name)).map_err(|_| Unreached::Tls)
        }
    }
}

/// Each address has its share of the time, so that a dead one leaves some for the others.
async fn connect(Checked(addresses): &Checked, deadline: Instant) -> Result<TcpStream, Unreached> {
    let mut why = Unreached::Name;
    for (tried, address) in addresses.iter().take(ADDRESSES_MAX).enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let others = addresses.len().min(ADDRESSES_MAX) - tried;
        let share = left / u32::try_from(others).unwrap_or(1);
        why = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Unreached::Refused
            }
            Ok(Err(_)) => Unreached::NoRoute,
            Err(_) => Unreached::Timeout,
        };
    }
    Err(why)
}

/// TLS with certificates verified. A guard that lets plain HTTP through does without any.
pub(super) fn tls(trust: Trust, guard: &Guard) -> Result<TlsConnector, SenderError> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Platform => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() && !guard.allow_private {
                return Err(SenderError::NoRoots);
            }
        }
        Trust::Only(certificates) => {
            for (at, certificate) in certificates.into_iter().enumerate() {
                roots.add(certificate).map_err(|_| SenderError::Certificate { at })?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("invariant: ring has the suites of every version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
