//! The seven scenes, and the numbers that each must come to.
//!
//! Nothing here sleeps to let something happen: scenes wait for an order to arrive at the API, for
//! a process to end or to say where it is, and for answers.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use tokio::sync::Barrier;
use tokio::task::{JoinSet, spawn};

use super::api::Moment;
use super::counts::Count::{
    self, Executed, Freed, LedgerLines, Recoveries, Refused, Replayed, Sent, Unheard, Unknown,
};
use super::customer::Order;
use super::stage::Stage;
use super::world::World;

type Played<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// One scene.
pub(super) struct Scene {
    pub(super) title: &'static str,
    /// What it must come to, exactly.
    pub(super) expected: &'static [(Count, u64)],
    pub(super) play: for<'a> fn(&'a mut World, &'a Stage) -> Played<'a>,
}

/// How often one impatient caller sends the same order.
const BURST: u64 = 20;
/// How many callers there are in the rush.
const CALLERS: u64 = 200;
/// How many orders they share.
const ORDERS: u64 = 10;
/// The orders beside those of the rush that were answered before the gateway is killed.
const SINGLE: [&str; 3] = ["order-1", "order-2", "order-3"];
/// All of them.
const ANSWERED: u64 = ORDERS + SINGLE.len() as u64;

pub(super) const ALL: [Scene; 7] = [
    Scene {
        title: "A burst of retries of one order",
        expected: &[(Sent, BURST), (Executed, 1), (Replayed, BURST - 1), (LedgerLines, 1)],
        play: |world, stage| Box::pin(burst(world, stage)),
    },
    Scene {
        title: "Two hundred callers at once, ten orders between them",
        expected: &[
            (Sent, CALLERS),
            (Executed, ORDERS),
            (Replayed, CALLERS - ORDERS),
            (LedgerLines, ORDERS),
        ],
        play: |world, stage| Box::pin(rush(world, stage)),
    },
    Scene {
        title: "The caller hangs up before the answer",
        expected: &[(Sent, 3), (Executed, 1), (Unheard, 1), (Replayed, 2), (LedgerLines, 1)],
        play: |world, stage| Box::pin(lost_answer(world, stage)),
    },
    Scene {
        title: "The key of the first order again, with another body",
        expected: &[(Sent, 2), (Replayed, 1), (Refused, 1)],
        play: |world, stage| Box::pin(other_body(world, stage)),
    },
    Scene {
        title: "The API is down",
        expected: &[(Sent, 3), (Executed, 1), (Replayed, 1), (Freed, 1), (LedgerLines, 1)],
        play: |world, stage| Box::pin(api_down(world, stage)),
    },
    Scene {
        title: "The gateway is killed with -9 while the API does its work",
        expected: &[
            (Sent, 6),
            (Executed, 3),
            (Recoveries, 1),
            (Unheard, 2),
            (Replayed, 1),
            (Unknown, 2),
            (LedgerLines, 2),
        ],
        play: |world, stage| Box::pin(killed(world, stage)),
    },
    Scene {
        title: "Everything that was answered before the kill, once more",
        expected: &[(Sent, ANSWERED), (Replayed, ANSWERED)],
        play: |world, stage| Box::pin(remembered(world, stage)),
    },
];

async fn burst(world: &mut World, stage: &Stage) -> Result<()> {
    let (customer, order) = (world.customer(), Order::new("order-1"));
    stage.say(&format!("the first attempt gets {}", customer.send(&order).await));
    let mut last = String::new();
    for attempt in 2..=BURST {
        stage.progress(&format!("attempt {attempt} of {BURST}"));
        last = customer.send(&order).await;
    }
    stage.progress("");
    stage.say(&format!("attempt {BURST} gets {last}"));
    Ok(())
}

async fn rush(world: &mut World, stage: &Stage) -> Result<()> {
    let start = Arc::new(Barrier::new(usize::try_from(CALLERS)?));
    let customer = world.customer();
    let held = (0..ORDERS).map(|n| world.api.hold(&rushed(n), Moment::BeforeTheEffect));
    let mut held: Vec<_> = held.collect();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (customer, start) = (customer.clone(), Arc::clone(&start));
        let line = customer.connect().await?;
        stage.progress(&format!("connected: {} of {CALLERS}", caller + 1));
        callers.spawn(async move {
            start.wait().await;
            customer.send_on(line, &Order::new(&rushed(caller % ORDERS))).await
        });
    }
    for order in &mut held {
        order.reached().await?;
    }
    stage.progress("");
    stage.say(&format!("{ORDERS} orders are at the API; their duplicates wait, and are let go"));
    let began = Instant::now();
    drop(held);
    let mut answered = 0;
    while callers.join_next().await.transpose()?.is_some() {
        answered += 1;
        stage.progress(&format!("answered: {answered} of {CALLERS}"));
    }
    stage.progress("");
    stage.say(&format!("all {answered} have an answer after {} ms", began.elapsed().as_millis()));
    Ok(())
}

