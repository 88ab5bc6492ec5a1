//! The PostgreSQL store passes the suite that every store passes, on a real server.
#![cfg(feature = "postgres")]

mod servers;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onetake_stores::seal::MasterKey;
use onetake_stores::{Postgres, PostgresOptions};
use onetake_testkit::{Rig, machine, wait_out};
use servers::Server;

/// Stores in a schema of their own each.
#[derive(Default)]
struct PostgresRig;

static OPENED: AtomicU32 = AtomicU32::new(0);

async fn open(options: PostgresOptions) -> Postgres {
    let server = tokio::task::spawn_blocking(Server::shared).await.expect("a server");
    let number = OPENED.fetch_add(1, Ordering::SeqCst);
    // Every other one reads pages as older servers have to.
    let options =
        options.old_scans(number % 2 == 1).accept_loss(true).schema(&format!("onetake_{number}"));
    Postgres::open(&server.url(), options).await.expect("a store")
}

impl Rig for PostgresRig {
    type Store = Postgres;

    async fn open(&self) -> Postgres {
        open(PostgresOptions::new()).await
    }

    async fn pass(&self, store: &Postgres, span: Duration) {
        wait_out(store, span).await;
    }
}

onetake_testkit::slots_conformance!(PostgresRig);
onetake_testkit::journal_conformance!(PostgresRig);
onetake_testkit::miniatures!(PostgresRig);

#[test]
fn every_reply_is_the_one_that_plain_maps_give() {
    assert_eq!(machine::run::<PostgresRig>(12), Ok(()));
}

/// X11: the same with everything sealed.
mod sealed {
    use super::*;

    #[derive(Default)]
    struct SealedRig;

    impl Rig for SealedRig {
        type Store = Postgres;

        async fn open(&self) -> Postgres {
            super::open(PostgresOptions::new().keys(vec![MasterKey::new([7; 32])])).await
        }

        async fn pass(&self, store: &Postgres, span: Duration) {
            wait_out(store, span).await;
        }
    }

    onetake_testkit::slots_conformance!(SealedRig);
    onetake_testkit::journal_conformance!(SealedRig);
}
