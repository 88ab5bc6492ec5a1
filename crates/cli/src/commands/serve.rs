//! `onetake serve`: opens the store and serves the gateway and the admin surface, until asked to
//! stop.
//!
//! Says where it listens in `admin.json` only once it does, and takes that back when it ends. It
//! never shows its token. Without a route and without `--upstream` only the admin surface is
//! served.

use std::fs::DirBuilder;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onetake::Engine;
use onetake::engine::{Limits, Mint};
use onetake_console::{Desk, Guard, Hosts, RunsDesk, Token, router_with};
use onetake_http::gateway::{self, Gateway, Lanes};
use onetake_http::identity::Gate;
use onetake_openwop::Host;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::admin::{self, AdminFile};
use crate::config::{self, Config, Environment, Purpose, Source};
use crate::exit::Exit;
use crate::gateway::{Plan, load, shortest};
use crate::plane::{self, Plane};
use crate::reload;
use crate::runs::HostRuns;
use crate::wiring::{self, AnyStore, Opening, StoreUrl};

/// How long executions under way may take to be recorded at the least, once requests have ended.
const STOP_WITHIN_MIN: Duration = Duration::from_secs(2);
/// What the headers of a response may take beside its body.
const HEADERS_BYTES: usize = 256 * 1024;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration; see `onetake.example.toml`; by default `onetake.toml`, where there is one
    #[arg(long, value_name = "FILE", conflicts_with = "upstream")]
    config: Option<PathBuf>,
    /// Put the gateway in front of this API: every POST, PUT, PATCH and DELETE with a key is
    /// executed once, everything else passes
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Where callers connect, in place of what is configured (127.0.0.1:8080); port 0 takes a free
    /// one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The store, in place of what is configured (embedded:./onetake-data): `embedded:PATH`,
    /// `postgres://HOST/DATABASE`, `redis://HOST`, or `memory:` which is gone with this process
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Where the admin surface listens, in place of what is configured (127.0.0.1:8081); port 0
    /// takes a free one
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// A further host, with its port, that requests to the admin surface may name
    #[arg(long = "admin-host", value_name = "HOST")]
    admin_hosts: Vec<String>,
    /// Where `admin.json` and the token are kept; by default the directory of the store
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// End when the standard input does, as it does when whoever holds its other end is gone
    #[arg(long, hide = true)]
    ends_with_input: bool,
}

impl Args {
    /// The file of the configuration: the one that was named, or the usual one where it is.
    fn file(&self) -> Option<PathBuf> {
        // Who types an upstream wants that and nothing else.
        self.upstream.is_none().then(|| config::file(self.config.as_deref())).flatten()
    }

    /// What is configured, with what was typed in its place, and what the gateway is made of, if
    /// there is to be one.
    fn load(&self, file: Option<&Path>) -> Result<(Config, Option<Plan>)> {
        let source = match file {
            Some(path) => Source::File(path),
            None => Source::Text { name: "the environment", text: "" },
        };
        let environment = Environment::of_process()
            .typed("--upstream", ["defaults", "upstream"], self.upstream.as_deref())
            .typed("--listen", ["server", "listen"], self.listen.as_deref())
            .typed("--store", ["store", "url"], self.store.as_deref())
            .typed("--admin-listen", ["admin", "listen"], self.admin_listen.as_deref());
        if self.upstream.is_none() {
            return Ok(load(source, &environment)?);
        }
        let config = Config::read(source, &environment, Purpose::Front)?.finish()?;
        let plan = config.upstream.clone().map(shortest).transpose()?;
        Ok((config, plan))
    }
}

