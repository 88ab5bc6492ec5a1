//! The operations on slots: what the script is told, and what its reply means.
//!
//! Each operation has an ear that hears exactly one reply. Nothing here sends anything, and no
//! reply is ever guessed: what cannot be read is unknown for a write, and an error for a read.

use std::sync::Arc;

use onetake_core::{Draft, Record, Slot, Timestamp, Version};
use onetake_engine::{Reply, Stamped, StoreError, Swap};
use redis::{Cmd, Value};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::link::{Failed, refusal};
use super::value::{self, Written, version_bytes};
use crate::seal::joint::Joint;

/// What the script needs of an operation.
pub(super) trait Asked {
    /// The key of the slot.
    fn key(&self) -> &[u8];
    /// The arguments. What has expired is kept for `grace_ms` longer.
    fn put(&self, command: &mut Cmd, grace_ms: u64);
}

/// An operation, its slot, and who waits for it.
pub(super) struct Op {
    key: Vec<u8>,
    slot: Slot,
    what: What,
    /// Held until the reply is given, so that what waits has a bound.
    _room: Option<OwnedSemaphorePermit>,
}

#[allow(clippy::large_enum_variant, reason = "nearly every operation is a swap")]
pub(super) enum What {
    Swap { expected: Option<Version>, next: Draft, written: Written, ear: Ear<Swap> },
    Renew { expected: Version, lease_ms: u64, ear: Ear<Swap> },
    Read { ear: Ear<Option<Arc<Record>>> },
    Mark { ear: Ear<bool> },
}

pub(super) type Ear<T> = oneshot::Sender<Reply<T>>;

impl Asked for Op {
    fn key(&self) -> &[u8] {
        &self.key
    }

    fn put(&self, command: &mut Cmd, grace_ms: u64) {
        match &self.what {
            What::Swap { expected, next, written, .. } => {
                let expected = expected.map(version_bytes);
                let expected = expected.as_ref().map_or(&[][..], |version| &version[..]);
                command.arg(written.kind).arg(expected).arg(&version_bytes(next.version)[..]);
                command.arg(written.since_ms).arg(written.kept_ms(grace_ms)).arg(&written.body);
            }
            What::Renew { expected, lease_ms, .. } => {
                command.arg(b"r").arg(&version_bytes(*expected)[..]).arg(lease_ms);
            }
            What::Read { .. } => {
                command.arg(b"g");
            }
            What::Mark { .. } => {
                command.arg(b"w");
            }
        }
    }
}

/// A key of which the script is asked to remove what has expired.
pub(super) struct Removal(pub(super) Vec<u8>);

impl Asked for Removal {
    fn key(&self) -> &[u8] {
        &self.0
    }

    fn put(&self, command: &mut Cmd, _grace_ms: u64) {
        command.arg(b"x");
    }
}

/// What the script said of one operation.
enum Said {
    Yes,
    No,
    /// Something else is there.
    Other(Vec<u8>),
    /// It is there, and counts as won.
    There(Vec<u8>),
    Refused(StoreError, String),
    Unreadable,
}

impl Said {
    fn of(value: Value) -> Self {
        if let Value::Int(number) = value {
            return match number {
                1 => Self::Yes,
                0 => Self::No,
                _ => Self::Unreadable,
            };
        }
        if let Value::BulkString(value) = value {
            return Self::Other(value);
        }
        let Value::Array(mut parts) = value else { return Self::Unreadable };
        match (parts.pop(), parts.pop()) {
            (Some(Value::BulkString(value)), None) => Self::There(value),
            (Some(Value::BulkString(text)), Some(Value::Int(0))) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                Self::Refused(refusal(&text), text)
            }
            _ => Self::Unreadable,
        }
    }
}

fn say<T>(ear: Ear<T>, reply: Reply<T>) {
    // Whoever asked may have left.
    drop(ear.send(reply));
}

/// What nobody knows. The time is not known either, and nobody judges anything by it.
pub(super) const fn unknown() -> Stamped<Swap> {
    Stamped { now: Timestamp::ZERO, value: Swap::Unknown }
}

impl Op {
    pub(super) fn new(
        key: Vec<u8>,
        slot: &Slot,
        what: What,
        room: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { key, slot: slot.clone(), what, _room: room }
    }

    /// Bytes that it takes on the wire, about.
    pub(super) fn weight(&self) -> usize {
        match &self.what {
            What::Swap { written, .. } => written.body.len(),
            What::Renew { .. } | What::Read { .. } | What::Mark { .. } => 0,
        }
    }

    /// Whether it may add a key.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self.what, What::Swap { expected: None, .. })
    }

    /// Whether nobody waits for it any more.
    pub(super) fn is_forsaken(&self) -> bool {
        match &self.what {
            What::Swap { ear, .. } | What::Renew { ear, .. } => ear.is_closed(),
            What::Read { ear } => ear.is_closed(),
            What::Mark { ear } => ear.is_closed(),
        }
    }

    /// Tells that nothing came of it.
    pub(super) fn fail(self, failed: &Failed) {
        let of_write = || match failed {
            Failed::Refused(error) => Err(error.clone()),
            Failed::Unsure => Ok(unknown()),
        };
        match self.what {
            What::Swap { ear, .. } | What::Renew { ear, .. } => say(ear, of_write()),
            What::Read { ear } => say(ear, Err(failed.of_read())),
            What::Mark { ear } => say(ear, Err(failed.of_read())),
        }
    }

    /// Tells what the script said at `now`. Gives the server's words if it refused.
    pub(super) fn tell(self, now: Timestamp, value: Value, seal: &Joint) -> Option<String> {
        let said = match Said::of(value) {
            Said::Refused(error, text) => {
                self.fail(&Failed::Refused(error));
                return Some(text);
            }
            said @ (Said::Yes | Said::No | Said::Other(_) | Said::There(_) | Said::Unreadable) => {
                said
            }
        };
        // What is there was sealed by whoever wrote it.
        let record = |value: &[u8]| {
            let record = value::record(value, &self.slot, &seal.sealer());
            record.map(Arc::new).map_err(|error| seal.refusal(&error))
        };
        match self.what {
            What::Swap { next, written, ear, .. } => {
                let write = |now| Swap::Won(Arc::new(written.at(next, now)));
                say(ear, swapped(said, record, now, write));
            }
            What::Renew { ear, .. } => say(ear, swapped(said, record, now, |_| Swap::Unknown)),
            What::Read { ear } => {
                let found = match said {
                    Said::No => Ok(None),
                    Said::Other(value) => record(&value).map(Some),
                    Said::Yes | Said::There(_) | Said::Refused(..) | Said::Unreadable => {
                        Err(Failed::Unsure.of_read())
                    }
                };
                say(ear, found.map(|value| Stamped { now, value }));
            }
            What::Mark { ear } => {
                let marked = matches!(said, Said::Yes);
                say(ear, Ok(Stamped { now, value: marked }));
            }
        }
        None
    }
}

/// What a swap or a renewal came to.
fn swapped(
    said: Said,
    record: impl Fn(&[u8]) -> Result<Arc<Record>, StoreError>,
    now: Timestamp,
    written: impl FnOnce(Timestamp) -> Swap,
) -> Reply<Swap> {
    let value = match said {
        Said::Yes => written(now),
        Said::No => Swap::Lost(None),
        Said::Other(value) => Swap::Lost(Some(record(&value)?)),
        // It is written, and an error would deny that.
        Said::There(value) => record(&value).map_or(Swap::Unknown, Swap::Won),
        Said::Refused(..) | Said::Unreadable => Swap::Unknown,
    };
    Ok(Stamped { now, value })
}
