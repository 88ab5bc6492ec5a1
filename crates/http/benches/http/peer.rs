//! A server in a process of its own: this program, started once more with a role to play.
//!
//! It says its address in one line and serves until its standard input ends, so it never outlives
//! whoever started it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, stdin};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::ListenerExt;
use onetake_engine::{Engine, Journal, Memory};
use onetake_http::gateway::forward::Forwarding;
use onetake_http::gateway::pattern::Pattern;
use onetake_http::gateway::upstream::UpstreamOptions;
use onetake_http::gateway::{
    ForwardKey, Gateway, Lanes, Listening, Parts, ProxyUpstream, Route, serve,
};
use onetake_http::identity::{AnonymousSettings, Gate};
use onetake_http::{Idempotency, Settings};
use onetake_stores::Embedded;
use tokio::net::TcpListener;

use crate::{WORKERS, float, floor, proxy, runtime, service};

/// The argument that makes this program a peer.
pub(crate) const ROLE: &str = "play";

/// Plays a role until there is nobody to play for.
pub(crate) fn play(role: &[String]) {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    println!("{}", listener.local_addr().expect("it is bound"));
    let role: Vec<_> = role.iter().map(String::as_str).collect();
    // Stores and gateways have tasks of their own.
    let _inside = runtime.enter();
    match role.as_slice() {
        ["plain"] => drop(runtime.spawn(listen(listener, service::app()))),
        ["layer", folder] => drop(runtime.spawn(listen(listener, layered(open(folder))))),
        ["layer-in-memory"] => drop(runtime.spawn(listen(listener, layered(Memory::new())))),
        ["proxy", upstream] => drop(runtime.spawn(proxy::serve(listener, address(upstream)))),
        ["durable", folder] => drop(runtime.spawn(listen(listener, floor::app(log(folder))))),
        ["durable-proxy", upstream, folder] => {
            drop(runtime.spawn(floor::serve(listener, address(upstream), log(folder))));
        }
        ["gateway", upstream, folder] => {
            let gateway = gateway(open(folder), address(upstream));
            drop(runtime.spawn(front(listener, gateway)));
        }
        ["gateway-in-memory", upstream] => {
            let gateway = gateway(Memory::new(), address(upstream));
            drop(runtime.spawn(front(listener, gateway)));
        }
        _ => panic!("no role: {role:?}"),
    }
    stdin().read_to_end(&mut Vec::new()).expect("an end");
}

fn open(folder: &str) -> Embedded {
    Embedded::open(Path::new(folder)).expect("a store")
}

fn log(folder: &str) -> floor::Log {
    floor::Log::open(Path::new(folder))
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

async fn front(listener: TcpListener, gateway: Gateway) {
    let (bounds, lanes) = (Listening::default(), Lanes::start(WORKERS).expect("threads"));
    serve(listener, Arc::new(gateway), bounds, &lanes, std::future::pending()).await;
}

async fn listen(listener: TcpListener, app: Router) {
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    axum::serve(listener, app).await.expect("a listener");
}

/// An engine as a service has it, with its housekeeping.
fn engine<S: Journal>(store: S) -> Engine<S> {
    let engine = Engine::new(store);
    engine.keep_house();
    engine
}

fn layered<S: Journal>(store: S) -> Router {
    let door = Idempotency::single_tenant(engine(store), "acme").expect("a name");
    service::app().layer(door.layer())
}

fn gateway<S: Journal>(store: S, upstream: SocketAddr) -> Gateway {
    let parts = Parts {
        gate: Gate::Anonymous(AnonymousSettings::default().build().expect("its defaults")),
        forwarding: Forwarding::new(),
        forwards_credentials: false,
        requests_max: 1_000,
        buffered_bytes_max: onetake_http::BUFFERED_BYTES_MAX,
        new_keys_per_minute: HashMap::new(),
    };
    let base = format!("http://{upstream}").parse().expect("a URL");
    let route = Route {
        pattern: Pattern::parse(&format!("POST {}", service::PATH)).expect("a pattern"),
        upstream: ProxyUpstream::new(base, UpstreamOptions::default()).expect("an upstream"),
        timeout: Duration::from_secs(30),
        request_bytes_max: onetake_http::BODY_BYTES_MAX,
        operation: None,
        settings: Some(Settings::default()),
        forward_key: ForwardKey::Raw,
        scope: None,
        shares_keys: false,
        probe: None,
    };
    Gateway::new(engine(store), parts, vec![route]).expect("one route")
}

/// The other end of a peer.
pub(crate) struct Peer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Peer {
    pub(crate) fn start(role: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg(ROLE)
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        let said = child.stdout.take().expect("piped");
        BufReader::new(said).read_line(&mut line).expect("the peer says its address");
        Self { child, address: address(line.trim()) }
    }

    /// The time that processors have spent on it so far, in microseconds; zero where nobody says.
    pub(crate) fn processor_us(&self) -> f64 {
        /// The kernel counts in hundredths of a second for everybody outside.
        const TICK_US: f64 = 10_000.0;
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The name of the program, in brackets, may hold anything.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks = fields.split_whitespace().skip(11).take(2);
        float(ticks.filter_map(|field| field.parse::<u64>().ok()).sum()) * TICK_US
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