/// Serves until SIGTERM or SIGINT, or until its input ends where it is bound to that.
///
/// # Errors
/// When the configuration is wrong, the store cannot be opened, or an address is taken.
pub(crate) async fn run(args: &Args) -> Result<Exit> {
    log();
    // Before anything is promised: a signal that comes early must not be missed.
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let hangup = signal(SignalKind::hangup())?;
    // Before the file is read: whatever changes it from now on is noticed.
    let file = args.file();
    let seen = file.as_deref().and_then(reload::stamp);
    let (config, plan) = args.load(file.as_deref())?;
    let store = wiring::open(&config.store, Opening::OrNew).await?;
    let has_journal = store.has_journal();
    let engine = Engine::with(store, limits(&config), Mint::default());
    if has_journal {
        engine.keep_house();
    }
    let state = State::of(args, &config.store.url)?;
    let (ask, asked) = watch::channel(());
    let end = || {
        let mut asked = asked.clone();
        async move { drop(asked.changed().await) }
    };
    let admin = Admin::open(args, &config, &state).await?;
    let data = match plan {
        Some(plan) => Some(Data::open(&config, plan, &engine).await?),
        None => None,
    };
    admin.file.write(&admin.file_path)?;
    say(args, &config, &admin, data.as_ref());
    let reloading = data.as_ref().and_then(|data| data.keys.clone()).zip(file);
    let reloading = reload::while_it_runs(reloading, seen, hangup);
    let host = data.as_ref().and_then(|data| data.host.clone());
    let runs = RunsDesk::new(HostRuns::of(host.as_ref(), &engine));
    let router = router_with(Desk::new(engine.clone()), runs, admin.guard);
    let serving_admin = onetake_console::serve(admin.listener, router, end());
    // Until the engine has stopped: executions go on there when their callers have gone.
    let lanes = Lanes::start_all().context("cannot start a thread")?;
    let serving_data = async {
        if let Some(data) = data {
            let Data { listener, plane, listening, .. } = data;
            gateway::serve(listener, plane, listening, &lanes, end()).await;
        }
    };
    let mut stopping = None;
    let signalled = async {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = input_ended(), if args.ends_with_input => {}
        }
        stopping = Some(Instant::now());
        // Streams would otherwise keep their connections to the end of the limit.
        if let Some(host) = &host {
            host.begin_to_stop();
        }
        drop(ask);
    };
    tokio::select! {
        _ = async { tokio::join!(serving_admin, serving_data, signalled) } => {}
        () = reloading => {}
    }
    admin.file.remove(&admin.file_path);
    // One limit for requests and for executions whose callers are gone.
    let within = config.server.shutdown_within;
    let spent = stopping.map_or(Duration::ZERO, |since| since.elapsed());
    let within = within.saturating_sub(spent).max(STOP_WITHIN_MIN);
    if let Some(host) = host {
        host.stop(within).await;
    }
    let left = engine.stop(within).await;
    eprintln!("stopped; executions that did not finish: {left}");
    Ok(Exit::Done)
}

/// Writes what operators should know to standard error; `RUST_LOG` says from which level on.
fn log() {
    let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level.unwrap_or(tracing::Level::INFO))
        .with_target(false);
    // Whoever runs this inside a program of their own may have a log already.
    let _ = log.try_init();
}

/// What the engine may keep: the largest response of any route, with its headers.
fn limits(config: &Config) -> Limits {
    let default = Limits::default();
    let routes = config.routes.iter().map(|route| &route.settings);
    let largest = routes.map(|settings| settings.max_stored_response).max().unwrap_or_default();
    let outcome_bytes_max = default.outcome_bytes_max.max(largest + HEADERS_BYTES);
    Limits { outcome_bytes_max, ..default }
}

/// Returns when the standard input has ended. It is read on a thread that ends with the process:
/// nothing else can end a read.
async fn input_ended() {
    let (ended, is_ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        // Nothing is expected there, and one that cannot be read has ended as well.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(ended);
    });
    let _ = is_ended.await;
}

