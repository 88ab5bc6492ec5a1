//! The seven scenes, and the numbers that each must come to.
//!
//! Nothing here sleeps to let something happen: callers wait for events, and whoever waits for a
//! lease to lapse waits inside Onetake, as a caller would.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use onetake::{Failure, OnUnknown};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn};
use tokio::time::{interval, timeout};

use super::counts::Count::{
    self, Executed, Failed, Fenced, Joined, LedgerLines, Recoveries, Refused, Replayed, Sent,
    Unknown,
};
use super::counts::grouped;
use super::ledger::Receipt;
use super::shop::{Order, SHORT_LEASE, Shop};
use super::stage::Stage;
use super::victim;

type Played<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One scene.
pub(super) struct Scene {
    pub(super) title: &'static str,
    /// What it must come to, exactly.
    pub(super) expected: &'static [(Count, u64)],
    pub(super) play: for<'a> fn(&'a Shop, &'a Stage) -> Played<'a>,
}

/// How often one impatient caller sends the same order.
const BURST: u64 = 20;
/// How many callers there are in the rush.
const CALLERS: u64 = 1_000;
/// How many orders they share.
const ORDERS: u64 = 10;
/// Nothing here takes this long; past it something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the moving line is drawn.
const FRAME: Duration = Duration::from_millis(2);

pub(super) const ALL: [Scene; 7] = [
    Scene {
        title: "A burst of retries of one order",
        expected: &[(Sent, BURST), (Executed, 1), (Replayed, BURST - 1), (LedgerLines, 1)],
        play: |shop, stage| Box::pin(burst(shop, stage)),
    },
    Scene {
        title: "A thousand callers at once, ten orders between them",
        expected: &[
            (Sent, CALLERS),
            (Executed, ORDERS),
            (Joined, CALLERS - ORDERS),
            (LedgerLines, ORDERS),
        ],
        play: |shop, stage| Box::pin(rush(shop, stage)),
    },
    Scene {
        title: "The answer is lost",
        expected: &[(Sent, 3), (Executed, 1), (Joined, 1), (Replayed, 1), (LedgerLines, 1)],
        play: |shop, stage| Box::pin(lost_answer(shop, stage)),
    },
    Scene {
        title: "The key of the first order again, with another body",
        expected: &[(Sent, 2), (Replayed, 1), (Refused, 1)],
        play: |shop, stage| Box::pin(other_body(shop, stage)),
    },
    Scene {
        title: "Two workers stall after the payment",
        expected: &[
            (Sent, 6),
            (Executed, 3),
            (Recoveries, 1),
            (Fenced, 1),
            (Replayed, 2),
            (Unknown, 1),
            (LedgerLines, 2),
        ],
        play: |shop, stage| Box::pin(stalled(shop, stage)),
    },
    Scene {
        title: "The function fails before the payment",
        expected: &[(Sent, 3), (Executed, 2), (Failed, 1), (Replayed, 1), (LedgerLines, 1)],
        play: |shop, stage| Box::pin(failure(shop, stage)),
    },
    Scene {
        title: "The process is killed with -9 after the payment",
        expected: &[
            (Sent, 6),
            (Executed, 3),
            (Recoveries, 1),
            (Replayed, 2),
            (Unknown, 1),
            (LedgerLines, 2),
        ],
        play: |shop, stage| Box::pin(killed(shop, stage)),
    },
];

async fn burst(shop: &Shop, stage: &Stage) -> Result<()> {
    let order = Order::new("order-1")?;
    stage.say(&format!("the first attempt hears: {}", shop.send(&order).await));
    let mut last = String::new();
    for _ in 1..BURST {
        last = shop.send(&order).await;
    }
    stage.say(&format!("attempt {BURST} hears: {last}"));
    Ok(())
}

async fn rush(shop: &Shop, stage: &Stage) -> Result<()> {
    let (open, gate) = watch::channel(false);
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let order = Order::new(&format!("rush-{}", caller % ORDERS))?;
        let (shop, gate) = (shop.clone(), gate.clone());
        callers.spawn(async move { send_through(&shop, &order, gate).await });
    }
    let waiting = usize::try_from(CALLERS - ORDERS)?;
    until_waiting(shop, stage, waiting).await?;
    stage.say(&format!("{waiting} callers wait for {ORDERS} executions"));
    let opened = Instant::now();
    open.send_replace(true);
    callers.join_all().await;
    let ms = opened.elapsed().as_millis();
    stage.say(&format!("all {} answered {ms} ms after the first was let go", grouped(CALLERS)));
    Ok(())
}

async fn lost_answer(shop: &Shop, stage: &Stage) -> Result<()> {
    let order = Order::new("order-2")?;
    let (open, gate) = watch::channel(false);
    let begun = Arc::new(Notify::new());
    let caller = {
        let (shop, order, gate) = (shop.clone(), order.clone(), gate.clone());
        let begun = Arc::clone(&begun);
        spawn(async move {
            let (own, charged) = (shop.clone(), order.clone());
            let work = |_attempt| async move {
                own.executing(false);
                begun.notify_one();
                passed(gate).await;
                Ok(own.charge(&charged, false)?)
            };
            shop.send_to(&order, work).await
        })
    };
    timeout(PATIENCE, begun.notified()).await.context("the order was never executed")?;
    caller.abort();
    ensure!(caller.await.is_err(), "the caller got an answer before it could be dropped");
    stage.say("the caller is gone before its payment was taken");
    let retry = spawn({
        let (shop, order) = (shop.clone(), order.clone());
        async move { shop.send(&order).await }
    });
    until_waiting(shop, stage, 1).await?;
    open.send_replace(true);
    stage.say(&format!("its retry hears: {}", retry.await?));
    stage.say(&format!("one more hears: {}", shop.send(&order).await));
    Ok(())
}

