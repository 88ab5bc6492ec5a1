//! The settings of each gate, as a configuration holds them.
//!
//! Plain values: `build` checks them and makes the gate. An error names the setting and what to
//! write instead, and never repeats what may be a secret.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use http::header::AUTHORIZATION;
use ipnet::IpNet;
use jsonwebtoken::{Algorithm, AlgorithmFamily};
use onetake_core::Tenant;

use super::claims::{ClaimPath, ClaimRules, TenantOf};
use super::fetch::AnySource;
use super::jwt::{Checks, validation};
use super::key_set::KeySet;
use super::ring::{KeyRing, Pace};
use super::{
    Anonymous, ApiKeys, FetchKeys, FileKeys, JwtGate, Reach, Secret, SettingsError, TenantKeys,
    Times, TrustedHeader, UrlKeys, Words,
};

/// The most that clocks may differ.
pub(super) const LEEWAY_MAX: Duration = Duration::from_secs(5 * 60);
/// The tenant of those whom nobody verifies, unless it is named.
const ANONYMOUS: &str = "anonymous";

/// The headers `words`, or `Authorization` where nothing is said.
fn headers(words: &Words) -> Result<Vec<HeaderName>, SettingsError> {
    if words.is_empty() {
        return Ok(vec![AUTHORIZATION]);
    }
    let mut names: Vec<HeaderName> = Vec::new();
    for word in words.iter() {
        let name = header("headers", word)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

fn header(setting: &'static str, text: &str) -> Result<HeaderName, SettingsError> {
    text.parse().map_err(|_| SettingsError::NotAHeader { setting })
}

/// The beginning of what was written, for a message.
fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Callers by keys that were given out; the tenants stand beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiKeySettings {
    /// Where a key may be: `Authorization` (as `Bearer`), which is the default, or any other
    /// header (as it is). In several, a key must be in exactly one.
    pub headers: Words,
}

impl ApiKeySettings {
    /// The gate for the keys of `tenants`.
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build(&self, tenants: &[TenantKeys]) -> Result<ApiKeys, SettingsError> {
        self.build_by(tenants, &Times::system())
    }

    /// The same by other clocks.
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build_by(
        &self,
        tenants: &[TenantKeys],
        times: &Times,
    ) -> Result<ApiKeys, SettingsError> {
        ApiKeys::new(headers(&self.headers)?, tenants, times)
    }
}

/// Callers by signed tokens of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// Who must have issued a token (`iss`), or several of whom one must have.
    pub issuer: Words,
    /// For whom a token must be (`aud`), or several of whom one must be named.
    pub audience: Words,
    /// A file with the public keys; it is read again when it changes.
    pub jwks_file: Option<PathBuf>,
    /// A URL with the public keys.
    pub jwks_url: Option<String>,
    /// Whether the URL may do without TLS although it is on another machine.
    pub allow_plain_http: bool,
    /// A secret that is shared with the issuer, for HS256, HS384 and HS512 only.
    pub secret: Option<Secret>,
    /// The algorithms that are allowed. By default all with a public key where there are public
    /// keys, and HS256 where there is a secret.
    pub algorithms: Words,
    /// The types (`typ`) that a token may have, if it says one.
    pub types: Words,
    /// Where a token may be; `Authorization` by default.
    pub headers: Words,
    /// How far the clock of the issuer may be off.
    pub leeway: Duration,
    /// The tenant of all tokens, where they name none.
    pub tenant: Option<String>,
    /// The claim that names the tenant; `tenant` by default.
    pub tenant_claim: Option<String>,
    /// The claim that names the subject.
    pub principal_claim: String,
    /// The claim that lists scopes, as a list or with blanks between them.
    pub scope_claim: String,
    /// Whether all subjects of a tenant share one space of idempotency keys.
    pub share_scope: bool,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            issuer: Words::default(),
            audience: Words::default(),
            jwks_file: None,
            jwks_url: None,
            allow_plain_http: false,
            secret: None,
            algorithms: Words::default(),
            types: Words::from(["JWT", "at+jwt"]),
            headers: Words::default(),
            leeway: Duration::from_secs(30),
            tenant: None,
            tenant_claim: None,
            principal_claim: "sub".to_owned(),
            scope_claim: "scope".to_owned(),
            share_scope: false,
        }
    }
}