/// Says where it listens: the line of the admin surface first, for whoever waits for it.
fn say(args: &Args, config: &Config, admin: &Admin, data: Option<&Data>) {
    if args.upstream.is_some() && Path::new(config::DEFAULT_FILE).exists() {
        let file = config::DEFAULT_FILE;
        eprintln!(
            "{file} is not read, because of --upstream; leave that out to serve what it says"
        );
    }
    let store = &config.store.url;
    eprintln!("serving {store} at {}, see {}", admin.file.url, admin.file_path.display());
    match data {
        Some(data) => {
            if let Some(host) = &data.host {
                let count = host.catalog().workflows().count();
                eprintln!("the workflow host is at {}/v1; workflows: {count}", data.url);
            }
            if !config.routes.is_empty() || config.upstream.is_some() {
                eprintln!("the gateway is at {}", data.url);
            }
            if data.is_shared {
                eprintln!(
                    "all callers share one space of keys: whoever knows a key hears its answer; \
                     to keep them apart, name tenants in a configuration"
                );
            }
            for warning in &config.warnings {
                eprintln!("warning: {warning}");
            }
        }
        None => eprintln!("no gateway: there is no route and no --upstream"),
    }
}

/// The admin surface, before it is served.
struct Admin {
    listener: TcpListener,
    guard: Guard,
    file: AdminFile,
    file_path: PathBuf,
}

impl Admin {
    async fn open(args: &Args, config: &Config, state: &State) -> Result<Self> {
        let token_path = state.path().join(admin::TOKEN_FILE_NAME);
        let (token, token_file) = match config.admin.token.clone() {
            Some(token) => (token, None),
            None => (Token::in_file(&token_path)?, Some(std::path::absolute(&token_path)?)),
        };
        let listener = bind(config.admin.listen, "--admin-listen").await?;
        let address = listener.local_addr()?;
        let guard = Guard::new(token, Hosts::of(address, &args.admin_hosts));
        let file = AdminFile { url: url_of(address), pid: std::process::id(), token_file };
        Ok(Self { listener, guard, file, file_path: state.path().join(admin::FILE_NAME) })
    }
}

/// The data plane, before it is served.
struct Data {
    listener: TcpListener,
    plane: Arc<Plane>,
    /// What drives runs, where there are workflows.
    host: Option<Host<AnyStore>>,
    listening: gateway::Listening,
    keys: Option<onetake_http::identity::ApiKeys>,
    url: String,
    /// Whether nobody is verified.
    is_shared: bool,
}

impl Data {
    async fn open(config: &Config, plan: Plan, engine: &Engine<AnyStore>) -> Result<Self> {
        let Plan { parts, routes, listening, keys } = plan;
        let (is_shared, gate) = (matches!(parts.gate, Gate::Anonymous(_)), parts.gate.clone());
        let (buffered, limits) = (parts.buffered_bytes_max, parts.new_keys_per_minute.clone());
        let gateway = Gateway::new(engine.clone(), parts, routes)?;
        let listener = bind(config.server.listen, "--listen").await?;
        let url = url_of(listener.local_addr()?);
        let (mut host, mut openwop) = (None, None);
        if let Some(hosted) = &config.openwop {
            let lease = config.defaults.policy.lease();
            let opened = plane::open_host(hosted, lease, engine).await?;
            let door = plane::door(hosted, opened.clone(), gate);
            openwop = Some(door.bounded(buffered, move |tenant| limits.get(tenant).copied()));
            host = Some(opened);
        }
        let plane = Arc::new(Plane { gateway, openwop });
        Ok(Self { listener, plane, host, listening, keys, url, is_shared })
    }
}

/// Listens on `address`, which `option` can set to another.
async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address} (`{option}` names another)"))
}

/// Where a client on this machine reaches `address`.
fn url_of(address: SocketAddr) -> String {
    format!("http://{}", admin::reachable(address))
}

/// Where `admin.json` and the token are kept.
enum State {
    /// In a directory that stays.
    Kept(PathBuf),
    /// In one that goes with this process, for a store that does so too.
    Brief(TempDir),
}

impl State {
    fn of(args: &Args, store: &StoreUrl) -> Result<Self> {
        match args.state.as_deref().or_else(|| store.directory()) {
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
