//! What the claims of a verified token say: tenant, subject, scopes and times.
//!
//! Reads values and decides nothing about signatures. A claim that is missing or of another type
//! than it should be is a refusal, never a guess.

use std::time::Duration;

use onetake_core::{Principal, Tenant, Timestamp};
use serde_json::Value;

use super::scopes::Scopes;
use super::times::system_time;
use super::{Identity, Reach, Refused, SettingsError};

/// The longest path to a claim, in bytes.
const PATH_BYTES_MAX: usize = 255;
/// The most parts of a path.
const PARTS_MAX: usize = 8;

/// Where a claim is: `tenant`, `org.id`, or a JSON pointer for names that hold dots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimPath(Vec<String>);

impl ClaimPath {
    pub(super) fn parse(text: &str) -> Result<Self, SettingsError> {
        let wrong = || SettingsError::NotAClaim { path: text.chars().take(64).collect() };
        let parts: Option<Vec<_>> = match text.strip_prefix('/') {
            Some(pointer) => pointer.split('/').map(unescaped).collect(),
            None => Some(text.split('.').map(str::to_owned).collect()),
        };
        let parts = parts.ok_or_else(wrong)?;
        let is_path = text.len() <= PATH_BYTES_MAX
            && parts.len() <= PARTS_MAX
            && parts.iter().all(|part| !part.is_empty());
        if is_path { Ok(Self(parts)) } else { Err(wrong()) }
    }

    fn find<'c>(&self, claims: &'c Value) -> Option<&'c Value> {
        self.0.iter().try_fold(claims, |value, part| value.as_object()?.get(part))
    }

    fn text<'c>(&self, claims: &'c Value) -> Option<&'c str> {
        self.find(claims)?.as_str()
    }
}

/// A part of a JSON pointer as it is meant; `None` when a `~` escapes nothing.
fn unescaped(part: &str) -> Option<String> {
    let mut chars = part.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        plain.push(match (c, c == '~') {
            (_, true) => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            (c, false) => c,
        });
    }
    Some(plain)
}

/// Where the tenant of a token comes from.
#[derive(Debug, Clone)]
pub(super) enum TenantOf {
    /// All tokens of the issuer are one tenant's.
    Fixed(Tenant),
    /// The token says it.
    Claim(ClaimPath),
}

/// How claims become an identity.
#[derive(Debug, Clone)]
pub(super) struct ClaimRules {
    pub(super) tenant: TenantOf,
    pub(super) principal: ClaimPath,
    pub(super) scope: ClaimPath,
    pub(super) reach: Reach,
    pub(super) leeway: Duration,
}

/// What a token with a good signature says. Its times are judged with every request.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    pub(super) identity: Identity,
    /// From when on it is good, with the leeway.
    not_before: Timestamp,
    /// From when on it is good no longer, with the leeway.
    end: Timestamp,
}

impl Verified {
    /// Whether the token is good at `now`.
    pub(super) fn judge(&self, now: Timestamp) -> Result<(), Refused> {
        if now >= self.end {
            return Err(Refused::Invalid("the token has expired"));
        }
        if now < self.not_before {
            return Err(Refused::Invalid("the token is not good yet"));
        }
        Ok(())
    }
}

impl ClaimRules {
    /// Who holds a token with these claims.
    pub(super) fn read(&self, claims: &Value) -> Result<Verified, Refused> {
        let exp = seconds(claims, "exp")?.ok_or(Refused::Invalid("the token has no `exp`"))?;
        let nbf = seconds(claims, "nbf")?.unwrap_or_default();
        let end = exp.after(self.leeway);
        let early = nbf.since(Timestamp::ZERO).saturating_sub(self.leeway);
        let tenant = match &self.tenant {
            TenantOf::Fixed(tenant) => tenant.clone(),
            TenantOf::Claim(path) => path
                .text(claims)
                .and_then(|text| Tenant::new(text).ok())
                .ok_or(Refused::Forbidden("the token names no tenant"))?,
        };
        let principal = self
            .principal
            .text(claims)
            .and_then(|text| Principal::new(text).ok())
            .ok_or(Refused::Forbidden("the token names no principal"))?;
        let scopes = self.scopes(claims)?;
        let identity = Identity::verified(tenant, Some(principal), self.reach)
            .limited(scopes, Some(system_time(end)));
        Ok(Verified { identity, not_before: Timestamp::ZERO.after(early), end })
    }

    /// A token that says nothing of scopes has none: what is not granted is not allowed.
    fn scopes(&self, claims: &Value) -> Result<Scopes, Refused> {
        let wrong = Refused::Forbidden("the scopes of the token are not scopes");
        let names: Option<Vec<&str>> = match self.scope.find(claims) {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(Value::String(text)) => Some(text.split_ascii_whitespace().collect()),
            Some(Value::Array(list)) => list.iter().map(Value::as_str).collect(),
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => None,
        };
        Scopes::only(names.ok_or(wrong)?).map_err(|_| wrong)
    }
}

