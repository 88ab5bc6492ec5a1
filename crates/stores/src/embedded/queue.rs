//! The line of work in front of the writer: bounded in number and in bytes, taken in batches.
//!
//! The writer takes whatever is there when it comes back from the disk, so batches grow as long as
//! the disk is slow. Where it is quick, those who were just answered are only on their way with
//! their next operation; under load the writer waits for two of five, as long as a few syncs take,
//! because a sync for a few costs as much as one for all, and whoever is answered together is woken
//! together. How many there are is the most that were seen lately. One caller alone never waits for
//! others. Whoever finds the line full is told so at once; nothing ever waits for a place.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The most operations of one batch.
const BATCH_OPS_MAX: usize = 4_096;
/// Bytes of a batch; a single operation may be larger and is then a batch of its own.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// For how many operations in a batch it is worth waiting.
const BUSY: usize = 5;

/// How much work may stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Operations.
    pub ops_max: usize,
    /// Bytes that they want to write.
    pub bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { ops_max: 65_536, bytes_max: 128 << 20 }
    }
}

/// Why something cannot stand in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    /// The line is full.
    Full,
    /// The store is closing.
    Closed,
}

#[derive(Debug)]
struct Line<T> {
    ops: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
    /// How many callers seem to be about: in line, being answered, or on their way.
    about: usize,
    /// How many the writer waits for; zero when it does not, and then nobody need ring.
    goal: usize,
}

/// Work for one thread, from many.
#[derive(Debug)]
pub(super) struct Queue<T> {
    line: Mutex<Line<T>>,
    bell: Condvar,
    limits: QueueLimits,
}

impl<T> Queue<T> {
    pub(super) const fn new(limits: QueueLimits) -> Self {
        let line = Line { ops: VecDeque::new(), bytes: 0, closed: false, about: 0, goal: 0 };
        Self { line: Mutex::new(line), bell: Condvar::new(), limits }
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.line.lock().expect("invariant: no panic under the lock")
    }

    /// Stands `op` in line, or gives it back.
    pub(super) fn push(&self, bytes: usize, op: T) -> Result<(), (Turned, T)> {
        let mut line = self.line();
        if line.closed {
            return Err((Turned::Closed, op));
        }
        // One operation is always taken, however large: its own bound was checked before.
        let is_full = line.ops.len() >= self.limits.ops_max
            || (line.bytes + bytes > self.limits.bytes_max && !line.ops.is_empty());
        if is_full {
            return Err((Turned::Full, op));
        }
        line.bytes += bytes;
        line.ops.push_back((bytes, op));
        let is_awaited = line.ops.len() == line.goal;
        drop(line);
        if is_awaited {
            self.bell.notify_one();
        }
        Ok(())
    }

    /// Waits for work and moves one batch of it into `batch`; `false` once the line is closed and
    /// empty. Under load, waits up to `patience` for those who were answered last.
    pub(super) fn take(&self, batch: &mut Vec<T>, patience: Duration) -> bool {
        // Under load the first who comes need not ring: enough of them will.
        let mut line = self.gather(self.line(), patience);
        while line.ops.is_empty() {
            if line.closed {
                return false;
            }
            line.goal = 1;
            line = self.bell.wait(line).expect("invariant: no panic under the lock");
            line.goal = 0;
            line = self.gather(line, patience);
        }
        let mut taken = 0;
        while let Some((bytes, _)) = line.ops.front() {
            let fits = batch.len() < BATCH_OPS_MAX && taken + bytes <= BATCH_BYTES_MAX;
            if !fits && !batch.is_empty() {
                break;
            }
            let (bytes, op) = line.ops.pop_front().expect("invariant: there is a front");
            taken += bytes;
            line.bytes -= bytes;
            batch.push(op);
        }
        true
    }

    /// Says that so many are about to be answered, and will be back if they have more to do.
    pub(super) fn answering(&self, ops: usize) {
        let mut line = self.line();
        // Those who are neither in line nor answered are on their way, and still there.
        line.about = (line.ops.len() + ops).max(line.about * 19 / 20);
    }

