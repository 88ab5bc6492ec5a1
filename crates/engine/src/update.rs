//! The walk for state that nobody names with a key: look, compute, commit.
//!
//! A door's own machinery (a run that goes one step further, a delivery that was made) changes
//! documents without a caller who could retry. It is `transact` without the record: the change is
//! anchored in one document, computed by a pure function over what it read, and computed again
//! when others came first. It never executes anything outside the store.

use bytes::Bytes;

use crate::engine::Engine;
use crate::error::RunError;
use crate::journal::{Check, Doc, Journal, Place, Tx, Write};
use crate::store::Stamped;
use crate::transact::{Need, View};

/// How often an update is computed again because others came first, or because it reads more.
const ROUNDS_MAX: u32 = 128;

/// What an update changes, and what it tells whoever asked for it.
#[derive(Debug, Clone)]
#[must_use = "an update happens only when it is given to the walk"]
pub struct Update<T> {
    pub(crate) anchor: Option<Bytes>,
    pub(crate) checks: Vec<Check>,
    pub(crate) writes: Vec<Write>,
    pub(crate) told: T,
}

impl<T> Update<T> {
    /// Nothing changes; this is what there is to tell.
    pub const fn nothing(told: T) -> Self {
        Self { anchor: None, checks: Vec::new(), writes: Vec::new(), told }
    }

    /// The anchor becomes `value`.
    pub fn to(value: impl Into<Bytes>, told: T) -> Self {
        Self { anchor: Some(value.into()), ..Self::nothing(told) }
    }

    /// Writes this as well. Only ever beside a new value of the anchor.
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// Writes all of these as well.
    pub fn writes(mut self, writes: impl IntoIterator<Item = Write>) -> Self {
        self.writes.extend(writes);
        self
    }

    /// Demands this as well.
    pub fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// The same change, with something else to tell.
    pub fn map<U>(self, tell: impl FnOnce(T) -> U) -> Update<U> {
        let Self { anchor, checks, writes, told } = self;
        Update { anchor, checks, writes, told: tell(told) }
    }
}

