//! What a Redis store promises of its server: who is refused, what is kept, and what goes.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod redis_server;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use bytes::Bytes;
use onetake_core::{Outcome, Phase, Record, Standing};
use onetake_engine::{Bound, Slots, StoreError, Swap, Tx};
use onetake_stores::{LossError, Redis, RedisError, RedisOptions};
use onetake_testkit::conformance::hear::{there, victory, won};
use onetake_testkit::make::{LONG, Pen, version};
use redis::FromRedisValue;
use redis_server::{Server, until};
use tokio::task::JoinSet;

async fn open(server: &Server) -> Redis {
    Redis::open(&server.url(), RedisOptions::new()).await.unwrap()
}

/// Why a server with these settings is refused.
async fn refusal(settings: &[(&str, &str)]) -> LossError {
    let server = Server::start(settings);
    let refused = Redis::open(&server.url(), RedisOptions::new()).await;
    let Err(RedisError::Loss(why)) = refused else { panic!("{refused:?}") };
    let accepting = RedisOptions::new().accept_loss(true);
    let store = Redis::open(&server.url(), accepting).await.expect("unless that is accepted");
    won(&store, None, Pen::new("k").claim(1, LONG)).await;
    why
}

fn setting(setting: &'static str, value: &str, instead: &'static str) -> LossError {
    LossError::Setting { setting, value: value.into(), instead }
}

#[tokio::test]
async fn a_server_without_an_append_only_file_is_refused() {
    let why = refusal(&[("appendonly", "no")]).await;
    assert_eq!(why, setting("appendonly", "no", "yes"));
}

#[tokio::test]
async fn a_server_that_never_syncs_is_refused() {
    let why = refusal(&[("appendfsync", "no")]).await;
    assert_eq!(why, setting("appendfsync", "no", "always"));
}

#[tokio::test]
async fn a_server_that_may_evict_records_is_refused() {
    for policy in ["allkeys-lru", "volatile-ttl"] {
        let why = refusal(&[("maxmemory", "64mb"), ("maxmemory-policy", policy)]).await;
        assert_eq!(why, setting("maxmemory-policy", policy, "noeviction"));
    }
}

#[tokio::test]
async fn a_server_that_hides_its_settings_is_refused() {
    let why = refusal(&[("rename-command", "CONFIG \"\"")]).await;
    assert!(matches!(why, LossError::Hidden { setting: "appendonly", .. }), "{why}");
    assert!(why.to_string().contains("allow `CONFIG GET`"), "{why}");
}

#[tokio::test]
async fn a_server_that_syncs_every_second_or_has_room_is_taken() {
    let settings = [("appendfsync", "everysec"), ("maxmemory", "64mb")];
    let server = Server::start(&settings);
    won(&open(&server).await, None, Pen::new("k").claim(1, LONG)).await;
}

