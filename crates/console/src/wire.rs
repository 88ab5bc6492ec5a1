//! The JSON of the admin surface, as data: what is asked, what is answered, what is refused.
//!
//! Both ends are these types, so the server and the command line cannot drift apart. A field may be
//! added and never renamed. Keys, header values and bodies are [`Veiled`]: they are for the
//! operator who asked, never for a log.

mod runs;

use std::fmt;

use onetake_core::Code;
use onetake_engine::operate::{Audit, Form, Kind};
use serde::{Deserialize, Serialize};

pub use self::runs::{
    CancelAsk, CancelDone, EventsAsk, EventsPage, NodeRow, RunFailure, RunRow, RunShown, RunsAsk,
    RunsPage, VeiledJson, Waits,
};

/// The header that says who acts, for the audit.
pub const OPERATOR_HEADER: &str = "onetake-operator";
/// The media type of a refusal (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Text that an operator may read and a log may not.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Veiled(pub String);

impl fmt::Debug for Veiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Veiled({} bytes)", self.0.len())
    }
}

/// Which keys: the query of `GET /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListAsk {
    /// Only those of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only those of this operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Only those that are this now: `live`, `unknown`, `done`, `retryable` or `free`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Only those that are so for at least this span, such as `24h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than: Option<String>,
    /// Only those that are so for less than this span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub younger_than: Option<String>,
    /// Where an earlier page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most rows; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One page of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// The rows, in the order of the store.
    pub keys: Vec<KeyRow>,
    /// Where to go on; absent at the end. A page may be empty and still have more behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many records the page looked at.
    pub looked_at: usize,
    /// The store's time, in milliseconds.
    pub now_ms: u64,
}

/// One key, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRow {
    /// Whose it is.
    pub tenant: String,
    /// The subject, where the scope has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// What it is for.
    pub operation: String,
    /// The caller's word for it.
    pub key: Veiled,
    /// The digest that names the record within its tenant.
    pub slot: String,
    /// What it is now.
    pub phase: Kind,
    /// Why it is unknown, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Which claim it is, or was, about.
    pub fence: String,
    /// Which write it is; acts name it.
    pub version: String,
    /// Which execution it is, counted from 1.
    pub attempt: u32,
    /// Whether an earlier attempt may already have had its effect.
    pub recovery: bool,
    /// Since when it is what it is, on the store's clock.
    pub since_ms: u64,
    /// For how long.
    pub age_ms: u64,
    /// Until when: the end of the lease, the retention or the tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// What came of it, without its content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeRow>,
}

/// An outcome without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeRow {
    /// Its form.
    pub form: Form,
    /// The status, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes that it holds.
    pub bytes: usize,
}

/// One key with everything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyShown {
    /// What a list says of it.
    #[serde(flatten)]
    pub row: KeyRow,
    /// What was asked: how it was fingerprinted, and the digest.
    pub fingerprint: String,
    /// The content of the outcome, where it was asked for and is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The store's time, in milliseconds.
    pub now_ms: u64,
}

/// The content of an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Content {
    /// The headers of a response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Field>,
    /// The body or value, where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Veiled>,
    /// The same in hexadecimal digits, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_hex: Option<Veiled>,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Veiled,
}

/// On what a key is released: the body of `POST …/release`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseAsk {
    /// The version that was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// The fence of a live claim, instead; only with `force`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// That a live claim is meant to end.
    pub force: bool,
}

/// What an unknown comes to: the body of `POST …/resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveAsk {
    /// The version that was seen.
    pub seen: String,
    /// The form of the outcome.
    pub form: Form,
    /// The status of a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Its content.
    #[serde(default)]
    pub content: Content,
    /// How long it is kept, such as `24h`.
    pub keep: String,
}

/// What an act came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActDone {
    /// The key as it is now.
    #[serde(flatten)]
    pub row: KeyRow,
    /// Whether the very same act had been done before, so that nothing was changed now.
    pub repeated: bool,
}

/// What is purged: the body of `POST /v1/purge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PurgeAsk {
    /// Whose records.
    pub tenant: String,
    /// Only those of this operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Where an earlier call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// What one call of a purge did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PurgeDone {
    /// Records that became tombstones.
    pub tombstones: usize,
    /// Live claims that were left alone.
    pub live: usize,
    /// Where to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which entries: the query of `GET /v1/audit`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditAsk {
    /// Behind this position; from the first unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The most entries; 100 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One page of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPage {
    /// The entries, the oldest first.
    pub entries: Vec<AuditRow>,
    /// Where to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// One entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// Where it stands.
    pub position: u64,
    /// When it was committed, on the store's clock.
    pub at_ms: u64,
    /// What it says.
    #[serde(flatten)]
    pub audit: Audit,
}

/// Where a backup goes: the body of `POST /v1/store/backup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupAsk {
    /// A path on the machine of the process that holds the store, absolute.
    pub path: String,
}

/// Why nothing came of a request (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind of problem it is: a name that stays, made of its code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The status.
    pub status: u16,
    /// The stable code.
    pub code: String,
    /// What happened this time.
    pub detail: String,
    /// What is there instead, where an act met a record that it was not meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub there: Option<Box<KeyRow>>,
}

impl Problem {
    /// The code, where this release knows it.
    #[must_use]
    pub fn known(&self) -> Option<Code> {
        Code::parse(&self.code)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}
