//! Who is let in by each gate of the gateway, and who is not.
//!
//! Tokens are signed with keys that are made here; keys behind a URL come from a real server on the
//! loopback. Time is a manual clock, and no test waits for a real one.
#![cfg(feature = "gateway")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod kit {
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
                    let answer =
                        service_fn(move |request: http::Request<hyper::body::Incoming>| {
                            counted.fetch_add(1, Ordering::SeqCst);
                            let (status, body) =
                                known.lock().unwrap()[request.uri().path()].clone();
                            let response = Response::builder().status(status);
                            let response =
                                response.header("location", "/keys").body(Full::new(body));
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
}

mod api_keys {
    //! Keys that were given out.

    use std::time::Duration;

    use onetake_http::identity::{
        ApiKeySettings, Gate, KeyOfTenant, TenantKeys, Words, generate_key,
    };

    use crate::kit::{admit, bearer, clock, said};

    fn tenant(name: &str, keys: Vec<KeyOfTenant>) -> TenantKeys {
        TenantKeys { name: name.to_owned(), keys, ..TenantKeys::default() }
    }

    fn gate(tenants: &[TenantKeys]) -> Gate {
        Gate::ApiKeys(ApiKeySettings::default().build_by(tenants, &clock().1).unwrap())
    }

    #[tokio::test]
    async fn every_refusal_of_a_key_is_in_this_table() {
        let (key, digest) = generate_key().unwrap();
        let (gone, gone_digest) = generate_key().unwrap();
        let ended = KeyOfTenant {
            expires: Some("2027-01-15T07:59:59Z".to_owned()),
            ..KeyOfTenant::from(&*gone_digest)
        };
        let gate = gate(&[tenant("acme", vec![(&*digest).into(), ended])]);
        let unknown = "identity_invalid: no tenant has this key";
        let long = "identity_invalid: the credential is longer than any that is taken";
        let scheme = "identity_invalid: the scheme of the credential is not Bearer";
        let table = [
            (format!("Bearer {key}"), "acme/-"),
            (format!("bearer {key}"), "acme/-"),
            (format!("Bearer {gone}"), "identity_invalid: the key has expired"),
            (format!("Bearer {key}x"), unknown),
            (format!("Bearer {digest}"), unknown),
            (format!("Bearer {}", digest.trim_start_matches("sha256:")), unknown),
            (format!("Bearer {}", "x".repeat(4_096)), unknown),
            (format!("Bearer {}", "x".repeat(4_097)), long),
            (format!("Basic {key}"), scheme),
            ("Bearer ".to_owned(), "identity_invalid: the credential is empty"),
        ];
        for (line, expected) in &table {
            let found = said(admit(&gate, &[("authorization", line)]).await);
            assert_eq!(found, *expected, "{line}");
        }
        let line = ("authorization", &*table[0].0);
        let twice = said(admit(&gate, &[line, line]).await);
        assert_eq!(twice, "identity_invalid: more than one credential was sent");
        let elsewhere = said(admit(&gate, &[("x-api-key", &key)]).await);
        assert_eq!(elsewhere, "identity_missing: no credential was sent");
    }

    #[tokio::test]
    async fn unknown_revoked_and_expired_keys_read_the_same_to_a_caller() {
        let (clock, times) = clock();
        let (revoked, one) = generate_key().unwrap();
        let (expiring, other) = generate_key().unwrap();
        let other = KeyOfTenant {
            expires: Some("2027-01-15T08:00:10Z".to_owned()),
            ..KeyOfTenant::from(&*other)
        };
        let tenants = [tenant("acme", vec![(&*one).into(), other.clone()])];
        let keys = ApiKeySettings::default().build_by(&tenants, &times).unwrap();
        let gate = Gate::ApiKeys(keys.clone());
        for key in [&revoked, &expiring] {
            assert!(bearer(&gate, key).await.is_ok());
        }
        keys.replace(&[tenant("acme", vec![other])]).unwrap();
        assert!(bearer(&gate, &expiring).await.is_ok());
        clock.advance(Duration::from_secs(10));
        let mut heard = Vec::new();
        for key in [&*revoked, &*expiring, "otk_never"] {
            let refused = bearer(&gate, key).await.unwrap_err();
            heard.push((refused.status(), refused.to_string(), refused.challenge()));
        }
        assert!(heard.windows(2).all(|pair| pair[0] == pair[1]), "{heard:?}");
    }

    #[tokio::test]
    async fn keys_are_replaced_at_run_time_all_or_none() {
        let ((old, old_digest), (new, new_digest)) =
            (generate_key().unwrap(), generate_key().unwrap());
        let tenants = [tenant("acme", vec![(&*old_digest).into()])];
        let keys = ApiKeySettings::default().build(&tenants).unwrap();
        let gate = Gate::ApiKeys(keys.clone());
        let broken = [tenant("acme", vec![(&*new_digest).into(), "oops".into()])];
        assert!(keys.replace(&broken).is_err());
        assert!(bearer(&gate, &old).await.is_ok(), "what was there stays");
        assert!(bearer(&gate, &new).await.is_err());
        keys.replace(&[tenant("other", vec![(&*new_digest).into()])]).unwrap();
        assert!(bearer(&gate, &old).await.is_err());
        assert_eq!(said(bearer(&gate, &new).await), "other/-");
        keys.replace(&[]).unwrap();
        assert!(bearer(&gate, &new).await.is_err());
    }

    /// The point of several keys: a caller that changes its key still finds what it did before.
    #[tokio::test]
    async fn a_rotated_key_keeps_its_scope() {
        let made: Vec<_> = (0..6).map(|_| generate_key().unwrap()).collect();
        let named = |n: usize, name: &str| KeyOfTenant {
            name: Some(name.to_owned()),
            ..KeyOfTenant::from(&*made[n].1)
        };
        let plain = |n: usize| KeyOfTenant::from(&*made[n].1);
        let keys = vec![plain(0), plain(1), named(2, "billing"), named(3, "billing")];
        let shared = TenantKeys {
            share_scope: true,
            ..tenant("shared", vec![named(4, "billing"), plain(5)])
        };
        let gate = gate(&[tenant("acme", keys), shared]);
        let mut scopes = Vec::new();
        for (key, _) in &made {
            scopes.push(bearer(&gate, key).await.unwrap().scope());
        }
        assert_eq!(scopes[0], scopes[1], "keys without a name are one");
        assert_eq!(scopes[2], scopes[3], "keys of one name are one");
        assert_ne!(scopes[0], scopes[2], "a name is a subject of its own");
        assert_eq!(scopes[4], scopes[5], "unless the tenant shares");
        assert_eq!(scopes[4].principal(), None);
    }

    #[tokio::test]
    async fn a_key_has_the_scopes_of_its_tenant_or_fewer() {
        let made: Vec<_> = (0..3).map(|_| generate_key().unwrap()).collect();
        let narrow =
            KeyOfTenant { scopes: Some(Words::from("read")), ..KeyOfTenant::from(&*made[1].1) };
        let some = TenantKeys {
            scopes: Some(Words::from(["read", "write"])),
            ..tenant("some", vec![(&*made[0].1).into(), narrow])
        };
        let gate = gate(&[some, tenant("all", vec![(&*made[2].1).into()])]);
        let mut table = Vec::new();
        for (key, _) in &made {
            let identity = bearer(&gate, key).await.unwrap();
            table.push(["read", "write", "admin"].map(|scope| identity.may(scope)));
            let refused = identity.require("admin").err().map(|refused| refused.code_name());
            assert_eq!(refused, (!identity.may("admin")).then_some("identity_forbidden"));
        }
        assert_eq!(table, [[true, true, false], [true, false, false], [true, true, true]]);
    }

    #[tokio::test]
    async fn a_key_may_come_in_a_header_of_its_own_and_leave_authorization_alone() {
        let (key, digest) = generate_key().unwrap();
        let tenants = [tenant("acme", vec![(&*digest).into()])];
        let build = |words: Words| {
            let settings = ApiKeySettings { headers: words };
            Gate::ApiKeys(settings.build(&tenants).unwrap())
        };
        let own = build(Words::from("X-Api-Key"));
        let (mine, theirs) = (("x-api-key", &*key), ("authorization", "Basic dXBzdHJlYW0="));
        assert_eq!(said(admit(&own, &[mine, theirs]).await), "acme/-");
        assert_eq!(own.credentials(), ["x-api-key"]);
        let both = build(Words::from(["authorization", "x-api-key"]));
        assert_eq!(said(admit(&both, &[mine]).await), "acme/-");
        assert_eq!(said(bearer(&both, &key).await), "acme/-");
        let twice = said(admit(&both, &[mine, theirs]).await);
        assert_eq!(twice, "identity_invalid: more than one credential was sent");
    }

    #[test]
    fn what_is_wrong_with_keys_is_said_by_place() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let key = || KeyOfTenant::from(&*digest);
        let scoped = KeyOfTenant { scopes: Some(Words::from("admin")), ..key() };
        let build = |tenants: &[TenantKeys]| {
            ApiKeySettings::default().build(tenants).unwrap_err().to_string()
        };
        let pasted = build(&[tenant("acme", vec![key(), "otk_pasted".into()])]);
        assert!(pasted.starts_with("key 2 of tenant `acme` is not `sha256:`"), "{pasted}");
        assert!(!pasted.contains("pasted"));
        let twice = build(&[tenant("a", vec![key()]), tenant("b", vec![key()])]);
        assert_eq!(twice, "key 1 of tenant `b` is listed before; a key has one holder");
        let same = build(&[tenant("a", vec![]), tenant("a", vec![])]);
        assert!(same.contains("`a` is listed twice"), "{same}");
        let limited = TenantKeys { scopes: Some(Words::from("read")), ..tenant("a", vec![scoped]) };
        assert!(build(&[limited]).contains("a scope that its tenant has not"));
        let never = KeyOfTenant { expires: Some("tomorrow".to_owned()), ..key() };
        assert!(build(&[tenant("a", vec![never])]).contains("2027-01-31T00:00:00Z"));
        assert!(build(&[tenant("", vec![])]).contains("tenant is empty"));
        let nameless = KeyOfTenant { name: Some(String::new()), ..key() };
        assert!(build(&[tenant("a", vec![nameless])]).contains("principal is empty"));
        let wrong = ApiKeySettings { headers: Words::from("not a header") };
        assert!(wrong.build(&[]).is_err());
    }
}

