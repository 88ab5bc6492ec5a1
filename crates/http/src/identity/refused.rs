//! Why a caller was not let in: one code and one message for the caller, a reason for the log.
//!
//! Reasons are fixed texts, so none can ever hold a credential, and each is as short as it is
//! written here. What a caller reads never tells which of several faults it was.

use http::{HeaderValue, StatusCode};

/// A caller that was not let in. Nothing was executed.
///
/// `Display` is what the caller may read; [`reason`](Self::reason) is for the operator's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No credential came with the request.
    #[error("the request carries no credential that is taken here")]
    Missing(&'static str),
    /// A credential came, and it is none of ours, or no longer.
    #[error("the credential is not valid")]
    Invalid(&'static str),
    /// The credential is valid, but not for this.
    #[error("the credential does not allow this")]
    Forbidden(&'static str),
    /// Nobody can be verified at the moment; the same request may be sent again.
    #[error("credentials cannot be verified at the moment")]
    Unavailable(&'static str),
}

impl Refused {
    /// The stable name of this refusal.
    #[must_use]
    pub const fn code_name(&self) -> &'static str {
        match self {
            Self::Missing(_) => "identity_missing",
            Self::Invalid(_) => "identity_invalid",
            Self::Forbidden(_) => "identity_forbidden",
            Self::Unavailable(_) => "identity_unavailable",
        }
    }

    /// The status that goes with it, whatever the dialect.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Missing(_) | Self::Invalid(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What was wrong, for the operator's log. Not for the caller.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing(why)
            | Self::Invalid(why)
            | Self::Forbidden(why)
            | Self::Unavailable(why) => why,
        }
    }

    /// The value of `WWW-Authenticate` that goes with it, where a credential would help.
    #[must_use]
    pub const fn challenge(&self) -> Option<HeaderValue> {
        match self {
            Self::Missing(_) => Some(HeaderValue::from_static("Bearer")),
            Self::Invalid(_) => Some(HeaderValue::from_static("Bearer error=\"invalid_token\"")),
            Self::Forbidden(_) | Self::Unavailable(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_hears_is_this_table() {
        let why = "a reason for the log";
        let all = [
            Refused::Missing(why),
            Refused::Invalid(why),
            Refused::Forbidden(why),
            Refused::Unavailable(why),
        ];
        let line = |refused: &Refused| {
            let challenge = refused.challenge();
            let challenge = challenge.as_ref().map_or("-", |value| value.to_str().unwrap());
            let status = refused.status().as_u16();
            format!("{status} {} · {refused} · {challenge}", refused.code_name())
        };
        let expected = "\
401 identity_missing · the request carries no credential that is taken here · Bearer
401 identity_invalid · the credential is not valid · Bearer error=\"invalid_token\"
403 identity_forbidden · the credential does not allow this · -
503 identity_unavailable · credentials cannot be verified at the moment · -";
        assert_eq!(all.iter().map(line).collect::<Vec<_>>().join("\n"), expected);
        assert!(all.iter().all(|refused| refused.reason() == why));
        assert!(all.iter().all(|refused| !refused.to_string().contains(why)));
    }
}
