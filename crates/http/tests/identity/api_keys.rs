//! Keys that were given out.

use std::time::Duration;

use onetake_http::identity::{ApiKeySettings, Gate, KeyOfTenant, TenantKeys, Words, generate_key};

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
    let ((old, old_digest), (new, new_digest)) = (generate_key().unwrap(), generate_key().unwrap());
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
    let shared =
        TenantKeys { share_scope: true, ..tenant("shared", vec![named(4, "billing"), plain(5)]) };
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
    let build =
        |tenants: &[TenantKeys]| ApiKeySettings::default().build(tenants).unwrap_err().to_string();
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
