//! The store for fleets that already run Redis: slots only, each swap one atomic script.
//!
//! The server keeps the time and holds every record; many operations share one call, and what has
//! expired leaves by itself. Nothing is answered before the server has replied, and what a broken
//! connection leaves open is said to be unknown. It never promises more than the server keeps: one
//! whose settings may lose acknowledged records is refused.

mod address;
mod hearing;
mod lane;
mod link;
mod mark;
mod ops;
mod options;
mod settings;
mod sweep;
mod value;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onetake_core::{Draft, Record, Slot, Timestamp, Version};
use onetake_engine::{Reply, Slots, Stamped, StoreError, Swap, Swept, Tx};
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle};

use self::address::Source;
use self::hearing::Hearing;
use self::lane::Shared;
use self::link::Running;
use self::ops::{Ear, Op, What};
pub use self::options::RedisOptions;
pub use self::settings::LossError;
use self::settings::{Kept, Unfit};
use self::sweep::Sweeping;
use self::value::{Written, span_ms};
use crate::room::Room;
use crate::seal::{MasterKey, SealError};

/// Why a Redis store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// The address is none. It is not shown: there may be a password in it.
    #[error(
        "not the address of a redis: redis://host:port/db, rediss://…, \
         redis+sentinel://host,host/master/db or redis+cluster://host,host"
    )]
    Address,
    /// The prefix means more than itself.
    #[error("a prefix is 1 to 64 visible ASCII characters without braces, *, ?, [, ], ^ and \\")]
    Prefix,
    /// The server cannot be reached.
    #[error("{0}")]
    Unreachable(StoreError),
    /// The server does not run the script that every swap is.
    #[error("redis does not run the script of the store; it must allow EVAL and EVALSHA: {0}")]
    Script(StoreError),
    /// The store is sealed otherwise than with the keys that were given.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The server may lose what it acknowledges.
    #[error(transparent)]
    Loss(#[from] LossError),
}

/// A store in a Redis.
pub struct Redis {
    lanes: Vec<mpsc::Sender<Op>>,
    room: Room,
    sweeping: Mutex<Sweeping>,
    hearing: Arc<Hearing>,
    /// Started by the first who waits.
    listener: OnceLock<JoinHandle<()>>,
    /// Looks whether the store is still sealed as it was.
    follower: AbortHandle,
    prefix: String,
    shared: Arc<Shared>,
}

/// Shows the prefix; an address may hold a password.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.get() {
            listener.abort();
        }
        self.follower.abort();
    }
}

impl Redis {
    /// Opens the store at `url`: `redis://host:port/db`, `rediss://…` with TLS,
    /// `redis+sentinel://host,host/master/db` for whatever server the Sentinels call the master, or
    /// `redis+cluster://host,host` (`rediss+…` with TLS).
    ///
    /// # Errors
    /// A [`RedisError`] that says what is in the way: above all, settings of the server that may
    /// lose acknowledged records, unless [`RedisOptions::accept_loss`] accepts that.
    ///
    /// # Cancel safety
    /// Nothing is written; connections that were made are closed.
    pub async fn open(url: &str, options: RedisOptions) -> Result<Self, RedisError> {
        if !options.has_prefix() {
            return Err(RedisError::Prefix);
        }
        let source = Source::parse(url, &options).ok_or(RedisError::Address)?;
        let unreachable = |error: address::NoConnection| {
            RedisError::Unreachable(StoreError::Unavailable(error.to_string()))
        };
        let first = source.connect().await.map_err(unreachable)?;
        judge(settings::check(&first).await, options.accept_loss)?;
        let grace_ms = span_ms(Timestamp::ZERO.after(options.grace));
        let script = Running::new(format!("{}settled", options.prefix), grace_ms);
        // Nothing to do, but the server knows the script afterwards.
        let ran = first.run::<Op>(&script, &[]).await;
        ran.map_err(|failed| RedisError::Script(failed.of_read()))?;
        let (accept_loss, mark) = (options.accept_loss, mark::key(&options.prefix));
        let seal = mark::agree(&first, &mark, &options.keys).await?;
        let shared = Arc::new(Shared { source, script, accept_loss, seal, mark });
        let follower = tokio::spawn(mark::follow(Arc::clone(&shared))).abort_handle();
        let mut first = Some(first);
        let lanes = (0..options.connections).map(|_| {
            let (to, from) = mpsc::channel(options.queue_max);
            tokio::spawn(lane::work(Arc::clone(&shared), from, first.take()));
            to
        });
        let lanes = lanes.collect();
        Ok(Self {
            lanes,
            room: Room::new(options.queue_kib_max),
            sweeping: Mutex::default(),
            hearing: Arc::new(Hearing::new(options.watched_max)),
            listener: OnceLock::new(),
            follower,
            prefix: options.prefix,
            shared,
        })
    }

