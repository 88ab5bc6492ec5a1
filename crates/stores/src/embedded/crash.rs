//! Named points at which a test can end the process.
//!
//! Built in only with the feature `crash-points`; otherwise a point is nothing at all. The proof of
//! crash safety runs a short history once for every point and every time it is passed, ends the
//! process there, opens the store again and looks. A point never changes what the store does.

/// Ends the process here if `ONETAKE_CRASH_AT` names this point and how often it is passed, as in
/// `synced:3`.
///
/// `ONETAKE_CRASH_LOG` names a file that gets a line for every point that is passed, so that a test
/// knows how many there are.
#[cfg(feature = "crash-points")]
pub fn point(name: &str) {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    static LOG: OnceLock<Option<std::ffi::OsString>> = OnceLock::new();
    static ASKED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    if let Some(path) = LOG.get_or_init(|| std::env::var_os("ONETAKE_CRASH_LOG")) {
        let log = std::fs::File::options().append(true).create(true).open(path);
        log.and_then(|mut log| log.write_all(format!("{name}\n").as_bytes()))
            .expect("invariant: a test names a file that it can write");
    }
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var("ONETAKE_CRASH_AT").ok()?;
        let (name, times) = text.split_once(':')?;
        Some((name.to_owned(), times.parse().ok()?))
    });
    let is_last = |times: u32| PASSED.fetch_add(1, Ordering::SeqCst) + 1 == times;
    if asked.as_ref().is_some_and(|(asked, times)| asked == name && is_last(*times)) {
        std::process::abort();
    }
}

/// Nothing: the points are not built in.
#[cfg(not(feature = "crash-points"))]
#[inline]
pub(super) const fn point(_: &str) {}
