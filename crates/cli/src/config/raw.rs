//! Every option of the configuration, declared once: its name, its type, its meaning, and what
//! holds when it is not given.
//!
//! The names are a contract: one may be added, never renamed. Checks that need two options, and
//! what they come to, are in the files beside this one.

use std::net::SocketAddr;

use hyper::header::{HeaderName, HeaderValue};
use ipnet::IpNet;
use onetake::core::Pointer;
use onetake::{OnInFlight, Operation, Tenant};

use super::address::Url;
use super::auth::{Algorithm, ScopeRule};
use super::dialect::{BodyShape, BuiltIn, Grammar, NoKey};
use super::read::{Given, Known, Options, options, table_as_value};
use super::route::{ForwardKey, KeyRule, Mode, StoreDown};
use super::secret::SecretText;
use super::value::{Moment, OneOrMore, Plain, Size, Span, Statuses, Unknown, Word, choice};

options! {
    /// `[server]`: where callers connect, and what one of them may take.
    Server {
        /// Where the data plane listens; port 0 takes a free one.
        listen: SocketAddr = "\"127.0.0.1:8080\"",
        /// How many connections may be open at once; further ones wait to be accepted.
        max_connections: u64 = "10_000",
        /// How many requests may be under way at once; further ones get a 503 with `Retry-After`.
        max_concurrent_requests: u64 = "10_000",
        /// How long a caller may take to send the head of a request.
        header_timeout: Span = "\"10s\"",
        /// How long a caller may take to send the body of a request.
        body_timeout: Span = "\"30s\"",
        /// How long requests under way may take once the end was asked for.
        shutdown_within: Span = "\"30s\"",
        /// Networks whose `Forwarded` and `X-Forwarded-*` headers are believed and passed on.
        trusted_proxies: Vec<IpNet> = "[]",
        /// Whether the upstream sees the caller's `Host` instead of its own.
        preserve_host: bool = "false",
        /// How large the head of a request may be.
        max_header_bytes: Size = "\"64KiB\"",
        /// How many bytes of keyed requests, which are read whole, may be in memory at once;
        /// beyond it they get a 503 with `Retry-After`.
        max_buffered: Size = "\"256MiB\"",
    }
}

options! {
    /// `[admin]`: the surface for operators.
    Admin {
        /// Where the admin surface listens; keep it on the loopback.
        listen: SocketAddr = "\"127.0.0.1:8081\"",
        /// What operators must show: `env:NAME`, `file:PATH` or the token itself; without one, a
        /// token is made and kept in a file that only its owner reads.
        token: SecretText,
    }
}

choice! {
    /// What a full store does with a new key.
    OnFullChoice {
        /// It is refused.
        "refuse" => Refuse,
        /// The oldest finished records of the same tenant make room.
        "evict" => Evict,
    }
}

options! {
    /// `[store]`: where the records are, and how many.
    Store {
        /// The store: `embedded:PATH`, `postgres://HOST/DATABASE` or `redis://HOST` for a fleet, or
        /// `memory:` which is gone with its process.
        url: Plain = "\"embedded:./onetake-data\"",
        /// The most records in all.
        max_records: u64 = "50_000_000",
        /// The most bytes in all, about.
        max_bytes: Size = "\"64GiB\"",
        /// The most records of one tenant.
        max_records_per_tenant: u64 = "10_000_000",
        /// The most bytes of one tenant, about.
        max_bytes_per_tenant: Size = "\"16GiB\"",
        /// What a full store does with a new key: refuse it, or evict that tenant's oldest
        /// finished records.
        on_full: OnFullChoice = "\"refuse\"",
        /// The schema of a database that the tables are in, or what the keys in Redis begin with.
        schema: Plain = "\"onetake\"",
        /// Where a fleet is told what its other processes settled: the database itself, past any
        /// pooler; without it waiters look once a second.
        listen_url: Plain,
        /// Whether a server is used that forgets what it acknowledged when it crashes.
        accept_loss: bool = "false",
    }
}

choice! {
    /// How callers prove who they are.
    AuthModeChoice {
        /// By a key of their tenant.
        "api-key" => ApiKey,
        /// By a signed token.
        "jwt" => Jwt,
        /// By the word of a proxy that is trusted.
        "trusted-header" => TrustedHeader,
        /// Not at all.
        "anonymous" => Anonymous,
    }
}

