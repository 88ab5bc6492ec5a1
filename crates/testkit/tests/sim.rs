//! A few hundred histories of the simulator in every test run; `cargo xtask sim` plays ten
//! thousand.

use onetake_testkit::sim::{Stats, run};

/// X1, X2, X3, X4, X8, W9, D6: whatever goes wrong, no promise is broken.
#[test]
fn no_promise_is_broken_in_three_hundred_histories_of_bad_luck() {
    // Simulated functions panic on purpose; their messages would bury a real one.
    std::panic::set_hook(Box::new(|_| {}));
    let mut stats = Stats::default();
    for seed in 0..300 {
        match run(seed) {
            Ok(history) => stats = stats.plus(history),
            Err(broken) => {
                let _ = std::panic::take_hook();
                panic!("replay with `cargo xtask sim {seed}`\n{broken}");
            }
        }
    }
    let _ = std::panic::take_hook();
    // A simulation in which nothing happens proves nothing.
    assert!(stats.effects > 1_000 && stats.replayed > 3_000, "{stats:?}");
    assert!(stats.recoveries > 100 && stats.fenced > 50, "{stats:?}");
    assert!(stats.unknown > 500 && stats.joined > 30 && stats.committed > 300, "{stats:?}");
}

/// The seed is the bug report: it gives the same history again.
#[test]
fn one_seed_is_one_history() {
    for seed in [1, 7, 4_711] {
        assert_eq!(run(seed), run(seed));
    }
    assert_ne!(run(1), run(2));
}
