//! What documents, lanes and numbers hold that the log has and the tables have not yet, and what
//! the store noted of itself.
//!
//! Records are not here: they are in memory for longer and for other reasons (`front.rs`). Nothing
//! here decides anything, and nothing is dropped before it is in the tables, on the disk. The size
//! of the log bounds it.
//!
//! Invariant: what is absent here is exactly what the tables say. Values come in two layers: the
//! older one is on its way into the tables and does not change, the newer one is what was written
//! since. So it does not matter how much of the older one the tables show already, and whoever
//! holds the lock sees one moment, whatever is being taken over. A document that somebody found in
//! the tables is remembered until more comes into them, for everyone looks at some of them.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use super::listing::laid_over;
use super::log::Space;

/// A place and what it holds; `None`: it was removed. Both are parts of the frame that wrote them.
pub(super) type Row = (Bytes, Option<Bytes>);

/// Values by place, each space for itself.
#[derive(Debug, Default)]
pub(super) struct Rows([BTreeMap<Bytes, Option<Bytes>>; Self::SPACES.len()]);

impl Rows {
    /// The spaces whose values are kept here.
    pub(super) const SPACES: [Space; 4] = [Space::Docs, Space::Lanes, Space::Numbers, Space::Meta];

    /// The values of `space`, in the order of their keys.
    pub(super) fn of(&self, space: Space) -> &BTreeMap<Bytes, Option<Bytes>> {
        &self.0[index(space)]
    }
}

fn index(space: Space) -> usize {
    let index = Rows::SPACES.iter().position(|it| *it == space);
    index.expect("invariant: records are kept elsewhere")
}

/// How many documents of the tables are remembered, and how large one may be.
const SEEN_MAX: usize = 4_096;
const SEEN_BYTES_MAX: usize = 4 << 10;

/// What is known of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// It holds this.
    Here(&'a Bytes),
    /// It holds nothing.
    Removed,
    /// It holds what the tables say.
    Elsewhere,
}

/// Both layers, as they are at one moment.
#[derive(Debug, Default)]
pub(super) struct Layers {
    newer: Rows,
    /// What is being taken over.
    older: Arc<Rows>,
    /// What documents that are in neither were found to be.
    seen: Mutex<HashMap<Bytes, Option<Bytes>>>,
}

impl Layers {
    /// What is here of a place.
    pub(super) fn get(&self, space: Space, key: &[u8]) -> Known<'_> {
        let found = self.newer.of(space).get(key).or_else(|| self.older.of(space).get(key));
        match found {
            None => Known::Elsewhere,
            Some(None) => Known::Removed,
            Some(Some(value)) => Known::Here(value),
        }
    }

    /// The document in the tables, for one that is not here: `find` looks if nobody did lately.
    pub(super) fn doc_elsewhere<E>(
        &self,
        key: &[u8],
        find: impl FnOnce() -> Result<Option<Bytes>, E>,
    ) -> Result<Option<Bytes>, E> {
        let seen = || self.seen.lock().expect("invariant: no panic under the lock");
        if let Some(found) = seen().get(key) {
            return Ok(found.clone());
        }
        let found = find()?;
        if found.as_ref().is_none_or(|value| value.len() <= SEEN_BYTES_MAX) {
            let mut seen = seen();
            if seen.len() >= SEEN_MAX {
                seen.clear();
            }
            seen.insert(Bytes::copy_from_slice(key), found.clone());
        }
        Ok(found)
    }

    /// Says what a place durably holds from now on.
    pub(super) fn put(&mut self, space: Space, key: Bytes, value: Option<Bytes>) {
        self.newer.0[index(space)].insert(key, value);
    }

    /// At most so many rows from `from` on that begin with `prefix`, in order.
    pub(super) fn range(&self, space: Space, from: &[u8], prefix: &[u8], most: usize) -> Vec<Row> {
        let range = (Bound::Included(from), Bound::Unbounded);
        let [newer, older] = [&self.newer, &*self.older].map(|rows| {
            let rows = rows.of(space).range::<[u8], _>(range);
            rows.take_while(|(key, _)| key.starts_with(prefix)).map(Ok::<_, Infallible>)
        });
        let rows = laid_over(newer, older).map(|Ok((key, value))| (key.clone(), value.clone()));
        rows.take(most).collect()
    }
}

/// Everything but records that the tables do not have.
#[derive(Debug, Default)]
pub(super) struct Recent(RwLock<Layers>);

