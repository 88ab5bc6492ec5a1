//! The one mutex of the waiter map, named in one place so that a model checker can put its own in.
//!
//! Critical sections are short and never hold an `.await`, so this is the blocking mutex of `std`.

pub(crate) use std::sync::Mutex;
