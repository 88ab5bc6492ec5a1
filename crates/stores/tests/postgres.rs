//! What only a store that a fleet shares has to show, on real servers: rivals in other processes,
//! poolers, restarts, a database that says no, and rows that somebody else holds.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use onetake_core::{Actor, OnInFlight, Outcome, Policy, Record, Report, Slot, Standing};
use onetake_engine::{
    Answer, Bound, Engine, Journal, Limits, Mint, Slots, Stamped, StoreError, Swap,
};
use onetake_stores::{Postgres, PostgresError, PostgresOptions};
use onetake_testkit::make::{self, BRIEF, LONG, Pen, address, ask_under, version};
use onetake_testkit::servers::Pooler;
use onetake_testkit::wait_out;
use servers::Server;

static OPENED: AtomicU32 = AtomicU32::new(0);

fn options() -> PostgresOptions {
    PostgresOptions::new().accept_loss(true)
}

/// A schema that nobody else has.
fn schema() -> String {
    format!("fleet_{}", OPENED.fetch_add(1, Ordering::SeqCst))
}

async fn server() -> &'static Server {
    tokio::task::spawn_blocking(Server::shared).await.unwrap()
}

/// Two processes of a fleet, as far as the database can tell, and their schema.
async fn pair(options: impl Fn() -> PostgresOptions) -> (Postgres, Postgres, String) {
    let (url, schema) = (server().await.url(), schema());
    let open = || Postgres::open(&url, options().schema(&schema));
    (open().await.unwrap(), open().await.unwrap(), schema)
}

fn won(swap: Stamped<Swap>) -> Arc<Record> {
    match swap.value {
        Swap::Won(record) => record,
        other @ (Swap::Lost(_) | Swap::Unknown) => panic!("{other:?}"),
    }
}

async fn read(store: &Postgres, slot: &Slot) -> Stamped<Arc<Record>> {
    let Stamped { now, value } = store.read(slot).await.unwrap();
    Stamped { now, value: value.expect("a record") }
}

async fn is_live(store: &Postgres, slot: &Slot) -> bool {
    let there = read(store, slot).await;
    matches!(there.value.standing(there.now), Standing::Live { .. })
}

