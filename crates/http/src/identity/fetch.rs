//! Where the public keys of an issuer come from: a file, a URL, or a source of your own.
//!
//! Fetches bytes within bounds and never believes them: what they mean is read in `key_set.rs`,
//! how often they are asked for is decided in `ring.rs`. Redirects are not followed.

use std::fs::File;
use std::future::Future;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::Bytes;
use http::header::{ACCEPT, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use super::SettingsError;

/// The most bytes of a set of keys.
pub(super) const KEYS_BYTES_MAX: usize = 1_024 * 1_024;

/// Why there are no keys. Says nothing of where they were looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No connection, or it broke.
    #[error("the keys could not be fetched")]
    Unreachable,
    /// The server answered with another status than 200.
    #[error("the keys were asked for, and the answer was {0}")]
    Status(u16),
    /// No answer within the time limit.
    #[error("the keys did not come in time")]
    TimedOut,
    /// The file cannot be read.
    #[error("the file with the keys cannot be read: {0}")]
    File(std::io::ErrorKind),
    /// More bytes than a set of keys may have.
    #[error("the keys have more than {KEYS_BYTES_MAX} bytes")]
    TooLarge,
    /// More keys than a set may have.
    #[error("there are too many keys in the set")]
    TooManyKeys,
    /// Not a JSON Web Key Set.
    #[error("what was fetched is not a JSON Web Key Set")]
    NotAKeySet,
    /// No key in the set can verify a signature that is allowed.
    #[error("no key of the set can verify a signature; RSA keys need 2048 to 4096 bits")]
    NoKeys,
}

/// A source of public keys: the bytes of a JSON Web Key Set.
///
/// Asked by one task at a time, and no oftener than it should be. An answer that takes longer than
/// the time limit is dropped.
pub trait FetchKeys: Send + Sync + 'static {
    /// Fetches the keys as they are now.
    fn fetch(&self) -> impl Future<Output = Result<Bytes, FetchError>> + Send;
}

/// A future on the heap, so that one gate holds any source.
pub(super) type Fetching<'f> = Pin<Box<dyn Future<Output = Result<Bytes, FetchError>> + Send + 'f>>;

/// [`FetchKeys`] behind a pointer.
pub(super) trait AnySource: Send + Sync + 'static {
    fn fetch_boxed(&self) -> Fetching<'_>;
}

impl<F: FetchKeys> AnySource for F {
    fn fetch_boxed(&self) -> Fetching<'_> {
        Box::pin(self.fetch())
    }
}

/// Keys in a file, which may be replaced while the process runs.
#[derive(Debug, Clone)]
pub struct FileKeys(PathBuf);

impl FileKeys {
    /// Those in the file `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Reads the file here and now, on the thread of the caller.
    pub(super) fn read(&self) -> Result<Bytes, FetchError> {
        let failed = |why: std::io::Error| FetchError::File(why.kind());
        let file = File::open(&self.0).map_err(failed)?;
        let mut bytes = Vec::new();
        let limit = u64::try_from(KEYS_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() > KEYS_BYTES_MAX { Err(FetchError::TooLarge) } else { Ok(bytes.into()) }
    }
}

impl FetchKeys for FileKeys {
    async fn fetch(&self) -> Result<Bytes, FetchError> {
        let file = self.clone();
        let read = tokio::task::spawn_blocking(move || file.read()).await;
        read.unwrap_or(Err(FetchError::Unreachable))
    }
}

/// Keys behind a URL.
#[derive(Debug, Clone)]
pub struct UrlKeys {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    url: Uri,
}

impl UrlKeys {
    /// Those behind `url`, over TLS with the certificates that the machine trusts.
    ///
    /// Without TLS only from this very machine, or where `allow_plain_http` says so: whoever sits
    /// on the way could otherwise hand out keys of their own.
    ///
    /// # Errors
    /// A [`SettingsError`] when the URL will not do, or the machine trusts no certificate.
    pub fn new(url: &str, allow_plain_http: bool) -> Result<Self, SettingsError> {
        let wrong = |why| SettingsError::Url { why };
        let url: Uri = url.parse().map_err(|_| wrong("it is not a URL"))?;
        let host = url.host().ok_or_else(|| wrong("it names no host"))?;
        let is_local = host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("it must not hold a password"));
        }
        let is_plain = url.scheme() == Some(&Scheme::HTTP);
        if is_plain && !is_local && !allow_plain_http {
            return Err(wrong("it must be https, or allow_plain_http must be true"));
        }
        if !is_plain && url.scheme() != Some(&Scheme::HTTPS) {
            return Err(wrong("it must begin with https://"));
        }
        let connector = if is_plain { plain() } else { secure() };
        // Nothing is kept open between two fetches that are minutes apart.
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector.map_err(wrong)?);
        Ok(Self { client, url })
    }
}

/// Why no connection can ever be made.
type NoTls = &'static str;

fn secure() -> Result<HttpsConnector<HttpConnector>, NoTls> {
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(ring::default_provider())
        .map_err(|_| "this machine trusts no certificates")?;
    Ok(connector.https_only().enable_http1().build())
}

/// Needs no certificates, so it works on a machine that has none.
fn plain() -> Result<HttpsConnector<HttpConnector>, NoTls> {
    let tls = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|_| "no version of TLS is known")?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build())
}

impl FetchKeys for UrlKeys {
    async fn fetch(&self) -> Result<Bytes, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("onetake"));
        let asked = self.client.request(request).await;
        let response = asked.map_err(|_| FetchError::Unreachable)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), KEYS_BYTES_MAX).collect().await;
        body.map(http_body_util::Collected::to_bytes).map_err(|why| {
            let is_large = why.is::<http_body_util::LengthLimitError>();
            if is_large { FetchError::TooLarge } else { FetchError::Unreachable }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_for_keys_is_safe_or_refused() {
        for good in
            ["http://127.0.0.1:8080/keys", "http://[::1]:8080/keys", "http://localhost/keys"]
        {
            assert!(UrlKeys::new(good, false).is_ok(), "{good}");
        }
        assert!(UrlKeys::new("http://idp.internal/keys", true).is_ok());
        for bad in [
            "",
            "keys.json",
            "/keys.json",
            "ftp://idp.example/keys",
            "http://idp.example/keys",
            "http://127.0.0.1.evil.example/keys",
            "https://ann:hush@idp.example/keys",
        ] {
            let refused = UrlKeys::new(bad, false).unwrap_err().to_string();
            assert!(!refused.contains("hush"), "{refused}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_or_missing_is_no_source() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        let missing = FileKeys::new(&path).read().unwrap_err();
        assert_eq!(missing, FetchError::File(std::io::ErrorKind::NotFound));
        std::fs::write(&path, vec![b' '; KEYS_BYTES_MAX + 1]).unwrap();
        assert_eq!(FileKeys::new(&path).read(), Err(FetchError::TooLarge));
        std::fs::write(&path, vec![b' '; KEYS_BYTES_MAX]).unwrap();
        assert_eq!(FileKeys::new(&path).read().unwrap().len(), KEYS_BYTES_MAX);
    }
}
