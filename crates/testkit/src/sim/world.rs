//! The world of one history: the store, its processes, the dice, and the book of everything seen.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onetake_core::{Record, Slot};
use onetake_engine::{Clock, Memory, MemoryLimits, Slots};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Stats;
use super::client::Deal;
use super::node::Node;
use super::oracle::{Broken, Oracle};
use crate::clock::TokioClock;

/// Processes at a time.
const NODES: usize = 3;

pub(super) struct World {
    pub(super) memory: Arc<Memory>,
    clock: TokioClock,
    dice: Arc<Mutex<SmallRng>>,
    nodes: Mutex<Vec<Arc<Node>>>,
    births: Mutex<u64>,
    seed: u64,
    pub(super) oracle: Mutex<Oracle>,
    /// The operations of this history and their settings.
    pub(super) deals: Vec<Deal>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let clock = TokioClock::new();
        let mut dice = SmallRng::seed_from_u64(seed);
        let deals = Deal::some(&mut dice);
        let world = Self {
            memory: Arc::new(Memory::with(MemoryLimits::default(), clock.clone())),
            clock,
            dice: Arc::new(Mutex::new(dice)),
            nodes: Mutex::default(),
            births: Mutex::new(0),
            seed,
            oracle: Mutex::new(Oracle::new(seed)),
            deals,
        };
        for _ in 0..NODES {
            let node = world.birth();
            world.nodes.lock().expect("one thread").push(node);
        }
        world
    }

    /// Rolls the dice.
    pub(super) fn draw<T>(&self, roll: impl FnOnce(&mut SmallRng) -> T) -> T {
        roll(&mut self.dice.lock().expect("one thread"))
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.clock.now().as_millis()
    }

    /// What the store holds, past every fault.
    pub(super) async fn peek(&self, slot: &Slot) -> Option<Arc<Record>> {
        self.memory.read(slot).await.expect("memory does not fail").value
    }

    fn birth(&self) -> Arc<Node> {
        let mut births = self.births.lock().expect("one thread");
        *births += 1;
        let dice = Arc::clone(&self.dice);
        let faults = move |roll: &mut dyn FnMut(&mut SmallRng) -> crate::faulty::Fault| {
            roll(&mut dice.lock().expect("one thread"))
        };
        let seed = self.seed.wrapping_mul(1_000).wrapping_add(*births);
        Arc::new(Node::new(Arc::clone(&self.memory), seed, faults))
    }

    /// Any process that is alive.
    pub(super) fn node(&self) -> Arc<Node> {
        let which = self.draw(|rng| rng.random_range(0..NODES));
        Arc::clone(&self.nodes.lock().expect("one thread")[which])
    }

    /// A process dies with everything in its memory, and another takes its place.
    pub(super) fn crash(&self) {
        let which = self.draw(|rng| rng.random_range(0..NODES));
        let successor = self.birth();
        let mut nodes = self.nodes.lock().expect("one thread");
        nodes[which].kill();
        nodes[which] = successor;
        self.oracle.lock().expect("one thread").stats.crashes += 1;
    }

    /// A process is held up, often for longer than a lease.
    pub(super) fn stall(&self) {
        let span = self.draw(|rng| rng.random_range(500..6_000));
        self.node().stall(Duration::from_millis(span));
    }

    /// The store's clock jumps forward, often past a lease, sometimes past a retention.
    pub(super) fn jump(&self) {
        let span = self.draw(|rng| rng.random_range(100..40_000));
        self.clock.jump(Duration::from_millis(span));
        self.oracle.lock().expect("one thread").jumped(self.now_ms());
    }

    pub(super) fn is_broken(&self) -> bool {
        self.oracle.lock().expect("one thread").broken().is_some()
    }

    pub(super) fn calm(&self) {
        for node in self.nodes.lock().expect("one thread").iter() {
            node.calm();
        }
    }

    /// Closes the accounts once nothing moves any more.
    pub(super) async fn close(&self) -> Result<Stats, Broken> {
        for deal in &self.deals {
            let record = self.peek(deal.address.slot()).await;
            let now = self.clock.now();
            let mut oracle = self.oracle.lock().expect("one thread");
            oracle.at_the_end(record.as_deref(), now);
        }
        self.close_nodes();
        self.close_books().await;
        let oracle = self.oracle.lock().expect("one thread");
        oracle.broken().map_or(Ok(oracle.stats), Err)
    }

    fn close_nodes(&self) {
        let mut oracle = self.oracle.lock().expect("one thread");
        for node in self.nodes.lock().expect("one thread").iter() {
            let (executing, waiting) = (node.engine.executing(), node.engine.waiting());
            oracle.demand(executing == 0, || format!("{executing} executions never ended"));
            oracle.demand(waiting == 0, || format!("{waiting} waiters were never woken"));
        }
    }
}
