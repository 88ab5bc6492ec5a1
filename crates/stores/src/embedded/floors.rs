//! Where the documents of a prefix begin, so that a scan need not walk over deleted ones again.
//!
//! Timers are documents that are put at the end of a prefix and deleted at its beginning. In a
//! log-structured store every scan from the beginning would walk over all that was ever deleted and
//! is not compacted yet. So the store remembers the first key that was found, and whoever puts an
//! earlier one says so.
//!
//! Invariant: no document of a prefix is before its floor. The writer lowers floors in the moment
//! in which a document becomes visible; a scan raises one only when nothing lowered it since the
//! moment of its picture.

use std::collections::HashMap;
use std::sync::Mutex;

/// How many prefixes are remembered.
const FLOORS_MAX: usize = 1_024;

#[derive(Debug)]
struct Floor {
    first: Vec<u8>,
    /// How often it was lowered.
    lowered: u64,
}

/// The first key of each scanned prefix, by stored key.
#[derive(Debug, Default)]
pub(super) struct Floors(Mutex<HashMap<Vec<u8>, Floor>>);

/// What a scan must give back to raise a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

impl Floors {
    fn floors(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, Floor>> {
        self.0.lock().expect("invariant: no panic under the lock")
    }

    /// Where a scan of `prefix` may begin. Ask in the moment of its picture.
    pub(super) fn begin(&self, prefix: &[u8]) -> (Vec<u8>, Option<Ticket>) {
        let mut floors = self.floors();
        if let Some(floor) = floors.get(prefix) {
            return (floor.first.clone(), Some(Ticket(floor.lowered)));
        }
        if floors.len() >= FLOORS_MAX {
            return (prefix.to_vec(), None);
        }
        floors.insert(prefix.to_vec(), Floor { first: prefix.to_vec(), lowered: 0 });
        (prefix.to_vec(), Some(Ticket(0)))
    }

    /// Says that the first document of `prefix` is `first`.
    pub(super) fn found(&self, prefix: &[u8], ticket: Ticket, first: &[u8]) {
        if let Some(floor) = self.floors().get_mut(prefix)
            && floor.lowered == ticket.0
        {
            floor.first = first.to_vec();
        }
    }

    /// Says that all these were put. Say it while nobody can take a picture.
    pub(super) fn put<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        let mut floors = self.floors();
        for key in keys {
            for (_, floor) in floors.iter_mut().filter(|(prefix, _)| key.starts_with(prefix)) {
                floor.lowered += 1;
                if key < floor.first.as_slice() {
                    floor.first = key.to_vec();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_begins_where_the_last_one_found_the_first() {
        let floors = Floors::default();
        let (from, ticket) = floors.begin(b"t/");
        assert_eq!(from, b"t/");
        floors.found(b"t/", ticket.unwrap(), b"t/5");
        assert_eq!(floors.begin(b"t/").0, b"t/5");
        floors.put([b"t/9".as_slice()].into_iter());
        assert_eq!(floors.begin(b"t/").0, b"t/5");
        floors.put([b"t/3".as_slice()].into_iter());
        assert_eq!(floors.begin(b"t/").0, b"t/3");
        floors.put([b"s/1".as_slice()].into_iter());
        assert_eq!(floors.begin(b"t/").0, b"t/3", "another prefix");
    }

    #[test]
    fn a_scan_with_an_old_picture_raises_nothing() {
        let floors = Floors::default();
        let (_, ticket) = floors.begin(b"t/");
        floors.put([b"t/1".as_slice()].into_iter());
        floors.found(b"t/", ticket.unwrap(), b"t/5");
        assert_eq!(floors.begin(b"t/").0, b"t/");
    }

    #[test]
    fn only_so_many_prefixes_are_remembered() {
        let floors = Floors::default();
        for n in 0..FLOORS_MAX {
            assert!(floors.begin(format!("p{n}/").as_bytes()).1.is_some());
        }
        assert_eq!(floors.begin(b"one more/"), (b"one more/".to_vec(), None));
    }
}