mod tokens {
    //! Signed tokens, one fault at a time.

    use std::time::{Duration, UNIX_EPOCH};

    use base64::Engine;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use onetake_http::identity::{Gate, JwtSettings, Secret, Words};
    use rsa::pkcs1::EncodeRsaPublicKey;
    use rsa::pkcs8::{EncodePublicKey, LineEnding};
    use rsa::traits::PublicKeyParts;
    use serde_json::{Value, json};

    use crate::kit::{
        NOW, Signer, Source, admit, bearer, claims, claims_with, clock, gate_for, key_set,
        rsa_public, said, settings,
    };

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn hs256(secret: &[u8], claims: &Value) -> String {
        encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    /// A token with any header, signed by nobody or by whoever signed `signature`.
    fn forged(header: &Value, claims: &Value, signature: &str) -> String {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(header), part(claims))
    }

    #[tokio::test]
    async fn a_token_of_every_family_is_admitted() {
        let signers = [
            Signer::rsa("rs256", Algorithm::RS256),
            Signer::rsa("rs512", Algorithm::RS512),
            Signer::rsa("ps384", Algorithm::PS384),
            Signer::p256("es256"),
            Signer::ed25519("eddsa", 1),
        ];
        let gate = gate_for(&signers.iter().collect::<Vec<_>>());
        for signer in &signers {
            let identity = bearer(&gate, &signer.token()).await.unwrap();
            assert_eq!(identity.tenant().as_str(), "acme");
            assert_eq!(identity.principal().unwrap().as_str(), "ann");
            assert!(identity.may("orders:read") && !identity.may("orders"));
            let end = UNIX_EPOCH + Duration::from_secs(NOW + 600 + 30);
            assert_eq!(identity.expires_at(), Some(end));
        }
    }

