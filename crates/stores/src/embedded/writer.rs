//! The one thread that writes: takes what stands in line, judges it, syncs it, and says so.
//!
//! Nobody is told anything before the sync that carries it has returned. A sync or a write that
//! fails is the end: the files and the memory of the operating system may disagree from then on, so
//! nothing is tried again, every further call is refused, and by default the process stops. What
//! was under way is reported as unknown, never as failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onetake_core::{Slot, Timestamp, Version};
use onetake_engine::{Commit, Reply, Stamped, StoreError, Swap, Tx};
use tokio::sync::oneshot;

use super::batch::{Around, Batch, PendingSlots, Room, Wanted, Writes};
use super::crash::point;
use super::log::Space;
use super::picture::Picture;
use super::shared::Shared;
use crate::seal::MasterKey;

/// How often the time is noted on disk, at most.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How often the free space of the disk is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How long it waits for others at the most. On a slow disk they come while it works.
const PATIENCE_MAX: Duration = Duration::from_millis(1);
/// How many syncs it waits at the most.
const PATIENCE_SYNCS: u32 = 8;

/// Where an answer goes. Whoever left is not waited for.
pub(super) type Ear<T> = oneshot::Sender<Reply<T>>;

/// What the writer is asked to do. Every slot in it is pinned by whoever asked.
pub(super) enum Op {
    Swap {
        expected: Option<Version>,
        wanted: Wanted,
        ear: Ear<Swap>,
    },
    Renew {
        slot: Slot,
        expected: Version,
        lease: Duration,
        ear: Ear<Swap>,
    },
    Commit {
        tx: Tx,
        slots: Vec<Slot>,
        ear: Ear<Commit>,
    },
    Remove {
        listed: Vec<(Slot, Version)>,
        ear: Ear<usize>,
    },
    /// Takes a picture between two batches.
    Picture {
        ear: Ear<Picture>,
    },
    /// Makes a new key to seal with.
    Rotate {
        master: MasterKey,
        ear: Ear<()>,
    },
    /// Writes a word of the store about itself.
    Note {
        word: &'static str,
        bytes: Vec<u8>,
        ear: Ear<()>,
    },
}

/// What is said once the batch is durable.
enum Told {
    Swap(Ear<Swap>, Swap),
    Commit(Ear<Commit>, Commit),
    Removed(Ear<usize>, usize),
    Noted(Ear<()>),
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    noted: Option<Timestamp>,
    looked: Option<Instant>,
    room: Room,
}

