//! What is wrong with the settings of a gate.
//!
//! An error names the setting and what to write instead. It never repeats what may be a secret: who
//! pastes a key where its digest belongs does not find it in a log.

use onetake_core::NameError;

use super::settings::LEEWAY_MAX;
use super::{FetchError, ScopeError};

/// Why settings make no gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A name of a tenant or a principal is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A scope is none.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// A tenant is listed twice.
    #[error("the tenant `{tenant}` is listed twice; give it all its keys in one place")]
    TenantTwice {
        /// Which tenant.
        tenant: String,
    },
    /// A key of a tenant will not do.
    #[error("key {number} of tenant `{tenant}` {fault}")]
    Key {
        /// Whose key.
        tenant: String,
        /// Which of its keys, from 1.
        number: usize,
        /// What is wrong with it.
        fault: KeyFault,
    },
    /// More keys than are taken.
    #[error("there are more than {most} keys")]
    TooManyKeys {
        /// How many are taken.
        most: usize,
    },
    /// A header that cannot be one.
    #[error("`{setting}` is not the name of a header")]
    NotAHeader {
        /// Which setting.
        setting: &'static str,
    },
    /// A setting that must be there.
    #[error("`{setting}` is missing: {why}")]
    Missing {
        /// Which setting.
        setting: &'static str,
        /// What it is for.
        why: &'static str,
    },
    /// Two settings of which only one may be there.
    #[error("`{one}` and `{other}` exclude each other; choose one")]
    Both {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// An algorithm that is none, or none that is taken.
    #[error(
        "{name:?} is not an algorithm that is taken; use RS256, RS384, RS512, PS256, PS384, \
             PS512, ES256, ES384, EdDSA, or HS256, HS384, HS512 with a secret"
    )]
    NotAnAlgorithm {
        /// What was written, shortened.
        name: String,
    },
    /// An algorithm that nothing here could verify.
    #[error("{name} is allowed, but there is no `{needs}` to verify it with")]
    NothingToVerify {
        /// Which algorithm.
        name: String,
        /// The settings that would do.
        needs: &'static str,
    },
    /// A secret that can be guessed.
    #[error("the `secret` for {name} needs at least {least} bytes")]
    WeakSecret {
        /// For which algorithm.
        name: String,
        /// How long it must be.
        least: usize,
    },
    /// A path to a claim that is none.
    #[error(
        "{path:?} is not a claim; write `tenant`, `org.id`, or a JSON pointer that begins \
             with /"
    )]
    NotAClaim {
        /// What was written, shortened.
        path: String,
    },
    /// More leeway than is safe.
    #[error("`leeway` is more than {} seconds", LEEWAY_MAX.as_secs())]
    Leeway,
    /// A URL that will not do.
    #[error("`jwks_url` will not do: {why}")]
    Url {
        /// Why.
        why: &'static str,
    },
    /// The file with the keys will not do.
    #[error("`jwks_file` will not do: {0}")]
    Keys(FetchError),
    /// A network that is none.
    #[error("{text:?} is not a network; write it as \"10.0.0.0/8\" or \"127.0.0.1\"")]
    NotANetwork {
        /// What was written, shortened.
        text: String,
    },
    /// A network that holds everybody.
    #[error("a network of all addresses trusts everybody; name those of the proxies")]
    EveryNetwork,
}

/// What is wrong with a key of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// It is not a digest.
    #[error("is not `sha256:` and 64 hexadecimal digits; `onetake tenant add` prints one")]
    NotADigest,
    /// It is listed twice, for one tenant or for two.
    #[error("is listed before; a key has one holder")]
    Twice,
    /// It allows what its tenant does not.
    #[error("has a scope that its tenant has not")]
    ScopeOfNobody,
    /// It ends at no time.
    #[error("has an `expires` that is no time; write it as \"2027-01-31T00:00:00Z\"")]
    NotATime,
}
