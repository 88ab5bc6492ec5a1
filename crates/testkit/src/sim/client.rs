//! Clients of the simulation: what they ask, what the function they call does, when they give up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{
    Address, Ask, Asked, Cause, Fence, Finality, Key, OnInFlight, OnUnknown, Operation, Outcome,
    Policy, Report, Scope,
};
use onetake_engine::{
    Attempt, Counter, Doc, Effects, Journal, Lane, Need, Place, Position, View, Write,
};
use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::{sleep, timeout};

use super::oracle::Effect;
use super::world::World;

/// One operation that clients of this history ask for, with its settings.
#[derive(Debug, Clone)]
pub(super) struct Deal {
    pub(super) address: Arc<Address>,
    pub(super) policy: Arc<Policy>,
    /// Whether its effect is inside our store.
    pub(super) inside: bool,
}

impl Deal {
    /// A few operations of two tenants, some under the same raw key.
    pub(super) fn some(dice: &mut SmallRng) -> Vec<Self> {
        let names =
            [("acme", "k1"), ("acme", "k2"), ("evil", "k1"), ("acme", "t1"), ("evil", "t1")];
        names.into_iter().map(|(tenant, key)| Self::one(tenant, key, dice)).collect()
    }

    fn one(tenant: &str, key: &str, dice: &mut SmallRng) -> Self {
        let inside = key.starts_with('t');
        let scope = Scope::tenant_named(tenant).expect("a name");
        let operation = Operation::new("simulated").expect("a name");
        let address = Address::new(scope, operation, Key::new(key).expect("a key"));
        let wait = OnInFlight::Wait(Duration::from_millis(dice.random_range(500..8_000)));
        let mut policy = Policy::builder()
            .lease(Duration::from_millis(dice.random_range(600..2_000)))
            // A committed transaction is never forgotten here, so that the books can be compared.
            .retention(Duration::from_secs(if inside { 1_000_000 } else { 20 }))
            .on_unknown(if dice.random() { OnUnknown::Hold } else { OnUnknown::Retry })
            .on_in_flight(if dice.random() { wait } else { OnInFlight::Refuse })
            .failures(if dice.random() { Finality::Free } else { Finality::Retryable });
        if dice.random() {
            policy = policy.timeout(Duration::from_millis(dice.random_range(1_000..5_000)));
        }
        let policy = Arc::new(policy.build().expect("within bounds"));
        Self { address: Arc::new(address), policy, inside }
    }
}

/// Under which fence a request was executed, once it was.
type Executed = Arc<Mutex<Option<Fence>>>;

/// A client sends a request to some process, and may give up before it hears.
pub(super) fn send(world: &Arc<World>) {
    let which = world.draw(|rng| rng.random_range(0..world.deals.len()));
    let deal = world.deals[which].clone();
    let body = if world.draw(|rng| rng.random_range(0..10)) == 0 { "other" } else { "body" };
    let asked = Asked::raw(body);
    let ask = Ask { address: Arc::clone(&deal.address), asked, policy: Arc::clone(&deal.policy) };
    let patience = Duration::from_millis(world.draw(|rng| rng.random_range(1..20_000)));
    let node = world.node();
    let asked_at = world.oracle.lock().expect("one thread").asked(&deal, body, world.now_ms());
    let (world, is_dead) = (Arc::clone(world), node.pulse());
    let executed: Executed = Arc::default();
    tokio::spawn(async move {
        let walk = async {
            if deal.inside {
                node.engine.transact(ask, |view| committed(&deal, view)).await
            } else {
                let (world, deal, is_dead) = (Arc::clone(&world), deal.clone(), is_dead.clone());
                let executed = Arc::clone(&executed);
                let execute = move |attempt: Attempt| {
                    *executed.lock().expect("one thread") = Some(attempt.fence);
                    effect(world, deal, attempt, is_dead)
                };
                node.engine.run(ask, execute).await
            }
        };
        // Dropping the walk is what a client that hangs up does.
        let Ok(answer) = timeout(patience, walk).await else { return };
        // What a is_dead process would have said is never heard.
        if node.is_dead() {
            return;
        }
        let record = world.peek(deal.address.slot()).await;
        let now = world.now_ms();
        let mut oracle = world.oracle.lock().expect("one thread");
        let fence = *executed.lock().expect("one thread");
        oracle.fenced(&answer, fence, record.as_deref());
        oracle.heard(&deal, body, asked_at, &answer, record.as_deref(), now);
    });
}

