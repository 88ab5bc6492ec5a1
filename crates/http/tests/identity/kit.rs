//! Issuers that sign, servers that publish, and what a gate says in one line.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use ed25519_dalek::pkcs8::{EncodePrivateKey, KeypairBytes};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onetake_engine::ManualClock;
use onetake_http::identity::{
    FetchError, FetchKeys, Gate, Identity, JwtGate, JwtSettings, Refused, Times,
};
use rsa::pkcs1::EncodeRsaPrivateKey;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The time at which every manual clock here starts, in seconds since 1970.
pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn clock() -> (Arc<ManualClock>, Times) {
    let clock = Arc::new(ManualClock::at(NOW * 1_000));
    (Arc::clone(&clock), Times::by(clock))
}

pub(crate) fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

pub(crate) async fn admit(gate: &Gate, lines: &[(&str, &str)]) -> Result<Identity, Refused> {
    gate.admit(&headers(lines), PEER).await
}

/// Who was let in, as `tenant/principal`, or the code and the reason.
pub(crate) fn said(admitted: Result<Identity, Refused>) -> String {
    match admitted {
        Ok(identity) => {
            let principal = identity.principal().map_or("-", |name| name.as_str());
            format!("{}/{principal}", identity.tenant().as_str())
        }
        Err(refused) => format!("{}: {}", refused.code_name(), refused.reason()),
    }
}

pub(crate) async fn bearer(gate: &Gate, token: &str) -> Result<Identity, Refused> {
    admit(gate, &[("authorization", &format!("Bearer {token}"))]).await
}

/// Someone who signs tokens.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) key: EncodingKey,
    pub(crate) algorithm: Algorithm,
    pub(crate) kid: &'static str,
}

/// Making one takes long enough to do it once.
static RSA: LazyLock<rsa::RsaPrivateKey> =
    LazyLock::new(|| rsa::RsaPrivateKey::new(&mut rsa::rand_core::OsRng, 2_048).unwrap());

pub(crate) fn rsa_public() -> rsa::RsaPublicKey {
    RSA.to_public_key()
}

impl Signer {
    pub(crate) fn rsa(kid: &'static str, algorithm: Algorithm) -> Self {
        let der = RSA.to_pkcs1_der().unwrap();
        Self { key: EncodingKey::from_rsa_der(der.as_bytes()), algorithm, kid }
    }

    /// Fast to make; `seed` tells one from another.
    pub(crate) fn ed25519(kid: &'static str, seed: u8) -> Self {
        let pair = KeypairBytes { secret_key: [seed; 32], public_key: None };
        let der = pair.to_pkcs8_der().unwrap();
        let key = EncodingKey::from_ed_der(der.as_bytes());
        Self { key, algorithm: Algorithm::EdDSA, kid }
    }

    pub(crate) fn p256(kid: &'static str) -> Self {
        let der = p256::SecretKey::from_slice(&[7; 32]).unwrap().to_pkcs8_der().unwrap();
        let key = EncodingKey::from_ec_der(der.as_bytes());
        Self { key, algorithm: Algorithm::ES256, kid }
    }

    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.kid.to_owned());
        serde_json::to_value(jwk).unwrap()
    }

    pub(crate) fn header(&self) -> Header {
        Header { kid: Some(self.kid.to_owned()), ..Header::new(self.algorithm) }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        encode(&self.header(), claims, &self.key).unwrap()
    }

    /// A token that is good in every respect.
    pub(crate) fn token(&self) -> String {
        self.sign(&claims())
    }
}

pub(crate) fn claims() -> Value {
    json!({
        "iss": "https://idp.example", "aud": "onetake", "exp": NOW + 600,
        "tenant": "acme", "sub": "ann", "scope": "orders:write orders:read",
    })
}

/// [`claims`] with one of them changed, or without it.
pub(crate) fn claims_with(name: &str, value: Option<Value>) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    if let Some(value) = value {
        claims[name] = value;
    }
    claims
}

pub(crate) fn key_set(signers: &[&Signer]) -> Bytes {
    let keys: Vec<_> = signers.iter().map(|signer| signer.jwk()).collect();
    Bytes::from(json!({ "keys": keys }).to_string())
}

pub(crate) fn settings() -> JwtSettings {
    JwtSettings {
        issuer: "https://idp.example".into(),
        audience: "onetake".into(),
        ..JwtSettings::default()
    }
}

/// A source of keys that counts, can fail, and can be made to wait.
#[derive(Clone)]
pub(crate) struct Source(Arc<Inner>);

struct Inner {
    publishes: Mutex<Result<Bytes, FetchError>>,
    asked: AtomicUsize,
    permits: Semaphore,
}

impl Source {
    pub(crate) fn of(signers: &[&Signer]) -> Self {
        let source = Self::held(signers);
        source.let_through(Semaphore::MAX_PERMITS);
        source
    }

    /// Answers only after [`let_through`](Self::let_through).
    pub(crate) fn held(signers: &[&Signer]) -> Self {
        let publishes = Mutex::new(Ok(key_set(signers)));
        let permits = Semaphore::new(0);
        Self(Arc::new(Inner { publishes, asked: AtomicUsize::new(0), permits }))
    }

    pub(crate) fn let_through(&self, count: usize) {
        self.0.permits.add_permits(count);
    }

    pub(crate) fn publish(&self, keys: Result<Bytes, FetchError>) {
        *self.0.publishes.lock().unwrap() = keys;
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn gate(&self, times: &Times) -> Gate {
        Gate::Jwt(settings().build_with(self.clone(), times).unwrap())
    }
}

impl FetchKeys for Source {
    async fn fetch(&self) -> Result<Bytes, FetchError> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        self.0.permits.acquire().await.unwrap().forget();
        self.0.publishes.lock().unwrap().clone()
    }
}

/// A gate that knows the keys of `signers`.
pub(crate) fn gate_for(signers: &[&Signer]) -> Gate {
    Source::of(signers).gate(&clock().1)
}

pub(crate) fn jwt(gate: &Gate) -> &JwtGate {
    match gate {
        Gate::Jwt(gate) => gate,
        Gate::ApiKeys(_) | Gate::TrustedHeader(_) | Gate::Anonymous(_) => panic!("no tokens"),
    }
}

/// A server on the loopback with one answer for each path.
pub(crate) struct Server {
    address: SocketAddr,
    answers: Answers,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

type Answers = Arc<Mutex<HashMap<&'static str, (u16, Bytes)>>>;

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (answers, asked) = (Answers::default(), Arc::new(AtomicUsize::new(0)));
        let (known, counted) = (Arc::clone(&answers), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (known, counted) = (Arc::clone(&known), Arc::clone(&counted));
                let answer = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    let (status, body) = known.lock().unwrap()[request.uri().path()].clone();
                    let response = Response::builder().status(status);
                    let response = response.header("location", "/keys").body(Full::new(body));
                    std::future::ready(Ok::<_, Infallible>(response.unwrap()))
                });
                let http = http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Self { address, answers, asked, task }
    }

    pub(crate) fn answer(&self, path: &'static str, status: u16, body: Bytes) {
        self.answers.lock().unwrap().insert(path, (status, body));
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn gate(&self, path: &str, times: &Times) -> Gate {
        let url = format!("http://{}{path}", self.address);
        let settings = JwtSettings { jwks_url: Some(url), ..settings() };
        Gate::Jwt(settings.build_by(times).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