impl JwtSettings {
    /// The gate. A file with keys is read at once; those behind a URL are fetched when the first
    /// caller comes, or by [`JwtGate::warm`].
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build(&self) -> Result<JwtGate, SettingsError> {
        self.build_by(&Times::system())
    }

    /// The same by other clocks.
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build_by(&self, times: &Times) -> Result<JwtGate, SettingsError> {
        let ring = |source: Box<dyn AnySource>, pace, known| {
            let ring = KeyRing::new(source, pace, Arc::clone(&times.steady), known);
            ring.map(Some).map_err(SettingsError::Keys)
        };
        let ring = match (&self.jwks_file, &self.jwks_url) {
            (Some(_), Some(_)) => {
                return Err(SettingsError::Both { one: "jwks_file", other: "jwks_url" });
            }
            (Some(path), None) => {
                let file = FileKeys::new(path);
                let known = file.read().map_err(SettingsError::Keys)?;
                ring(Box::new(file), Pace::FILE, Some(known))?
            }
            (None, Some(url)) => {
                let source = UrlKeys::new(url, self.allow_plain_http)?;
                ring(Box::new(source), Pace::NETWORK, None)?
            }
            (None, None) => None,
        };
        self.gate(ring, times)
    }

    /// The gate with keys from a source of your own, in place of a file or a URL.
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build_with(
        &self,
        source: impl FetchKeys,
        times: &Times,
    ) -> Result<JwtGate, SettingsError> {
        let clock = Arc::clone(&times.steady);
        let ring = KeyRing::new(Box::new(source), Pace::NETWORK, clock, None);
        self.gate(Some(ring.map_err(SettingsError::Keys)?), times)
    }

    fn gate(&self, ring: Option<KeyRing>, times: &Times) -> Result<JwtGate, SettingsError> {
        let missing = |setting, why| Err(SettingsError::Missing { setting, why });
        if self.issuer.lacks_text() {
            return missing("issuer", "whose tokens are good");
        }
        if self.audience.lacks_text() {
            return missing("audience", "for whom a token must have been issued");
        }
        let secret = self.secret.as_ref().map(Secret::expose);
        if ring.is_none() && secret.is_none() {
            return missing("jwks_url", "or `jwks_file`, or `secret`, to verify tokens with");
        }
        if self.leeway > LEEWAY_MAX {
            return Err(SettingsError::Leeway);
        }
        let algorithms = self.algorithms(ring.is_some(), secret)?;
        let issuer: Vec<_> = self.issuer.iter().collect();
        let audience: Vec<_> = self.audience.iter().collect();
        let check = |name: &Algorithm| (*name, validation(*name, &issuer, &audience));
        Ok(JwtGate::new(Checks {
            headers: headers(&self.headers)?,
            validations: algorithms.iter().map(check).collect(),
            types: self.types.iter().map(str::to_ascii_lowercase).collect(),
            secret: secret.map(|text| Arc::new(KeySet::of_secret(text.as_bytes()))),
            ring,
            claims: self.claims()?,
            wall: Arc::clone(&times.wall),
        }))
    }

    /// The algorithms that are allowed; each can be verified with what there is.
    fn algorithms(
        &self,
        has_keys: bool,
        secret: Option<&str>,
    ) -> Result<Vec<Algorithm>, SettingsError> {
        let mut names = Vec::new();
        for word in self.algorithms.iter() {
            let name = word.parse::<Algorithm>();
            let wrong = |_| SettingsError::NotAnAlgorithm { name: shortened(word) };
            names.push(name.map_err(wrong)?);
        }
        if names.is_empty() {
            let public = [AlgorithmFamily::Rsa, AlgorithmFamily::Ec, AlgorithmFamily::Ed];
            let public = public.iter().flat_map(AlgorithmFamily::algorithms);
            names.extend(public.filter(|_| has_keys));
            names.extend(secret.map(|_| Algorithm::HS256));
        }
        for name in &names {
            let text = || format!("{name:?}");
            let needs = |needs| SettingsError::NothingToVerify { name: text(), needs };
            match (name.family(), secret) {
                (AlgorithmFamily::Hmac, None) => return Err(needs("secret")),
                (AlgorithmFamily::Hmac, Some(secret)) if secret.len() < secret_bytes(*name) => {
                    let least = secret_bytes(*name);
                    return Err(SettingsError::WeakSecret { name: text(), least });
                }
                (AlgorithmFamily::Hmac, Some(_)) => {}
                (AlgorithmFamily::Rsa | AlgorithmFamily::Ec | AlgorithmFamily::Ed, _) => {
                    if !has_keys {
                        return Err(needs("jwks_url` or `jwks_file"));
                    }
                }
            }
        }
        Ok(names)
    }

