//! Tokens whose signature was found good, by digest, so that each is checked once and not with
//! every request: a signature costs a hundred times what its digest costs.
//!
//! Belongs to one set of keys and goes with it, so that a key that was withdrawn verifies nothing.
//! Bounded, and never the last word: whoever finds a token here still looks at its times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The most tokens of one generation; there are two.
const GENERATION_MAX: usize = 500;

/// What was verified, by the digest of its token.
pub(super) struct Remembered<T>(Mutex<Generations<T>>);

struct Generations<T> {
    young: HashMap<[u8; 32], T>,
    old: HashMap<[u8; 32], T>,
}

impl<T: Clone> Remembered<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Generations { young: HashMap::new(), old: HashMap::new() }))
    }

    pub(super) fn find(&self, digest: &[u8; 32]) -> Option<T> {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = both.young.get(digest) {
            return Some(found.clone());
        }
        // What is still in use moves on, so that it outlives what is not.
        let found = both.old.remove(digest)?;
        both.keep(*digest, found.clone());
        Some(found)
    }

    pub(super) fn keep(&self, digest: [u8; 32], verified: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).keep(digest, verified);
    }
}

impl<T> Generations<T> {
    fn keep(&mut self, digest: [u8; 32], verified: T) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, verified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: usize) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&n.to_be_bytes());
        digest
    }

    #[test]
    fn it_is_bounded_and_what_is_in_use_stays() {
        let remembered = Remembered::new();
        for n in 0..10 * GENERATION_MAX {
            remembered.keep(digest(n), n);
            assert_eq!(remembered.find(&digest(0)), Some(0), "after {n}");
        }
        let both = remembered.0.lock().unwrap();
        assert!(both.young.len() + both.old.len() <= 2 * GENERATION_MAX);
        assert!(!both.young.contains_key(&digest(1)) && !both.old.contains_key(&digest(1)));
    }

    #[test]
    fn what_was_never_kept_is_not_found() {
        let remembered = Remembered::new();
        remembered.keep(digest(1), "one");
        assert_eq!(remembered.find(&digest(2)), None);
        assert_eq!(remembered.find(&digest(1)), Some("one"));
    }
}
