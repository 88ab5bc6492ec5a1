//! Who asks: a tenant and a subject, from verified identity only.
//!
//! A [`Gate`] looks at the headers that carry a credential and at the address of the peer. It never
//! looks at a body, never believes a header that it has not verified, and never says to a caller
//! what exactly was wrong: an unknown, a revoked and an expired credential read the same.

mod api_keys;
mod claims;
mod credential;
mod fetch;
mod jwt;
mod key_set;
mod refused;
mod remembered;
mod ring;
mod scopes;
mod settings;
mod settings_error;
mod tenants;
mod times;
mod trusted;
mod words;

use std::net::IpAddr;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName};
use onetake_core::{Principal, Scope, Tenant};

pub use api_keys::{ApiKeys, NoChance, generate_key};
pub use fetch::{FetchError, FetchKeys, FileKeys, UrlKeys};
pub use jwt::JwtGate;
pub use refused::Refused;
pub use scopes::{ScopeError, Scopes};
pub use settings::{AnonymousSettings, ApiKeySettings, JwtSettings, TrustedHeaderSettings};
pub use settings_error::{KeyFault, SettingsError};
pub use tenants::{KeyOfTenant, TenantKeys};
pub use times::{Times, WallClock};
pub use trusted::{Anonymous, TrustedHeader};
pub use words::{Secret, Words};

/// The header in which the gateway tells an upstream who the tenant is.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("onetake-tenant");
/// The header in which the gateway tells an upstream who the subject is.
pub const PRINCIPAL_HEADER: HeaderName = HeaderName::from_static("onetake-principal");

/// A verified caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    tenant: Tenant,
    principal: Option<Principal>,
    reach: Reach,
    scopes: Scopes,
    expires_at: Option<SystemTime>,
}

/// Who shares the keys of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The subject alone, where there is one.
    Subject,
    /// All subjects of the tenant.
    Tenant,
}

impl Reach {
    const fn sharing(share_scope: bool) -> Self {
        if share_scope { Self::Tenant } else { Self::Subject }
    }
}

impl Identity {
    /// An identity that was verified by one of the gates.
    const fn verified(tenant: Tenant, principal: Option<Principal>, reach: Reach) -> Self {
        Self { tenant, principal, reach, scopes: Scopes::All, expires_at: None }
    }

    fn limited(mut self, scopes: Scopes, expires_at: Option<SystemTime>) -> Self {
        self.scopes = scopes;
        self.expires_at = expires_at;
        self
    }

    /// The tenant.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// The verified subject, where the credential names one.
    #[must_use]
    pub const fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// What the credential allows.
    #[must_use]
    pub const fn scopes(&self) -> &Scopes {
        &self.scopes
    }

    /// From when on the same credential is refused; `None` when it has no end of its own.
    #[must_use]
    pub const fn expires_at(&self) -> Option<SystemTime> {
        self.expires_at
    }

    /// In whose space the keys of this caller live: the subject's, or the whole tenant's where the
    /// credential names no subject or the configuration says so.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match self.subject() {
            Some(principal) => Scope::of(self.tenant.clone(), principal.clone()),
            None => Scope::tenant_wide(self.tenant.clone()),
        }
    }

    /// The subject that the keys of this caller belong to, unless they are the tenant's.
    pub(crate) fn subject(&self) -> Option<&Principal> {
        self.principal.as_ref().filter(|_| self.reach == Reach::Subject)
    }

    /// Whether the credential allows `scope`.
    #[must_use]
    pub fn may(&self, scope: &str) -> bool {
        self.scopes.allow(scope)
    }

    /// Refuses unless the credential allows `scope`.
    ///
    /// # Errors
    /// [`Refused::Forbidden`] when it does not.
    pub fn require(&self, scope: &str) -> Result<(), Refused> {
        let why = "the credential does not have the scope that the route asks for";
        if self.may(scope) { Ok(()) } else { Err(Refused::Forbidden(why)) }
    }
}

/// How callers are verified.
#[derive(Debug, Clone)]
pub enum Gate {
    /// By a key that was given out.
    ApiKeys(ApiKeys),
    /// By a signed token of an issuer.
    Jwt(JwtGate),
    /// By a proxy in front, which has verified them.
    TrustedHeader(TrustedHeader),
    /// Not at all: everybody is one tenant.
    Anonymous(Anonymous),
}

impl Gate {
    /// Says who asks, or refuses.
    ///
    /// `peer` is the other end of the connection, never an address that a header names.
    ///
    /// # Errors
    /// A [`Refused`]; nothing was executed.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing: keys that are being fetched for it are fetched for others.
    pub async fn admit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Identity, Refused> {
        match self {
            Self::ApiKeys(keys) => keys.admit(headers),
            Self::Jwt(gate) => gate.admit(headers).await,
            Self::TrustedHeader(trusted) => trusted.admit(headers, peer),
            Self::Anonymous(anonymous) => Ok(anonymous.identity()),
        }
    }

    /// Headers that only this gate may set toward the upstream; a caller's own are stripped.
    #[must_use]
    pub fn reserved(&self) -> &[HeaderName] {
        static OURS: [HeaderName; 2] = [TENANT_HEADER, PRINCIPAL_HEADER];
        match self {
            Self::ApiKeys(_) | Self::Jwt(_) | Self::Anonymous(_) => &OURS,
            Self::TrustedHeader(trusted) => trusted.reserved(),
        }
    }

    /// The headers that carried the credential, for whoever decides whether to pass them on.
    #[must_use]
    pub fn credentials(&self) -> &[HeaderName] {
        match self {
            Self::ApiKeys(keys) => keys.headers(),
            Self::Jwt(gate) => gate.headers(),
            Self::TrustedHeader(_) | Self::Anonymous(_) => &[],
        }
    }
}