    #[tokio::test]
    async fn every_refusal_of_a_claim_is_in_this_table() {
        let signer = Signer::ed25519("k", 1);
        let gate = gate_for(&[&signer]);
        let lacking = "identity_invalid: the token has no `exp`, `iss` or `aud`";
        let issuer = "identity_invalid: the token comes from another issuer";
        let audience = "identity_invalid: the token is for another audience";
        let expired = "identity_invalid: the token has expired";
        let early = "identity_invalid: the token is not good yet";
        let tenant = "identity_forbidden: the token names no tenant";
        let principal = "identity_forbidden: the token names no principal";
        let table = [
            ("iss", None, lacking),
            ("iss", Some(json!(7)), lacking),
            ("iss", Some(json!("https://evil.example")), issuer),
            ("iss", Some(json!("https://idp.example/")), issuer),
            ("aud", None, lacking),
            ("aud", Some(json!([])), audience),
            ("aud", Some(json!("others")), audience),
            ("aud", Some(json!(["others", "more"])), audience),
            ("aud", Some(json!(["others", "onetake"])), "acme/ann"),
            ("exp", None, lacking),
            ("exp", Some(json!("soon")), lacking),
            ("exp", Some(json!(NOW - 30)), expired),
            ("exp", Some(json!(NOW - 29)), "acme/ann"),
            ("nbf", Some(json!(NOW + 30)), "acme/ann"),
            ("nbf", Some(json!(NOW + 31)), early),
            ("tenant", None, tenant),
            ("tenant", Some(json!("")), tenant),
            ("tenant", Some(json!(["acme"])), tenant),
            ("sub", None, principal),
            ("sub", Some(json!("a\u{0}b")), principal),
        ];
        for (name, value, expected) in table {
            let token = signer.sign(&claims_with(name, value.clone()));
            assert_eq!(said(bearer(&gate, &token).await), expected, "{name} {value:?}");
            let again = said(bearer(&gate, &token).await);
            assert_eq!(again, expected, "the second time: {name} {value:?}");
        }
    }

    #[tokio::test]
    async fn every_refusal_of_a_form_is_in_this_table() {
        let (signer, stranger) = (Signer::ed25519("k", 1), Signer::ed25519("k", 2));
        let gate = gate_for(&[&signer]);
        let good = signer.token();
        let (front, signature) = good.rsplit_once('.').unwrap();
        let (header, payload) = front.split_once('.').unwrap();
        let evil =
            BASE64_URL_SAFE_NO_PAD.encode(claims_with("tenant", Some(json!("evil"))).to_string());
        let with = |change: fn(&mut Header)| {
            let mut header = signer.header();
            change(&mut header);
            encode(&header, &claims(), &signer.key).unwrap()
        };
        let bad = "identity_invalid: the signature of the token is not good";
        let none = "identity_invalid: the credential is not a token";
        let unfit = "identity_invalid: no key of the issuer fits the token";
        let typ = "identity_invalid: the token is of another type than those allowed";
        let table = [
            (good.clone(), "acme/ann"),
            (with(|header| header.typ = Some("at+JWT".into())), "acme/ann"),
            (with(|header| header.typ = Some("application/at+jwt".into())), "acme/ann"),
            (with(|header| header.typ = None), "acme/ann"),
            (with(|header| header.kid = None), "acme/ann"),
            (with(|header| header.kid = Some("other".into())), unfit),
            (with(|header| header.typ = Some("logout+jwt".into())), typ),
            (
                with(|header| header.crit = Some(vec!["b64".into()])),
                "identity_invalid: the token demands something that is not known here",
            ),
            (stranger.token(), bad),
            (format!("{header}.{evil}.{signature}"), bad),
            (format!("{header}.{payload}."), bad),
            (format!("{header}.{payload}"), none),
            (format!("{good}.more"), none),
            ("..".to_owned(), none),
            ("no-token".to_owned(), none),
            (
                "x".repeat(8 * 1_024 + 1),
                "identity_invalid: the credential is longer than any that is taken",
            ),
        ];
        for (token, expected) in table {
            assert_eq!(said(bearer(&gate, &token).await), expected, "{token}");
        }
        assert_eq!(said(admit(&gate, &[]).await), "identity_missing: no credential was sent");
    }

    /// `none` is no algorithm, however it is written, and whatever else is allowed.
    #[tokio::test]
    async fn an_unsigned_token_is_never_admitted() {
        let signer = Signer::ed25519("k", 1);
        let gate = gate_for(&[&signer]);
        let signature = signer.token().rsplit_once('.').unwrap().1.to_owned();
        for name in ["none", "None", "NONE", "nOnE", ""] {
            for signature in ["", "AA", &signature] {
                let header = json!({ "alg": name, "kid": "k", "typ": "JWT" });
                let token = forged(&header, &claims(), signature);
                let found = said(bearer(&gate, &token).await);
                assert_eq!(found, "identity_invalid: the credential is not a token", "{name}");
            }
        }
        let refused = JwtSettings { algorithms: Words::from("none"), ..settings() };
        let refused = refused.build_with(Source::of(&[&signer]), &clock().1).unwrap_err();
        assert!(refused.to_string().contains("\"none\" is not an algorithm"), "{refused}");
    }

    /// Who knows the public key, as everybody does, must not be able to sign with it.
    #[tokio::test]
    async fn a_public_key_is_never_taken_for_a_secret() {
        let signer = Signer::rsa("k", Algorithm::RS256);
        let public = rsa_public();
        let pem = public.to_public_key_pem(LineEnding::LF).unwrap();
        let guesses = [
            public.to_pkcs1_der().unwrap().into_vec(),
            public.to_public_key_der().unwrap().into_vec(),
            pem.trim_end().as_bytes().to_vec(),
            pem.into_bytes(),
            public.n().to_bytes_be(),
            signer.jwk()["n"].as_str().unwrap().as_bytes().to_vec(),
            signer.jwk().to_string().into_bytes(),
            key_set(&[&signer]).to_vec(),
        ];
        let plain = gate_for(&[&signer]);
        let both = JwtSettings {
            algorithms: Words::from(["RS256", "HS256"]),
            secret: Some(Secret::new(SECRET)),
            ..settings()
        };
        let source = Source::of(&[&signer]);
        let both = Gate::Jwt(both.build_with(source, &clock().1).unwrap());
        for guess in &guesses {
            for kid in [None, Some("k".to_owned())] {
                let header = Header { kid, ..Header::new(Algorithm::HS256) };
                let key = EncodingKey::from_secret(guess);
                let token = encode(&header, &claims(), &key).unwrap();
                let found = said(bearer(&plain, &token).await);
                assert_eq!(found, "identity_invalid: the algorithm of the token is not allowed");
                let found = said(bearer(&both, &token).await);
                assert_eq!(found, "identity_invalid: the signature of the token is not good");
            }
        }
        assert!(bearer(&both, &signer.token()).await.is_ok());
        assert!(bearer(&both, &hs256(SECRET.as_bytes(), &claims())).await.is_ok());
    }