impl Writer {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, noted: None, looked: None, room: Room::Enough }
    }

    /// Works until the line is closed and empty, or the store is lost.
    pub(super) fn run(mut self) {
        let _guard = Guard(Arc::clone(&self.shared));
        let mut ops = Vec::new();
        while self.shared.queue.take(&mut ops, self.patience()) {
            self.look_at_disk();
            self.work(&mut ops);
        }
        if self.shared.fate.get().is_none() {
            self.leave_in_order();
        }
    }

    /// How long to wait for others: a batch for a few costs a whole sync.
    fn patience(&self) -> Duration {
        (PATIENCE_SYNCS * self.shared.log().last_sync()).min(PATIENCE_MAX)
    }

    fn work(&mut self, ops: &mut Vec<Op>) {
        let shared = Arc::clone(&self.shared);
        let now = shared.clock.now();
        shared.expiry.reached(now);
        let mut tally = shared.tally();
        let around = Around {
            disk: &shared.disk,
            front: &shared.front,
            tally: &mut tally,
            bounds: &shared.options.bounds,
            room: self.room,
            now,
        };
        let mut batch = Batch::new(around, ops.len());
        // Pins of slots that this batch does not write; it has those of the others itself.
        let (mut told, mut pinned) = (Vec::with_capacity(ops.len()), Vec::new());
        for op in ops.drain(..) {
            if let Some(fate) = shared.fate.get() {
                refuse(op, fate, &mut pinned);
                continue;
            }
            judge(&shared, &mut batch, op, &mut told, &mut pinned);
        }
        self.note_time(&mut batch, now);
        let (is_empty, ring) = (batch.is_empty(), batch.take_ring());
        let (writes, slots) = batch.writes();
        drop(tally);
        point("judged");
        let written = if is_empty { Ok(()) } else { shared.write(writes, slots, now) };
        match written {
            Ok(()) => {
                if let Some(ring) = ring {
                    shared.disk.seal_with(ring);
                }
                point("settled");
                shared.queue.answering(told.len());
                tell(told, shared.clock.now());
            }
            Err(error) => {
                // What is frozen stays frozen, and so in memory: nobody knows what the disk holds.
                shared.end(&format!("a write failed: {error}"));
                tell_unknown(told, shared.clock.now());
            }
        }
        for slot in pinned {
            shared.front.unpin(&slot);
        }
        point("told");
    }

    /// Keeps the time with the data, so that it goes on from here after a restart.
    fn note_time(&mut self, batch: &mut Batch<'_>, now: Timestamp) {
        let is_due = self.noted.is_none_or(|noted| now.since(noted) >= NOTE_EVERY);
        if is_due && !batch.is_empty() {
            self.noted = Some(now);
            batch.note("clock", self.shared.clock.last_seen().encode());
        }
    }

    fn look_at_disk(&mut self) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let (free, reserve) = (self.shared.free_bytes(), self.shared.options.reserve_bytes);
        // The next file of the log must still fit, and a table of what the last one holds.
        let files = 2 * self.shared.options.log_bytes as u64;
        let least = files.max(reserve / 8).min(reserve / 2);
        let room = match free {
            Some(free) if free < least => Room::None,
            Some(free) if free < reserve => Room::Little,
            Some(_) | None => Room::Enough,
        };
        if room != self.room {
            tracing::warn!(?free, reserve, ?room, "room on the disk of the store has changed");
        }
        self.room = room;
    }

    /// Notes the time and the count, so that the next opening need not count again.
    fn leave_in_order(&self) {
        let mut writes = Writes::new();
        let mut note = |word: &str, bytes: Vec<u8>| {
            writes.push((Space::Meta, word.into(), Some(bytes)));
        };
        note("clock", self.shared.clock.last_seen().encode());
        if self.shared.counted.load(Ordering::Acquire) {
            note("tally", self.shared.tally().encode(self.shared.disk.boot));
        }
        point("leaving");
        let (slots, now) = (PendingSlots::new(), self.shared.clock.now());
        if let Err(error) = self.shared.write(writes, slots, now) {
            self.shared.end(&format!("a write failed while it was closed: {error}"));
        }
    }
}

/// A writer that panics must not leave anyone waiting for it.
struct Guard(Arc<Shared>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.close();
            self.0.end("its writer failed; this is a bug of Onetake");
            // Whoever stands in line hears that nobody knows, when its operation is dropped.
            let mut left = Vec::new();
            while self.0.queue.take(&mut left, Duration::ZERO) {
                left.clear();
            }
        }
    }
}

/// Judges one operation: answers it at once when nothing of this batch is part of the answer.
fn judge(
    shared: &Shared,
    batch: &mut Batch<'_>,
    op: Op,
    told: &mut Vec<Told>,
    pinned: &mut Vec<Slot>,
) {
    match op {
        Op::Swap { expected, wanted, ear } => {
            let address = Arc::clone(&wanted.record.address);
            let reply = batch.swap(expected, wanted);
            // An answer that this batch has a part in waits for its sync.
            if !batch.takes_pin(address.slot()) {
                pinned.push(address.slot().clone());
                say(ear, shared.clock.now(), reply);
                return;
            }
            match reply {
                Ok(swap) => told.push(Told::Swap(ear, swap)),
                Err(error) => say(ear, shared.clock.now(), Err(error)),
            }
        }
        Op::Renew { slot, expected, lease, ear } => {
            let now = shared.clock.now();
            let renew = renewing(expected, lease, now);
            if batch.holds(&slot) {
                told.push(Told::Swap(ear, batch.renew(&slot, renew)));
            } else {
                let swap = shared.front.renew(&slot, renew).map(renewed);
                say(ear, now, Ok(swap.unwrap_or(Swap::Lost(None))));
            }
            pinned.push(slot);
        }
        Op::Commit { tx, slots, ear } => {
            match batch.commit(&tx, &slots) {
                Ok(commit) => told.push(Told::Commit(ear, commit)),
                Err(error) => say(ear, shared.clock.now(), Err(error)),
            }
            pinned.extend(slots);
        }
        Op::Remove { listed, ear } => {
            let removed = listed.iter().filter(|(slot, version)| batch.remove(slot, *version));
            told.push(Told::Removed(ear, removed.count()));
            pinned.extend(listed.into_iter().map(|(slot, _)| slot));
        }
        Op::Note { word, bytes, ear } => {
            batch.note(word, bytes);
            told.push(Told::Noted(ear));
        }
        // Nothing of this batch is visible yet.
        Op::Picture { ear } => say(ear, shared.clock.now(), Ok(Picture::take(shared))),
        Op::Rotate { master, ear } => match batch.rotate(&master) {
            Ok(()) => told.push(Told::Noted(ear)),
            Err(error) => say(ear, shared.clock.now(), Err(error)),
        },
    }
}

