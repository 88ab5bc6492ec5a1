//! Seeded simulation of both walks: a few processes on one store, bad luck of every kind, and an
//! oracle that knows every effect.
//!
//! One seed is one whole history: which requests come when, which store calls are delayed, lost,
//! repeated or fail, which process dies or stalls, when the store's clock jumps. Everything runs on
//! one thread in virtual time, so the seed is the bug report: [`run`] with it gives the same
//! history again. Nothing here waits in real time.

mod client;
mod node;
mod oracle;
mod world;

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tokio::time::sleep;

pub use self::oracle::Broken;
use self::world::World;

/// What happened in one history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that were sent.
    pub asked: usize,
    /// Requests that got an answer.
    pub answered: usize,
    /// Effects that happened in the outside world.
    pub effects: usize,
    /// Answers from an earlier attempt.
    pub replayed: usize,
    /// Answers shared with the attempt that was executing.
    pub joined: usize,
    /// Answers that the outcome is unknown.
    pub unknown: usize,
    /// Executions that were told to be recoveries.
    pub recoveries: usize,
    /// Executions that lost their claim.
    pub fenced: usize,
    /// Transactions that were committed.
    pub committed: usize,
    /// Processes that died.
    pub crashes: usize,
}

impl Stats {
    /// Both histories taken together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            answered: self.answered + other.answered,
            effects: self.effects + other.effects,
            replayed: self.replayed + other.replayed,
            joined: self.joined + other.joined,
            unknown: self.unknown + other.unknown,
            recoveries: self.recoveries + other.recoveries,
            fenced: self.fenced + other.fenced,
            committed: self.committed + other.committed,
            crashes: self.crashes + other.crashes,
        }
    }
}

/// Turns of one history.
const TURNS: usize = 60;

/// Plays the history of `seed`.
///
/// # Errors
/// The promise that was broken, with the end of the history that broke it.
pub fn run(seed: u64) -> Result<Stats, Broken> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("invariant: a runtime without I/O can always be built");
    runtime.block_on(history(seed))
}

async fn history(seed: u64) -> Result<Stats, Broken> {
    let world = Arc::new(World::new(seed));
    for _ in 0..TURNS {
        turn(&world).await;
        if world.is_broken() {
            break;
        }
    }
    // The bad luck ends, everyone finishes, and the accounts are closed.
    world.calm();
    sleep(Duration::from_secs(600)).await;
    world.close().await
}

/// One turn: somebody does something, or something happens to somebody.
async fn turn(world: &Arc<World>) {
    let luck = world.draw(|rng| rng.random_range(0..100));
    match luck {
        0..70 => client::send(world),
        70..75 => world.crash(),
        75..79 => world.stall(),
        79..81 => world.jump(),
        _ => {}
    }
    let pause = world.draw(|rng| rng.random_range(0..400));
    sleep(Duration::from_millis(pause)).await;
}