    #[tokio::test]
    async fn a_token_does_not_bring_its_own_key() {
        let (signer, stranger) = (Signer::ed25519("k", 1), Signer::ed25519("k", 2));
        let gate = gate_for(&[&signer]);
        let mut header = stranger.header();
        header.jwk = Some(serde_json::from_value(stranger.jwk()).unwrap());
        header.jku = Some("https://evil.example/keys".to_owned());
        let token = encode(&header, &claims(), &stranger.key).unwrap();
        let found = said(bearer(&gate, &token).await);
        assert_eq!(found, "identity_invalid: the signature of the token is not good");
    }

    #[tokio::test]
    async fn only_what_is_on_the_list_is_verified() {
        let (rsa, ed) = (Signer::rsa("r", Algorithm::RS256), Signer::ed25519("e", 1));
        let narrow = JwtSettings { algorithms: Words::from("EdDSA"), ..settings() };
        let source = Source::of(&[&rsa, &ed]);
        let gate = Gate::Jwt(narrow.build_with(source, &clock().1).unwrap());
        assert!(bearer(&gate, &ed.token()).await.is_ok());
        let found = said(bearer(&gate, &rsa.token()).await);
        assert_eq!(found, "identity_invalid: the algorithm of the token is not allowed");
    }

    #[tokio::test]
    async fn a_shared_secret_verifies_alone() {
        let gate = JwtSettings { secret: Some(Secret::new(SECRET)), ..settings() };
        let gate = Gate::Jwt(gate.build_by(&clock().1).unwrap());
        assert_eq!(said(bearer(&gate, &hs256(SECRET.as_bytes(), &claims())).await), "acme/ann");
        let other = said(bearer(&gate, &hs256(b"guess", &claims())).await);
        assert_eq!(other, "identity_invalid: the signature of the token is not good");
        let ed = said(bearer(&gate, &Signer::ed25519("k", 1).token()).await);
        assert_eq!(ed, "identity_invalid: the algorithm of the token is not allowed");
    }

    #[tokio::test]
    async fn tenant_principal_and_scopes_come_from_the_claims_that_are_named() {
        let signer = Signer::ed25519("k", 1);
        let mut claims = claims();
        claims["org"] = json!({ "id": "inner" });
        claims["https://example.com/tenant"] = json!("outer");
        claims["client_id"] = json!("robot");
        claims["scp"] = json!(["a"]);
        let token = signer.sign(&claims);
        let table: [(JwtSettings, &str); 4] = [
            (JwtSettings { tenant_claim: Some("org.id".into()), ..settings() }, "inner/ann"),
            (
                JwtSettings {
                    tenant_claim: Some("/https:~1~1example.com~1tenant".into()),
                    ..settings()
                },
                "outer/ann",
            ),
            (JwtSettings { tenant: Some("fixed".into()), ..settings() }, "fixed/ann"),
            (JwtSettings { principal_claim: "client_id".into(), ..settings() }, "acme/robot"),
        ];
        for (settings, expected) in table {
            let settings = JwtSettings { scope_claim: "scp".into(), ..settings };
            let gate = settings.build_with(Source::of(&[&signer]), &clock().1).unwrap();
            let identity = bearer(&Gate::Jwt(gate), &token).await.unwrap();
            assert!(identity.may("a") && !identity.may("orders:read"));
            assert_eq!(identity.scope().principal(), identity.principal());
            assert_eq!(said(Ok(identity)), expected);
        }
        let shared = JwtSettings { share_scope: true, ..settings() };
        let gate = shared.build_with(Source::of(&[&signer]), &clock().1).unwrap();
        let identity = bearer(&Gate::Jwt(gate), &token).await.unwrap();
        assert_eq!(identity.scope().principal(), None);
        assert_eq!(identity.principal().unwrap().as_str(), "ann", "it is still known who it was");
    }

    #[test]
    fn what_is_wrong_with_the_settings_of_tokens_is_said() {
        let secret = || Some(Secret::new(SECRET));
        let url = || Some("https://idp.example/keys".to_owned());
        let refused = |settings: JwtSettings| settings.build().unwrap_err().to_string();
        let table = [
            (JwtSettings { issuer: Words::default(), secret: secret(), ..settings() }, "`issuer`"),
            (JwtSettings { issuer: Words::from(""), secret: secret(), ..settings() }, "`issuer`"),
            (
                JwtSettings { audience: Words::default(), secret: secret(), ..settings() },
                "`audience`",
            ),
            (settings(), "`jwks_url` is missing"),
            (
                JwtSettings { jwks_url: url(), jwks_file: Some("keys.json".into()), ..settings() },
                "exclude each other",
            ),
            (JwtSettings { jwks_file: Some("no-such.json".into()), ..settings() }, "`jwks_file`"),
            (
                JwtSettings { jwks_url: Some("http://idp.example/".into()), ..settings() },
                "must be https",
            ),
            (
                JwtSettings { algorithms: "RS256".into(), secret: secret(), ..settings() },
                "RS256 is allowed, but there is no `jwks_url` or `jwks_file`",
            ),
            (
                JwtSettings { algorithms: "HS512".into(), secret: secret(), ..settings() },
                "at least 64 bytes",
            ),
            (JwtSettings { secret: Some(Secret::new("hush")), ..settings() }, "at least 32 bytes"),
            (
                JwtSettings { leeway: Duration::from_secs(301), secret: secret(), ..settings() },
                "`leeway` is more than 300 seconds",
            ),
            (
                JwtSettings {
                    tenant: Some("a".into()),
                    tenant_claim: Some("b".into()),
                    secret: secret(),
                    ..settings()
                },
                "`tenant` and `tenant_claim` exclude each other",
            ),
            (
                JwtSettings { principal_claim: "a..b".into(), secret: secret(), ..settings() },
                "is not a claim",
            ),
        ];
        for (settings, expected) in table {
            let found = refused(settings);
            assert!(found.contains(expected) && !found.contains("hush"), "{found}: {expected}");
        }
        let source = Source::of(&[&Signer::ed25519("k", 1)]);
        let lonely = JwtSettings { algorithms: "HS256".into(), ..settings() };
        let lonely = lonely.build_with(source, &clock().1).unwrap_err().to_string();
        assert!(lonely.contains("no `secret` to verify it with"), "{lonely}");
    }
}