options! {
    /// `[auth]`: how callers prove who they are.
    Auth {
        /// How callers prove who they are; `anonymous` must be asked for.
        mode: AuthModeChoice = "\"api-key\"",
        /// Whose keys are one space: each verified subject's, or all of a tenant's together.
        scope: ScopeRule = "\"principal\"",
        /// Whether the upstream sees the caller's credentials; by default not with `api-key`, and
        /// otherwise yes.
        forward_credentials: bool,
        /// With `api-key`: a header that may hold the key instead of `Authorization: Bearer`.
        header: HeaderName,
        /// With `jwt`: the public keys, a JWKS file or its URL.
        jwks: Plain,
        /// With `jwt`: a shared secret instead of public keys, `env:NAME` or `file:PATH`.
        secret: SecretText,
        /// With `jwt`: the `iss` that a token must have.
        issuer: Plain,
        /// With `jwt`: the `aud` that a token must have, one of these.
        audience: OneOrMore<Plain>,
        /// With `jwt`: the algorithms that are accepted; by default `RS256`, `ES256` and `EdDSA`
        /// with `jwks`, `HS256` with `secret`.
        algorithms: Vec<Algorithm>,
        /// With `jwt`: the claim that names the tenant, with dots for claims inside claims.
        tenant_claim: Word = "\"tenant\"",
        /// With `jwt`: the claim that names the subject.
        principal_claim: Word = "\"sub\"",
        /// With `jwt`: the claim that lists what the subject may do.
        scopes_claim: Word = "\"scope\"",
        /// With `jwt`: how far the clocks may differ.
        leeway: Span = "\"30s\"",
        /// With `trusted-header`: the header that names the tenant.
        tenant_header: HeaderName = "\"Onetake-Tenant\"",
        /// With `trusted-header`: the header that names the subject.
        principal_header: HeaderName = "\"Onetake-Principal\"",
        /// With `trusted-header`: the networks whose word is taken; anyone else is refused.
        from: Vec<IpNet>,
        /// With `anonymous`: the tenant that everybody is.
        tenant: Tenant = "\"anonymous\"",
    }
}

options! {
    /// One key of a tenant, where its hash alone does not say enough.
    TenantKeyTable {
        /// The SHA-256 of the key: `sha256:` and 64 hexadecimal digits.
        hash: super::tenant::KeyHash,
        /// What to call the key; it becomes the subject.
        name: Plain,
        /// When it stops working.
        expires: Moment,
        /// What it may do; by default what its tenant may.
        scopes: Vec<Word>,
    }
}

options! {
    /// `[[tenant]]`: a party with keys of its own.
    Tenants {
        /// The name of the tenant.
        name: Tenant,
        /// The hashes of its API keys: `sha256:` and 64 hexadecimal digits, or a table with
        /// `hash`, `name`, `expires` and `scopes`.
        keys: Vec<Given<super::tenant::TenantKey>>,
        /// What it may do; without this, everything.
        scopes: Vec<Word>,
        /// How many new keys a minute it may use; replays do not count.
        new_keys_per_minute: u64,
    }
}

options! {
    /// What of a request counts when it is compared with an earlier one.
    Fingerprint {
        /// Fields of a JSON body that do not count, as JSON pointers.
        ignore: Vec<Pointer> = "[]",
        /// Whether the query counts.
        query: bool = "false",
        /// Whether a JSON body is compared by meaning; otherwise every byte counts.
        json: bool = "true",
    }
}

options! {
    /// Which statuses are kept, freed or unknown, in place of what the dialect says.
    StatusTable {
        /// Statuses that are final: every retry gets them again.
        kept: Vec<Given<Statuses>>,
        /// Statuses that free the key, also for another body.
        freed: Vec<Given<Statuses>>,
        /// Statuses after which nobody can say whether the effect happened.
        unknown: Vec<Given<Statuses>>,
    }
}

options! {
    /// What `[defaults]` and every `[[route]]` may say.
    Settings {
        /// Where requests are sent.
        upstream: Url,
        /// The contract with callers: `ietf`, `stripe`, `openwop`, `davepi`, `cnerium`, or the
        /// name of a `[[dialect]]`.
        dialect: Word = "\"ietf\"",
        /// Whether a key is needed: `required`, `optional`, or `fingerprint` to recognise a
        /// request without one by its content; by default what the dialect says.
        key: KeyRule,
        /// With `key = "fingerprint"`: how long equal requests count as one.
        window: Span = "\"10s\"",
        /// How long an answer is kept; `openwop` asks for 24h at least.
        retention: Span = "\"24h\"",
        /// How long a claim lives without a sign of life from its owner.
        lease: Span = "\"30s\"",
        /// What a duplicate gets while the first is executing: `wait` with a duration, or
        /// `refuse`.
        in_flight: OnInFlight = "\"wait 10s\"",
        /// What happens when nobody can say whether the effect happened: `hold`, `retry`, or
        /// `probe GET URL` with `{key}` in the URL or path; by default what the dialect says.
        unknown: Unknown,
        /// What happens when the store cannot be reached: `refuse` with a 503, or `pass`
        /// unprotected.
        store_down: StoreDown = "\"refuse\"",
        /// How long all that is kept of an answer may take; past it the outcome is unknown.
        timeout: Span = "\"30s\"",
        /// How long a caller is kept; past it the execution goes on and the caller asks again.
        answer_within: Span,
        /// The largest request body that is taken.
        max_request: Size = "\"10MiB\"",
        /// The largest response that is kept; of a larger one only that it was sent.
        max_stored_response: Size = "\"10MiB\"",
        /// What of a request counts when it is compared: a table with `ignore`, `query` and
        /// `json`.
        fingerprint: Fingerprint,
        /// The key that the upstream sees: the caller's (`raw`), or one that no other tenant has
        /// (`scoped`).
        forward_key: ForwardKey = "\"raw\"",
        /// Whether duplicates are answered (`enforce`) or only reported (`observe`).
        mode: Mode = "\"enforce\"",
        /// Which statuses are kept, freed or unknown, in place of what the dialect says: a table
        /// with `kept`, `freed` and `unknown`.
        statuses: StatusTable,
        /// Whose keys are one space here, in place of `auth.scope`.
        scope: ScopeRule,
        /// What a caller must be allowed to: one of the `scopes` of its key, tenant or token.
        requires: Word,
    }
}

