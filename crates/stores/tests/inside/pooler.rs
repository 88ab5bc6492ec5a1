//! Behind a pooler in transaction mode: every transaction may be served by another connection.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onetake_core::{OnInFlight, Policy};
use onetake_stores::inside::Source;
use tempfile::TempDir;
use tokio_postgres::NoTls;

use crate::place::Place;
use crate::servers::Server;

/// Who runs the pooler where tests run as root, which it refuses.
const USER: &str = "postgres";

/// A pooler that ends with its test.
struct Pooler {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl Pooler {
    /// Two connections to the server for everybody.
    async fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=onetake\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = transaction\ndefault_pool_size = 2\n\
             ignore_startup_parameters = extra_float_digits\n",
            server.port
        );
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("pgbouncer");
        if rustix::process::getuid().is_root() {
            let users = std::fs::read_to_string("/etc/passwd").unwrap();
            let user = users.lines().find(|line| line.starts_with(&format!("{USER}:")));
            let ids: Vec<_> = user.expect("a user for it").split(':').collect();
            let (user, group) = (ids[2].parse().unwrap(), ids[3].parse().unwrap());
            for path in [folder.path(), &file] {
                std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
            }
            command.uid(user).gid(group);
        }
        let child = command.arg("-q").arg(&file).stderr(Stdio::null()).spawn();
        let child = child.expect("pgbouncer is installed (apt-get install pgbouncer)");
        let mut pooler = Self { child, port, _folder: folder };
        while tokio_postgres::connect(&pooler.url(), NoTls).await.is_err() {
            assert!(pooler.child.try_wait().unwrap().is_none(), "the pooler does not start");
            tokio::task::yield_now().await;
        }
        pooler
    }

    fn url(&self) -> String {
        format!("postgres://onetake@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// X7: twenty transactions on two connections have one effect, and so have those of sqlx.
#[tokio::test(flavor = "multi_thread")]
async fn x7_behind_a_pooler_transactions_with_one_key_have_one_effect() {
    let wait = OnInFlight::Wait(Duration::from_secs(600));
    let policy = Policy::builder().on_in_flight(wait).build().unwrap();
    let mut place = Place::with(policy).await;
    let server = tokio::task::spawn_blocking(Server::shared).await.unwrap();
    let pooler = Pooler::start(server).await;
    place.url = pooler.url();
    let place = Arc::new(place);
    let tasks = (0..20).map(|number| {
        let place = Arc::clone(&place);
        tokio::spawn(async move {
            let name = if number % 2 == 0 { "even" } else { "odd" };
            let mut client = place.connect().await;
            let mut tx = client.transaction().await.unwrap();
            let take = place.once(&mut tx, name).await.unwrap();
            tx.commit().await.unwrap();
            take
        })
    });
    let mut executed = 0;
    for task in tasks.collect::<Vec<_>>() {
        let take = task.await.unwrap();
        assert_eq!(take.value, 1);
        executed += u32::from(take.source == Source::Executed);
    }
    assert_eq!(executed, 2);
    #[cfg(feature = "sqlx")]
    for source in [Source::Executed, Source::Replayed] {
        assert_eq!(crate::with_sqlx::once_anew(&place, "sqlx").await.source, source);
    }
}
