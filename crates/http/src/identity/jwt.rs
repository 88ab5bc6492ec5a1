//! Callers who hold a signed token of an issuer that we know.
//!
//! The token chooses nothing: its algorithm must be on our list, its key comes from our source
//! (never from the token), and a shared secret is only ever the configured one. Who the caller is
//! follows from the claims, after the signature, the issuer, the audience and the times.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use jsonwebtoken::crypto::rust_crypto::DEFAULT_PROVIDER;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, Header, Validation, decode, decode_header};
use onetake_engine::Clock;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::claims::{ClaimRules, Verified};
use super::credential::credential;
use super::key_set::KeySet;
use super::ring::KeyRing;
use super::{Identity, Refused};

/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 8 * 1_024;

/// Verifies tokens of one issuer. Clones share keys and what was verified.
#[derive(Clone)]
pub struct JwtGate(Arc<Checks>);

/// Everything that is asked of a token.
pub(super) struct Checks {
    pub(super) headers: Vec<HeaderName>,
    /// One for each algorithm that is allowed.
    pub(super) validations: Vec<(Algorithm, Validation)>,
    /// Which `typ` a token may have, in lower case and without `application/`.
    pub(super) types: Vec<String>,
    pub(super) secret: Option<Arc<KeySet>>,
    pub(super) ring: Option<KeyRing>,
    pub(super) claims: ClaimRules,
    pub(super) wall: Arc<dyn Clock>,
}

impl JwtGate {
    pub(super) fn new(checks: Checks) -> Self {
        // The library panics when a neighbour in the same build switched on its other provider and
        // nobody chose. Whoever chose before us keeps their choice; each verifies the same.
        let _ = DEFAULT_PROVIDER.install_default();
        Self(Arc::new(checks))
    }

    pub(super) fn headers(&self) -> &[HeaderName] {
        &self.0.headers
    }

    /// Fetches the keys of the issuer, so that the first caller need not wait for them.
    ///
    /// # Errors
    /// [`Refused::Unavailable`] when they cannot be had. The gate may be used all the same, and
    /// tries again when callers come.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing; a fetch that was begun goes on.
    pub async fn warm(&self) -> Result<(), Refused> {
        match &self.0.ring {
            Some(ring) => ring.keys(|_| true).await.map(drop),
            None => Ok(()),
        }
    }

    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Refused> {
        let token = credential(headers, &self.0.headers, TOKEN_BYTES_MAX)?;
        let header = decode_header(token).map_err(|why| reason(why.kind()))?;
        let validation = self.0.validation(&header)?;
        let set = self.0.keys(&header).await?;
        let digest: [u8; 32] = Sha256::digest(token).into();
        let verified = match set.remembered.find(&digest) {
            Some(verified) => verified,
            None => self.0.verify(token, &header, validation, &set, digest)?,
        };
        verified.judge(self.0.wall.now())?;
        Ok(verified.identity)
    }
}

/// Shows what is allowed, and neither keys nor secrets.
impl fmt::Debug for JwtGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<_> = self.0.validations.iter().map(|(name, _)| name).collect();
        f.debug_struct("JwtGate")
            .field("algorithms", &algorithms)
            .field("ring", &self.0.ring)
            .finish_non_exhaustive()
    }
}

impl Checks {
    /// How a token with this header is to be checked, if at all.
    fn validation(&self, header: &Header) -> Result<&Validation, Refused> {
        // Whoever lists a member as critical demands that we understand it; we understand none.
        if header.crit.is_some() {
            return Err(Refused::Invalid("the token demands something that is not known here"));
        }
        if !header.typ.as_deref().is_none_or(|typ| self.is_known_type(typ)) {
            return Err(Refused::Invalid("the token is of another type than those allowed"));
        }
        let allowed = self.validations.iter().find(|(name, _)| *name == header.alg);
        let (_, validation) =
            allowed.ok_or(Refused::Invalid("the algorithm of the token is not allowed"))?;
        Ok(validation)
    }

    fn is_known_type(&self, typ: &str) -> bool {
        let typ = typ.to_ascii_lowercase();
        let short = typ.strip_prefix("application/").unwrap_or(&typ);
        self.types.iter().any(|known| known == short)
    }

    /// The keys that a token with this header may have been signed with.
    async fn keys(&self, header: &Header) -> Result<Arc<KeySet>, Refused> {
        let will_do = |set: &KeySet| set.find(header.kid.as_deref(), header.alg).is_some();
        let found = match (header.alg.family(), &self.secret, &self.ring) {
            (AlgorithmFamily::Hmac, secret, _) => secret.clone(),
            (AlgorithmFamily::Rsa | AlgorithmFamily::Ec | AlgorithmFamily::Ed, _, Some(ring)) => {
                Some(ring.keys(will_do).await?)
            }
            (AlgorithmFamily::Rsa | AlgorithmFamily::Ec | AlgorithmFamily::Ed, _, None) => None,
        };
        found.ok_or(Refused::Invalid("no key of the issuer fits the token"))
    }

    fn verify(
        &self,
        token: &[u8],
        header: &Header,
        validation: &Validation,
        set: &KeySet,
        digest: [u8; 32],
    ) -> Result<Verified, Refused> {
        let key = set.find(header.kid.as_deref(), header.alg);
        let key = key.ok_or(Refused::Invalid("no key of the issuer fits the token"))?;
        let claims = decode::<Value>(token, key, validation);
        let claims = claims.map_err(|why| reason(why.kind()))?.claims;
        let verified = self.claims.read(&claims)?;
        set.remembered.keep(digest, verified.clone());
        Ok(verified)
    }
}

/// What was wrong, in words of our own: those of the library may quote the token.
fn reason(kind: &ErrorKind) -> Refused {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the library may add kinds")]
    Refused::Invalid(match kind {
        ErrorKind::InvalidSignature => "the signature of the token is not good",
        ErrorKind::InvalidIssuer => "the token comes from another issuer",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::MissingRequiredClaim(_) => "the token has no `exp`, `iss` or `aud`",
        ErrorKind::InvalidAlgorithm => "the algorithm of the token is not allowed",
        ErrorKind::InvalidToken | ErrorKind::Base64(_) | ErrorKind::Json(_) => {
            "the credential is not a token"
        }
        _ => "the token cannot be verified",
    })
}

/// How tokens of one algorithm are checked by the library: the signature, the issuer and the
/// audience. Times are judged in `claims.rs`, by the clock of the gate and with every request.
pub(super) fn validation(algorithm: Algorithm, issuer: &[&str], audience: &[&str]) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_required_spec_claims(&["exp", "iss", "aud"]);
    validation.set_issuer(issuer);
    validation.set_audience(audience);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation
}