#[tokio::test]
async fn a_server_that_runs_no_scripts_is_refused() {
    for command in ["EVAL", "EVALSHA"] {
        let server = Server::start(&[("rename-command", &format!("{command} \"\""))]);
        let refused = Redis::open(&server.url(), RedisOptions::new()).await;
        assert!(matches!(refused, Err(RedisError::Script(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_replica_is_refused() {
    let master = Server::start(&[]);
    let replica = Server::start(&[("replicaof", &format!("127.0.0.1 {}", master.port))]);
    let refused = Redis::open(&replica.url(), RedisOptions::new()).await;
    let Err(RedisError::Unreachable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.to_string().contains("is a replica"), "{why}");
}

/// X11: whatever is wrong with an address, its password is not in the error.
#[tokio::test]
async fn x11_no_error_shows_a_password() {
    let server = Server::start(&[("requirepass", "right")]);
    let urls = [
        "redis+nothing://:secret@h".to_owned(),
        format!("redis://:secret@{}/", server.host()),
        "redis://:secret@127.0.0.1:1/".to_owned(),
        "redis+sentinel://:secret@h/".to_owned(),
    ];
    for url in urls {
        let error = Redis::open(&url, RedisOptions::new()).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("secret"), "{shown}");
    }
    let url = format!("redis://:right@{}/", server.host());
    let store = Redis::open(&url, RedisOptions::new()).await.unwrap();
    won(&store, None, Pen::new("k").claim(1, LONG)).await;
}

/// A full server refuses new keys, and says so. What it holds can still be read, renewed and
/// settled: an execution that is under way must be able to end.
#[tokio::test]
async fn a_full_server_refuses_new_keys_and_settles_the_old_ones() {
    let server = Server::start(&[]);
    let options = RedisOptions::new().connections(1);
    let (store, held) = (Redis::open(&server.url(), options).await.unwrap(), Pen::new("held"));
    let claim = won(&store, None, held.claim(1, LONG)).await;
    server.ask(&["CONFIG", "SET", "maxmemory", "100kb"]);
    let full = Err(StoreError::Full(Bound::Total));
    assert_eq!(store.swap(None, Pen::new("new").claim(2, LONG)).await, full);
    assert_eq!(there(&store, held.slot()).await, Some(claim));
    // Together, so that they share a batch: the renewal must not let a new key in behind it.
    let (renewed, late) = tokio::join!(
        store.renew(held.slot(), version(1), LONG),
        store.swap(None, Pen::new("late").claim(3, LONG)),
    );
    assert_eq!(late, full);
    let renewed = victory(renewed.unwrap().value);
    let done = won(&store, Some(renewed.version), held.done(4, 1, LONG)).await;
    assert_eq!(there(&store, held.slot()).await, Some(done));
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    won(&store, None, Pen::new("new").claim(2, LONG)).await;
}

/// C8, K8: finished records and tombstones leave by themselves, claims and unknowns never.
#[tokio::test]
async fn c8_k8_the_server_forgets_what_has_expired_and_nothing_else() {
    let server = Server::start(&[]);
    let options = RedisOptions::new().grace(Duration::from_millis(10));
    let store = Redis::open(&server.url(), options).await.unwrap();
    let (brief, pens) = (Duration::from_millis(20), ["a", "b", "c", "d", "e", "f"].map(Pen::new));
    let claim = won(&store, None, pens[0].claim(1, brief)).await;
    let unknown = won(&store, None, pens[1].unknown(2, 2)).await;
    let kept = won(&store, None, pens[2].done(3, 3, LONG)).await;
    won(&store, None, pens[3].done(4, 4, brief)).await;
    won(&store, None, pens[4].released(5, 5, brief)).await;
    // What was finished and is claimed again must not leave by the end of the former.
    let old = won(&store, None, pens[5].done(6, 6, Duration::from_secs(10))).await;
    let again = won(&store, Some(old.version), pens[5].claim(7, brief)).await;
    until("what has expired goes", || server.count() == 4).await;
    assert!(store.forgets_by_itself());
    for (pen, record) in [(0, &claim), (1, &unknown), (2, &kept), (5, &again)] {
        assert_eq!(there(&store, pens[pen].slot()).await.as_ref(), Some(record));
    }
    // -1: never; -2: gone.
    let ends = pens.map(|pen| {
        let key = format!("onetake:{}", pen.slot().hex());
        i64::from_redis_value(server.ask(&["PTTL", &key])).unwrap().min(0)
    });
    assert_eq!(ends, [-1, -1, 0, -2, -2, -1]);
}

/// D11: what has expired is read for a while longer, and counts as forgotten.
#[tokio::test]
async fn d11_an_expired_record_is_there_for_as_long_as_a_late_copy_may_come() {
    let server = Server::start(&[]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    let claim = pen.claim(1, LONG);
    won(&store, None, claim.clone()).await;
    won(&store, Some(version(1)), pen.done(2, 1, Duration::ZERO)).await;
    let late = store.swap(None, claim).await.unwrap();
    let Swap::Lost(Some(found)) = late.value else { panic!("{late:?}") };
    assert_eq!(found.standing(late.now), Standing::Free);
}

const fn is_claim(record: &Record) -> bool {
    matches!(record.phase, Phase::Claimed { .. })
}

/// X8: nothing that was acknowledged is lost by a crash of the server that syncs always.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_crash_of_the_server() {
    let mut server = Server::start(&[]);
    let store = Arc::new(open(&server).await);
    let mut tasks = JoinSet::new();
    for task in 0..16_u128 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut won = Vec::new();
            for n in 0..5_000 {
                let id = task * 100_000 + n * 2 + 1;
                let pen = Pen::new(&format!("{task}-{n}"));
                let claimed = store.swap(None, pen.claim(id, LONG)).await.map(|it| it.value);
                let Ok(Swap::Won(claim)) = claimed else { return won };
                let done = pen.done(id + 1, id, LONG);
                let done = store.swap(Some(claim.version), done).await.map(|it| it.value);
                let Ok(Swap::Won(done)) = done else {
                    won.push((pen, claim));
                    return won;
                };
                won.push((pen, done));
            }
            won
        });
    }
    until("a thousand records", || server.count() > 1_000).await;
    server.kill();
    let acknowledged: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(acknowledged.len() > 900, "only {}", acknowledged.len());
    server.begin();
    let store = open(&server).await;
    for (pen, record) in acknowledged {
        let found = there(&store, pen.slot()).await.expect("it was acknowledged");
        let is_settled_since = is_claim(&record) && found.fence == record.fence;
        assert!(found == record || is_settled_since, "{found:?} instead of {record:?}");
    }
}

/// W6: the largest outcome comes back, and a larger one is refused before it is sent.
#[tokio::test]
async fn w6_the_largest_outcome_is_kept_and_a_larger_one_refused() {
    let server = Server::start(&[("appendfsync", "everysec")]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    let outcome = |bytes| Outcome::Value(Bytes::from(vec![b'x'; bytes]));
    let largest = pen.done_with(1, 1, LONG, outcome(Tx::VALUE_BYTES_MAX));
    let done = won(&store, None, largest).await;
    assert_eq!(there(&store, pen.slot()).await, Some(done));
    let larger = Pen::new("larger").done_with(2, 2, LONG, outcome(Tx::VALUE_BYTES_MAX + 1));
    let refused = store.swap(None, larger).await;
    assert!(matches!(refused, Err(StoreError::TooLarge(_))), "{refused:?}");
    assert_eq!(server.count(), 1);
}

/// Many large outcomes at once come back in several replies, and all of them come back.
#[tokio::test]
async fn large_outcomes_that_are_asked_for_together_all_come_back() {
    let server = Server::start(&[("appendfsync", "everysec")]);
    let options = RedisOptions::new().connections(1);
    let store = Arc::new(Redis::open(&server.url(), options).await.unwrap());
    let mut records = Vec::new();
    for id in 1..=24 {
        let outcome = Outcome::Value(Bytes::from(vec![b'x'; 1 << 20]));
        let pen = Pen::new(&format!("k{id}"));
        let done = won(&*store, None, pen.done_with(id, id, LONG, outcome)).await;
        records.push((pen, done));
    }
    let mut tasks = JoinSet::new();
    for (pen, done) in records {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let (read, lost, repeated) = tokio::join!(
                there(&*store, pen.slot()),
                store.swap(None, pen.claim(1_000, LONG)),
                store.renew(pen.slot(), done.version, LONG),
            );
            assert_eq!(read.as_ref(), Some(&done));
            assert_eq!(lost.unwrap().value, Swap::Lost(Some(Arc::clone(&done))));
            assert_eq!(repeated.unwrap().value, Swap::Lost(Some(done)));
        });
    }
    assert_eq!(tasks.join_all().await.len(), 24);
}

/// Somebody else's key under our prefix is not touched, and never taken for nothing.
#[tokio::test]
async fn a_key_of_another_kind_is_reported_and_left_alone() {
    let server = Server::start(&[]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    let key = format!("onetake:{}", pen.slot().hex());
    let foreign: [&[&str]; 3] =
        [&["RPUSH", &key, "x"], &["SET", &key, "x"], &["SET", &key, "\u{2}"]];
    for words in foreign {
        server.ask(&["DEL", &key]);
        server.ask(words);
        let read = store.read(pen.slot()).await;
        assert!(matches!(read, Err(StoreError::Corrupt(_))), "{read:?}");
        let swap = store.swap(None, pen.claim(1, LONG)).await;
        assert!(matches!(swap, Err(StoreError::Corrupt(_))), "{swap:?}");
        assert_eq!(server.count(), 1);
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// Encrypted, with a certificate of one's own.
#[tokio::test]
async fn a_server_with_tls_is_reached_by_rediss() {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let trusted = pem("CERTIFICATE", made.cert.der());
    std::fs::write(&cert, &trusted).unwrap();
    std::fs::write(&key, pem("PRIVATE KEY", &made.signing_key.serialize_der())).unwrap();
    let (cert_path, key_path) = (cert.display().to_string(), key.display().to_string());
    let server = Server::start(&[
        ("tls-port", "0"),
        ("tls-auth-clients", "no"),
        ("tls-cert-file", &cert_path),
        ("tls-key-file", &key_path),
        ("tls-ca-cert-file", &cert_path),
    ]);
    let url = format!("rediss://{}/", server.host());
    let options = RedisOptions::new().root_certificate(trusted.as_bytes());
    let store = Redis::open(&url, options).await.unwrap();
    let claim = won(&store, None, Pen::new("k").claim(1, LONG)).await;
    assert_eq!(there(&store, Pen::new("k").slot()).await, Some(claim));
    let refused = Redis::open(&url, RedisOptions::new()).await;
    assert!(matches!(refused, Err(RedisError::Unreachable(_))), "a stranger's certificate");
}
