//! Where the database is and how it is spoken to: one URL, read once.
//!
//! Everything that the driver knows is left to it. Which certificates are believed is ours, in the
//! words of PostgreSQL's own clients: `sslmode` and `sslrootcert`. A password is never shown.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::{LoadBalanceHosts, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::PostgresError;

/// A database, and how a connection to it is made.
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
}

/// Whose certificates are believed.
#[derive(Debug, PartialEq, Eq)]
enum Trust {
    /// Anybody's: encrypted, and nothing more.
    Anybody,
    /// Whom the machine trusts.
    Platform,
    /// Whom this file names.
    File(PathBuf),
}

impl Address {
    pub(super) fn read(url: &str) -> Result<Self, PostgresError> {
        let (plain, mode, roots) = split(url);
        let mut config: Config = plain.parse().map_err(PostgresError::Address)?;
        let trust = match (mode.as_deref(), roots) {
            (None | Some("disable" | "prefer" | "require"), None) => Trust::Anybody,
            (Some("verify-ca" | "verify-full"), None) => Trust::Platform,
            (_, Some(path)) => Trust::File(path),
            (Some(_), None) => return Err(PostgresError::TlsMode),
        };
        match mode.as_deref() {
            Some("disable") => drop(config.ssl_mode(SslMode::Disable)),
            Some("require" | "verify-ca" | "verify-full") => {
                config.ssl_mode(SslMode::Require);
            }
            Some(_) | None => {}
        }
        if config.get_hosts().len() > 1
            && config.get_target_session_attrs() == TargetSessionAttrs::Any
        {
            // Of several servers only the one that takes writes is of use. Two may say that they
            // do; in any order, so that whoever turns one down finds the other.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            config.load_balance_hosts(LoadBalanceHosts::Random);
        }
        if config.get_application_name().is_none() {
            config.application_name("onetake");
        }
        Ok(Self { config, tls: MakeRustlsConnect::new(tls(&trust)?) })
    }
}

/// Takes out of `url` what the driver does not know, in both of the spellings that it takes.
fn split(url: &str) -> (String, Option<String>, Option<PathBuf>) {
    let (mut mode, mut roots) = (None, None);
    let mut ours = |pair: &str, decode: fn(&str) -> String| match pair.split_once('=') {
        Some(("sslmode", value)) => mode.replace(decode(value)).is_none(),
        Some(("sslrootcert", value)) => roots.replace(PathBuf::from(decode(value))).is_none(),
        _ => false,
    };
    let plain = if let Some((front, query)) = url.split_once('?').filter(|_| url.contains("://")) {
        let rest: Vec<_> = query.split('&').filter(|pair| !ours(pair, decoded)).collect();
        if rest.is_empty() { front.to_owned() } else { format!("{front}?{}", rest.join("&")) }
    } else if url.contains("://") {
        url.to_owned()
    } else {
        let rest = url.split_whitespace().filter(|pair| !ours(pair, str::to_owned));
        rest.collect::<Vec<_>>().join(" ")
    };
    (plain, mode, roots)
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn tls(trust: &Trust) -> Result<ClientConfig, PostgresError> {
    let provider = Arc::new(ring::default_provider());
    let versions = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("invariant: ring has the suites of every version");
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Anybody => {
            let verifier = Arc::new(Unverified(provider));
            return Ok(versions
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth());
        }
        Trust::Platform => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::File(path) => {
            let unreadable = |why: String| PostgresError::Roots { path: path.clone(), why };
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| unreadable(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(PostgresError::NoRoots);
    }
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Believes every certificate. Asked for by `sslmode=require` and below, as everywhere with
/// PostgreSQL: against listeners, not against impostors.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> (SslMode, TargetSessionAttrs) {
        let address = Address::read(url).ok().unwrap();
        (address.config.get_ssl_mode(), address.config.get_target_session_attrs())
    }

    #[test]
    fn an_address_is_read_in_both_spellings_and_several_hosts_mean_the_one_that_writes() {
        let any = TargetSessionAttrs::Any;
        assert_eq!(mode("postgres://a@h/db"), (SslMode::Prefer, any));
        assert_eq!(mode("host=h user=a sslmode=disable"), (SslMode::Disable, any));
        assert_eq!(mode("postgres://a@h/db?sslmode=require&port=5433"), (SslMode::Require, any));
        let several = mode("postgres://a@h1:5432,h2:5432/db");
        assert_eq!(several, (SslMode::Prefer, TargetSessionAttrs::ReadWrite));
    }

    #[test]
    fn certificates_are_asked_for_in_the_words_of_other_clients() {
        let (plain, mode, roots) =
            split("postgres://h/db?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&port=5433");
        assert_eq!(plain, "postgres://h/db?port=5433");
        assert_eq!(mode.as_deref(), Some("verify-full"));
        assert_eq!(roots, Some("/etc/ca.pem".into()));
        let missing = Address::read("postgres://h/db?sslmode=require&sslrootcert=/no/such.pem");
        assert!(matches!(missing, Err(PostgresError::Roots { .. })));
        let strange = Address::read("postgres://h/db?sslmode=maybe");
        assert!(matches!(strange, Err(PostgresError::TlsMode)));
    }
}