/// Repeats a swap until the store can say what became of it, as the engine does.
async fn known(
    store: &Postgres,
    expected: Option<onetake_core::Version>,
    pen: &Pen,
    id: u128,
) -> bool {
    loop {
        match store.swap(expected, pen.claim(id, LONG)).await {
            Ok(Stamped { value: Swap::Won(_), .. }) => return true,
            Ok(Stamped { value: Swap::Lost(_), .. }) => return false,
            Ok(Stamped { value: Swap::Unknown, .. }) | Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// X1, X2.
#[tokio::test(flavor = "multi_thread")]
async fn x1_a_claim_lives_in_every_process_for_as_long_as_its_owner_renews_it() {
    let (one, other, _) = pair(options).await;
    let pen = Pen::new("renewed");
    let lease = Duration::from_millis(800);
    let mut claim = won(one.swap(None, pen.claim(1, lease)).await.unwrap());
    let first = read(&other, pen.slot()).await;
    // Twice its lease passes, on the clock of the database.
    while read(&other, pen.slot()).await.now.since(first.now) < lease * 2 {
        claim = won(one.renew(pen.slot(), claim.version, lease).await.unwrap());
        assert!(is_live(&other, pen.slot()).await);
    }
    let stale = other.swap(Some(first.value.version), pen.claim(9, lease)).await.unwrap();
    assert!(matches!(stale.value, Swap::Lost(Some(_))), "a takeover prepared before has lost");
    // The owner falls silent. Whoever saw the last renewal takes over.
    while is_live(&other, pen.slot()).await {}
    let seen = read(&other, pen.slot()).await.value.version;
    won(other.swap(Some(seen), pen.claim(2, lease)).await.unwrap());
    let late = one.swap(Some(claim.version), pen.done(3, 1, LONG)).await.unwrap();
    assert!(matches!(late.value, Swap::Lost(Some(_))), "the first owner is fenced");
}

/// X1.
#[tokio::test(flavor = "multi_thread")]
async fn x1_a_node_does_not_keep_alive_what_it_has_abandoned() {
    let (one, other, _) = pair(options).await;
    let (gone, kept) = (Pen::new("abandoned"), Pen::new("kept"));
    let lease = Duration::from_millis(500);
    won(one.swap(None, gone.claim(1, lease)).await.unwrap());
    let mut claim = won(one.swap(None, kept.claim(2, lease)).await.unwrap());
    let begun = read(&other, gone.slot()).await.now;
    // The node goes on beating for another claim.
    while is_live(&other, gone.slot()).await {
        claim = won(one.renew(kept.slot(), claim.version, lease).await.unwrap());
        let now = read(&other, kept.slot()).await.now;
        assert!(now.since(begun) < lease * 20, "it is kept alive for as long as the node lives");
    }
    // Its owner comes back after all, and nobody was faster: it is renewed, and lives for everyone.
    let lapsed = read(&one, gone.slot()).await.value.version;
    won(one.renew(gone.slot(), lapsed, LONG).await.unwrap());
    assert!(is_live(&one, gone.slot()).await);
    assert!(is_live(&other, gone.slot()).await);
    won(one.renew(kept.slot(), claim.version, LONG).await.unwrap());
}

/// W9, D7.
#[tokio::test(flavor = "multi_thread")]
async fn w9_a_duplicate_on_another_node_is_woken_with_the_answer() {
    let server = server().await;
    let url = server.url();
    let (one, other, schema) = pair(|| options().listen_url(&url)).await;
    // Nobody looks unasked within this test.
    let limits = Limits { look_every: LONG, ..Limits::default() };
    let [one, other] = [one, other].map(|store| Engine::with(store, limits, Mint::default()));
    let policy = || {
        let wait = OnInFlight::Wait(Duration::from_secs(60));
        Policy::builder().on_in_flight(wait).lease(LONG).build().unwrap()
    };
    for round in 0..10 {
        let at = address("acme", &format!("woken-{round}"));
        let (begin, is_begun) = tokio::sync::oneshot::channel();
        let (go_on, gone_on) = tokio::sync::oneshot::channel::<()>();
        let (engine, asked) = (one.clone(), ask_under(&at, "x", policy()));
        let first = tokio::spawn(async move {
            let execute = move |_| async move {
                begin.send(()).unwrap();
                gone_on.await.unwrap();
                Report::Finished(Outcome::Value("done".into()))
            };
            engine.run(asked, execute).await.unwrap()
        });
        is_begun.await.unwrap();
        let (engine, asked) = (other.clone(), ask_under(&at, "x", policy()));
        let second = tokio::spawn(async move {
            engine.run(asked, |_| async { unreachable!("it is executed once") }).await.unwrap()
        });
        // Whoever waits has marked the row.
        let sql = format!("SELECT count(*) FROM {schema}.slots WHERE waited AND kind = 1");
        tokio::task::spawn_blocking(move || server.wait_for(&sql, "1")).await.unwrap();
        go_on.send(()).unwrap();
        assert!(matches!(first.await.unwrap(), Answer::Executed { .. }));
        let told = tokio::time::timeout(Duration::from_secs(30), second).await;
        let told = told.expect("it is woken").unwrap();
        assert!(matches!(told, Answer::Replayed { .. } | Answer::Joined { .. }), "{told:?}");
    }
}

/// K3: what is in memory answers without a round trip, and only while it was confirmed lately.
#[tokio::test(flavor = "multi_thread")]
async fn k3_a_replay_is_at_hand_until_it_must_be_confirmed_again() {
    let (one, other, _) = pair(options).await;
    let pen = Pen::new("front");
    won(one.swap(None, pen.claim(1, LONG)).await.unwrap());
    assert!(one.at_hand(pen.slot()).is_none(), "a claim is never answered from memory");
    won(one.swap(Some(version(1)), pen.done(2, 1, LONG)).await.unwrap());
    assert!(one.at_hand(pen.slot()).is_some());
    assert!(other.at_hand(pen.slot()).is_none());
    read(&other, pen.slot()).await;
    let at_hand = other.at_hand(pen.slot()).expect("it was just read");
    let there = read(&other, pen.slot()).await;
    assert_eq!(at_hand.value, there.value);
    assert!(at_hand.now <= there.now.after(Duration::from_secs(1)), "about the database's time");
    tokio::time::sleep(other.remembered_elsewhere()).await;
    assert!(other.at_hand(pen.slot()).is_none(), "nobody confirmed it");
}

/// K3: a purge returns when no node answers any more with what is gone.
#[tokio::test(flavor = "multi_thread")]
async fn k3_after_a_purge_no_node_remembers() {
    let (one, other, _) = pair(options).await;
    let pen = Pen::new("purged");
    won(one.swap(None, pen.claim(1, LONG)).await.unwrap());
    won(one.swap(Some(version(1)), pen.done(2, 1, LONG)).await.unwrap());
    let engine = Engine::new(other);
    let by = Actor::new("tests").unwrap();
    assert!(one.at_hand(pen.slot()).is_some());
    let purged = engine.purge(&by, &make::tenant("acme"), None, None).await.unwrap();
    assert_eq!(purged.tombstones, 1);
    assert!(one.at_hand(pen.slot()).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_behind_a_pooler_that_hands_connections_around() {
    let server = server().await;
    let pooler = tokio::task::spawn_blocking(|| Pooler::start(server, 3)).await.unwrap();
    let (url, schema) = (pooler.url(), schema());
    let open = || Postgres::open(&url, options().schema(&schema));
    let stores = [Arc::new(open().await.unwrap()), Arc::new(open().await.unwrap())];
    let mut keys = tokio::task::JoinSet::new();
    for key in 0..200_u128 {
        let [one, other] = stores.clone();
        keys.spawn(async move {
            let pen = Pen::new(&format!("pooled-{key}"));
            let (mine, theirs) = tokio::join!(
                known(&one, None, &pen, key * 2 + 1),
                known(&other, None, &pen, key * 2 + 2)
            );
            assert!(mine ^ theirs, "one of two rivals wins");
            let (winner, id) = if mine { (one, key * 2 + 1) } else { (other, key * 2 + 2) };
            won(winner.swap(Some(version(id)), pen.done(id + 1_000_000, id, LONG)).await.unwrap());
        });
    }
    while let Some(key) = keys.join_next().await {
        key.unwrap();
    }
    let tx = make::tx(77).write(onetake_engine::Write::Append(make::lane("l"), "x".into()));
    stores[0].commit(tx).await.unwrap();
    let page =
        stores[1].read_lane(&make::lane("l"), onetake_engine::Position(0), 10).await.unwrap();
    assert_eq!(page.value.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_starts_at_once_makes_its_tables_once() {
    let (url, schema) = (server().await.url(), schema());
    let named = || options().schema(&schema);
    let planned = Postgres::migrate(&url, &named(), true).await.unwrap();
    assert!(planned.concat().contains("CREATE TABLE slots"));
    let refused = Postgres::open(&url, named().migrates(false)).await;
    assert!(matches!(refused, Err(PostgresError::Unmigrated)), "a dry run makes nothing");
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (url, options) = (url.clone(), named());
        opening.spawn(async move { Postgres::open(&url, options).await.map(drop) });
    }
    while let Some(opened) = opening.join_next().await {
        opened.unwrap().unwrap();
    }
    let again = Postgres::migrate(&url, &named(), false).await.unwrap();
    assert!(again.is_empty(), "they are up to date");
}

/// A fleet is upgraded one process after the other: those of this release go on with tables that
/// the next one has changed, as long as the next one has allowed for it.
#[tokio::test(flavor = "multi_thread")]
async fn tables_of_the_next_release_are_used_where_it_allows_for_that() {
    let (running, _, schema) = pair(options).await;
    let (server, pen) = (server().await, Pen::new("upgraded"));
    won(running.swap(None, pen.claim(1, LONG)).await.unwrap());
    let ask = |sql: String| tokio::task::spawn_blocking(move || server.ask(&sql));
    let next = format!(
        "ALTER TABLE {schema}.slots ADD COLUMN news text;
         INSERT INTO {schema}.versions (version, oldest) VALUES (1000, 1)"
    );
    ask(next).await.unwrap();
    won(running.swap(Some(version(1)), pen.done(2, 1, LONG)).await.unwrap());
    let started = Postgres::open(&server.url(), options().schema(&schema)).await.unwrap();
    assert_eq!({ read(&started, pen.slot()).await.value.version.write }, 2);
    won(started.swap(None, Pen::new("started").claim(3, LONG)).await.unwrap());
    let after = format!("INSERT INTO {schema}.versions (version, oldest) VALUES (1001, 1000)");
    ask(after).await.unwrap();
    let refused = Postgres::open(&server.url(), options().schema(&schema)).await;
    assert!(matches!(refused, Err(PostgresError::Newer { found: 1001, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_would_forget_is_refused_and_so_are_addresses_that_are_none() {
    let url = server().await.url();
    let open = |url: &str, options: PostgresOptions| {
        let url = url.to_owned();
        async move { Postgres::open(&url, options).await.expect_err("refused") }
    };
    let forgets = open(&url, PostgresOptions::new()).await;
    assert!(matches!(forgets, PostgresError::Forgets { setting: "fsync" }));
    assert!(matches!(open(&url, options().schema("Not a name")).await, PostgresError::SchemaName));
    assert!(matches!(open("postgres://[", options()).await, PostgresError::Address(_)));
    let port = onetake_testkit::servers::free_port();
    let nobody = open(&format!("postgres://x:s3cret@127.0.0.1:{port}/db"), options()).await;
    assert!(matches!(nobody, PostgresError::Unreachable(_)));
    assert!(!format!("{nobody} {nobody:?}").contains("s3cret"));
}

/// K12, W12.
#[tokio::test(flavor = "multi_thread")]
async fn k12_what_was_acknowledged_survives_a_server_that_is_killed_and_the_store_comes_back() {
    let mut server = tokio::task::spawn_blocking(|| Server::start(&[])).await.unwrap();
    let store = Arc::new(Postgres::open(&server.url(), PostgresOptions::new()).await.unwrap());
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let counted = Arc::new(AtomicU32::new(0));
    let writing = |worker: u128| {
        let (store, stopped) = (Arc::clone(&store), stopped.clone());
        let counted = Arc::clone(&counted);
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            let mut key = worker * 1_000_000;
            while !*stopped.borrow() {
                key += 1;
                let pen = Pen::new(&format!("killed-{key}"));
                if let Ok(Stamped { value: Swap::Won(_), .. }) =
                    store.swap(None, pen.claim(key, LONG)).await
                {
                    acknowledged.push(key);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
            acknowledged
        })
    };
    let workers: Vec<_> = (1..=8).map(writing).collect();
    // In the middle of it all.
    while counted.load(Ordering::SeqCst) < 200 {
        tokio::task::yield_now().await;
    }
    let server = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
        server
    });
    let server = server.await.unwrap();
    let pen = Pen::new("after");
    assert!(known(&store, None, &pen, 7).await, "it comes back by itself");
    stop.send(true).unwrap();
    let mut count = 0;
    for worker in workers {
        for key in worker.await.unwrap() {
            let pen = Pen::new(&format!("killed-{key}"));
            assert_eq!({ read(&store, pen.slot()).await.value.version.write }, key);
            count += 1;
        }
    }
    assert!(count >= 200, "{count} were acknowledged");
    drop(server);
}

/// D6: whatever breaks, one of the rivals has the key.
#[tokio::test(flavor = "multi_thread")]
async fn d6_connections_that_are_cut_in_mid_flight_make_no_two_winners() {
    let (one, other, schema) = pair(options).await;
    let (one, other) = (Arc::new(one), Arc::new(other));
    let (server, (stop, stopped)) = (server().await, std::sync::mpsc::channel::<()>());
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = 'onetake' AND query LIKE '%{schema}.%' AND random() < 0.3"
    );
    let cutting = tokio::task::spawn_blocking(move || {
        let mut cut = 0;
        while stopped.try_recv().is_err() {
            cut += server.ask(&sql).parse::<u32>().unwrap();
        }
        cut
    });
    for key in 0..150_u128 {
        let pen = Pen::new(&format!("cut-{key}"));
        let (mine, theirs) = tokio::join!(
            known(&one, None, &pen, key * 2 + 1),
            known(&other, None, &pen, key * 2 + 2)
        );
        assert!(mine ^ theirs, "key {key}: {mine} {theirs}");
        let there = read_known(&one, pen.slot()).await;
        assert_eq!({ there.version.write }, if mine { key * 2 + 1 } else { key * 2 + 2 });
    }
    stop.send(()).unwrap();
    assert!(cutting.await.unwrap() > 0, "nothing was cut");
}

async fn read_known(store: &Postgres, slot: &Slot) -> Arc<Record> {
    loop {
        if let Ok(Stamped { value: Some(record), .. }) = store.read(slot).await {
            return record;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_somebody_holds_holds_up_nobody_else() {
    let (store, _other, schema) = pair(options).await;
    let store = Arc::new(store);
    let held = Pen::new("held");
    won(store.swap(None, held.claim(1, LONG)).await.unwrap());
    let (client, connection) =
        tokio_postgres::connect(&server().await.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = format!("BEGIN; SELECT 1 FROM {schema}.slots FOR UPDATE");
    client.batch_execute(&sql).await.unwrap();
    let mut swaps = tokio::task::JoinSet::new();
    for key in 0..50_u128 {
        let store = Arc::clone(&store);
        swaps.spawn(async move {
            let pen = Pen::new(&format!("free-{key}"));
            won(store.swap(None, pen.claim(100 + key, LONG)).await.unwrap());
        });
    }
    let refused = store.swap(Some(version(1)), held.done(2, 1, LONG)).await;
    assert!(refused.is_err(), "it is told so, and wrote nothing");
    while let Some(swap) = swaps.join_next().await {
        swap.unwrap();
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    won(store.swap(Some(version(1)), held.done(3, 1, LONG)).await.unwrap());
}

/// W6: bounded for each tenant and in all, in every process of a fleet.
#[tokio::test(flavor = "multi_thread")]
async fn w6_a_full_store_refuses_new_keys_and_nothing_else() {
    let bounded = || options().bounds((1_000, 1 << 30), (3, 1 << 30));
    let (one, other, schema) = pair(bounded).await;
    let pen = |tenant: &str, key: u128| Pen::of(address(tenant, &format!("full-{key}")));
    for key in 1..=3_u128 {
        let pen = pen("acme", key);
        won(one.swap(None, pen.claim(key, LONG)).await.unwrap());
        won(one.swap(Some(version(key)), pen.done(100 + key, key, LONG)).await.unwrap());
    }
    let full = one.swap(None, pen("acme", 9).claim(9, LONG)).await;
    assert_eq!(full, Err(StoreError::Full(Bound::Tenant)));
    // A key that is there is none of the new ones, and other tenants have room.
    let taken = one.swap(Some(version(101)), pen("acme", 1).claim(11, LONG)).await.unwrap();
    won(taken);
    won(one.swap(None, pen("other", 1).claim(12, LONG)).await.unwrap());
    // Another process learns of it from the database, once the oldest has counted.
    won(other.swap(None, pen("acme", 10).claim(10, LONG)).await.unwrap());
    while !one.sweep(1).await.unwrap().value.done {}
    let url = server().await.url();
    let third = Postgres::open(&url, bounded().schema(&schema)).await.unwrap();
    let full = third.swap(None, pen("acme", 9).claim(9, LONG)).await;
    assert_eq!(full, Err(StoreError::Full(Bound::Tenant)));
    // What has expired makes room, once it is swept.
    for key in 2..=3_u128 {
        let released = pen("acme", key).released(200 + key, key, BRIEF);
        won(one.swap(Some(version(100 + key)), released).await.unwrap());
    }
    wait_out(&one, BRIEF).await;
    while !one.sweep(1_000).await.unwrap().value.done {}
    won(one.swap(None, pen("acme", 9).claim(9, LONG)).await.unwrap());
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n")
}

/// A server that speaks TLS, with the certificate that proves it, and one that proves another.
fn encrypted() -> (Server, String, String) {
    let server = Server::start(&[("fsync", "off")]);
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (own, other) = (made(), made());
    let certificate = pem("CERTIFICATE", own.cert.der());
    let key = server.file("key.pem", &pem("PRIVATE KEY", &own.signing_key.serialize_der()));
    let file = server.file("cert.pem", &certificate);
    for (setting, value) in [
        ("ssl_key_file", key.to_str().unwrap()),
        ("ssl_cert_file", file.to_str().unwrap()),
        ("ssl", "on"),
    ] {
        let _ = server.ask(&format!("ALTER SYSTEM SET {setting} = '{value}'"));
    }
    let _ = server.ask("SELECT pg_reload_conf()");
    server.wait_for("SHOW ssl", "on");
    (server, certificate, pem("CERTIFICATE", other.cert.der()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_known_by_its_certificate_where_that_is_asked_for() {
    let (server, own, other) = tokio::task::spawn_blocking(encrypted).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let url = format!("postgres://onetake@localhost:{}/postgres", server.port);
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'onetake' AND ssl";
    for (mode, expected) in [
        (format!("sslmode=verify-full&sslrootcert={}", root("own", &own)), "t"),
        ("sslmode=require".to_owned(), "t"),
        ("sslmode=disable".to_owned(), "f"),
    ] {
        let store = Postgres::open(&format!("{url}?{mode}"), options()).await;
        let store = store.unwrap_or_else(|error| panic!("{mode}: {error}"));
        assert_eq!(server.ask(encrypted), expected, "{mode}");
        drop(store);
        server.wait_for(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'onetake'",
            "0",
        );
    }
    let mode = format!("sslmode=verify-full&sslrootcert={}", root("other", &other));
    let refused = Postgres::open(&format!("{url}?{mode}"), options()).await;
    assert!(matches!(refused, Err(PostgresError::Unreachable(_))), "an impostor");
}
