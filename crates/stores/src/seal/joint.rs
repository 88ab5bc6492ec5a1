//! The seal of a store that several processes share.
//!
//! Whoever opens such a store first leaves a mark in it: its wrapped key ring, or that it has none.
//! All others have to agree, because a process that seals and one that does not would look for the
//! same key in two places, and both would execute. Any of them may add a key to the ring later; who
//! meets a value that such a key sealed has to fetch the mark again. Talks to no server itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use onetake_engine::StoreError;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{KeyRing, MasterKey, SealError, Sealer};
use crate::codec::CodecError;

/// The mark of a store that is not sealed.
const PLAIN: &[u8] = b"";

/// How often a mark is changed that others change meanwhile.
pub(crate) const TRIES_MAX: usize = 5;
/// How often is looked for a key that another process may have added.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// The least time between two looks, however many values cannot be read.
const PAUSE: Duration = Duration::from_millis(100);

/// How one process seals what it shares with others.
pub(crate) struct Joint {
    known: RwLock<Known>,
    unknown_key: Notify,
    /// Whether the store turned out to be another one.
    is_strange: AtomicBool,
    /// Whether the key ring was wrapped by a master key that this process does not have.
    is_locked_out: AtomicBool,
}

struct Known {
    /// The first one wraps.
    masters: Vec<MasterKey>,
    mark: Vec<u8>,
    sealer: Arc<Sealer>,
}

/// The mark for a store that nobody has opened yet.
pub(crate) fn first_mark(masters: &[MasterKey]) -> Vec<u8> {
    masters.first().map_or_else(|| PLAIN.to_vec(), |master| KeyRing::fresh().wrap(master))
}

/// What it means to whoever uses the store that a mark cannot be used.
#[allow(clippy::needless_pass_by_value, reason = "it ends here")]
pub(crate) fn refused(error: SealError) -> StoreError {
    if matches!(error, SealError::NotSealed) {
        return StoreError::Malformed("the store is not sealed");
    }
    StoreError::Unavailable(error.to_string())
}

/// Others were faster, again and again.
pub(crate) fn busy() -> StoreError {
    StoreError::Unavailable("others change the key ring of the store all the time".into())
}

/// What `mark` lets a process with these keys do, and which of them opened it.
fn read(masters: &[MasterKey], mark: &[u8]) -> Result<(Sealer, usize), SealError> {
    match (masters.is_empty(), mark == PLAIN) {
        (true, true) => Ok((Sealer::Plain, 0)),
        (true, false) => Err(SealError::NoKey),
        (false, true) => Err(SealError::NotSealed),
        (false, false) => {
            let (ring, opened_by) = KeyRing::unwrap(mark, masters)?;
            Ok((Sealer::Sealed(ring), opened_by))
        }
    }
}

impl Joint {
    /// Agrees with the mark of the store.
    pub(crate) fn agree(masters: &[MasterKey], mark: &[u8]) -> Result<Self, SealError> {
        let (sealer, _) = read(masters, mark)?;
        let (masters, mark) = (masters.to_vec(), mark.to_vec());
        let known = RwLock::new(Known { masters, mark, sealer: Arc::new(sealer) });
        Ok(Self {
            known,
            unknown_key: Notify::new(),
            is_strange: AtomicBool::default(),
            is_locked_out: AtomicBool::default(),
        })
    }

    /// A mark to put in the place of the one that is known, where that was wrapped by another key
    /// than the first: an operator is changing the master key.
    pub(crate) fn rewrapped(&self) -> Option<Vec<u8>> {
        let known = self.known.read().expect("invariant: no panic under the lock");
        match read(&known.masters, &known.mark) {
            Ok((Sealer::Sealed(ring), opened_by)) if opened_by != 0 => {
                Some(ring.wrap(&known.masters[0]))
            }
            Ok(_) | Err(_) => None,
        }
    }

    /// What seals and opens values. It may be another one in a moment, with more keys.
    pub(crate) fn sealer(&self) -> Arc<Sealer> {
        Arc::clone(&self.known.read().expect("invariant: no panic under the lock").sealer)
    }

    /// The mark as it was last seen.
    pub(crate) fn mark(&self) -> Vec<u8> {
        self.known.read().expect("invariant: no panic under the lock").mark.clone()
    }