async fn other_body(shop: &Shop, stage: &Stage) -> Result<()> {
    let same = Order::with_body("order-1", r#"{ "count": 2.0, "sku": "p1" }"#)?;
    stage.say(&format!("written differently, it hears: {}", shop.send(&same).await));
    let other = Order::with_body("order-1", r#"{"sku":"p1","count":3}"#)?;
    stage.say(&format!("three instead of two, it hears: {}", shop.send(&other).await));
    Ok(())
}

async fn stalled(shop: &Shop, stage: &Stage) -> Result<()> {
    let lease = SHORT_LEASE.as_millis();
    let (held, order) = (shop.with_short_lease(OnUnknown::Hold)?, Order::new("order-3")?);
    let worker = held.stall(&order).await?;
    stage.say(&format!("hold: a worker takes the payment and is silent past its {lease} ms lease"));
    stage.say(&format!("its retry hears: {}", held.send(&order).await));
    stage.say(&format!("the worker wakes, nobody took over: {}", held.wake(worker).await?));
    stage.say(&format!("one more retry hears: {}", held.send(&order).await));

    let (retried, order) = (shop.with_short_lease(OnUnknown::Retry)?, Order::new("order-4")?);
    let worker = retried.stall(&order).await?;
    stage.say("retry: another worker does the same");
    let recovered = retried.send(&order).await;
    stage.say(&format!("its retry recovers, looks first, and hears: {recovered}"));
    stage.say(&format!("the worker wakes too late: {}", retried.wake(worker).await?));
    stage.say(&format!("one more retry hears: {}", retried.send(&order).await));
    Ok(())
}

async fn failure(shop: &Shop, stage: &Stage) -> Result<()> {
    let order = Order::new("order-5")?;
    let own = shop.clone();
    let fail = |_attempt| async move {
        own.executing(false);
        Err::<Receipt, _>(Failure::new("the bank is closed"))
    };
    stage.say(&format!("the first attempt hears: {}", shop.send_to(&order, fail).await));
    stage.say(&format!("its retry hears: {}", shop.send(&order).await));
    stage.say(&format!("one more hears: {}", shop.send(&order).await));
    Ok(())
}

async fn killed(shop: &Shop, stage: &Stage) -> Result<()> {
    let (store, ledger) = (shop.ledger().beside("killed"), shop.ledger().path().to_path_buf());
    let folder = store.clone();
    let told = tokio::task::spawn_blocking(move || victim::start(&folder, &ledger)).await??;
    shop.believe(&[(Sent, 2), (Executed, 2)]);
    stage.say(&format!("another process answers one order with receipt {}", told.receipt));
    stage.say(&format!("it takes the next payment and kills itself: {}", told.ended));
    let opened = Instant::now();
    let heir = shop.inherit(&store)?;
    stage.say(&format!("its store is open again after {} ms", opened.elapsed().as_millis()));
    let (answered, cut_off) = (Order::new(victim::ANSWERED)?, Order::new(victim::CUT_OFF)?);
    stage.say(&format!("a retry of the first hears: {}", heir.send(&answered).await));
    stage.say(&format!("a retry of the second hears: {}", heir.send(&cut_off).await));
    let recovered = heir.on_unknown(OnUnknown::Retry)?.send(&cut_off).await;
    stage.say(&format!("told to recover, it looks first, and hears: {recovered}"));
    stage.say(&format!("one more hears: {}", heir.send(&cut_off).await));
    Ok(())
}

/// Sends `order`; whoever executes it waits at `gate` before taking the payment.
async fn send_through(shop: &Shop, order: &Order, gate: watch::Receiver<bool>) {
    let (own, charged) = (shop.clone(), order.clone());
    let work = |_attempt| async move {
        own.executing(false);
        passed(gate).await;
        Ok(own.charge(&charged, false)?)
    };
    shop.send_to(order, work).await;
}

/// Waits until the gate is open. A gate whose keeper is gone counts as open.
async fn passed(mut gate: watch::Receiver<bool>) {
    let _ = gate.wait_for(|is_open| *is_open).await;
}

/// Waits until `count` duplicates have a seat; nobody is told of that, so it looks once a frame.
async fn until_waiting(shop: &Shop, stage: &Stage, count: usize) -> Result<()> {
    let mut frames = interval(FRAME);
    let seated = async {
        loop {
            let waiting = shop.orders.engine().waiting();
            stage.progress(&format!("waiting: {waiting} of {count}"));
            if waiting == count {
                return stage.progress("");
            }
            frames.tick().await;
        }
    };
    timeout(PATIENCE, seated).await.context("the duplicates never came to wait")
}
