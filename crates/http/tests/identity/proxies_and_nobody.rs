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