    /// Waits until two of five of those who are about are in line. While they are written the
    /// others compute: with more of them the processors would idle, with fewer the disk.
    fn gather<'a>(
        &self,
        mut line: MutexGuard<'a, Line<T>>,
        patience: Duration,
    ) -> MutexGuard<'a, Line<T>> {
        let goal = line.about * 2 / 5;
        if goal < BUSY || line.ops.len() >= goal || patience.is_zero() {
            return line;
        }
        let until = Instant::now() + patience;
        line.goal = goal;
        while line.ops.len() < goal && !line.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.bell.wait_timeout(line, left);
            line = waited.expect("invariant: no panic under the lock").0;
        }
        line.goal = 0;
        line
    }

    /// Lets nobody in any more. What stands in line is still taken.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.bell.notify_all();
    }

    pub(super) fn len(&self) -> usize {
        self.line().ops.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn queue(ops_max: usize, bytes_max: usize) -> Queue<u32> {
        Queue::new(QueueLimits { ops_max, bytes_max })
    }

    fn taken(queue: &Queue<u32>) -> Vec<u32> {
        let mut batch = Vec::new();
        assert!(queue.take(&mut batch, Duration::ZERO));
        batch
    }

    #[test]
    fn a_full_line_turns_the_next_one_away_at_once() {
        let by_number = queue(2, 1_000);
        assert_eq!([1, 2].map(|op| by_number.push(1, op)), [Ok(()), Ok(())]);
        assert_eq!(by_number.push(1, 3), Err((Turned::Full, 3)));
        assert_eq!(taken(&by_number), [1, 2]);
        assert_eq!(by_number.push(1, 3), Ok(()));
        let by_bytes = queue(10, 100);
        assert_eq!(by_bytes.push(60, 1), Ok(()));
        assert_eq!(by_bytes.push(60, 2), Err((Turned::Full, 2)));
        assert_eq!((taken(&by_bytes), by_bytes.push(60, 2)), (vec![1], Ok(())));
    }

    #[test]
    fn a_batch_ends_at_its_bounds_and_keeps_the_order() {
        let many = queue(10_000, usize::MAX);
        for op in 0..5_000 {
            many.push(1, op).unwrap();
        }
        assert_eq!(taken(&many), (0..4_096).collect::<Vec<_>>());
        assert_eq!(taken(&many).len(), 5_000 - 4_096);
        let large = queue(10, usize::MAX);
        for (op, mebibytes) in [(1, 1), (2, 2), (3, 9), (4, 1)] {
            large.push(mebibytes << 20, op).unwrap();
        }
        assert_eq!([taken(&large), taken(&large), taken(&large)], [vec![1, 2], vec![3], vec![4]]);
    }

    /// Whoever is alone is served at once; under load the writer waits for the others, not for
    /// ever, and no longer than until two of five are there.
    #[test]
    fn the_writer_waits_for_others_only_under_load() {
        let (queue, long) = (queue(100, 1_000), Duration::from_secs(600));
        let taken = |ops: std::ops::Range<u32>, patience| {
            ops.for_each(|op| queue.push(1, op).unwrap());
            let mut batch = Vec::new();
            assert!(queue.take(&mut batch, patience));
            queue.answering(batch.len());
            batch.len()
        };
        assert_eq!(taken(0..1, long), 1);
        assert_eq!(taken(0..4, long), 4);
        assert_eq!(taken(0..2, long), 2, "few are not worth waiting for");
        assert_eq!(taken(0..15, long), 15);
        assert_eq!(taken(0..6, long), 6, "two of five are there");
        assert_eq!(taken(0..15, long), 15);
        assert_eq!(taken(0..2, Duration::from_millis(1)), 2, "the others do not come");
        assert_eq!(taken(0..15, long), 15);
        std::thread::scope(|scope| {
            queue.push(1, 0).unwrap();
            let writer = scope.spawn(|| taken(0..0, long));
            (0..5).for_each(|op| queue.push(1, op).unwrap());
            assert_eq!(writer.join().unwrap(), 6, "the last of them rings");
        });
    }

    #[test]
    fn a_closed_line_is_emptied_and_then_ends() {
        let queue = queue(10, 100);
        queue.push(1, 1).unwrap();
        queue.close();
        assert_eq!(queue.push(1, 2), Err((Turned::Closed, 2)));
        assert_eq!(taken(&queue), [1]);
        assert!(!queue.take(&mut Vec::new(), Duration::ZERO));
    }
}
