//! From a call of a function to an [`Ask`].
//!
//! Takes names that were checked before; never invents a key and never reads a scope from
//! arguments.

use std::sync::Arc;

use onetake_core::{Address, Ask, Asked, Key, Operation, Policy, Scope};

/// Who asks what under which key, as a wrapped service takes it from a request.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Who asks. From verified identity only.
    pub scope: Scope,
    /// The caller's word for the operation. Without one the call passes straight through.
    pub key: Option<Key>,
    /// What is asked.
    pub asked: Asked,
}

/// The attempt that a call makes.
pub(crate) fn ask(
    scope: &Scope,
    operation: &Operation,
    key: &Key,
    asked: Asked,
    policy: &Arc<Policy>,
) -> Ask {
    let address = Address::new(scope.clone(), operation.clone(), key.clone());
    Ask { address: Arc::new(address), asked, policy: Arc::clone(policy) }
}