/// The renewal of a claim of which `expected` was seen.
pub(super) fn renewing(
    expected: Version,
    lease: Duration,
    now: Timestamp,
) -> impl FnOnce(&onetake_core::Record) -> Option<onetake_core::Record> {
    move |claim| (claim.version == expected).then(|| claim.renewed(now, lease)).flatten()
}

pub(super) fn renewed(found: (bool, Option<Arc<onetake_core::Record>>)) -> Swap {
    match found {
        (true, Some(claim)) => Swap::Won(claim),
        (true | false, there) => Swap::Lost(there),
    }
}

fn say<T>(ear: Ear<T>, now: Timestamp, reply: Result<T, StoreError>) {
    // Whoever asked may have left.
    drop(ear.send(reply.map(|value| Stamped { now, value })));
}

fn tell(told: Vec<Told>, now: Timestamp) {
    for told in told {
        match told {
            Told::Swap(ear, swap) => say(ear, now, Ok(swap)),
            Told::Commit(ear, commit) => say(ear, now, Ok(commit)),
            Told::Removed(ear, removed) => say(ear, now, Ok(removed)),
            Told::Noted(ear) => say(ear, now, Ok(())),
        }
    }
}

/// The sync failed: what was to be written may be there or not.
fn tell_unknown(told: Vec<Told>, now: Timestamp) {
    let lost = || StoreError::Unavailable("a write of the store failed".into());
    for told in told {
        match told {
            Told::Swap(ear, Swap::Won(_) | Swap::Unknown) => say(ear, now, Ok(Swap::Unknown)),
            Told::Swap(ear, Swap::Lost(_)) => say(ear, now, Err(lost())),
            Told::Commit(ear, Commit::Conflict { .. }) => say(ear, now, Err(lost())),
            Told::Commit(ear, Commit::Committed { .. } | Commit::Repeated | Commit::Unknown) => {
                say(ear, now, Ok(Commit::Unknown));
            }
            Told::Removed(ear, _) => say(ear, now, Err(lost())),
            Told::Noted(ear) => say(ear, now, Err(lost())),
        }
    }
}

/// Says that the store is lost.
fn refuse(op: Op, fate: &str, pinned: &mut Vec<Slot>) {
    let lost = || StoreError::Unavailable(fate.to_owned());
    match op {
        Op::Swap { wanted, ear, .. } => {
            pinned.push(wanted.record.address.slot().clone());
            drop(ear.send(Err(lost())));
        }
        Op::Renew { slot, ear, .. } => {
            pinned.push(slot);
            drop(ear.send(Err(lost())));
        }
        Op::Commit { slots, ear, .. } => {
            pinned.extend(slots);
            drop(ear.send(Err(lost())));
        }
        Op::Remove { listed, ear } => {
            pinned.extend(listed.into_iter().map(|(slot, _)| slot));
            drop(ear.send(Err(lost())));
        }
        Op::Picture { ear } => drop(ear.send(Err(lost()))),
        Op::Note { ear, .. } | Op::Rotate { ear, .. } => drop(ear.send(Err(lost()))),
    }
}
