//! What a log may hold: where a walk was and how it ended, never a key or a body.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use onetake_core::{Actor, Cause, OnUnknown, Report};
use onetake_engine::operate::{Seen, What};
use onetake_engine::{Limits, RunError};
use onetake_testkit::faulty::{Fault, Op, Script};
use tracing_subscriber::fmt::format::FmtSpan;

/// A log that can be read back.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while logging").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// X11: at the finest level, over every kind of end, neither key nor body shows.
#[tokio::test(start_paused = true)]
async fn x11_a_log_tells_how_a_walk_ended_and_shows_no_key_and_no_body() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_writer(move || writer.clone())
        .finish();
    let _listening = tracing::subscriber::set_default(subscriber);

    let (bench, script) = (Bench::new(), Script::default());
    let node = bench.node_with(&script, Limits::default());
    let ask = |body| ask_with("secret-key", body, policy().on_unknown(OnUnknown::Retry));
    for _ in 0..10 {
        script.plan(Op::Renew, Fault::LoseCall);
    }
    let zombie = tokio::spawn({
        let node = node.clone();
        let function = Count::default().function(LEASE * 3, value("secret-value"));
        async move { node.run(ask("secret-body"), function).await }
    });
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    let successor = bench.node().run(ask("secret-body"), at_once(value("secret-value"))).await;
    assert!(successor.is_ok());
    assert_eq!(zombie.await.unwrap(), Err(RunError::Fenced));
    node.run(ask("secret-body"), never).await.unwrap();
    node.run(ask("secret-other"), never).await.unwrap();
    let unknown = |_| async { Report::Unknown(Cause::Reported) };
    node.run(ask_with("secret-key-2", "secret-body", policy()), unknown).await.unwrap();
    let (ann, slot) =
        (Actor::new("ann").unwrap(), common::ask("secret-key-2").address.slot().clone());
    let seen = node.show(&slot, What::Content).await.unwrap().unwrap().row.version;
    let keep = Duration::from_secs(60);
    let acted = node.resolve(&ann, &slot, seen, value("secret-value"), keep).await.unwrap();
    let stale = node.release(&ann, &slot, Seen::Record(seen)).await.unwrap_err();
    let said = format!("{acted:?} {stale:?} {stale}");
    assert!(!said.contains("secret"), "{said}");
    node.purge(&ann, slot.tenant(), None, None).await.unwrap();

    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for shown in [
        "orders.create",
        "replayed",
        "mismatch",
        "unknown",
        "lost the claim",
        "an operator acted on a record",
        "resolved",
        "purged",
    ] {
        assert!(text.contains(shown), "{shown} is missing in:\n{text}");
    }
    assert!(!text.contains("secret"), "a secret shows in:\n{text}");
    let digest =
        bench.peek(&ask("secret-body")).await.unwrap().address.slot().digest()[0..4].to_vec();
    let hex = digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    assert!(!text.contains(&hex), "not even a digest that somebody could guess the key from");
}