/// The name of an order of the rush.
fn rushed(number: u64) -> String {
    format!("rush-{number}")
}

async fn lost_answer(world: &mut World, stage: &Stage) -> Result<()> {
    let (customer, order) = (world.customer(), Order::new("order-2"));
    let mut held = world.api.hold("order-2", Moment::BeforeTheEffect);
    let sending = spawn({
        let (customer, order) = (customer.clone(), order.clone());
        async move { customer.send(&order).await }
    });
    held.reached().await?;
    customer.hang_up(sending).await?;
    stage.say("the caller is gone before its payment was taken; the order goes on");
    drop(held);
    stage.say(&format!("its retry gets {}", customer.send(&order).await));
    stage.say(&format!("one more gets {}", customer.send(&order).await));
    Ok(())
}

async fn other_body(world: &mut World, stage: &Stage) -> Result<()> {
    let customer = world.customer();
    let same = r#"{ "count": 2.0, "sku": "p1", "order": "order-1" }"#;
    let same = customer.send(&Order::written("order-1", same)).await;
    stage.say(&format!("written differently, it gets {same}"));
    let other = r#"{"order":"order-1","sku":"p1","count":3}"#;
    let other = customer.send(&Order::written("order-1", other)).await;
    stage.say(&format!("three instead of two, it gets {other}"));
    Ok(())
}

async fn api_down(world: &mut World, stage: &Stage) -> Result<()> {
    let (customer, order) = (world.customer(), Order::new("order-3"));
    let reserved = world.api.close().await?;
    stage.say(&format!("while it is down, an order gets {}", customer.send(&order).await));
    world.api.reopen(reserved)?;
    stage.say(&format!("once it is back, the retry gets {}", customer.send(&order).await));
    stage.say(&format!("one more gets {}", customer.send(&order).await));
    Ok(())
}

async fn killed(world: &mut World, stage: &Stage) -> Result<()> {
    let (payment, refund) = (Order::new("order-4"), Order::refund("order-1"));
    let names = [("order-4", &payment), ("order-1", &refund)];
    let (mut held, mut callers) = (Vec::new(), Vec::new());
    for (name, order) in names {
        held.push(world.api.hold(name, Moment::AfterTheEffect));
        let (customer, order) = (world.customer(), order.clone());
        callers.push(spawn(async move { customer.send(&order).await }));
    }
    for order in &mut held {
        order.reached().await?;
    }
    stage.say("a payment was taken and a refund was made, and nobody was told yet");
    let ended = world.gateway.kill()?;
    ensure!(!ended.success(), "the gateway survived");
    stage.say(&format!("the gateway is killed: {ended}"));
    for caller in callers {
        stage.say(&format!("its caller gets {}", caller.await?));
    }
    drop(held);
    let began = Instant::now();
    stage.progress("the gateway starts again");
    world.gateway.restart().await?;
    stage.progress("");
    stage.say(&format!("it is back after {} ms, with its store", began.elapsed().as_millis()));
    let customer = world.customer();
    stage.say(&format!("hold: a retry of the payment gets {}", customer.send(&payment).await));
    stage.say(&format!("however often it asks: {}", customer.send(&payment).await));
    let recovered = customer.send(&refund).await;
    stage.say(&format!("retry: the API is told, looks first, and the refund gets {recovered}"));
    stage.say(&format!("one more gets {}", customer.send(&refund).await));
    Ok(())
}

async fn remembered(world: &mut World, stage: &Stage) -> Result<()> {
    let customer = world.customer();
    let (rush, mut replayed) = ((0..ORDERS).map(rushed), 0);
    for name in SINGLE.into_iter().map(str::to_owned).chain(rush) {
        let heard = customer.send(&Order::new(&name)).await;
        replayed += usize::from(heard.ends_with("replayed"));
        stage.progress(&format!("{name} gets {heard}"));
    }
    stage.progress("");
    stage.say(&format!("{replayed} orders get what they got before, byte for byte"));
    Ok(())
}
