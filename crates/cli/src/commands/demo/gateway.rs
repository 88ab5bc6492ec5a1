//! The gateway of the demo: `onetake serve` in a process of its own, so that it can be killed.
//!
//! It is killed with the demo, however that ends. When the demo itself is killed with -9, the pipe
//! between them breaks, and the gateway ends by itself. Nothing of the caller's environment
//! configures it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a gateway may take until it says where it is.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// What it says then.
const IS_AT: &str = "the gateway is at http://";
/// How much of what it says otherwise is kept, in bytes, about.
const SAID_BYTES_MAX: usize = 2_000;
/// Names in the folder of the demo.
const CONFIG: &str = "gateway.toml";
const STORE: &str = "store";
/// Any free port.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A gateway that runs, or that was killed.
pub(super) struct Gateway {
    folder: PathBuf,
    address: SocketAddr,
    process: Process,
}

impl Gateway {
    /// Starts a gateway in front of `api`, with everything that it keeps in `folder`.
    pub(super) async fn start(folder: &Path, api: SocketAddr) -> Result<Self> {
        fs::write(folder.join(CONFIG), config(api)).context("the gateway needs a file")?;
        let (process, address) = Process::start(folder, ANY).await?;
        Ok(Self { folder: folder.to_owned(), address, process })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its records are.
    pub(super) fn store(&self) -> PathBuf {
        self.folder.join(STORE)
    }

    /// Kills it with -9; gives how it ended.
    pub(super) fn kill(&mut self) -> io::Result<ExitStatus> {
        self.process.0.kill()?;
        self.process.0.wait()
    }

    /// Starts it again, on the same store and, unless somebody has taken it, on the same port.
    pub(super) async fn restart(&mut self) -> Result<()> {
        let again = match Process::start(&self.folder, self.address).await {
            Ok(again) => again,
            Err(_) => Process::start(&self.folder, ANY).await?,
        };
        (self.process, self.address) = again;
        Ok(())
    }
}

/// What the gateway is told: two operations that may not be repeated, and what follows a doubt.
fn config(api: SocketAddr) -> String {
    format!(
        r#"# The gateway of `onetake demo`.
[auth]
mode = "anonymous"

[defaults]
upstream = "http://{api}"
in_flight = "wait 20s"

[[route]]
match = "POST /orders"
operation = "orders.create"
# When nobody can say whether a payment was taken, say that.
unknown = "hold"

[[route]]
match = "POST /refunds"
operation = "refunds.create"
# The API looks before it gives money back a second time: it may be asked again.
unknown = "retry"

[[route]]
match = "* /**"
"#
    )
}

/// A process that does not outlive its owner.
struct Process(Child);

impl Process {
    /// Starts it and waits until it says where it is.
    async fn start(folder: &Path, listen: SocketAddr) -> Result<(Self, SocketAddr)> {
        let (listen, store) = (listen.to_string(), format!("embedded:{STORE}"));
        let any = ANY.to_string();
        let words = ["serve", "--ends-with-input", "--config", CONFIG, "--store", &store];
        let places = ["--listen", listen.as_str(), "--admin-listen", any.as_str()];
        let mut command = this_program(&[&words[..], &places[..]].concat())?;
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONETAKE_") {
                command.env_remove(name);
            }
        }
        // The other end of its input is ours for as long as we live, and nobody else's.
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut process = Self(child.context("the gateway cannot be started")?);
        let stderr = process.0.stderr.take().expect("invariant: it is piped");
        let (tell, told) = oneshot::channel();
        // It ends with the process.
        std::thread::spawn(move || listen_to(stderr, tell));
        let told = timeout(STARTS_WITHIN, told).await;
        let told = told.context("the gateway does not say where it is")?;
        let address = told?.map_err(|said| anyhow!("the gateway did not start: {said}"))?;
        Ok((process, address))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads what a gateway says to the end, so that it never waits for a reader; tells where it is,
/// or what it said instead.
fn listen_to(stderr: ChildStderr, tell: oneshot::Sender<Result<SocketAddr, String>>) {
    let (mut tell, mut said) = (Some(tell), String::new());
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let address = line.strip_prefix(IS_AT).and_then(|place| place.trim().parse().ok());
        if let Some(address) = address {
            if let Some(tell) = tell.take() {
                let _ = tell.send(Ok(address));
            }
        } else if said.len() < SAID_BYTES_MAX {
            said.push_str(&line);
            said.push('\n');
        }
    }
    if let Some(tell) = tell {
        let _ = tell.send(Err(said.trim_end().to_owned()));
    }
}

/// This program, to be started with `words`.
#[cfg(not(test))]
fn this_program(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // The stage is for the scenes.
    command.args(words).env("RUST_LOG", "error");
    Ok(command)
}

/// The test program takes no words of ours, but one of its tests does.
#[cfg(test)]
fn this_program(words: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let test = "commands::demo::gateway::tests::it_serves_if_it_is_asked_to";
    command.args(["--exact", test, "--nocapture"]).env(tests::WORDS, words.join("\n"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::{Cli, block_on, serve};

    pub(super) const WORDS: &str = "DEMO_GATEWAY_WORDS";
    /// Nobody is asked in these tests.
    const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

    /// Started by itself this does nothing; started by a demo it is the gateway.
    #[test]
    fn it_serves_if_it_is_asked_to() {
        let Ok(words) = std::env::var(WORDS) else { return };
        let parsed = Cli::parse_from(std::iter::once("onetake").chain(words.lines()));
        let crate::Command::Serve(args) = parsed.command else { panic!("{words}") };
        block_on(serve::run(&args)).unwrap();
    }

    #[test]
    fn it_is_restarted_where_it_was_and_dies_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut gateway = Gateway::start(folder.path(), NOWHERE).await.unwrap();
            let address = gateway.address();
            assert_eq!(gateway.kill().unwrap().code(), None, "a signal has no exit code");
            assert!(std::net::TcpStream::connect(address).is_err());
            gateway.restart().await.unwrap();
            let address = gateway.address();
            assert!(std::net::TcpStream::connect(address).is_ok());
            drop(gateway);
            assert!(std::net::TcpStream::connect(address).is_err());
        });
    }

    #[test]
    fn a_gateway_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(STORE), "no folder").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let started = runtime.block_on(Gateway::start(folder.path(), NOWHERE));
        let why = started.err().unwrap().to_string();
        assert!(why.starts_with("the gateway did not start: ") && why.len() > 40, "{why}");
    }
}