impl<S: Journal> Engine<S> {
    /// Computes a change of the document `anchor` and commits it, with whatever else it writes.
    /// `places` are read with the anchor, at once; more may be asked for.
    ///
    /// `compute` must be pure: it is run again when others came first, and also when the store
    /// could not say whether it has written. So it must recognise what it has done before by what
    /// it reads.
    ///
    /// # Errors
    /// A [`RunError`] when it could not be done; after [`RunError::ExecutedNotRecorded`] the change
    /// may have happened.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of the change committed, or nothing of it.
    pub async fn update<T, F>(
        &self,
        anchor: &Doc,
        places: Vec<Place>,
        compute: F,
    ) -> Result<T, RunError>
    where
        T: Send,
        F: Fn(&View) -> Result<Update<T>, Need> + Send,
    {
        let mut needed = places;
        if !needed.iter().any(|place| matches!(place, Place::Doc(doc) if doc == anchor)) {
            needed.push(Place::Doc(anchor.clone()));
        }
        let (mut rounds, mut unsure) = (0, false);
        while rounds < ROUNDS_MAX && needed.len() <= Tx::STEPS_MAX {
            let Stamped { now, value } = self.fetch(&needed).await?;
            let view = View::of(now, &needed, value);
            let Update { anchor: next, checks, writes, told } = match compute(&view) {
                Ok(update) => update,
                Err(Need(place)) => {
                    needed.push(place);
                    continue;
                }
            };
            let Some(next) = next else { return Ok(told) };
            rounds += 1;
            let there = view.doc(anchor).ok().flatten().map(|document| document.version);
            let tx = Tx::on_doc(self.0.mint.id(), anchor.clone(), there, next);
            let is_other = |check: &Check| !matches!(check, Check::Doc(doc, _) if doc == anchor);
            let tx = view.checks().filter(is_other).chain(checks).fold(tx, Tx::check);
            let tx = writes.into_iter().fold(tx, Tx::write);
            if self.commit_known(tx, &mut unsure).await?.is_some() {
                return Ok(told);
            }
        }
        Err(RunError::Busy("too many rivals or reads for one update"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::journal::{Counter, Lane, Position};
    use crate::memory::Memory;

    fn doc(key: &'static str) -> Doc {
        Doc { space: "things", key: Bytes::from_static(key.as_bytes()) }
    }

    fn number(view: &View, doc: &Doc) -> Result<u32, Need> {
        let there = view.doc(doc)?.map(|there| String::from_utf8(there.value.to_vec()).unwrap());
        Ok(there.map_or(0, |text| text.parse().unwrap()))
    }

    #[tokio::test]
    async fn rivals_for_one_document_all_change_it_one_after_the_other() {
        let engine = Engine::new(Memory::new());
        let computed = Arc::new(AtomicU32::new(0));
        let changes = (0..50).map(|_| {
            let (engine, computed) = (engine.clone(), Arc::clone(&computed));
            tokio::spawn(async move {
                let change = |view: &View| {
                    computed.fetch_add(1, Ordering::SeqCst);
                    let next = number(view, &doc("a"))? + 1;
                    let entry = Write::Append(Lane("lane".into()), next.to_string().into());
                    Ok(Update::to(next.to_string(), next).write(entry))
                };
                engine.update(&doc("a"), Vec::new(), change).await.unwrap()
            })
        });
        let mut told = Vec::new();
        for change in changes.collect::<Vec<_>>() {
            told.push(change.await.unwrap());
        }
        told.sort_unstable();
        assert_eq!(told, (1..=50).collect::<Vec<_>>());
        assert!(computed.load(Ordering::SeqCst) >= 50);
        let lane = engine.store().read_lane(&Lane("lane".into()), Position(0), 100).await.unwrap();
        let entries: Vec<_> = lane.value.items.iter().map(|entry| entry.value.clone()).collect();
        let expected: Vec<Bytes> = (1..=50u32).map(|n| n.to_string().into()).collect();
        assert_eq!(entries, expected);
    }

    #[tokio::test]
    async fn what_was_read_beside_the_anchor_must_still_hold() {
        let engine = Engine::new(Memory::new());
        let rival = engine.clone();
        let raced = AtomicU32::new(0);
        let sum = |view: &View| {
            let (a, b) = (number(view, &doc("a"))?, number(view, &doc("b"))?);
            Ok(Update::to((a + b + 1).to_string(), (a, b)))
        };
        let (a, b) = (doc("a"), doc("b"));
        let told = engine.update(&a, Vec::new(), |view| {
            let computed = sum(view)?;
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                at_once(rival.update(&b, Vec::new(), |_| Ok(Update::to("7", ())))).unwrap();
            }
            Ok(computed)
        });
        assert_eq!(told.await.unwrap(), (0, 7), "computed again with what the rival wrote");
    }

    /// X8: whoever changes the anchor while it is computed is never overwritten.
    #[tokio::test]
    async fn x8_what_a_rival_made_of_the_anchor_is_seen_before_it_is_replaced() {
        let engine = Engine::new(Memory::new());
        let (rival, raced, anchor) = (engine.clone(), AtomicU32::new(0), doc("a"));
        let told = engine.update(&anchor, Vec::new(), |view| {
            let seen = number(view, &anchor)?;
            if raced.fetch_add(1, Ordering::SeqCst) == 0 {
                at_once(rival.update(&anchor, Vec::new(), |_| Ok(Update::to("7", ())))).unwrap();
            }
            Ok(Update::to((seen + 1).to_string(), seen))
        });
        assert_eq!(told.await.unwrap(), 7, "computed again with what the rival wrote");
        assert_eq!(raced.load(Ordering::SeqCst), 2);
    }

    /// The store in memory never waits.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }

    #[tokio::test]
    async fn an_update_of_nothing_writes_nothing() {
        let engine = Engine::new(Memory::new());
        let anchor = doc("a");
        let told = engine.update(&anchor, Vec::new(), |view| {
            assert_eq!(view.counter(&Counter("n".into())).unwrap_or(0), 0);
            Ok(Update::nothing("told").map(str::len))
        });
        assert_eq!(told.await.unwrap(), 4);
        let there = engine.store().scan("things", b"", None, 10).await.unwrap();
        assert!(there.value.items.is_empty());
    }
}
