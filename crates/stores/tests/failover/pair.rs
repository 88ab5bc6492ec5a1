//! A primary and its standby, and what can happen to them.
//!
//! Statements that look wait for nobody; whatever waits here waits for something that must happen.

use std::time::Duration;

use onetake_stores::{Postgres, PostgresOptions};
use onetake_testkit::servers::Server;
use rustix::process::{Pid, Signal, kill_process};

/// How the standby is called.
const STANDBY: &str = "standby";
/// How long a store waits for a reply in these tests.
const REPLY_WITHIN: Duration = Duration::from_secs(2);

/// Does something that takes its time, and nothing else on this thread.
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// A primary and its standby.
pub(crate) struct Pair {
    pub(crate) primary: Server,
    pub(crate) standby: Server,
}

/// The processes between the two.
pub(crate) struct Pipe {
    sender: Pid,
    receiver: Pid,
}

impl Pair {
    /// Starts both. Commits on the primary wait for the standby, as far as `settings` let them.
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        let always = [("synchronous_standby_names", STANDBY)];
        let primary = Server::start(&[&always, settings].concat());
        let standby = primary.standby(STANDBY, &[]);
        primary.wait_for("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
        Self { primary, standby }
    }

    /// The address of both. Of the two, whoever takes writes is meant.
    pub(crate) fn url(&self) -> String {
        let ports = [self.primary.port, self.standby.port];
        let [one, other] = ports.map(|port| format!("127.0.0.1:{port}"));
        format!("postgres://onetake@{one},{other}/postgres")
    }

    pub(crate) async fn open(&self) -> Postgres {
        open(&self.url()).await
    }

    /// The processes between the two.
    pub(crate) fn pipe(&self) -> Pipe {
        let pid = |text: String| Pid::from_raw(text.parse().unwrap()).unwrap();
        let sender = pid(self.primary.ask("SELECT pid FROM pg_stat_replication"));
        let receiver = pid(self.standby.ask("SELECT pid FROM pg_stat_wal_receiver"));
        Pipe { sender, receiver }
    }

    /// Kills the primary and lets the standby take its place. `pipe` was cut before.
    pub(crate) fn fail_over(&mut self, pipe: &Pipe) {
        self.primary.kill();
        // It finds that nobody sends any more. While it stands still nobody can be promoted.
        pipe.go_on_receiving();
        self.standby.promote();
    }
}

impl Pipe {
    /// Nothing reaches the standby any more: its receiver stands still, and so that nothing is on
    /// the way either, the sender as well.
    pub(crate) fn cut(&self) {
        kill_process(self.receiver, Signal::STOP).unwrap();
        kill_process(self.sender, Signal::STOP).unwrap();
    }

    /// Ends a cut.
    pub(crate) fn mend(&self) {
        kill_process(self.sender, Signal::CONT).unwrap();
        self.go_on_receiving();
    }

    fn go_on_receiving(&self) {
        kill_process(self.receiver, Signal::CONT).unwrap();
    }
}

pub(crate) fn options() -> PostgresOptions {
    PostgresOptions::new().within(REPLY_WITHIN, REPLY_WITHIN)
}

pub(crate) async fn open(url: &str) -> Postgres {
    Postgres::open(url, options()).await.unwrap()
}