/// What the wrapped function does: takes its time, has its effect, and ends in one of many ways.
async fn effect(
    world: Arc<World>,
    deal: Deal,
    attempt: Attempt,
    is_dead: impl Fn() -> bool + Send + Sync,
) -> Report {
    let record = world.peek(deal.address.slot()).await;
    let (before, after, ending) = world.draw(|rng| {
        (rng.random_range(0..1_500), rng.random_range(0..3_000), rng.random_range(0..20))
    });
    let started = Effect::new(&attempt, world.now_ms());
    world.oracle.lock().expect("one thread").started(&deal, &started, record.as_deref());
    if ending == 0 {
        world.oracle.lock().expect("one thread").ended(&deal, attempt.fence, None);
        return Report::NotDispatched(Outcome::Failure("refused".into()));
    }
    sleep(Duration::from_millis(before)).await;
    if is_dead() {
        std::future::pending::<()>().await;
    }
    world.oracle.lock().expect("one thread").happened(&deal, attempt.fence, world.now_ms());
    sleep(Duration::from_millis(after)).await;
    if is_dead() {
        std::future::pending::<()>().await;
    }
    let said = Bytes::from(format!("{:?} by {}", deal.address.slot(), attempt.fence));
    let report = match ending {
        1 => Report::Unknown(Cause::Reported),
        2 => {
            world.oracle.lock().expect("one thread").ended(&deal, attempt.fence, None);
            std::panic::panic_any("simulated")
        }
        3..6 => Report::Finished(Outcome::Failure(said)),
        _ => Report::Finished(Outcome::Value(said)),
    };
    world.oracle.lock().expect("one thread").ended(&deal, attempt.fence, Some(&report));
    report
}

pub(super) fn sum_doc(deal: &Deal) -> Doc {
    let tenant = deal.address.tenant().as_str().to_owned();
    Doc { space: "sums", key: tenant.into() }
}

pub(super) fn lane(deal: &Deal) -> Lane {
    Lane(deal.address.tenant().as_str().to_owned().into())
}

pub(super) fn counter(deal: &Deal) -> Counter {
    Counter(deal.address.tenant().as_str().to_owned().into())
}

/// What a transaction does: one more on a document that all share, one entry, one count.
fn committed(deal: &Deal, view: &View) -> Result<Effects, Need> {
    let before = view.doc(&sum_doc(deal))?.map_or(0, |doc| number(&doc.value));
    let sum = before + 1;
    Ok(Effects::new(Outcome::Value(sum.to_string().into()))
        .put(sum_doc(deal), sum.to_string())
        .write(Write::Append(lane(deal), sum.to_string().into()))
        .write(Write::Add(counter(deal), 1)))
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl World {
    /// The document, the lane and the counter of a tenant must tell the same number of commits, and
    /// as many keys must be done.
    pub(super) async fn close_books(&self) {
        for tenant in ["acme", "evil"] {
            let of_tenant = self
                .deals
                .iter()
                .filter(|deal| deal.inside && deal.address.tenant().as_str() == tenant);
            let deals: Vec<_> = of_tenant.cloned().collect();
            let Some(deal) = deals.first() else { continue };
            let mut done = 0;
            for deal in &deals {
                done += u64::from(self.peek(deal.address.slot()).await.is_some());
            }
            let places = [Place::Doc(sum_doc(deal)), Place::Counter(counter(deal))];
            let found = self.memory.fetch(&places).await.expect("memory does not fail").value;
            let entries = self.memory.read_lane(&lane(deal), Position(0), 1_000).await;
            let entries = entries.expect("memory does not fail").value.items;
            let mut oracle = self.oracle.lock().expect("one thread");
            oracle.books(tenant, done, &found, &entries);
        }
    }
}