    fn claims(&self) -> Result<ClaimRules, SettingsError> {
        let tenant = match (&self.tenant, &self.tenant_claim) {
            (Some(_), Some(_)) => {
                return Err(SettingsError::Both { one: "tenant", other: "tenant_claim" });
            }
            (Some(name), None) => TenantOf::Fixed(Tenant::new(name)?),
            (None, path) => TenantOf::Claim(ClaimPath::parse(path.as_deref().unwrap_or("tenant"))?),
        };
        Ok(ClaimRules {
            tenant,
            principal: ClaimPath::parse(&self.principal_claim)?,
            scope: ClaimPath::parse(&self.scope_claim)?,
            reach: Reach::sharing(self.share_scope),
            leeway: self.leeway,
        })
    }
}

/// A secret is at least as long as the digest (RFC 7518, section 3.2).
fn secret_bytes(name: Algorithm) -> usize {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other algorithm has a secret")]
    match name {
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 32,
    }
}

/// Callers whom a proxy in front has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedHeaderSettings {
    /// The networks of the proxies. Nobody else is believed.
    pub networks: Words,
    /// The header that names the tenant.
    pub tenant_header: String,
    /// The header that names the subject. Where it is set, a request without it is refused.
    pub principal_header: Option<String>,
    /// Whether all subjects of a tenant share one space of idempotency keys.
    pub share_scope: bool,
}

impl Default for TrustedHeaderSettings {
    fn default() -> Self {
        Self {
            networks: Words::default(),
            tenant_header: super::TENANT_HEADER.as_str().to_owned(),
            principal_header: None,
            share_scope: false,
        }
    }
}

impl TrustedHeaderSettings {
    /// The gate.
    ///
    /// # Errors
    /// A [`SettingsError`] that says what to change.
    pub fn build(&self) -> Result<TrustedHeader, SettingsError> {
        if self.networks.is_empty() {
            let why = "the proxies that are believed, such as \"10.0.0.0/8\"";
            return Err(SettingsError::Missing { setting: "networks", why });
        }
        let networks = self.networks.iter().map(network).collect::<Result<_, _>>()?;
        let tenant = header("tenant_header", &self.tenant_header)?;
        let principal = self.principal_header.as_deref();
        let principal = principal.map(|text| header("principal_header", text)).transpose()?;
        if principal.as_ref() == Some(&tenant) {
            let (one, other) = ("tenant_header", "principal_header");
            return Err(SettingsError::Both { one, other });
        }
        Ok(TrustedHeader::new(networks, tenant, principal, Reach::sharing(self.share_scope)))
    }
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, SettingsError> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| SettingsError::NotANetwork { text: shortened(text) })?;
    if network.prefix_len() == 0 { Err(SettingsError::EveryNetwork) } else { Ok(network) }
}

/// Callers whom nobody verifies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnonymousSettings {
    /// The tenant that everybody is; `anonymous` by default.
    pub tenant: Option<String>,
}

impl AnonymousSettings {
    /// The gate.
    ///
    /// # Errors
    /// A [`SettingsError`] when the tenant is not a name.
    pub fn build(&self) -> Result<Anonymous, SettingsError> {
        Ok(Anonymous::new(Tenant::new(self.tenant.as_deref().unwrap_or(ANONYMOUS))?))
    }
}
