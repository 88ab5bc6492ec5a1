//! `[auth]`, checked: one way to prove who asks, with everything that it needs.
//!
//! An option of another mode is refused rather than passed over, for its writer believes that it
//! protects something. Reads no key file and asks no server.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::HeaderName;
use ipnet::IpNet;
use onetake::Tenant;
use serde::Serialize;

use super::address::Url;
use super::bounds;
use super::environment::Environment;
use super::problem::{Place, Problems, Spot};
use super::raw::{Auth, AuthModeChoice};
use super::read::{Given, Options, sure};
use super::secret::Secret;
use super::shown;
use super::value::{OneOrMore, Plain, Word, choice};

/// Clocks that differ by more are wrong.
const LEEWAY_MAX: Duration = Duration::from_secs(5 * 60);
/// A shared secret that is shorter can be guessed.
const SECRET_BYTES_MIN: usize = 32;

choice! {
    /// Whose keys are one space.
    ScopeRule {
        /// Those of each verified subject.
        "principal" => Principal,
        /// Those of all subjects of a tenant together.
        "tenant" => Tenant,
    }
}

choice! {
    /// How a token may be signed. An unsigned one is none.
    Algorithm {
        /// RSA with SHA-256.
        "RS256" => Rs256,
        /// RSA with SHA-384.
        "RS384" => Rs384,
        /// RSA with SHA-512.
        "RS512" => Rs512,
        /// RSA-PSS with SHA-256.
        "PS256" => Ps256,
        /// RSA-PSS with SHA-384.
        "PS384" => Ps384,
        /// RSA-PSS with SHA-512.
        "PS512" => Ps512,
        /// P-256 with SHA-256.
        "ES256" => Es256,
        /// P-384 with SHA-384.
        "ES384" => Es384,
        /// Ed25519.
        "EdDSA" => EdDsa,
        /// A shared secret with SHA-256.
        "HS256" => Hs256,
        /// A shared secret with SHA-384.
        "HS384" => Hs384,
        /// A shared secret with SHA-512.
        "HS512" => Hs512,
    }
}

impl Algorithm {
    /// Its name in a token.
    pub(crate) fn name(self) -> String {
        let named = serde_json::to_value(self).ok();
        named.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    }

    const fn needs_a_secret(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

/// How callers prove who they are.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AuthConfig {
    /// How.
    pub(crate) mode: AuthMode,
    /// Whose keys are one space.
    pub(crate) scope: ScopeRule,
    /// Whether the upstream sees the caller's credentials.
    pub(crate) forward_credentials: bool,
    /// Where the mode was given, or else the file.
    #[serde(skip)]
    pub(crate) place: Place,
}

/// One way to prove who asks.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AuthMode {
    /// By a key of their tenant.
    ApiKey {
        /// A header that may hold it instead of `Authorization: Bearer`.
        #[serde(serialize_with = "shown::display_if")]
        header: Option<HeaderName>,
    },
    /// By a signed token.
    Jwt(Box<JwtConfig>),
    /// By the word of a proxy.
    TrustedHeader {
        /// The header that names the tenant.
        #[serde(serialize_with = "shown::display")]
        tenant: HeaderName,
        /// The header that names the subject.
        #[serde(serialize_with = "shown::display")]
        principal: HeaderName,
        /// Whose word is taken.
        #[serde(serialize_with = "shown::display_all")]
        from: Vec<IpNet>,
    },
    /// Not at all: everybody is this tenant.
    Anonymous {
        /// Which.
        #[serde(serialize_with = "shown::tenant")]
        tenant: Tenant,
    },
}

impl AuthMode {
    /// Its word in the configuration.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::ApiKey { .. } => "api-key",
            Self::Jwt(_) => "jwt",
            Self::TrustedHeader { .. } => "trusted-header",
            Self::Anonymous { .. } => "anonymous",
        }
    }
}

/// What a signed token must be.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct JwtConfig {
    /// What it is verified with.
    pub(crate) keys: JwtKeys,
    /// The `iss` that it must have.
    pub(crate) issuer: Option<String>,
    /// The `aud` that it must have one of; none when that is not asked.
    pub(crate) audience: Vec<String>,
    /// How it may be signed.
    pub(crate) algorithms: Vec<Algorithm>,
    /// The claim that names the tenant.
    pub(crate) tenant_claim: Word,
    /// The claim that names the subject.
    pub(crate) principal_claim: Word,
    /// The claim that lists what the subject may do.
    pub(crate) scopes_claim: Word,
    /// How far the clocks may differ.
    #[serde(serialize_with = "shown::span")]
    pub(crate) leeway: Duration,
}

/// What tokens are verified with.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JwtKeys {
    /// The public keys in this file.
    File(PathBuf),
    /// The public keys at this URL.
    Url(#[serde(serialize_with = "shown::display")] Uri),
    /// A shared secret.
    Secret(Secret),
}