impl Recent {
    /// Both layers; nothing changes while this is held.
    pub(super) fn still(&self) -> RwLockReadGuard<'_, Layers> {
        self.0.read().expect("invariant: no panic under the lock")
    }

    /// Both layers, to add to them. Nobody reads while this is held.
    pub(super) fn change(&self) -> RwLockWriteGuard<'_, Layers> {
        self.0.write().expect("invariant: no panic under the lock")
    }

    /// Everything that is here, to be brought into the tables. One at a time does this, and says
    /// when it is done.
    pub(super) fn take(&self) -> Arc<Rows> {
        let mut layers = self.change();
        // Whatever was taken before is in the tables: who fails at that does not come again.
        layers.older = Arc::new(std::mem::take(&mut layers.newer));
        Arc::clone(&layers.older)
    }

    /// Says that all that was taken is in the tables.
    pub(super) fn taken_over(&self) {
        let mut layers = self.change();
        let taken = std::mem::take(&mut layers.older);
        let seen = std::mem::take(&mut layers.seen);
        drop(layers);
        // Nobody waits for the lock while they are forgotten.
        drop((taken, seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tables_held_is_remembered_until_more_comes_into_them() {
        let recent = Recent::default();
        let look = |held: Option<&'static str>| {
            let find = || Ok::<_, Infallible>(held.map(Bytes::from));
            let Ok(found) = recent.still().doc_elsewhere(b"a", find);
            found
        };
        assert_eq!(look(None), None);
        assert_eq!(look(Some("not looked at")), None);
        put(&recent, "a", Some("one"));
        assert_eq!(recent.still().get(Space::Docs, b"a"), Known::Here(&"one".into()));
        recent.take();
        assert_eq!(look(Some("one")), None, "nobody asks for it who finds it here");
        recent.taken_over();
        assert_eq!(look(Some("one")), Some("one".into()));
        assert_eq!(look(None), Some("one".into()));
    }

    #[test]
    fn little_is_remembered() {
        let recent = Recent::default();
        let find = |bytes: usize| move || Ok::<_, Infallible>(Some(Bytes::from(vec![0; bytes])));
        for key in 0..2 * SEEN_MAX {
            let still = recent.still();
            let Ok(_) = still.doc_elsewhere(&key.to_be_bytes(), find(1));
            let Ok(_) = still.doc_elsewhere(b"large", find(SEEN_BYTES_MAX + 1));
        }
        let still = recent.still();
        let seen = still.seen.lock().unwrap();
        assert!((1..=SEEN_MAX).contains(&seen.len()) && !seen.contains_key(b"large".as_slice()));
    }

    fn row(key: &'static str, value: Option<&'static str>) -> Row {
        (key.into(), value.map(Bytes::from))
    }

    fn put(recent: &Recent, key: &'static str, value: Option<&'static str>) {
        recent.change().put(Space::Docs, key.into(), value.map(Bytes::from));
    }

    #[test]
    fn what_is_newer_counts_while_the_older_is_taken_over() {
        let recent = Recent::default();
        put(&recent, "a/1", Some("one"));
        put(&recent, "a/2", Some("two"));
        put(&recent, "a/3", None);
        let taken = recent.take();
        put(&recent, "a/2", None);
        put(&recent, "a/4", Some("four"));
        put(&recent, "b/1", Some("another prefix"));
        assert_eq!(recent.still().get(Space::Docs, b"a/1"), Known::Here(&"one".into()));
        assert_eq!(recent.still().get(Space::Docs, b"a/2"), Known::Removed);
        assert_eq!(recent.still().get(Space::Docs, b"a/9"), Known::Elsewhere);
        assert_eq!(recent.still().get(Space::Lanes, b"a/1"), Known::Elsewhere, "another space");
        let all =
            [row("a/1", Some("one")), row("a/2", None), row("a/3", None), row("a/4", Some("four"))];
        assert_eq!(recent.still().range(Space::Docs, b"a/", b"a/", 9), all);
        assert_eq!(recent.still().range(Space::Docs, b"a/2", b"a/", 2), all[1..3]);
        assert_eq!(taken.of(Space::Docs).len(), 3, "what was taken does not change");
        recent.taken_over();
        assert_eq!(recent.still().get(Space::Docs, b"a/1"), Known::Elsewhere, "in the tables");
        assert_eq!(
            recent.still().range(Space::Docs, b"a/", b"a/", 9),
            [row("a/2", None), row("a/4", Some("four"))]
        );
    }
}
