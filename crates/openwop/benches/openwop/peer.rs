//! A server in a process of its own: this program, started once more with a role to play.
//!
//! It says its address and a credential in one line and serves until its standard input ends, so it
//! never outlives whoever started it.

use std::io::{BufRead, BufReader, Read, stdin};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use axum::serve::ListenerExt;
use onetake_engine::{Journal, Memory};
use onetake_stores::Embedded;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::host::Measured;
use crate::{plain, processor_us, runtime};

/// The argument that makes this program a peer.
pub(crate) const ROLE: &str = "play";

/// Plays a role until there is nobody to play for.
pub(crate) fn play(role: &[String]) {
    let runtime = runtime();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let role: Vec<_> = role.iter().map(String::as_str).collect();
    // Stores have tasks of their own.
    let _inside = runtime.enter();
    match role.as_slice() {
        ["plain"] => {
            // As long as that of the host, so that both read as many bytes.
            announce(&listener, &"x".repeat(47));
            drop(runtime.spawn(listen(listener)));
        }
        ["host", folder] => {
            let store = Embedded::open(Path::new(folder)).expect("a store");
            host(&runtime, listener, store);
        }
        ["host-in-memory"] => host(&runtime, listener, Memory::new()),
        _ => panic!("no role: {role:?}"),
    }
    stdin().read_to_end(&mut Vec::new()).expect("an end");
}

fn announce(listener: &TcpListener, credential: &str) {
    println!("{} {credential}", listener.local_addr().expect("it is bound"));
}

fn host<S: Journal>(runtime: &Runtime, listener: TcpListener, store: S) {
    let host = runtime.block_on(Measured::open(store));
    announce(&listener, &host.credential);
    drop(runtime.spawn(host.serve(listener)));
}

async fn listen(listener: TcpListener) {
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a socket"));
    axum::serve(listener, plain::app()).await.expect("a listener");
}

/// The other end of a peer.
pub(crate) struct Peer {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) credential: String,
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
        let (address, credential) = line.trim().split_once(' ').expect("two words");
        let address = address.parse().expect("an address");
        Self { child, address, credential: credential.to_owned() }
    }

    /// The time that processors have spent on it so far, in microseconds.
    pub(crate) fn processor_us(&self) -> f64 {
        processor_us(&self.child.id().to_string())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