options! {
    /// `[[route]]`: what only a route can say.
    Route {
        /// Methods and a path: `POST /orders`, `POST,PATCH /orders/{id}`, `* /**`.
        r#match: Plain,
        /// The stable name of what is done; by default the match. A route with method `*` and no
        /// operation passes everything through.
        operation: Operation,
    }
}

options! {
    /// `[[dialect]]`: a contract of your own, by what differs from a known one.
    Dialect {
        /// What routes call it.
        name: Word,
        /// The dialect that says everything which is not given here.
        base: BuiltIn,
        /// The header with the key.
        key_header: HeaderName,
        /// The header that marks a replay.
        replay_header: HeaderName,
        /// The value of that header.
        replay_value: HeaderValue,
        /// What a request without a key gets: `refuse` or `pass`.
        no_key: NoKey,
        /// The status for another body under the same key.
        mismatch_status: u64,
        /// The status while the first is executing.
        in_flight_status: u64,
        /// The shape of refusals: `problem` (RFC 9457), `flat`, `nested` or `message`.
        body: BodyShape,
        /// Which statuses are kept, freed or unknown: a table with `kept`, `freed` and `unknown`.
        statuses: StatusTable,
        /// What a key may look like.
        grammar: Grammar,
    }
}

choice! {
    /// How the identity of a call inside a run is made.
    IdentityChoice {
        /// As the contract has it today.
        "current" => Current,
        /// As its first text had it.
        "source" => Source,
    }
}

options! {
    /// `[openwop]`: workflows, and the host that runs them.
    Openwop {
        /// The directory of the workflows, each a `.json` file; without it there is no host.
        workflows: Plain,
        /// Whether the seams for tests of conformance are there, behind the same credentials.
        test_seams: bool = "false",
        /// Whether webhooks may be sent to private and loopback addresses, and without TLS.
        allow_private_targets: bool = "false",
        /// How long a run is remembered after its end.
        run_retention: Span = "\"30d\"",
        /// How long what a call inside a run came to is remembered.
        call_retention: Span = "\"14d\"",
        /// How the identity of a call inside a run is made: `current`, or `source` as the first
        /// text of the contract had it.
        identity: IdentityChoice = "\"current\"",
        /// Where callers reach this host, for addresses that it gives out.
        public_url: Url,
        /// How many nodes one run may execute.
        max_node_executions: u64 = "1_000",
        /// How long one run may take.
        max_run_duration: Span = "\"30d\"",
    }
}

table_as_value!(Fingerprint, StatusTable);

/// A section of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether there may be several, each under `[[name]]`.
    pub(super) repeats: bool,
    /// What it is about.
    pub(super) about: &'static str,
    /// Its options.
    pub(super) options: &'static [&'static [Known]],
    /// Options that must be given.
    pub(super) needs: &'static [&'static str],
}

impl Section {
    /// Every option of it.
    pub(super) fn known(&self) -> impl Iterator<Item = &'static Known> + Clone + use<> {
        self.options.iter().flat_map(|options| options.iter())
    }
}

/// A section that there is once.
const fn once(
    name: &'static str,
    about: &'static str,
    options: &'static [&'static [Known]],
) -> Section {
    Section { name, repeats: false, about, options, needs: &[] }
}

/// A section that there may be several of.
const fn many(
    name: &'static str,
    about: &'static str,
    options: &'static [&'static [Known]],
    needs: &'static [&'static str],
) -> Section {
    Section { name, repeats: true, about, options, needs }
}

/// Every section.
pub(super) const SECTIONS: [Section; 9] = [
    once("server", "Where callers connect, and what one of them may take.", &[Server::KNOWN]),
    once("admin", "The surface for operators.", &[Admin::KNOWN]),
    once("store", "Where the records are, and how many.", &[Store::KNOWN]),
    once("auth", "How callers prove who they are.", &[Auth::KNOWN]),
    many("tenant", "A party with keys of its own.", &[Tenants::KNOWN], &["name"]),
    once("defaults", "What holds for every route that says nothing else.", &[Settings::KNOWN]),
    many("dialect", "A contract of your own.", &[Dialect::KNOWN], &["name", "base"]),
    many(
        "route",
        "Which requests go where, and what may differ from the defaults.",
        &[Route::KNOWN, Settings::KNOWN],
        &["match"],
    ),
    once("openwop", "Workflows, and the host that runs them.", &[Openwop::KNOWN]),
];

/// Sections of doors that this build does not have.
pub(super) const NOT_BUILT_IN: [&str; 3] = ["events", "mcp", "region"];