mod keys_of_an_issuer {
    //! How the public keys of an issuer come, change and go.

    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use jsonwebtoken::encode;
    use onetake_http::identity::{FetchError, FetchKeys, Gate, JwtSettings};
    use tokio::task::JoinSet;

    use crate::kit::{
        Server, Signer, Source, bearer, claims, claims_with, clock, jwt, key_set, said, settings,
    };

    const UNFIT: &str = "identity_invalid: no key of the issuer fits the token";
    const UNKNOWN: &str = "identity_unavailable: the keys of the issuer are not known";
    const MAYBE: &str =
        "identity_unavailable: the key of the token may be new, and none can be fetched";

    /// A token of `signer` that lasts for days.
    fn lasting(signer: &Signer) -> String {
        signer.sign(&claims_with("exp", Some((crate::kit::NOW + 1_000_000).into())))
    }

    /// A token that names a key which nobody has.
    fn naming(signer: &Signer, kid: String) -> String {
        let mut header = signer.header();
        header.kid = Some(kid);
        encode(&header, &claims(), &signer.key).unwrap()
    }

    #[tokio::test]
    async fn keys_behind_a_url_are_fetched_once_and_again_when_they_age() {
        let (clock, times) = clock();
        let server = Server::start().await;
        let signer = Signer::ed25519("k", 1);
        server.answer("/keys", 200, key_set(&[&signer]));
        let gate = server.gate("/keys", &times);
        jwt(&gate).warm().await.unwrap();
        for _ in 0..10 {
            assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
        }
        assert_eq!(server.asked(), 1);
        clock.advance(Duration::from_secs(599));
        bearer(&gate, &lasting(&signer)).await.unwrap();
        assert_eq!(server.asked(), 1);
        clock.advance(Duration::from_secs(1));
        bearer(&gate, &lasting(&signer)).await.unwrap();
        // Waits for the fetch that goes on behind the caller's back.
        let unfit = naming(&signer, "other".to_owned());
        assert_eq!(said(bearer(&gate, &unfit).await), UNFIT);
        assert_eq!(server.asked(), 2);
    }

    #[tokio::test]
    async fn aging_keys_are_fetched_again_and_nobody_waits_for_it() {
        let (clock, times) = clock();
        let (old, new) = (Signer::ed25519("old", 1), Signer::ed25519("new", 2));
        let source = Source::held(&[&old]);
        source.let_through(1);
        let gate = source.gate(&times);
        jwt(&gate).warm().await.unwrap();
        clock.advance(Duration::from_secs(600));
        // The source hangs, and callers with a known key do not notice.
        assert_eq!(said(bearer(&gate, &lasting(&old)).await), "acme/ann");
        settled(|| source.asked() == 2).await;
        assert_eq!(said(bearer(&gate, &lasting(&old)).await), "acme/ann");
        source.publish(Ok(key_set(&[&new])));
        source.let_through(1);
        assert_eq!(said(bearer(&gate, &lasting(&new)).await), "acme/ann");
        assert_eq!(said(bearer(&gate, &lasting(&old)).await), UNFIT);
        assert_eq!(source.asked(), 2);
    }

    #[tokio::test]
    async fn a_gate_that_was_idle_does_not_begin_with_a_key_that_was_withdrawn() {
        let (clock, times) = clock();
        let (old, new) = (Signer::ed25519("old", 1), Signer::ed25519("new", 2));
        let source = Source::of(&[&old]);
        let gate = source.gate(&times);
        assert_eq!(said(bearer(&gate, &lasting(&old)).await), "acme/ann");
        source.publish(Ok(key_set(&[&new])));
        clock.advance(Duration::from_secs(20 * 60));
        assert_eq!(said(bearer(&gate, &lasting(&old)).await), UNFIT);
        assert_eq!(source.asked(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_source_that_is_down() {
        let began = tokio::time::Instant::now();
        let (clock, times) = clock();
        let signer = Signer::ed25519("k", 1);
        let source = Source::held(&[&signer]);
        source.let_through(2);
        let gate = source.gate(&times);
        jwt(&gate).warm().await.unwrap();
        source.publish(Err(FetchError::Unreachable));
        clock.advance(Duration::from_secs(20 * 60));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann", "it was tried once");
        for asked in 3..6 {
            clock.advance(Duration::from_secs(30));
            // The source hangs; were this caller to wait, virtual time would go on.
            assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
            settled(|| source.asked() == asked).await;
            assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
            source.let_through(1);
            let unfit = naming(&signer, "other".to_owned());
            assert_eq!(said(bearer(&gate, &unfit).await), MAYBE);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_source_that_panics_is_one_that_failed() {
        let (clock, times) = clock();
        let signer = Signer::ed25519("k", 1);
        let source = Fragile { has_broken: AtomicBool::new(false), keys: key_set(&[&signer]) };
        let gate = Gate::Jwt(settings().build_with(source, &times).unwrap());
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), UNKNOWN);
        clock.advance(Duration::from_secs(30));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
    }

    /// Panics the first time.
    struct Fragile {
        has_broken: AtomicBool,
        keys: Bytes,
    }

    impl FetchKeys for Fragile {
        async fn fetch(&self) -> Result<Bytes, FetchError> {
            assert!(self.has_broken.swap(true, Ordering::SeqCst), "the first time");
            Ok(self.keys.clone())
        }
    }

    /// Lets other tasks go on until `is_so`, or for as long as any could need.
    async fn settled(is_so: impl Fn() -> bool) {
        const TURNS_MAX: usize = 10_000;
        for _ in 0..TURNS_MAX {
            if is_so() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it never came to that");
    }

    #[tokio::test]
    async fn the_last_good_keys_go_on_for_a_day_while_the_url_is_down() {
        let (clock, times) = clock();
        let server = Server::start().await;
        let (signer, newer) = (Signer::ed25519("k", 1), Signer::ed25519("new", 2));
        server.answer("/keys", 200, key_set(&[&signer]));
        let gate = server.gate("/keys", &times);
        jwt(&gate).warm().await.unwrap();
        server.answer("/keys", 503, Bytes::new());
        clock.advance(Duration::from_secs(24 * 60 * 60 - 1));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
        assert_eq!(said(bearer(&gate, &lasting(&newer)).await), MAYBE);
        clock.advance(Duration::from_secs(1));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), UNKNOWN);
        server.answer("/keys", 200, key_set(&[&signer, &newer]));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), UNKNOWN, "too soon to ask again");
        clock.advance(Duration::from_secs(30));
        assert_eq!(said(bearer(&gate, &lasting(&signer)).await), "acme/ann");
        assert_eq!(said(bearer(&gate, &lasting(&newer)).await), "acme/ann");
    }

