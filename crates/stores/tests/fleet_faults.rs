//! What must not happen to a fleet when something goes wrong in the middle: connections that break,
//! rows that somebody holds, roles with odd settings, values that cannot be read.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Record, Standing};
use onetake_engine::{
    Commit, Doc, Journal, Lane, Position, Reply, Slots, Stamped, StoreError, Swap, Tx, Write,
};
use onetake_stores::seal::MasterKey;
use onetake_stores::{Postgres, PostgresError, PostgresOptions};
use onetake_testkit::make::{LONG, Pen, version};
use servers::Server;
use tokio::task::JoinSet;

static OPENED: AtomicU32 = AtomicU32::new(0);

fn options() -> PostgresOptions {
    PostgresOptions::new().accept_loss(true)
}

fn schema() -> String {
    format!("faults_{}", OPENED.fetch_add(1, Ordering::SeqCst))
}

async fn server() -> &'static Server {
    tokio::task::spawn_blocking(Server::shared).await.unwrap()
}

async fn open(schema: &str) -> Postgres {
    Postgres::open(&server().await.url(), options().schema(schema)).await.unwrap()
}

fn won(reply: Reply<Swap>) -> Arc<Record> {
    match reply.unwrap().value {
        Swap::Won(record) => record,
        other @ (Swap::Lost(_) | Swap::Unknown) => panic!("{other:?}"),
    }
}

/// Holds every row of a table until the client is dropped.
async fn hold(url: &str, schema: &str, table: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = format!("BEGIN; SELECT 1 FROM {schema}.{table} FOR UPDATE");
    client.batch_execute(&sql).await.unwrap();
    client
}

/// X1: a renewal that came to nothing can be asked for again, and costs no lease.
#[tokio::test]
async fn x1_a_renewal_that_failed_is_done_when_it_is_asked_for_again() {
    let (schema, pen) = (schema(), Pen::new("k"));
    let store = open(&schema).await;
    let claim = won(store.swap(None, pen.claim(1, LONG)).await);
    let holder = hold(&server().await.url(), &schema, "nodes").await;
    for _ in 0..2 {
        let failed = store.renew(pen.slot(), claim.version, LONG).await;
        assert!(matches!(failed, Err(StoreError::Unavailable(_))), "{failed:?}");
    }
    holder.batch_execute("ROLLBACK").await.unwrap();
    let renewed = won(store.renew(pen.slot(), claim.version, LONG).await);
    assert!(renewed.version != claim.version);
}

/// X1: however many wait for a key that somebody holds, other claims are renewed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn x1_rivals_for_a_held_key_keep_nobody_from_renewing() {
    let schema = schema();
    let (store, other) = (Arc::new(open(&schema).await), open(&schema).await);
    let held = Pen::new("held");
    won(store.swap(None, held.claim(1, LONG)).await);
    let holder = hold(&server().await.url(), &schema, "slots").await;
    let lease = Duration::from_secs(3);
    // One for each writer.
    let pens: Vec<_> = (0..8).map(|n| Pen::new(&format!("own-{n}"))).collect();
    let mut claims = Vec::new();
    for (pen, id) in pens.iter().zip(10..) {
        claims.push(won(store.swap(None, pen.claim(id, lease)).await));
    }
    let mut rivals = JoinSet::new();
    for id in 100..120 {
        let (store, held) = (Arc::clone(&store), held.clone());
        rivals.spawn(async move { store.swap(None, held.claim(id, LONG)).await });
    }
    // Twenty seconds, if each of them waited its second.
    while !rivals.is_empty() {
        for (pen, claim) in pens.iter().zip(&mut claims) {
            *claim = won(store.renew(pen.slot(), claim.version, lease).await);
            let Stamped { now, value } = other.read(pen.slot()).await.unwrap();
            let there = value.unwrap();
            let standing = there.standing(now);
            assert!(matches!(standing, Standing::Live { .. }), "{standing:?}");
        }
        while let Some(rival) = rivals.try_join_next() {
            let rival = rival.unwrap();
            assert!(!matches!(rival, Ok(Stamped { value: Swap::Won(_), .. })), "{rival:?}");
        }
    }
    drop(holder);
}