    /// Returns when another process has said that the claim in `slot` was replaced, or when there
    /// is no claim, or when nobody can tell any more, so that the caller looks for itself. It says
    /// nothing about what is there now.
    ///
    /// The slot is marked as waited for, so that whoever settles it says so. Where as many slots
    /// are watched as may be, or the server cannot be reached, this never returns: look now and
    /// then, too.
    ///
    /// # Cancel safety
    /// Nothing is lost; the mark stays, and costs whoever settles the slot one message.
    pub async fn settled(&self, slot: &Slot) {
        let key = self.key(slot);
        let Some(mut seat) = self.hearing.join(&key) else {
            return std::future::pending().await;
        };
        self.listener.get_or_init(|| {
            tokio::spawn(hearing::listen(Arc::clone(&self.shared), Arc::clone(&self.hearing)))
        });
        self.hearing.is_live().await;
        let marked = self.ask(slot, None, |ear| What::Mark { ear }, lost).await;
        // Also where nobody knows of a mark: who looked at once would only begin this again.
        if !matches!(marked, Ok(Stamped { value: false, .. })) {
            seat.hear().await;
        }
    }

    /// Seals with a new key from now on, in this process at once and in the others when they learn
    /// of it, within seconds; what older keys sealed stays readable. `master` wraps it: give it to
    /// all processes before.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] when the store is not sealed; otherwise when the server does not
    /// answer, or another process changed the key ring to one that this one cannot open.
    pub async fn rotate(&self, master: &MasterKey) -> Result<(), StoreError> {
        mark::rotate(&self.shared, master).await
    }

    /// Asks a lane, and waits for its answer.
    async fn ask<T>(
        &self,
        slot: &Slot,
        room: Option<OwnedSemaphorePermit>,
        what: impl FnOnce(Ear<T>) -> What + Send,
        unsure: impl FnOnce() -> Reply<T>,
    ) -> Reply<T> {
        self.shared.seal.is_ours()?;
        let (ear, told) = oneshot::channel();
        let lane = &self.lanes[usize::from(slot.digest()[0]) % self.lanes.len()];
        let op = Op::new(self.key(slot), slot, what(ear), room);
        if lane.try_send(op).is_err() {
            return Err(too_many());
        }
        told.await.unwrap_or_else(|_| unsure())
    }

    /// The key of a slot. The digest is of the tenant too, so it is enough.
    fn key(&self, slot: &Slot) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let name = self.shared.seal.sealer().name(slot.digest());
        let mut key = Vec::with_capacity(self.prefix.len() + 2 * name.len());
        key.extend_from_slice(self.prefix.as_bytes());
        for byte in name {
            key.push(DIGITS[usize::from(byte >> 4)]);
            key.push(DIGITS[usize::from(byte & 0xf)]);
        }
        key
    }
}

/// Whether a server with such settings may be used, with a word to the operator where that costs.
fn judge(checked: Result<Kept, Unfit>, accept_loss: bool) -> Result<(), RedisError> {
    match checked {
        Ok(Kept::All) => {}
        Ok(Kept::AllButASecond) => tracing::warn!(
            appendfsync = "everysec",
            "redis may lose about the last second of acknowledged records when its machine loses \
             power, and their keys may be executed again; `appendfsync always` keeps them"
        ),
        Err(Unfit::Loss(error)) if accept_loss => {
            tracing::warn!(%error, "the loss of acknowledged records is accepted");
        }
        Err(Unfit::Loss(error)) => return Err(error.into()),
        Err(error @ Unfit::Silent(_)) => {
            return Err(RedisError::Unreachable(StoreError::Unavailable(error.to_string())));
        }
    }
    Ok(())
}

fn too_many() -> StoreError {
    StoreError::Unavailable("too many operations wait for redis".into())
}

fn lost<T>() -> Reply<T> {
    Err(StoreError::Unavailable("the store is closing".into()))
}

impl Slots for Redis {
    async fn read(&self, slot: &Slot) -> Reply<Option<Arc<Record>>> {
        self.ask(slot, None, |ear| What::Read { ear }, lost).await
    }

    async fn swap(&self, expected: Option<Version>, next: Draft) -> Reply<Swap> {
        if next.outcome_weight() > Tx::VALUE_BYTES_MAX {
            return Err(StoreError::TooLarge("a value has more than 16 MiB"));
        }
        let written = Written::of(&next, &self.shared.seal.sealer());
        let room = self.room.take(written.body.len()).map_err(|_| too_many())?;
        let address = Arc::clone(&next.address);
        let what = |ear| What::Swap { expected, next, written, ear };
        self.ask(address.slot(), room, what, || Ok(ops::unknown())).await
    }

    async fn renew(&self, slot: &Slot, expected: Version, lease: Duration) -> Reply<Swap> {
        let lease_ms = span_ms(Timestamp::ZERO.after(lease));
        let what = |ear| What::Renew { expected, lease_ms, ear };
        self.ask(slot, None, what, || Ok(ops::unknown())).await
    }

    /// The server removes what has expired by itself; this only does it sooner.
    async fn sweep(&self, limit: usize) -> Reply<Swept> {
        self.sweeping.lock().await.step(&self.shared, &self.prefix, limit).await
    }

    async fn settled(&self, slot: &Slot) {
        Self::settled(self, slot).await;
    }

    fn forgets_by_itself(&self) -> bool {
        true
    }
}
