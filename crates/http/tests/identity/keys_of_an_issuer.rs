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
