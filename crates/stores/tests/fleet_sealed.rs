//! What a fleet keeps is sealed, on real servers: nothing shows in the tables or under the keys,
//! everybody has to agree, and a key that one process adds is learned by the others.
#![cfg(all(feature = "postgres", feature = "redis"))]
#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

mod redis_server;
mod servers;

use std::sync::atomic::{AtomicU32, Ordering};

use onetake_core::{Asked, Key, Outcome, Phase, Scope, Version};
use onetake_engine::{
    Doc, Journal, Lane, Position, Reply, Slots, Stamped, StoreError, Swap, Tx, Write,
};
use onetake_stores::inside::{Ending, Inside, InsideError};
use onetake_stores::seal::{MasterKey, SealError};
use onetake_stores::{Postgres, PostgresError, PostgresOptions, Redis, RedisError, RedisOptions};
use onetake_testkit::make::{LONG, Pen};
use servers::Server;

static OPENED: AtomicU32 = AtomicU32::new(0);

/// What must not be found by anybody who has the server, but no key.
const SECRETS: [&str; 4] =
    ["key-of-the-caller", "body-of-the-answer", "value-of-a-document", "entry-of-a-lane"];

fn master(byte: u8) -> MasterKey {
    MasterKey::new([byte; 32])
}

fn name() -> String {
    format!("sealed_{}", OPENED.fetch_add(1, Ordering::SeqCst))
}

async fn postgres() -> &'static Server {
    tokio::task::spawn_blocking(Server::shared).await.unwrap()
}

async fn redis() -> &'static redis_server::Server {
    tokio::task::spawn_blocking(redis_server::Server::shared).await.unwrap()
}

async fn tables(schema: &str, keys: Vec<MasterKey>) -> Result<Postgres, PostgresError> {
    let options = PostgresOptions::new().accept_loss(true).schema(schema).keys(keys);
    Postgres::open(&postgres().await.url(), options).await
}

async fn slots(prefix: &str, keys: Vec<MasterKey>) -> Result<Redis, RedisError> {
    let options = RedisOptions::new().prefix(&format!("{prefix}:")).keys(keys);
    Redis::open(&redis().await.url(), options).await
}

fn won(reply: Reply<Swap>) -> Version {
    match reply.unwrap().value {
        Swap::Won(record) => record.version,
        other @ (Swap::Lost(_) | Swap::Unknown) => panic!("{other:?}"),
    }
}

/// Executes the operation of a caller.
async fn execute(store: &impl Slots, pen: &Pen, id: u128) {
    let claim = won(store.swap(None, pen.claim(id, LONG)).await);
    let outcome = Outcome::Value(SECRETS[1].into());
    won(store.swap(Some(claim), pen.done_with(id + 1, id, LONG, outcome)).await);
}

