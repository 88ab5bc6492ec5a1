//! What a Redis store says when its server, or the way to it, breaks: unknown or an error, and
//! never something wrong.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod redis_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onetake_engine::{Reply, Slots, StoreError, Swap};
use onetake_stores::{Redis, RedisError, RedisOptions};
use onetake_testkit::conformance::hear::{there, victory, won};
use onetake_testkit::make::{LONG, Pen, version};
use redis_server::{Server, free_port, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

async fn open(server: &Server) -> Redis {
    Redis::open(&server.url(), RedisOptions::new()).await.unwrap()
}

/// A way to a server that loses replies when it is told to: what was asked arrives, what is said
/// does not, and the connection is closed.
struct Way {
    port: u16,
    loses: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Way {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, loses) =
            (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let (mut tasks, told) = (JoinSet::new(), Arc::clone(&loses));
        tasks.spawn(async move {
            let mut ways = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let ((asks, says), (replies, requests)) = (near.into_split(), far.into_split());
                ways.spawn(pass(asks, requests, Arc::default()));
                ways.spawn(pass(replies, says, Arc::clone(&told)));
            }
        });
        Self { port, loses, _tasks: tasks }
    }

    fn lose(&self, is_so: bool) {
        self.loses.store(is_so, Ordering::SeqCst);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loses: Arc<AtomicBool>) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if loses.load(Ordering::SeqCst) || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// A reply that was lost after the write: unknown, and the same write again is won.
#[tokio::test]
async fn a_reply_that_is_lost_after_the_write_is_unknown_and_the_copy_wins() {
    let server = Server::start(&[]);
    let way = Way::to(server.port).await;
    let options = RedisOptions::new().connections(1);
    let store = Redis::open(&format!("redis://127.0.0.1:{}/", way.port), options).await.unwrap();
    let (pen, direct) = (Pen::new("k"), open(&server).await);
    way.lose(true);
    let claimed = store.swap(None, pen.claim(1, LONG)).await.unwrap();
    assert_eq!(claimed.value, Swap::Unknown);
    let claim = there(&direct, pen.slot()).await.expect("it was written");
    way.lose(false);
    assert_eq!(won(&store, None, pen.claim(1, LONG)).await, claim, "once");
    way.lose(true);
    let renewed = store.renew(pen.slot(), version(1), LONG).await.unwrap();
    assert_eq!(renewed.value, Swap::Unknown);
    way.lose(false);
    let again = store.renew(pen.slot(), version(1), LONG).await.unwrap();
    let Swap::Lost(Some(found)) = again.value else { panic!("{again:?}") };
    assert_eq!(found.version, version(1).renewed(), "the owner goes on from its own renewal");
    way.lose(true);
    let read = store.read(pen.slot()).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
}

/// A connection that the server closes while an operation waits there: unknown, not lost.
#[tokio::test]
async fn an_operation_whose_connection_is_killed_is_unknown() {
    let server = Server::start(&[]);
    let store = Arc::new(open(&server).await);
    let pen = Pen::new("k");
    server.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let (asking, draft) = (Arc::clone(&store), pen.claim(1, LONG));
    let asked = tokio::spawn(async move { asking.swap(None, draft).await });
    until("the operation waits", || server.text(&["CLIENT", "LIST"]).contains("flags=b")).await;
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let said = asked.await.unwrap().unwrap().value;
    assert_eq!(said, Swap::Unknown);
    server.ask(&["CLIENT", "UNPAUSE"]);
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    assert_eq!(there(&store, pen.slot()).await, Some(claim));
}

/// X2, W9: while connections are killed all the time, nobody hears anything wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_never_make_a_reply_wrong() {
    let server = Server::start(&[("appendfsync", "everysec")]);
    let store = Arc::new(open(&server).await);
    let mut tasks = JoinSet::new();
    for task in 0..16_u128 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut heard = Vec::new();
            for n in 0..100 {
                let pen = Pen::new(&format!("{task}-{n}"));
                let id = task * 1_000 + n + 1;
                let reply = store.swap(None, pen.claim(id, LONG)).await;
                heard.push((pen, id, reply));
            }
            heard
        });
    }
    let mut replies: Vec<(Pen, u128, Reply<Swap>)> = Vec::new();
    let mut last = 0;
    while !tasks.is_empty() {
        while let Some(heard) = tasks.try_join_next() {
            replies.extend(heard.unwrap());
        }
        // Not faster than something comes through.
        if server.count() > last {
            server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
            last = server.count();
        }
        tokio::task::yield_now().await;
    }
    let store = open(&server).await;
    for (pen, id, reply) in replies {
        let found = there(&store, pen.slot()).await.map(|record| record.version);
        match reply.map(|reply| reply.value) {
            Ok(Swap::Won(_)) => assert_eq!(found, Some(version(id)), "won, so it is there"),
            Ok(Swap::Lost(other)) => panic!("nobody else writes there: {other:?}"),
            Ok(Swap::Unknown) => {}
            Err(error) => assert_eq!(found, None, "{error}, so nothing was written"),
        }
    }
}

