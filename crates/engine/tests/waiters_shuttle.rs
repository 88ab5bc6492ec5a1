//! The waiter map under thousands of schedules: nobody misses a settlement, and counts are exact.
//!
//! The map is the real one, with the mutex of the checker put in its place. Its channel is not
//! known to the checker, so threads may be interrupted wherever they could be around it: after
//! every unlocking, and before every word said or heard. A waiter that is never woken is a
//! deadlock, and the checker reports it; so nothing here can hang.

/// The mutex of the checker, which also lets others run right after it is unlocked.
mod sync {
    use std::ops::{Deref, DerefMut};

    use shuttle::sync::MutexGuard;
    use shuttle::thread::yield_now;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    pub(crate) struct Guard<'m, T>(Option<MutexGuard<'m, T>>);

    #[derive(Debug)]
    pub(crate) struct Poisoned;

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Poisoned> {
            self.0.lock().map(|guard| Guard(Some(guard))).map_err(|_| Poisoned)
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("locked until dropped")
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("locked until dropped")
        }
    }

    impl<T> Drop for Guard<'_, T> {
        fn drop(&mut self) {
            self.0 = None;
            if !std::thread::panicking() {
                yield_now();
            }
        }
    }
}
#[allow(dead_code, unreachable_pub)]
#[path = "../src/wait.rs"]
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use onetake_core::{
    Address, Asked, Cause, Fence, Key, Operation, Scope, Settlement, Slot, Timestamp,
};
use shuttle::future::block_on;
use shuttle::scheduler::{DfsScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::thread::{self, JoinHandle, yield_now};
use shuttle::{Config, FailurePersistence, Runner};

use crate::wait::{Call, News, Seat, WaitLimits, Waiters};

const ITERATIONS: usize = 3_000;
/// How many times a schedule of `check_pct` preempts.
const PREEMPTIONS: usize = 3;

fn check(test: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(test, ITERATIONS);
    shuttle::check_pct(test, ITERATIONS, PREEMPTIONS);
}

fn slot(tenant: &str, key: &str) -> Slot {
    let scope = Scope::tenant_named(tenant).expect("a name");
    let operation = Operation::new("orders.create").expect("a name");
    Address::new(scope, operation, Key::new(key).expect("a key")).slot().clone()
}

fn news(fence: u128) -> News {
    News {
        fence: Fence(fence),
        since: Timestamp::ZERO,
        fingerprint: Asked::raw("body").fingerprint().clone(),
        settlement: Settlement::Unknown(Cause::Reported),
        expires_at: None,
    }
}

/// One key: a store that holds the fence of the last settlement, and the room of its waiters.
#[derive(Clone)]
struct Fixture {
    store: Arc<Mutex<u128>>,
    waiters: Arc<Waiters>,
    slot: Slot,
}

impl Fixture {
    fn new(limits: WaitLimits) -> Self {
        let (store, waiters) = (Arc::default(), Arc::new(Waiters::new(limits)));
        Self { store, waiters, slot: slot("acme", "k") }
    }

    fn look(&self) -> u128 {
        *self.store.lock().expect("no panic while looking")
    }

    /// What an owner does: writes, and only then says so.
    fn settle(&self, fence: u128) {
        yield_now();
        *self.store.lock().expect("no panic while writing") = fence;
        yield_now();
        self.waiters.settle(&self.slot, || news(fence));
    }

    fn sit(&self) -> Seat {
        self.waiters.join(&self.slot).expect("there is room")
    }

    /// What a waiter does: takes a seat, and only then looks. Waits for a settlement after `seen`.
    fn wait(&self, seen: u128) -> u128 {
        let mut seat = self.sit();
        loop {
            yield_now();
            let found = self.look();
            if found > seen {
                return found;
            }
            yield_now();
            match block_on(seat.hear()) {
                Call::Settled(news) => return news.fence.0,
                Call::Look => {}
            }
        }
    }

    /// A waiter with the mistake that `wait.rs` warns of.
    fn look_then_wait(&self) -> u128 {
        let found = self.look();
        if found > 0 {
            return found;
        }
        yield_now();
        listen(self.sit())
    }

    fn spawn<T: 'static + Send>(
        &self,
        act: impl FnOnce(Self) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let fixture = self.clone();
        thread::spawn(move || act(fixture))
    }
}

/// Listens until a settlement is heard, and never looks.
fn listen(mut seat: Seat) -> u128 {
    loop {
        yield_now();
        match block_on(seat.hear()) {
            Call::Settled(news) => return news.fence.0,
            Call::Look => {}
        }
    }
}

fn ended<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("no panic in a thread")
}

/// X5
#[test]
fn x5_every_waiter_hears_or_sees_the_settlement_whenever_it_comes() {
    check(|| {
        let fixture = Fixture::new(WaitLimits::default());
        let waiters: Vec<_> = (0..3).map(|_| fixture.spawn(|fixture| fixture.wait(0))).collect();
        let owner = fixture.spawn(|fixture| fixture.settle(1));
        for waiter in waiters {
            assert_eq!(ended(waiter), 1);
        }
        ended(owner);
        assert_eq!(fixture.waiters.count(), 0);
    });
}

