//! `onetake serve`: opens the store and serves the admin surface, until asked to stop.
//!
//! Says where it listens in `admin.json` only once it does, and takes that back when it ends. It
//! never shows its token.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use onetake::Engine;
use onetake_console::{Desk, Guard, Hosts, Token, router};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{self, AdminFile};
use crate::exit::Exit;
use crate::wiring::{self, DEFAULT_URL, Opening, StoreUrl};

/// How long executions under way may take once the end was asked for.
const STOP_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store: `embedded:PATH`, or `memory:` which is gone with this process
    #[arg(long, value_name = "URL", env = "ONETAKE_STORE__URL", default_value = DEFAULT_URL)]
    store: StoreUrl,
    /// Where the admin surface listens; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ONETAKE_ADMIN__LISTEN",
        default_value = "127.0.0.1:8081"
    )]
    admin_listen: SocketAddr,
    /// A further host, with its port, that requests to the admin surface may name
    #[arg(long = "admin-host", value_name = "HOST")]
    admin_hosts: Vec<String>,
    /// Where `admin.json` and the token are kept; by default the directory of the store
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the store cannot be opened or the address is taken.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    // Before anything is promised: a signal that comes early must not be missed.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let engine = Engine::new(wiring::open(&args.store, Opening::OrNew)?);
    engine.keep_house();
    let state = State::of(args)?;
    let token_path = state.path().join(admin::TOKEN_FILE_NAME);
    let (token, token_file) = match admin::given_token() {
        Some(text) => (Token::new(&text)?, None),
        None => (Token::in_file(&token_path)?, Some(std::path::absolute(&token_path)?)),
    };
    let listener = TcpListener::bind(args.admin_listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.admin_listen))?;
    let address = listener.local_addr()?;
    let guard = Guard::new(token, Hosts::of(address, &args.admin_hosts));
    let file = AdminFile { url: url_of(address), pid: std::process::id(), token_file };
    let file_path = state.path().join(admin::FILE_NAME);
    file.write(&file_path)?;
    eprintln!("serving {} at {}, see {}", args.store, file.url, file_path.display());
    let end = async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    };
    onetake_console::serve(listener, router(Desk::new(engine.clone()), guard), end).await;
    file.remove(&file_path);
    let left = engine.stop(STOP_WITHIN).await;
    eprintln!("stopped; executions that did not finish: {left}");
    Ok(Exit::Done)
}

/// Where a client on this machine reaches `address`.
fn url_of(address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        let loopback: std::net::IpAddr =
            if address.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() };
        address.set_ip(loopback);
    }
    format!("http://{address}")
}

/// Where `admin.json` and the token are kept.
enum State {
    /// In a directory that stays.
    Kept(PathBuf),
    /// In one that goes with this process, for a store that does so too.
    Brief(TempDir),
}

impl State {
    fn of(args: &Args) -> Result<Self> {
        match args.state.as_deref().or_else(|| args.store.directory()) {
            Some(path) => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
                made.with_context(|| format!("cannot make {}", path.display()))?;
                Ok(Self::Kept(path.to_owned()))
            }
            None => Ok(Self::Brief(tempfile::Builder::new().prefix("onetake-").tempdir()?)),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Brief(folder) => folder.path(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_reached_on_the_loopback() {
        let url = |address: &str| url_of(address.parse().unwrap());
        assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(url("[::]:80"), "http://[::1]:80");
        assert_eq!(url("10.0.0.1:80"), "http://10.0.0.1:80");
    }
}