    #[tokio::test]
    async fn what_a_server_answers_is_keys_or_nothing() {
        let server = Server::start().await;
        let signer = Signer::ed25519("k", 1);
        let large = format!("{{\"keys\":[],\"pad\":\"{}\"}}", "x".repeat(1_024 * 1_024));
        server.answer("/keys", 200, key_set(&[&signer]));
        server.answer("/moved", 302, Bytes::new());
        server.answer("/gone", 404, key_set(&[&signer]));
        server.answer("/large", 200, large.into());
        server.answer("/page", 200, "<html>".into());
        server.answer("/none", 200, "{\"keys\":[]}".into());
        for path in ["/moved", "/gone", "/large", "/page", "/none"] {
            let gate = server.gate(path, &clock().1);
            assert_eq!(said(bearer(&gate, &signer.token()).await), UNKNOWN, "{path}");
            let refused = jwt(&gate).warm().await.unwrap_err();
            assert_eq!(refused.status().as_u16(), 503, "{path}");
        }
        assert!(bearer(&server.gate("/keys", &clock().1), &signer.token()).await.is_ok());
    }

    #[tokio::test]
    async fn a_flood_of_unknown_keys_causes_one_fetch() {
        let (clock, times) = clock();
        let signer = Signer::ed25519("k", 1);
        let source = Source::of(&[&signer]);
        let gate = source.gate(&times);
        jwt(&gate).warm().await.unwrap();
        let flood = async |first: usize| {
            let mut callers = JoinSet::new();
            for n in first..first + 500 {
                let (gate, token) = (gate.clone(), naming(&signer, format!("unknown-{n}")));
                callers.spawn(async move { said(bearer(&gate, &token).await) });
            }
            for heard in callers.join_all().await {
                assert_eq!(heard, UNFIT);
            }
        };
        flood(0).await;
        assert_eq!(source.asked(), 1, "the first fetch was a moment ago");
        clock.advance(Duration::from_secs(30));
        flood(1_000).await;
        assert_eq!(source.asked(), 2);
        clock.advance(Duration::from_secs(29));
        flood(2_000).await;
        assert_eq!(source.asked(), 2);
        source.publish(Err(FetchError::Unreachable));
        clock.advance(Duration::from_secs(1));
        assert_eq!(said(bearer(&gate, &naming(&signer, "x".to_owned())).await), MAYBE);
        for n in 0..100 {
            assert_eq!(said(bearer(&gate, &naming(&signer, n.to_string())).await), MAYBE);
        }
        assert_eq!(source.asked(), 3, "a source that fails is not asked oftener");
        assert!(bearer(&gate, &signer.token()).await.is_ok());
    }

    #[tokio::test]
    async fn callers_share_the_fetch_that_is_under_way() {
        let signer = Signer::ed25519("k", 1);
        let source = Source::held(&[&signer]);
        let gate = source.gate(&clock().1);
        let mut callers = JoinSet::new();
        for _ in 0..100 {
            let (gate, token) = (gate.clone(), signer.token());
            callers.spawn(async move { said(bearer(&gate, &token).await) });
        }
        settled(|| source.asked() == 1).await;
        source.let_through(1);
        for heard in callers.join_all().await {
            assert_eq!(heard, "acme/ann");
        }
        assert_eq!(source.asked(), 1);
    }

