//! A number of places, taken one by one and given back when dropped.
//!
//! Nobody ever waits for one: whoever finds none is told so at once. So a counter is enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places that can be taken. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    most: usize,
    taken: AtomicUsize,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken(Arc<Counted>);

impl Places {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Counted { most, taken: AtomicUsize::new(0) }))
    }

    /// Takes a place, if there is one.
    pub(crate) fn take(&self) -> Option<Taken> {
        // One too many gives itself back at once.
        let taken = Taken(Arc::clone(&self.0));
        (self.0.taken.fetch_add(1, Ordering::AcqRel) < self.0.most).then_some(taken)
    }

    pub(crate) fn are_taken(&self) -> bool {
        self.0.taken.load(Ordering::Acquire) >= self.0.most
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_there_are_and_what_is_dropped_is_free() {
        let places = Places::new(2);
        let one = places.take().unwrap();
        assert!(!places.are_taken());
        let two = places.take().unwrap();
        assert!(places.are_taken() && places.take().is_none() && places.take().is_none());
        drop(one);
        assert!(!places.are_taken() && places.take().is_some());
        drop(two);
        assert_eq!(places.0.taken.load(Ordering::SeqCst), 0);
    }
}