/// W12: what its caller has given up is not written long after.
#[tokio::test(flavor = "multi_thread")]
async fn w12_a_swap_that_nobody_waits_for_any_more_is_not_sent() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[("fsync", "off")])).await.unwrap();
    let store = Arc::new(Postgres::open(&server.url(), options()).await.unwrap());
    let held: Vec<_> = (0..8).map(|n| Pen::new(&format!("held-{n}"))).collect();
    for pen in &held {
        won(store.swap(None, pen.claim(1, LONG)).await);
    }
    let holder = hold(&server.url(), "onetake", "slots").await;
    // Both writers have something to wait for.
    let mut waiting = JoinSet::new();
    for pen in held {
        let store = Arc::clone(&store);
        waiting.spawn(async move { store.swap(Some(version(1)), pen.done(2, 1, LONG)).await });
    }
    server.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'", "2");
    // They ask while the writers wait, and nobody stays to hear.
    for n in 0..64 {
        let swap = store.swap(None, Pen::new(&format!("gone-{n}")).claim(100 + n, LONG));
        assert!(tokio::time::timeout(Duration::ZERO, swap).await.is_err());
    }
    while let Some(reply) = waiting.join_next().await {
        assert!(reply.unwrap().is_err(), "it is held");
    }
    drop(holder);
    won(store.swap(None, Pen::new("later").claim(900, LONG)).await);
    assert_eq!(server.ask("SELECT count(*) FROM onetake.slots"), "9", "eight, and the last");
}

/// A warning to whoever logs in says nothing of a write.
#[tokio::test]
async fn a_server_that_warns_at_login_can_be_used() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[("fsync", "off")])).await.unwrap();
    let _ = server.ask("UPDATE pg_database SET datcollversion = 'old'");
    let store = Postgres::open(&server.url(), options()).await.unwrap();
    let pen = Pen::new("k");
    won(store.swap(None, pen.claim(1, LONG)).await);
    assert!(store.read(pen.slot()).await.unwrap().value.is_some());
}

/// X1, D6: whatever a role has for defaults, what a store relies on is set for each transaction.
#[tokio::test]
async fn d6_odd_settings_of_a_role_change_nothing() {
    let (schema, server) = (schema(), server().await);
    let _ = server.ask(&format!(
        "CREATE ROLE {schema} LOGIN SUPERUSER;
         ALTER ROLE {schema} SET default_transaction_isolation = 'repeatable read';
         ALTER ROLE {schema} SET client_min_messages = 'error';
         ALTER ROLE {schema} SET synchronous_commit = 'off'"
    ));
    let url = format!("postgres://{schema}@127.0.0.1:{}/postgres", server.port);
    let open = || Postgres::open(&url, options().schema(&schema));
    let (one, other) = (open().await.unwrap(), open().await.unwrap());
    for n in 0..20 {
        let pen = Pen::new(&format!("k{n}"));
        let (a, b) =
            tokio::join!(one.swap(None, pen.claim(1, LONG)), other.swap(None, pen.claim(2, LONG)));
        let is_won = |reply: &Reply<Swap>| matches!(reply.as_ref().unwrap().value, Swap::Won(_));
        assert!(is_won(&a) ^ is_won(&b), "{a:?} {b:?}");
        let (store, claim) = if is_won(&a) { (&one, won(a)) } else { (&other, won(b)) };
        let renewed = won(store.renew(pen.slot(), claim.version, LONG).await);
        won(store.swap(Some(renewed.version), pen.done(3, 1, LONG)).await);
    }
}

/// A role that may make nothing of its own has its statements carried out all the same.
#[tokio::test]
async fn a_role_without_temporary_tables_can_use_the_store() {
    let server = tokio::task::spawn_blocking(|| Server::start(&[("fsync", "off")])).await.unwrap();
    let _ = server.ask(
        "CREATE ROLE modest LOGIN; GRANT CREATE ON DATABASE postgres TO modest;
         REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
    );
    let url = format!("postgres://modest@127.0.0.1:{}/postgres", server.port);
    let store = Postgres::open(&url, options()).await.unwrap();
    for n in 0..3 {
        let pen = Pen::new(&format!("k{n}"));
        let claim = won(store.swap(None, pen.claim(1, LONG)).await);
        won(store.swap(Some(claim.version), pen.done(2, 1, LONG)).await);
    }
    let functions = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'onetake%'";
    assert_eq!(server.ask(functions), "0", "nothing of ours was made");
}