    /// Goes on with the mark that the store has now. Where that has fewer keys than are known here,
    /// a server has lost the later one: [`mark`](Self::mark) stays as it is, and is to be put back.
    /// The names of slots never change, so a ring that names them otherwise is that of another
    /// store. Nothing is done with that from here on, for what is done would not be found.
    pub(crate) fn learn(&self, mark: &[u8]) -> Result<(), SealError> {
        let mut known = self.known.write().expect("invariant: no panic under the lock");
        if known.mark == mark {
            return Ok(());
        }
        let sealer = match read(&known.masters, mark) {
            Ok((sealer, _)) => sealer,
            Err(error @ (SealError::NoKey | SealError::NotSealed)) => {
                self.is_strange.store(true, Ordering::Release);
                return Err(error);
            }
            // The ring may be the same, under a master key that is not at hand.
            Err(error) => {
                self.is_locked_out.store(true, Ordering::Release);
                return Err(error);
            }
        };
        match (&sealer, &*known.sealer) {
            (Sealer::Sealed(found), Sealer::Sealed(ours)) if found.extends(ours) => {}
            (Sealer::Sealed(found), Sealer::Sealed(ours)) if ours.extends(found) => return Ok(()),
            _ => {
                self.is_strange.store(true, Ordering::Release);
                return Err(SealError::OtherStore);
            }
        }
        known.mark = mark.to_vec();
        known.sealer = Arc::new(sealer);
        self.is_locked_out.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether the store is still the one that was opened.
    pub(crate) fn is_ours(&self) -> Result<(), StoreError> {
        if self.is_strange.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable(SealError::OtherStore.to_string()));
        }
        Ok(())
    }

    /// The known mark with one more key, wrapped by `master`. It seals nothing before it is in the
    /// store and was learned from there.
    pub(crate) fn rotated(&self, master: &MasterKey) -> Result<Vec<u8>, SealError> {
        let mut known = self.known.write().expect("invariant: no panic under the lock");
        let Sealer::Sealed(ring) = &*known.sealer else { return Err(SealError::NotSealed) };
        let mut ring = ring.clone();
        ring.rotate();
        if known.masters.iter().all(|one| one.id() != master.id()) {
            known.masters.insert(0, master.clone());
        }
        Ok(ring.wrap(master))
    }

    /// What it means that a value cannot be read. If only its key is not known yet, it will be in a
    /// moment.
    pub(crate) fn refusal(&self, error: &CodecError) -> StoreError {
        if matches!(error, CodecError::NoGeneration { .. }) {
            self.unknown_key.notify_one();
            let why = if self.is_locked_out.load(Ordering::Acquire) {
                "a value is sealed by a key that this process cannot get: the master key was \
                 changed; start again with the one that is used now"
            } else {
                "a value is sealed by a key that is just being fetched; ask again"
            };
            return StoreError::Unavailable(why.into());
        }
        StoreError::Corrupt(error.to_string())
    }

    /// Returns when the mark is to be looked at: every now and then, and soon after somebody met a
    /// value whose key is not known.
    pub(crate) async fn a_look_is_due(&self) {
        sleep(PAUSE).await;
        // In vain or not, it is time.
        let _ = timeout(LOOK_EVERY, self.unknown_key.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(byte: u8) -> MasterKey {
        MasterKey::new([byte; 32])
    }

    /// X11: one process that seals and one that does not never share a store.
    #[test]
    fn x11_everybody_has_to_agree_with_the_first() {
        let (plain, sealed) = (first_mark(&[]), first_mark(&[master(1)]));
        let agree = |masters: &[MasterKey], mark: &[u8]| {
            Joint::agree(masters, mark).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(agree(&[], &plain), Ok(()));
        assert_eq!(agree(&[master(1)], &sealed), Ok(()));
        assert_eq!(agree(&[], &sealed), Err(SealError::NoKey.to_string()));
        assert_eq!(agree(&[master(1)], &plain), Err(SealError::NotSealed.to_string()));
        let wrong = agree(&[master(2)], &sealed).unwrap_err();
        assert!(wrong.contains(&master(1).id().to_string()), "it names the key: {wrong}");
    }

    #[test]
    fn the_first_master_key_wraps_from_now_on() {
        let mark = first_mark(&[master(1)]);
        let joint = Joint::agree(&[master(1)], &mark).unwrap();
        assert_eq!(joint.rewrapped(), None, "nothing is to be done");
        let joint = Joint::agree(&[master(2), master(1)], &mark).unwrap();
        let rewrapped = joint.rewrapped().unwrap();
        joint.learn(&rewrapped).unwrap();
        assert!(Joint::agree(&[master(2)], &rewrapped).is_ok());
        assert!(Joint::agree(&[master(1)], &rewrapped).is_err());
    }

    #[test]
    fn a_key_that_one_added_is_learned_by_the_others() {
        let mark = first_mark(&[master(1)]);
        let [one, other] = [(); 2].map(|()| Joint::agree(&[master(1)], &mark).unwrap());
        let rotated = one.rotated(&master(1)).unwrap();
        assert_eq!(one.mark(), mark, "nothing is sealed by a key that is not stored");
        one.learn(&rotated).unwrap();
        let sealed = crate::codec::encode_document(
            onetake_core::Version::of_write(1),
            b"value",
            &one.sealer(),
            b"place",
        );
        let read = |joint: &Joint| {
            crate::codec::decode_document(&sealed, &joint.sealer(), b"place")
                .map_err(|error| joint.refusal(&error))
        };
        assert!(matches!(read(&other), Err(StoreError::Unavailable(_))), "{:?}", read(&other));
        other.learn(&rotated).unwrap();
        assert_eq!(&read(&other).unwrap().1[..], b"value");
        other.learn(&mark).unwrap();
        assert_eq!(other.mark(), rotated, "a key is not forgotten because a server lost it");
        assert_eq!(&read(&other).unwrap().1[..], b"value");
        assert_eq!(other.is_ours(), Ok(()));
        let stranger = first_mark(&[master(1)]);
        assert!(matches!(other.learn(&stranger), Err(SealError::OtherStore)));
        assert_eq!(other.mark(), rotated, "and nothing is done with that");
        assert!(matches!(other.is_ours(), Err(StoreError::Unavailable(_))));
    }
}
