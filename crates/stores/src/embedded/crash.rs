//! Named points at which a test can end the process.
//!
//! Built in only with the feature `crash-points`; otherwise a point is nothing at all. The proof of
//! crash safety runs a short history once for every point and every time it is passed, ends the
//! process there, opens the store again and looks.

/// Ends the process here if `ONETAKE_CRASH_AT` names this point and how often it is passed, as in
/// `synced:3`.
#[cfg(feature = "crash-points")]
pub(super) fn point(name: &str) {
    use std::collections::HashMap;
    use std::sync::{Mutex, OnceLock};

    static ASKED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static PASSED: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var("ONETAKE_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':')?;
        Some((name.to_owned(), times.parse().ok()?))
    });
    let Some((asked, times)) = asked.as_ref().filter(|(asked, _)| asked == name) else { return };
    let mut passed = PASSED.lock().expect("invariant: no panic under the lock");
    let count = passed.get_or_insert_default().entry(asked.clone()).or_insert(0);
    *count += 1;
    if *count == *times {
        std::process::abort();
    }
}

/// Nothing: the points are not built in.
#[cfg(not(feature = "crash-points"))]
#[inline]
pub(super) const fn point(_: &str) {}
