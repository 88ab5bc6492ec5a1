//! What holds whichever gate a caller came through.

use std::collections::HashSet;

use onetake_core::{Address, Key, Operation};
use onetake_http::identity::{
    ApiKeySettings, Gate, JwtSettings, KeyOfTenant, Secret, TenantKeys, TrustedHeaderSettings,
    generate_key,
};
use serde_json::json;

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