/// One value that cannot be read fails nobody who shares a batch with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_document_fails_only_those_who_ask_for_it() {
    let (schema, keys) = (schema(), vec![MasterKey::new([7; 32])]);
    let url = server().await.url();
    let store = Postgres::open(&url, options().schema(&schema).keys(keys)).await.unwrap();
    let store = Arc::new(store);
    let doc = |key: &str| Doc { space: "test", key: key.to_owned().into() };
    store.commit(Tx::on_doc(1, doc("bad"), None, "v".into())).await.unwrap();
    let _ = server().await.ask(&format!("UPDATE {schema}.docs SET value = '\\x00'"));
    let mut commits = JoinSet::new();
    for n in 0..60_u128 {
        let (store, is_bad) = (Arc::clone(&store), n % 3 == 0);
        let doc = if is_bad { doc("bad") } else { doc(&format!("good-{n}")) };
        let put = Tx::on_doc(100 + n, doc, None, "w".into());
        commits.spawn(async move { (is_bad, store.commit(put).await) });
    }
    while let Some(commit) = commits.join_next().await {
        match commit.unwrap() {
            (true, said) => assert!(matches!(said, Err(StoreError::Corrupt(_))), "{said:?}"),
            (false, said) => {
                let said = said.unwrap().value;
                assert!(matches!(said, Commit::Committed { .. }), "{said:?}");
            }
        }
    }
}

/// X11: nobody guesses how records are sealed, and looking at a store does not decide it.
#[tokio::test]
async fn x11_a_store_without_its_mark_is_not_opened() {
    let (schema, server) = (schema(), server().await);
    let url = server.url();
    let existing = || Postgres::open(&url, options().schema(&schema).migrates(false));
    let sql = Postgres::migrate(&server.url(), &options().schema(&schema), true).await.unwrap();
    // As a script that somebody carries out who lets nobody else make tables.
    let _ = server.ask(&format!("BEGIN; {}; COMMIT", sql.join("\n")));
    assert!(matches!(existing().await, Err(PostgresError::Unmigrated)));
    let store = open(&schema).await;
    won(store.swap(None, Pen::new("k").claim(1, LONG)).await);
    drop(existing().await.unwrap());
    let _ = server.ask(&format!("DELETE FROM {schema}.seals"));
    let options = options().schema(&schema).keys(vec![MasterKey::new([7; 32])]);
    let refused = Postgres::open(&server.url(), options).await.unwrap_err();
    assert!(matches!(refused, PostgresError::Unmarked), "{refused}");
    assert_eq!(refused.code().as_str(), "store_corrupt");
}

/// W6: however large documents and entries are, no page of them is larger than a process can hold,
/// and none of them is left out.
#[tokio::test]
async fn w6_pages_of_large_values_end_before_they_are_too_large_and_lose_nothing() {
    const EACH: usize = 15 << 20;
    const ALL: u8 = 6;
    let store = open(&schema()).await;
    let (space, lane) = ("large", Lane(Bytes::from_static(b"large")));
    for n in 0..ALL {
        let (value, doc) =
            (Bytes::from(vec![n; EACH]), Doc { space, key: Bytes::copy_from_slice(&[n]) });
        let tx = Tx::on_doc(u128::from(n) + 1, doc, None, value.clone());
        let committed = store.commit(tx.write(Write::Append(lane.clone(), value))).await;
        assert!(matches!(committed.unwrap().value, Commit::Committed { .. }));
    }
    let (mut docs, mut after) = (Vec::new(), None::<Bytes>);
    loop {
        let page = store.scan(space, b"", after.as_deref(), 100).await.unwrap().value;
        assert!(page.items.len() < usize::from(ALL), "all of it is one page");
        after = page.items.last().map(|(doc, _)| doc.key.clone());
        docs.extend(page.items.iter().map(|(_, document)| document.value[0]));
        if !page.more {
            break;
        }
    }
    let (mut entries, mut behind) = (Vec::new(), Position(0));
    loop {
        let page = store.read_lane(&lane, behind, 100).await.unwrap().value;
        assert!(page.items.len() < usize::from(ALL), "all of it is one page");
        behind = page.items.last().unwrap().position;
        entries.extend(page.items.iter().map(|entry| entry.value[0]));
        if !page.more {
            break;
        }
    }
    let all: Vec<u8> = (0..ALL).collect();
    assert_eq!((&docs, &entries), (&all, &all));
}