#[test]
fn x5_one_waiter_misses_nothing_in_any_schedule_at_all() {
    let runner = Runner::new(DfsScheduler::new(None, false), Config::new());
    let schedules = runner.run(|| {
        let fixture = Fixture::new(WaitLimits::default());
        let waiter = fixture.spawn(|fixture| fixture.wait(0));
        fixture.settle(1);
        assert_eq!(ended(waiter), 1);
        assert_eq!(fixture.waiters.count(), 0);
    });
    println!("{schedules} schedules, which is all");
    assert!(schedules >= 15_000, "{schedules} schedules");
}

#[test]
fn looking_before_sitting_down_is_caught_as_a_lost_wake_up() {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    let runner = Runner::new(RandomScheduler::new(ITERATIONS), config);
    let lost = catch_unwind(AssertUnwindSafe(|| {
        runner.run(|| {
            let fixture = Fixture::new(WaitLimits::default());
            let waiter = fixture.spawn(|fixture| fixture.look_then_wait());
            fixture.settle(1);
            assert_eq!(ended(waiter), 1);
        });
    }));
    let panic = lost.expect_err("the checker finds the schedule in which nobody wakes the waiter");
    let said = panic.downcast_ref::<String>().map_or("", String::as_str);
    assert!(said.contains("deadlock"), "{said}");
}

#[test]
fn whoever_leaves_while_the_room_is_settled_leaves_exact_counts() {
    check(|| {
        let fixture = Fixture::new(WaitLimits::default());
        let leavers: Vec<_> = (0..2)
            .map(|_| {
                fixture.spawn(|fixture| {
                    let seat = fixture.sit();
                    yield_now();
                    drop(seat);
                })
            })
            .collect();
        let waiter = fixture.spawn(|fixture| fixture.wait(0));
        fixture.settle(1);
        leavers.into_iter().for_each(ended);
        assert_eq!(ended(waiter), 1);
        assert_eq!(fixture.waiters.count(), 0);
    });
}

#[test]
fn a_seat_of_the_closed_room_does_not_take_the_next_room_away() {
    check(|| {
        let fixture = Fixture::new(WaitLimits::default());
        let old = fixture.sit();
        fixture.settle(1);
        let next = fixture.sit();
        let leaver = thread::spawn(move || {
            yield_now();
            drop(old);
        });
        let waiters = [thread::spawn(move || listen(next)), fixture.spawn(|other| other.wait(1))];
        let owner = fixture.spawn(|fixture| fixture.settle(2));
        for waiter in waiters {
            assert_eq!(ended(waiter), 2, "the first settlement was another room's");
        }
        ended(leaver);
        ended(owner);
        assert_eq!(fixture.waiters.count(), 0);
    });
}

/// X5: nobody is seated past a bound, and nobody is refused below it.
#[test]
fn x5_the_bounds_per_key_per_tenant_and_in_all_hold_exactly() {
    check(|| {
        let limits = WaitLimits { per_key: 2, per_tenant: 3, total: 4 };
        let waiters = Arc::new(Waiters::new(limits));
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().expect("no panic at the gate");
        let places = [("a", "1"), ("a", "1"), ("a", "1"), ("a", "2"), ("a", "2"), ("b", "1")];
        let arrived = Arc::new(Mutex::new(0));
        let threads: Vec<_> = places
            .into_iter()
            .map(|(tenant, key)| {
                let (waiters, gate) = (Arc::clone(&waiters), Arc::clone(&gate));
                let arrived = Arc::clone(&arrived);
                thread::spawn(move || {
                    let seat = waiters.join(&slot(tenant, key));
                    *arrived.lock().expect("no panic while counting") += 1;
                    drop(gate.lock().expect("no panic at the gate"));
                    seat.is_some()
                })
            })
            .collect();
        while *arrived.lock().expect("no panic while counting") < places.len() {
            yield_now();
        }
        assert_eq!(waiters.count(), 4, "three of tenant a and one of tenant b");
        drop(closed);
        let seated: Vec<bool> = threads.into_iter().map(ended).collect();
        let of =
            |range: std::ops::Range<usize>| seated[range].iter().filter(|seated| **seated).count();
        assert!(of(0..3) <= 2, "of one key");
        assert_eq!((of(0..5), of(5..6)), (3, 1), "of tenant a, of tenant b");
        assert_eq!(waiters.count(), 0);
        assert!(waiters.join(&slot("a", "1")).is_some(), "every seat was given back");
    });
}

#[test]
fn no_nudge_hides_the_settlement_that_follows_it() {
    check(|| {
        let fixture = Fixture::new(WaitLimits::default());
        let seats = [fixture.sit(), fixture.sit()];
        let listeners = seats.map(|seat| thread::spawn(move || listen(seat)));
        let nudger = fixture.spawn(|fixture| {
            for _ in 0..2 {
                fixture.waiters.nudge(&fixture.slot);
                yield_now();
            }
        });
        let owner = fixture.spawn(|fixture| fixture.settle(1));
        for listener in listeners {
            assert_eq!(ended(listener), 1);
        }
        ended(nudger);
        ended(owner);
        assert_eq!(fixture.waiters.count(), 0);
    });
}