    #[tokio::test]
    async fn a_caller_who_leaves_does_not_end_the_fetch() {
        let signer = Signer::ed25519("k", 1);
        let source = Source::held(&[&signer]);
        let gate = source.gate(&clock().1);
        let caller = {
            let (gate, token) = (gate.clone(), signer.token());
            tokio::spawn(async move { bearer(&gate, &token).await.is_ok() })
        };
        settled(|| source.asked() == 1).await;
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
        source.let_through(1);
        // The clock stands still, so a second fetch would be too soon.
        assert_eq!(said(bearer(&gate, &signer.token()).await), "acme/ann");
        assert_eq!(source.asked(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_hangs_is_given_up() {
        let signer = Signer::ed25519("k", 1);
        let source = Source::held(&[&signer]);
        let gate = source.gate(&clock().1);
        assert_eq!(said(bearer(&gate, &signer.token()).await), UNKNOWN);
        assert_eq!(source.asked(), 1);
    }

    #[tokio::test]
    async fn a_key_that_was_withdrawn_verifies_nothing_not_even_what_it_verified_before() {
        let (clock, times) = clock();
        let (old, new) = (Signer::ed25519("old", 1), Signer::ed25519("new", 2));
        let source = Source::of(&[&old]);
        let gate = source.gate(&times);
        assert_eq!(said(bearer(&gate, &old.token()).await), "acme/ann");
        source.publish(Ok(key_set(&[&old, &new])));
        clock.advance(Duration::from_secs(30));
        assert_eq!(said(bearer(&gate, &new.token()).await), "acme/ann", "the new key is found");
        assert_eq!(said(bearer(&gate, &old.token()).await), "acme/ann", "beside the old one");
        source.publish(Ok(key_set(&[&new])));
        clock.advance(Duration::from_secs(30));
        assert_eq!(said(bearer(&gate, &naming(&new, "any".to_owned())).await), UNFIT);
        assert_eq!(said(bearer(&gate, &old.token()).await), UNFIT);
        assert_eq!(said(bearer(&gate, &new.token()).await), "acme/ann");
    }

    /// The same name with another key behind it: what was remembered goes with the set.
    #[tokio::test]
    async fn a_key_that_was_replaced_under_its_name_takes_its_tokens_along() {
        let (clock, times) = clock();
        let (old, new) = (Signer::ed25519("k", 1), Signer::ed25519("k", 2));
        let source = Source::of(&[&old]);
        let gate = source.gate(&times);
        assert!(bearer(&gate, &old.token()).await.is_ok());
        source.publish(Ok(key_set(&[&new])));
        clock.advance(Duration::from_secs(30));
        assert_eq!(said(bearer(&gate, &naming(&new, "any".to_owned())).await), UNFIT);
        let found = said(bearer(&gate, &old.token()).await);
        assert_eq!(found, "identity_invalid: the signature of the token is not good");
        assert!(bearer(&gate, &new.token()).await.is_ok());
    }

    #[tokio::test]
    async fn a_file_is_read_again_when_it_changes() {
        let (clock, times) = clock();
        let (old, new) = (Signer::ed25519("old", 1), Signer::ed25519("new", 2));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        std::fs::write(&path, key_set(&[&old])).unwrap();
        let settings = JwtSettings { jwks_file: Some(path.clone()), ..settings() };
        let gate = Gate::Jwt(settings.build_by(&times).unwrap());
        assert_eq!(said(bearer(&gate, &old.token()).await), "acme/ann");
        std::fs::write(&path, key_set(&[&new])).unwrap();
        assert_eq!(said(bearer(&gate, &new.token()).await), UNFIT, "it was read a moment ago");
        clock.advance(Duration::from_secs(1));
        assert_eq!(said(bearer(&gate, &new.token()).await), "acme/ann");
        assert_eq!(said(bearer(&gate, &old.token()).await), UNFIT);
        std::fs::remove_file(&path).unwrap();
        clock.advance(Duration::from_secs(60));
        assert_eq!(said(bearer(&gate, &new.token()).await), "acme/ann", "the last good ones go on");
        std::fs::write(&path, "{}").unwrap();
        assert!(settings.build().unwrap_err().to_string().contains("not a JSON Web Key Set"));
    }
}

mod proxies_and_nobody {
    //! Callers whom somebody else verified, and callers whom nobody did.

    use std::net::IpAddr;

    use onetake_http::identity::{AnonymousSettings, Gate, TrustedHeaderSettings, Words};

    use crate::kit::{PEER, admit, headers, said};

    fn settings() -> TrustedHeaderSettings {
        TrustedHeaderSettings {
            networks: Words::from(["10.1.0.0/16", "fd00::/8", "192.0.2.7"]),
            tenant_header: "X-Tenant".to_owned(),
            principal_header: Some("X-User".to_owned()),
            ..TrustedHeaderSettings::default()
        }
    }

    #[tokio::test]
    async fn what_a_proxy_says_counts_only_from_a_trusted_peer() {
        let gate = Gate::TrustedHeader(settings().build().unwrap());
        let lines = headers(&[("x-tenant", "acme"), ("x-user", "ann")]);
        let outside = "identity_missing: the peer is not within the trusted networks";
        let table = [
            ("10.1.2.3", "acme/ann"),
            ("::ffff:10.1.2.3", "acme/ann"),
            ("fd12::1", "acme/ann"),
            ("192.0.2.7", "acme/ann"),
            ("192.0.2.8", outside),
            ("10.2.0.1", outside),
            ("127.0.0.1", outside),
            ("::1", outside),
            ("::ffff:10.2.0.1", outside),
        ];
        for (peer, expected) in table {
            let peer: IpAddr = peer.parse().unwrap();
            assert_eq!(said(gate.admit(&lines, peer).await), expected, "{peer}");
        }
        // An address that a header names is no peer.
        let forwarded = headers(&[("x-tenant", "acme"), ("x-forwarded-for", "10.1.2.3")]);
        assert_eq!(said(gate.admit(&forwarded, PEER).await), outside);
    }

    #[tokio::test]
    async fn every_refusal_of_an_identity_header_is_in_this_table() {
        let gate = Gate::TrustedHeader(settings().build().unwrap());
        let (tenant, user) = (("x-tenant", "acme"), ("x-user", "ann"));
        let twice = "identity_invalid: an identity header came on more than one line";
        let list = "identity_invalid: an identity header holds a list or blanks at its ends";
        let name = "identity_invalid: the proxy sent a name that is none";
        let long = "x".repeat(256);
        let table: &[(&[(&str, &str)], &str)] = &[
            (&[tenant, user], "acme/ann"),
            (&[("x-tenant", "café"), user], "café/ann"),
            (&[], "identity_missing: the proxy named no tenant"),
            (&[user], "identity_missing: the proxy named no tenant"),
            (&[tenant], "identity_missing: the proxy named no principal"),
            (&[tenant, tenant, user], twice),
            (&[tenant, user, ("x-user", "bob")], twice),
            (&[("x-tenant", "evil, acme"), user], list),
            (&[("x-tenant", " acme"), user], list),
            (&[("x-tenant", ""), user], name),
            (&[("x-tenant", "a\tb"), user], name),
            (&[("x-tenant", &long), user], name),
            (&[tenant, ("x-user", &long)], name),
        ];
        for (lines, expected) in table {
            let found = said(gate.admit(&headers(lines), "10.1.0.1".parse().unwrap()).await);
            assert_eq!(found, *expected, "{lines:?}");
        }
        let mut raw = headers(&[user]);
        raw.insert("x-tenant", http::HeaderValue::from_bytes(&[0xff, 0xfe]).unwrap());
        let found = said(gate.admit(&raw, "10.1.0.1".parse().unwrap()).await);
        assert_eq!(found, "identity_invalid: an identity header is not UTF-8");
    }

    #[tokio::test]
    async fn headers_that_name_a_caller_are_reserved_by_every_gate() {
        let trusted = Gate::TrustedHeader(settings().build().unwrap());
        let ours = ["onetake-tenant", "onetake-principal"];
        assert_eq!(trusted.reserved(), [&ours[..], &["x-tenant", "x-user"]].concat());
        let usual = TrustedHeaderSettings { networks: "10.0.0.1".into(), ..Default::default() };
        assert_eq!(Gate::TrustedHeader(usual.build().unwrap()).reserved(), ours);
        let anonymous = Gate::Anonymous(AnonymousSettings::default().build().unwrap());
        assert_eq!(anonymous.reserved(), ours);
        assert!(anonymous.credentials().is_empty() && trusted.credentials().is_empty());
    }

    #[tokio::test]
    async fn anonymous_callers_are_one_tenant_whatever_they_send() {
        let gate = Gate::Anonymous(AnonymousSettings::default().build().unwrap());
        let claims = [("onetake-tenant", "acme"), ("authorization", "Bearer any")];
        assert_eq!(said(admit(&gate, &claims).await), "anonymous/-");
        let named = AnonymousSettings { tenant: Some("public".to_owned()) };
        let gate = Gate::Anonymous(named.build().unwrap());
        assert_eq!(said(admit(&gate, &[]).await), "public/-");
        assert!(AnonymousSettings { tenant: Some(String::new()) }.build().is_err());
    }

    #[test]
    fn what_is_wrong_with_the_settings_of_a_proxy_is_said() {
        let refused = |settings: TrustedHeaderSettings| settings.build().unwrap_err().to_string();
        let table = [
            (TrustedHeaderSettings { networks: Words::default(), ..settings() }, "`networks`"),
            (TrustedHeaderSettings { networks: "proxy".into(), ..settings() }, "\"10.0.0.0/8\""),
            (TrustedHeaderSettings { networks: "10.0.0.0/33".into(), ..settings() }, "network"),
            (TrustedHeaderSettings { networks: "0.0.0.0/0".into(), ..settings() }, "everybody"),
            (TrustedHeaderSettings { networks: "::/0".into(), ..settings() }, "everybody"),
            (
                TrustedHeaderSettings { tenant_header: "a b".into(), ..settings() },
                "`tenant_header` is not the name of a header",
            ),
            (
                TrustedHeaderSettings { principal_header: Some("x-tenant".into()), ..settings() },
                "exclude each other",
            ),
        ];
        for (settings, expected) in table {
            let found = refused(settings);
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }
}

mod all_gates {
    //! What holds whichever gate a caller came through.

    use std::collections::HashSet;

    use onetake_core::{Address, Key, Operation};
    use onetake_http::identity::{
        AnonymousSettings, ApiKeySettings, Gate, JwtSettings, KeyOfTenant, Secret, TenantKeys,
        TrustedHeaderSettings, generate_key,
    };
    use serde_json::{from_value, json};

    use crate::kit::{Signer, Source, bearer, claims, clock, headers, settings};

    /// C7 and D9: the same key of another tenant, or of another subject, is another key.
    #[tokio::test]
    async fn c7_d9_no_two_tenants_and_no_two_subjects_ever_share_a_scope() {
        let names = ["a", "b", "ab", "a/b", "a,b", "A", " a", "ä"];
        let signer = Signer::ed25519("k", 1);
        let tokens = Source::of(&[&signer]).gate(&clock().1);
        let proxy = TrustedHeaderSettings {
            networks: "10.0.0.1".into(),
            principal_header: Some("onetake-principal".to_owned()),
            ..TrustedHeaderSettings::default()
        };
        let proxy = Gate::TrustedHeader(proxy.build().unwrap());
        let mut slots = HashSet::new();
        let mut scopes = HashSet::new();
        for tenant in &names {
            for principal in &names {
                let mut claims = claims();
                claims["tenant"] = json!(tenant);
                claims["sub"] = json!(principal);
                let by_token = bearer(&tokens, &signer.sign(&claims)).await.unwrap();
                let scope = by_token.scope();
                assert_eq!(scope.tenant().as_str(), *tenant);
                assert_eq!(scope.principal().unwrap().as_str(), *principal);
                let lines = [("onetake-tenant", *tenant), ("onetake-principal", *principal)];
                let said = proxy.admit(&headers(&lines), "10.0.0.1".parse().unwrap()).await;
                if let Ok(by_proxy) = said {
                    assert_eq!(by_proxy.scope(), scope, "one caller, whoever verified it");
                }
                assert!(scopes.insert(scope.clone()), "{scope:?}");
                let (operation, key) = (Operation::new("o").unwrap(), Key::new("k").unwrap());
                let slot = Address::new(scope, operation, key).slot().clone();
                assert!(slots.insert(slot.hex()), "{slot:?}");
            }
        }
        assert_eq!(slots.len(), names.len() * names.len());
    }

    /// X11: neither a gate, nor its settings, nor an identity or a refusal shows a secret.
    #[tokio::test]
    async fn x11_nothing_that_is_shown_holds_a_secret() {
        let secret = "hush-hush-hush-hush-hush-hush-hush";
        let (key, digest) = generate_key().unwrap();
        let tenant = TenantKeys {
            name: "acme".to_owned(),
            keys: vec![KeyOfTenant::from(&*digest)],
            ..TenantKeys::default()
        };
        let keys = ApiKeySettings::default().build(std::slice::from_ref(&tenant)).unwrap();
        let keys = Gate::ApiKeys(keys);
        let shared = JwtSettings { secret: Some(Secret::new(secret)), ..settings() };
        let signer = Signer::ed25519("k", 1);
        let tokens = Gate::Jwt(shared.build_with(Source::of(&[&signer]), &clock().1).unwrap());
        let token = signer.token();
        let bad = format!("{token}x");
        let shown = [
            format!("{tenant:?} {keys:?} {shared:?}"),
            format!("{:?}", bearer(&keys, &key).await.unwrap()),
            format!("{:?}", bearer(&keys, &token).await.unwrap_err()),
            format!("{:?}", bearer(&tokens, &token).await.unwrap()),
            format!("{:?}", bearer(&tokens, &bad).await.unwrap_err()),
            format!("{:?}", bearer(&tokens, &key).await.unwrap_err()),
            format!("{tokens:?}"),
        ]
        .join("\n");
        let published = signer.jwk()["x"].as_str().unwrap().to_owned();
        let digits = digest.trim_start_matches("sha256:");
        let signature = token.rsplit_once('.').unwrap().1;
        for hidden in [secret, &*key, digits, &*token, signature, &*published] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }

    #[test]
    fn settings_are_read_as_they_are_documented_and_unknown_ones_are_refused() {
        let jwt: JwtSettings = from_value(json!({
            "issuer": "https://idp.example", "audience": ["onetake", "other"],
            "jwks_url": "https://idp.example/keys", "leeway": "10s", "tenant_claim": "org.id",
        }))
        .unwrap();
        assert_eq!(jwt.leeway.as_secs(), 10);
        assert_eq!(jwt.principal_claim, "sub");
        let least: JwtSettings = from_value(json!({})).unwrap();
        assert_eq!(least, JwtSettings::default());
        let unknown = json!({ "isuer": "x" });
        for refused in [
            from_value::<JwtSettings>(unknown.clone()).unwrap_err(),
            from_value::<ApiKeySettings>(unknown.clone()).unwrap_err(),
            from_value::<TrustedHeaderSettings>(unknown.clone()).unwrap_err(),
            from_value::<AnonymousSettings>(unknown).unwrap_err(),
        ] {
            assert!(refused.to_string().contains("isuer"), "{refused}");
        }
    }
}