/// The point in time that a claim names in seconds since 1970.
fn seconds(claims: &Value, name: &str) -> Result<Option<Timestamp>, Refused> {
    const WRONG: Refused = Refused::Invalid("a time of the token is not a number of seconds");
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let whole = value.as_u64().map(Duration::from_secs);
    // Parts of a second are allowed, and some issuers write them.
    let parted = || value.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let since = whole.or_else(parted).ok_or(WRONG)?;
    Ok(Some(Timestamp::ZERO.after(since)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> ClaimPath {
        ClaimPath::parse(text).unwrap()
    }

    fn rules() -> ClaimRules {
        ClaimRules {
            tenant: TenantOf::Claim(path("org.id")),
            principal: path("sub"),
            scope: path("scope"),
            reach: Reach::Subject,
            leeway: Duration::from_secs(30),
        }
    }

    #[test]
    fn a_claim_is_found_by_dots_or_by_a_pointer() {
        let claims = json!({
            "tenant": "a", "org": { "id": "b" }, "list": ["x"],
            "https://example.com/tenant": "c", "a.b": { "~": "d" },
        });
        let table = [
            ("tenant", Some("a")),
            ("/tenant", Some("a")),
            ("org.id", Some("b")),
            ("/org/id", Some("b")),
            ("/https:~1~1example.com~1tenant", Some("c")),
            ("/a.b/~0", Some("d")),
            ("org", None),
            ("org.id.more", None),
            ("list.0", None),
            ("/list/0", None),
            ("nobody", None),
        ];
        for (text, expected) in table {
            assert_eq!(path(text).text(&claims), expected, "{text}");
        }
        for bad in ["", "/", "a..b", ".a", "a.", "/a//b", "/~2", "/a~", &"a.".repeat(9)] {
            assert!(ClaimPath::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ClaimPath::parse(&"x".repeat(256)).is_err());
    }

    #[test]
    fn what_claims_come_to_is_this_table() {
        let with = |more: Value| {
            let mut claims = json!({ "org": { "id": "acme" }, "sub": "ann", "exp": 1_000 });
            for (name, value) in more.as_object().unwrap() {
                claims[name] = value.clone();
            }
            match rules().read(&claims) {
                Ok(Verified { identity, .. }) => {
                    let scopes = ["a", "b"].map(|scope| identity.may(scope));
                    format!("{} {scopes:?}", identity.principal().unwrap().as_str())
                }
                Err(refused) => format!("{}: {}", refused.code_name(), refused.reason()),
            }
        };
        let no_tenant = "identity_forbidden: the token names no tenant";
        let no_principal = "identity_forbidden: the token names no principal";
        let no_scopes = "identity_forbidden: the scopes of the token are not scopes";
        let no_time = "identity_invalid: a time of the token is not a number of seconds";
        let table = [
            (json!({}), "ann [false, false]"),
            (json!({ "scope": "a  c" }), "ann [true, false]"),
            (json!({ "scope": ["a", "b"] }), "ann [true, true]"),
            (json!({ "scope": null }), "ann [false, false]"),
            (json!({ "scope": 7 }), no_scopes),
            (json!({ "scope": [7] }), no_scopes),
            (json!({ "scope": ["a b"] }), no_scopes),
            (json!({ "org": "acme" }), no_tenant),
            (json!({ "org": { "id": "" } }), no_tenant),
            (json!({ "org": { "id": 7 } }), no_tenant),
            (json!({ "org": { "id": "a\nb" } }), no_tenant),
            (json!({ "sub": "" }), no_principal),
            (json!({ "sub": null }), no_principal),
            (json!({ "sub": "x".repeat(256) }), no_principal),
            (json!({ "exp": "soon" }), no_time),
            (json!({ "exp": -1 }), no_time),
            (json!({ "exp": null }), no_time),
            (json!({ "nbf": [] }), no_time),
        ];
        for (more, expected) in table {
            assert_eq!(with(more.clone()), expected, "{more}");
        }
        let bare = rules().read(&json!({})).unwrap_err();
        assert_eq!(bare.reason(), "the token has no `exp`");
    }

    #[test]
    fn a_token_is_good_between_its_times_and_a_leeway_beyond() {
        let claims = json!({ "org": { "id": "a" }, "sub": "b", "nbf": 100, "exp": 200.5 });
        let verified = rules().read(&claims).unwrap();
        let at = |ms| verified.judge(Timestamp::from_millis(ms)).map_err(|r| r.reason());
        assert_eq!(at(69_999), Err("the token is not good yet"));
        assert_eq!(at(70_000), Ok(()));
        assert_eq!(at(230_499), Ok(()));
        assert_eq!(at(230_500), Err("the token has expired"));
        let end = system_time(Timestamp::from_millis(230_500));
        assert_eq!(verified.identity.expires_at(), Some(end));
    }
}
