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
    NOW, Signer, Source, admit, bearer, claims, claims_with, clock, gate_for, key_set, rsa_public,
    said, settings,
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
        (JwtSettings { audience: Words::default(), secret: secret(), ..settings() }, "`audience`"),
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