/// Checks `[auth]`.
pub(super) fn auth(raw: Auth, environment: &Environment, problems: &mut Problems) -> AuthConfig {
    let mode = sure(raw.mode.clone());
    // Who changes the mode by a variable cannot take the options of the file back. Where the mode
    // cannot be read, nobody knows what belongs to it.
    if !matches!(mode.spot, Spot::Variable(_)) && !problems.is_told("auth.mode") {
        refuse_other_modes(&raw, mode.value, problems);
    }
    let scope = sure(raw.scope.clone()).value;
    let forwards = raw.forward_credentials.as_ref().map(|given| given.value);
    let by_mode = mode.value != AuthModeChoice::ApiKey;
    let place = match &mode.spot {
        Spot::BuiltIn => problems.place(&Spot::Whole),
        given @ (Spot::Byte(_) | Spot::Variable(_) | Spot::Whole) => problems.place(given),
    };
    let mode = match mode.value {
        AuthModeChoice::ApiKey => AuthMode::ApiKey { header: raw.header.map(|given| given.value) },
        AuthModeChoice::Jwt => AuthMode::Jwt(Box::new(jwt(raw, &mode, environment, problems))),
        AuthModeChoice::TrustedHeader => trusted(raw, &mode, problems),
        AuthModeChoice::Anonymous => AuthMode::Anonymous { tenant: sure(raw.tenant).value },
    };
    AuthConfig { mode, scope, forward_credentials: forwards.unwrap_or(by_mode), place }
}

/// Refuses options that mean nothing in this mode.
fn refuse_other_modes(raw: &Auth, mode: AuthModeChoice, problems: &mut Problems) {
    for given in raw.given() {
        let (of, word) = match given.value {
            "mode" | "scope" | "forward_credentials" => continue,
            "header" => (AuthModeChoice::ApiKey, "api-key"),
            "tenant_header" | "principal_header" | "from" => {
                (AuthModeChoice::TrustedHeader, "trusted-header")
            }
            "tenant" => (AuthModeChoice::Anonymous, "anonymous"),
            _ => (AuthModeChoice::Jwt, "jwt"),
        };
        if of != mode {
            given.refuse(problems, format!("this means something with mode = \"{word}\" only"));
        }
    }
}

fn trusted(raw: Auth, mode: &Given<AuthModeChoice>, problems: &mut Problems) -> AuthMode {
    let from = raw.from.map_or_else(Vec::new, |given| given.value);
    if from.is_empty() {
        let what = "this mode needs `from`: the networks whose word is taken, \
                    such as [\"127.0.0.1\"]";
        mode.refuse(problems, what);
    }
    let (tenant, principal) = (sure(raw.tenant_header), sure(raw.principal_header));
    if tenant.value == principal.value {
        let later = if principal.spot == Spot::BuiltIn { &tenant } else { &principal };
        later.refuse(problems, "tenant and subject cannot be in one header");
    }
    AuthMode::TrustedHeader { tenant: tenant.value, principal: principal.value, from }
}

fn jwt(
    raw: Auth,
    mode: &Given<AuthModeChoice>,
    environment: &Environment,
    problems: &mut Problems,
) -> JwtConfig {
    let given = raw.algorithms.clone();
    let keys = jwt_keys(&raw, mode, environment, problems);
    let is_shared = matches!(keys, JwtKeys::Secret(_));
    if let Some(given) = &given {
        if given.value.is_empty() {
            given.refuse(problems, "no token could be accepted; name an algorithm");
        }
        // A public key used as a shared secret would let everybody sign.
        if given.value.iter().any(|algorithm| algorithm.needs_a_secret() != is_shared) {
            let what = "HS256, HS384 and HS512 go with `secret`, all others with `jwks`";
            given.refuse(problems, what);
        }
    }
    let by_keys = if is_shared {
        vec![Algorithm::Hs256]
    } else {
        vec![Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa]
    };
    let plain = |Plain(text): Plain| text;
    let audience = raw.audience.map_or_else(Vec::new, |given| {
        let OneOrMore(names) = given.value;
        names.into_iter().map(plain).collect()
    });
    JwtConfig {
        keys,
        issuer: raw.issuer.map(|given| plain(given.value)),
        audience,
        algorithms: given.map_or(by_keys, |given| given.value),
        tenant_claim: sure(raw.tenant_claim).value,
        principal_claim: sure(raw.principal_claim).value,
        scopes_claim: sure(raw.scopes_claim).value,
        leeway: bounds::span(&sure(raw.leeway), Duration::ZERO..=LEEWAY_MAX, problems),
    }
}

fn jwt_keys(
    raw: &Auth,
    mode: &Given<AuthModeChoice>,
    environment: &Environment,
    problems: &mut Problems,
) -> JwtKeys {
    let none = JwtKeys::File(PathBuf::new());
    match (&raw.jwks, &raw.secret) {
        (Some(jwks), None) => {
            let read = jwks_place(&jwks.value);
            read.unwrap_or_else(|what| {
                jwks.refuse(problems, what);
                none
            })
        }
        (None, Some(given)) => {
            let secret = given.value.resolve(environment).and_then(long_enough);
            match secret {
                Ok(secret) => JwtKeys::Secret(secret),
                Err(what) => {
                    given.refuse(problems, what);
                    none
                }
            }
        }
        (Some(_), Some(given)) => {
            given.refuse(problems, "give `jwks` or `secret`, not both");
            none
        }
        (None, None) => {
            mode.refuse(problems, "this mode needs `jwks`, a file or a URL, or `secret`");
            none
        }
    }
}

fn long_enough(secret: Secret) -> Result<Secret, String> {
    if secret.expose().len() < SECRET_BYTES_MIN {
        return Err(format!("a shared secret needs at least {SECRET_BYTES_MIN} bytes"));
    }
    Ok(secret)
}

/// A file, or a URL that nobody on the way can answer for.
fn jwks_place(Plain(text): &Plain) -> Result<JwtKeys, String> {
    if !text.contains("://") {
        return Ok(JwtKeys::File(text.into()));
    }
    let Url(uri) = Url::parse(text)?;
    let is_near = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    if uri.scheme_str() == Some("https") || is_near {
        return Ok(JwtKeys::Url(uri));
    }
    Err("public keys are fetched by https only, unless from this machine".to_owned())
}
