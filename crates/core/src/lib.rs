//! The rule of Onetake: one operation, one execution, every retry gets the same take.
//!
//! This crate decides; it never acts. It has no clock, no I/O, no async and no randomness, so every
//! sentence it says can be checked by calling a function. The walk that carries its decisions out
//! is `onetake-engine`.
//!
//! # The rule
//!
#![doc = include_str!("decide.md")]
//!
//! # Words
//!
//! [`Scope`] who · [`Operation`] what · [`Key`] the caller's word for it · [`Address`] all three ·
//! [`Slot`] where its record lives · [`Fingerprint`] what was asked · [`Ask`] one attempt ·
//! [`Decision`] what it may do · [`Record`] what is remembered · [`Fence`] which claim ·
//! [`Version`] which write · [`Outcome`] what came of it · [`Settlement`] what a claim comes to ·
//! [`Policy`] the settings.
//!
//! # Example
//!
//! ```
//! use onetake_core::{Address, Ask, Asked, Decision, Key, Operation, Policy, Scope};
//! use onetake_core::{Timestamp, decide};
//!
//! let scope = Scope::tenant_named("acme")?;
//! let address = Address::new(scope, Operation::new("orders.create")?, Key::new("order-123")?);
//! let asked = Asked::json(r#"{"sku":"p1"}"#)?;
//! let ask = Ask { address: address.into(), asked, policy: Policy::default().into() };
//! assert!(matches!(decide(&ask, None, Timestamp::ZERO), Decision::Execute(_)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backoff;
mod canonical;
mod code;
mod decide;
mod finality;
mod fingerprint;
mod number;
mod outcome;
mod pointer;
mod policy;
mod record;
mod scope;
mod settle;
#[cfg(test)]
mod testing;
mod time;

pub use backoff::Backoff;
pub use canonical::{CanonicalError, JsonLimits, canonical_json};
pub use code::Code;
pub use decide::{Ask, Decision, Grounds, decide};
pub use finality::{Finality, StatusRules};
pub use fingerprint::{Algorithm, Asked, Asking, Filters, Fingerprint, Method, TooManyFilters};
pub use outcome::{FieldName, Header, Outcome, Status};
pub use pointer::{POINTER_STEPS_MAX, Pointer, PointerError};
pub use policy::{OnInFlight, OnLiveMismatch, OnUnknown, Policy, PolicyBuilder, PolicyError};
pub use record::{
    Cause, Draft, Fence, IdError, Keeping, Phase, Record, Standing, Verdict, Version, judge,
};
pub use scope::{
    Actor, Address, Key, KeyGrammar, NAME_BYTES_MAX, NameError, Operation, Principal, Scope, Slot,
    Tenant, tenant_prefix,
};
pub use settle::{Report, Settlement};
pub use time::{DELIVERY_MAX, Timestamp};