/// A server that is gone: unavailable as soon as that is known, and all is well when it is back.
#[tokio::test]
async fn a_server_that_is_down_is_unavailable_and_is_found_again() {
    let mut server = Server::start(&[]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    let claim = won(&store, None, pen.claim(1, LONG)).await;
    server.kill();
    let mut heard = Vec::new();
    for id in 2..20 {
        heard.push(store.swap(None, Pen::new(&format!("k{id}")).claim(id, LONG)).await);
    }
    for reply in &heard {
        let is_honest = match reply {
            Ok(reply) => reply.value == Swap::Unknown,
            Err(error) => matches!(error, StoreError::Unavailable(_)),
        };
        assert!(is_honest, "{reply:?}");
    }
    assert!(matches!(heard.last(), Some(Err(StoreError::Unavailable(_)))), "{heard:?}");
    server.begin();
    assert_eq!(there(&store, pen.slot()).await, Some(claim));
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_store() {
    let url = format!("redis://127.0.0.1:{}/", free_port());
    let refused = Redis::open(&url, RedisOptions::new()).await;
    assert!(matches!(refused, Err(RedisError::Unreachable(_))), "{refused:?}");
}

/// A server that accepts and never speaks is given up in time, at open and later.
#[tokio::test]
async fn a_server_that_never_speaks_is_given_up() {
    let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://127.0.0.1:{}/", deaf.local_addr().unwrap().port());
    let options = RedisOptions::new().connect_within(Duration::from_millis(100));
    let refused = Redis::open(&url, options).await;
    assert!(matches!(refused, Err(RedisError::Unreachable(_))), "{refused:?}");

    let server = Server::start(&[]);
    let options = RedisOptions::new().reply_within(Duration::from_millis(100)).connections(1);
    let (store, pen) = (Redis::open(&server.url(), options).await.unwrap(), Pen::new("k"));
    server.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let late = store.swap(None, pen.claim(1, LONG)).await.unwrap();
    assert_eq!(late.value, Swap::Unknown);
    server.ask(&["CLIENT", "UNPAUSE"]);
    // On a slow machine a reply may be late again; the same write may be repeated for ever.
    let mut again = Swap::Unknown;
    for _ in 0..100 {
        again = store.swap(None, pen.claim(1, LONG)).await.map_or(Swap::Unknown, |it| it.value);
        if again != Swap::Unknown {
            break;
        }
    }
    assert_eq!(there(&open(&server).await, pen.slot()).await, Some(victory(again)));
}

/// What waits has a bound: past it, whoever comes is refused at once.
#[tokio::test]
async fn no_more_operations_wait_than_may() {
    let server = Server::start(&[]);
    let options = RedisOptions::new().connections(1).queue_max(4);
    let store = Arc::new(Redis::open(&server.url(), options).await.unwrap());
    server.ask(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let mut tasks = JoinSet::new();
    for id in 1..=1_000 {
        let store = Arc::clone(&store);
        let draft = Pen::new(&format!("k{id}")).claim(id, LONG);
        tasks.spawn(async move { store.swap(None, draft).await });
    }
    // Those who are refused need no server; the others wait for it.
    let first = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(first, Err(StoreError::Unavailable(_))), "{first:?}");
    server.ask(&["CLIENT", "UNPAUSE"]);
    let (mut won, mut refused) = (0, 1);
    for reply in tasks.join_all().await {
        match reply.map(|reply| victory(reply.value)) {
            Ok(_) => won += 1,
            Err(_) => refused += 1,
        }
    }
    assert_eq!((won + refused, won), (1_000, server.count()));
}

/// A server that has forgotten the script is told it again, and nothing is done twice or lost.
#[tokio::test]
async fn a_server_that_forgot_the_script_is_told_again() {
    let server = Server::start(&[]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    server.ask(&["SCRIPT", "FLUSH"]);
    let done = won(&store, Some(version(1)), pen.done(2, 1, LONG)).await;
    server.ask(&["SCRIPT", "FLUSH"]);
    assert_eq!(there(&store, pen.slot()).await, Some(done));
}

/// A server whose settings changed while we were away is not trusted again.
#[tokio::test]
async fn a_server_that_came_back_without_its_file_is_not_used() {
    let server = Server::start(&[]);
    let (store, pen) = (open(&server).await, Pen::new("k"));
    won(&store, None, pen.claim(1, LONG)).await;
    server.ask(&["CONFIG", "SET", "appendonly", "no"]);
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut last = None;
    for _ in 0..3 {
        last = store.read(pen.slot()).await.err();
    }
    let Some(StoreError::Unavailable(why)) = last else { panic!("{last:?}") };
    assert!(why.contains("`appendonly` is `no`"), "{why}");
    server.ask(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(there(&store, pen.slot()).await.is_some());
}