/// What `store` replays. A key that it does not know yet it is just fetching.
async fn replayed(store: &impl Slots, pen: &Pen) -> Outcome {
    loop {
        let record = match store.read(pen.slot()).await {
            Ok(Stamped { value, .. }) => value.expect("a record"),
            Err(StoreError::Unavailable(_)) => {
                tokio::task::yield_now().await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let Phase::Done { outcome, .. } = &record.phase else { panic!("{record:?}") };
        return Outcome::clone(outcome);
    }
}

/// Everything in the tables of a schema, as text.
async fn dump(schema: &str) -> String {
    let server = postgres().await;
    let tables = ["slots", "docs", "entries", "lanes", "seals"];
    let dumped = tables.map(|table| {
        let sql = "SELECT coalesce(string_agg(t::text, ' '), '') FROM";
        server.ask(&format!("{sql} {schema}.{table} t"))
    });
    dumped.join(" ")
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// No secret shows, as text or as digits; nor the digest that a guessed key would have.
fn assert_hidden(dump: &str, pen: &Pen) {
    for secret in SECRETS {
        assert!(!dump.contains(secret), "{secret} is readable");
        assert!(!dump.contains(&hex(secret.as_bytes())), "{secret} is readable as digits");
    }
    assert!(!dump.contains(&hex(pen.slot().digest())), "the digest can be guessed");
}

/// X11
#[tokio::test]
async fn x11_the_tables_show_nothing_of_what_they_keep() {
    for (keys, is_hidden) in [(vec![master(1)], true), (vec![], false)] {
        let (schema, pen) = (name(), Pen::new(SECRETS[0]));
        let store = tables(&schema, keys.clone()).await.unwrap();
        execute(&store, &pen, 1).await;
        let doc = Doc { space: "test", key: "d".into() };
        let put = Tx::on_doc(9, doc.clone(), None, SECRETS[2].into());
        let lane = Lane("lane".into());
        store.commit(put.write(Write::Append(lane.clone(), SECRETS[3].into()))).await.unwrap();
        let dump = dump(&schema).await;
        if is_hidden {
            assert_hidden(&dump, &pen);
        } else {
            assert!(dump.contains(&hex(pen.slot().digest())), "the control run sees it");
            assert!(dump.contains(&hex(SECRETS[2].as_bytes())));
        }
        // Another process with the key reads all of it.
        let other = tables(&schema, keys).await.unwrap();
        assert_eq!(replayed(&other, &pen).await, Outcome::Value(SECRETS[1].into()));
        let page = other.scan("test", b"", None, 9).await.unwrap().value.items;
        assert_eq!((&page[0].0, &page[0].1.value[..]), (&doc, SECRETS[2].as_bytes()));
        let page = other.read_lane(&lane, Position(0), 9).await.unwrap().value.items;
        assert_eq!(&page[0].value[..], SECRETS[3].as_bytes());
    }
}

/// X11
#[tokio::test]
async fn x11_redis_shows_nothing_of_what_it_keeps() {
    let (prefix, pen) = (name(), Pen::new(SECRETS[0]));
    let store = slots(&prefix, vec![master(1)]).await.unwrap();
    execute(&store, &pen, 1).await;
    let server = redis().await;
    let shown = |key: &String| {
        let value = server.bytes(&["GET", key]);
        format!("{key} {} {}", hex(&value), String::from_utf8_lossy(&value))
    };
    let dump: Vec<_> = server.keys(&format!("{prefix}:*")).iter().map(shown).collect();
    let dump = dump.join(" ");
    assert!(dump.contains(&format!("{prefix}:seal")), "{dump}");
    assert_hidden(&dump, &pen);
    let other = slots(&prefix, vec![master(1)]).await.unwrap();
    assert_eq!(replayed(&other, &pen).await, Outcome::Value(SECRETS[1].into()));
}

/// X11: a process that seals and one that does not would both execute the same key.
#[tokio::test]
async fn x11_whoever_does_not_agree_is_not_let_in() {
    let name = name();
    let _first = (tables(&name, vec![master(1)]).await, slots(&name, vec![master(1)]).await);
    let refused = [vec![], vec![master(2)]];
    for keys in refused {
        let wanted = match keys.first() {
            None => SealError::NoKey.to_string(),
            Some(_) => SealError::WrongKey { wrapped_by: master(1).id() }.to_string(),
        };
        let error = tables(&name, keys.clone()).await.unwrap_err();
        assert_eq!((error.code().as_str(), error.to_string()), ("store_sealed", wanted.clone()));
        let error = slots(&name, keys).await.unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
    let plain = format!("{name}_plain");
    let _first = (tables(&plain, vec![]).await.unwrap(), slots(&plain, vec![]).await.unwrap());
    let error = tables(&plain, vec![master(1)]).await.unwrap_err();
    assert_eq!(error.to_string(), SealError::NotSealed.to_string());
    let error = slots(&plain, vec![master(1)]).await.unwrap_err();
    assert_eq!(error.to_string(), SealError::NotSealed.to_string());
}

/// X11: of many that start at once one decides, and all the others go along.
#[tokio::test(flavor = "multi_thread")]
async fn x11_a_fleet_that_starts_at_once_has_one_key_ring() {
    let (schema, pen) = (name(), Pen::new("k"));
    let starting = (0..4).map(|_| {
        let schema = schema.clone();
        tokio::spawn(async move { tables(&schema, vec![master(1)]).await.unwrap() })
    });
    let mut stores = Vec::new();
    for one in starting.collect::<Vec<_>>() {
        stores.push(one.await.unwrap());
    }
    execute(&stores[0], &pen, 1).await;
    for store in &stores {
        assert_eq!(replayed(store, &pen).await, Outcome::Value(SECRETS[1].into()));
        let rival = store.swap(None, pen.claim(7, LONG)).await.unwrap().value;
        assert!(matches!(rival, Swap::Lost(Some(_))), "{rival:?}");
    }
}

/// X11: the key that one process adds is learned by the others; the master key may change too.
#[tokio::test]
async fn x11_a_new_key_is_learned_by_everybody() {
    let (name, [old, new]) = (name(), ["old", "new"].map(Pen::new));
    let both = || vec![master(2), master(1)];
    let first = tables(&name, vec![master(1)]).await.unwrap();
    execute(&first, &old, 1).await;
    // Rewrapped by the new master key, of which the first process knows nothing.
    let [one, other] = [tables(&name, both()).await.unwrap(), tables(&name, both()).await.unwrap()];
    one.rotate(&master(2)).await.unwrap();
    execute(&one, &new, 11).await;
    for pen in [&old, &new] {
        assert_eq!(replayed(&other, pen).await, Outcome::Value(SECRETS[1].into()));
    }
    let late = tables(&name, vec![master(2)]).await.unwrap();
    assert_eq!(replayed(&late, &new).await, Outcome::Value(SECRETS[1].into()));
    // It cannot read what it has no key for, says so, and never takes it for nothing.
    assert_eq!(replayed(&first, &old).await, Outcome::Value(SECRETS[1].into()));
    let unread = first.read(new.slot()).await;
    assert!(matches!(unread, Err(StoreError::Unavailable(_))), "{unread:?}");
    let rival = first.swap(None, new.claim(21, LONG)).await;
    assert!(!matches!(rival, Ok(Stamped { value: Swap::Won(_), .. })), "{rival:?}");

    let first = slots(&name, vec![master(1)]).await.unwrap();
    execute(&first, &old, 1).await;
    let [one, other] = [slots(&name, both()).await.unwrap(), slots(&name, both()).await.unwrap()];
    one.rotate(&master(2)).await.unwrap();
    execute(&one, &new, 11).await;
    for pen in [&old, &new] {
        assert_eq!(replayed(&other, pen).await, Outcome::Value(SECRETS[1].into()));
    }
    let unread = first.read(new.slot()).await;
    assert!(matches!(unread, Err(StoreError::Unavailable(_))), "{unread:?}");
}

#[tokio::test]
async fn what_is_not_sealed_has_no_key_to_change() {
    let name = name();
    let (tables, slots) =
        (tables(&name, vec![]).await.unwrap(), slots(&name, vec![]).await.unwrap());
    let refused = Err(StoreError::Malformed("the store is not sealed"));
    assert_eq!(tables.rotate(&master(1)).await, refused);
    assert_eq!(slots.rotate(&master(1)).await, refused);
}

/// X11: a sealed value put elsewhere, or under another version, is noticed.
#[tokio::test]
async fn x11_values_that_were_moved_are_refused() {
    let (schema, [one, other]) = (name(), ["one", "other"].map(Pen::new));
    let store = tables(&schema, vec![master(1)]).await.unwrap();
    execute(&store, &one, 1).await;
    execute(&store, &other, 11).await;
    for key in ["a", "b"] {
        let doc = Doc { space: "test", key: key.into() };
        let put = Tx::on_doc(u128::from(key.as_bytes()[0]), doc, None, key.into());
        store.commit(put).await.unwrap();
    }
    let server = postgres().await;
    let _ = server.ask(&format!(
        "UPDATE {schema}.slots SET body = (SELECT body FROM {schema}.slots LIMIT 1);
         UPDATE {schema}.docs SET value = (SELECT value FROM {schema}.docs LIMIT 1)"
    ));
    let store = tables(&schema, vec![master(1)]).await.unwrap();
    let mut refused = 0;
    for pen in [&one, &other] {
        let read = store.read(pen.slot()).await;
        refused += usize::from(matches!(read, Err(StoreError::Corrupt(_))));
    }
    assert_eq!(refused, 1, "one of them lies where it belongs");
    let scanned = store.scan("test", b"", None, 9).await;
    assert!(matches!(scanned, Err(StoreError::Corrupt(_))), "{scanned:?}");
}

/// X7, X11: records inside the caller's transaction are sealed too, and shared with the store.
#[tokio::test]
async fn x7_x11_a_record_inside_a_transaction_is_sealed_like_all_others() {
    let schema = name();
    let store = tables(&schema, vec![master(1)]).await.unwrap();
    let url = postgres().await.url();
    let (mut client, connection) =
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let scope = Scope::tenant_named("acme").unwrap();
    let plain = Inside::named("pay").unwrap().in_schema(&schema).unwrap();
    let sealed = || plain.clone().with_keys(vec![master(1)]);
    let (one, other) = (sealed(), sealed());
    let mut calls = Vec::new();
    // The other one begins with a key that the first has to learn of, to read what it did.
    for (inside, key) in [(&one, "a"), (&one, "a"), (&other, "b"), (&one, "b"), (&plain, "b")] {
        let key = Key::new(&format!("{}-{key}", SECRETS[0])).unwrap();
        let mut tx = client.transaction().await.unwrap();
        let took = inside.execute_in(&mut tx, &scope, &key, Asked::raw("5"), async |_| {
            Ending::<_, String>::Succeeded(SECRETS[1].to_owned())
        });
        calls.push(took.await.map(|take| (take.value.clone(), take.is_repeat())));
        tx.commit().await.unwrap();
        store.rotate(&master(1)).await.unwrap();
    }
    let refused = calls.pop().unwrap();
    assert!(matches!(refused, Err(InsideError::Seal(SealError::NoKey))), "{refused:?}");
    let calls: Vec<_> = calls.into_iter().map(Result::unwrap).collect();
    let wanted = [false, true, false, true].map(|is_repeat| (SECRETS[1].to_owned(), is_repeat));
    assert_eq!(calls, wanted);
    let dump = dump(&schema).await;
    for secret in &SECRETS[..2] {
        assert!(!dump.contains(&hex(secret.as_bytes())), "{secret} is readable");
    }
    let page = store.scan_slots(None, None, 9).await.unwrap().value.items;
    assert_eq!(page.len(), 2, "the store knows both");
    drop(client);
    connection.await.unwrap().unwrap();
}
