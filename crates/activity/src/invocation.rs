//! The identity of a side effect inside a workflow run.
//!
//! It names a *logical* call: the n-th one that a node of a run intends. A retry of the node, a
//! resumed run and a crashed worker name the same call, so the log recognises it; two calls that
//! are both intended have two names. Nothing here looks at what is asked.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onetake_core::{Key, NameError, Tenant};
use sha2::{Digest, Sha256};

/// How an identity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum IdentityForm {
    /// The current one: of tenant, run, node, ordinal and provider. No attempt is part of it.
    #[default]
    Current,
    /// The one of the first text: `runId:nodeId:attempt:providerKey`. The attempt must not be
    /// raised by a crash, a replay or a retry of the transport, or every retry would be a new
    /// call. The ordinal is not part of it, so a node may call each provider once.
    Source,
}

/// One logical side effect of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Invocation<'a> {
    /// Whose run it is.
    pub tenant: &'a Tenant,
    /// The run.
    pub run: &'a str,
    /// The node of the run that calls.
    pub node: &'a str,
    /// Which of the node's calls it is, from zero, in the order in which the node intends them.
    pub ordinal: u32,
    /// Which attempt of the node it is, from zero.
    pub attempt: u32,
    /// Which provider is called for what, such as `openai-chat`.
    pub provider: &'a str,
}

/// The name of a logical side effect: the same for every attempt at it, and a secret to nobody.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InvocationId(Key);

impl InvocationId {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(crate) const fn key(&self) -> &Key {
        &self.0
    }
}

impl fmt::Debug for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InvocationId({})", self.as_str())
    }
}

impl fmt::Display for InvocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a call has no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvocationError {
    /// A part is empty, too long, or holds what separates parts.
    #[error("the {part} of a call is 1 to 255 characters without control characters{also}")]
    Part {
        /// Which part.
        part: &'static str,
        /// What else it must not hold.
        also: &'static str,
    },
    /// In this form of identities a node may call each provider once.
    #[error("the node has called this provider before; in this form of identities it may once")]
    Again,
    /// The request cannot be compared with that of another attempt.
    #[error("the request of a call cannot be written as JSON")]
    Request,
    /// What the provider is said to read is not the name of a header.
    #[error("the header of the provider is not the name of one")]
    Header,
    /// It cannot be a key.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// The longest run, node or provider.
const PART_BYTES_MAX: usize = 255;

impl Invocation<'_> {
    /// The identity of this call.
    ///
    /// # Errors
    /// [`InvocationError::Part`] when a part could be taken for two.
    pub fn id(&self, form: IdentityForm) -> Result<InvocationId, InvocationError> {
        let text = match form {
            IdentityForm::Current => self.current()?,
            IdentityForm::Source => self.source()?,
        };
        Ok(InvocationId(Key::new(&text)?))
    }

    fn current(&self) -> Result<String, InvocationError> {
        self.parts(|_| true, "")?;
        let ordinal = self.ordinal.to_string();
        let parts = [
            "openwop:activity:v2",
            self.tenant.as_str(),
            self.run,
            self.node,
            &ordinal,
            self.provider,
        ];
        Ok(URL_SAFE_NO_PAD.encode(Sha256::digest(parts.join("\0"))))
    }

    fn source(&self) -> Result<String, InvocationError> {
        // Its parts are joined by colons. Only the last may hold one, or two calls could be one.
        self.parts(|part| !part.contains(':'), ", and a run or a node has no colon")?;
        let text = format!("{}:{}:{}:{}", self.run, self.node, self.attempt, self.provider);
        Ok(base16ct::lower::encode_string(&Sha256::digest(text)))
    }

    fn parts(
        &self,
        is_one: impl Fn(&str) -> bool,
        also: &'static str,
    ) -> Result<(), InvocationError> {
        let is_plain = |part: &str| {
            let is_short = !part.is_empty() && part.len() <= PART_BYTES_MAX;
            is_short && !part.chars().any(char::is_control)
        };
        for (part, text) in [("run", self.run), ("node", self.node)] {
            if !is_plain(text) || !is_one(text) {
                return Err(InvocationError::Part { part, also });
            }
        }
        if !is_plain(self.provider) {
            return Err(InvocationError::Part { part: "provider", also });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant() -> Tenant {
        Tenant::new("acme").unwrap()
    }

    fn call(tenant: &Tenant) -> Invocation<'_> {
        let (run, node, provider) = ("run-1", "N1", "openai-chat");
        Invocation { tenant, run, node, ordinal: 0, attempt: 0, provider }
    }

    fn id(call: &Invocation<'_>, form: IdentityForm) -> String {
        call.id(form).unwrap().to_string()
    }

    /// W11: fixed for ever; computed once with another program (`printf … | sha256sum`).
    #[test]
    fn w11_identities_are_those_of_the_texts() {
        let tenant = tenant();
        let source = "6d369c7a49ca881c417e45f653302b2a9e77c1d0de084c597b99221403862808";
        assert_eq!(id(&call(&tenant), IdentityForm::Source), source);
        let current = "WwlWYfFPtXv2E8LYjfEaq9zIa-N7ci_JGrNdtpjHPTk";
        assert_eq!(id(&call(&tenant), IdentityForm::Current), current);
    }

    /// W11
    #[test]
    fn w11_a_retry_is_the_same_call_and_a_second_call_is_another() {
        let tenant = tenant();
        let other = Tenant::new("other").unwrap();
        let call = call(&tenant);
        let current = |call: &Invocation<'_>| id(call, IdentityForm::Current);
        let retried = Invocation { attempt: 3, ..call.clone() };
        assert_eq!(current(&retried), current(&call));
        assert_ne!(id(&retried, IdentityForm::Source), id(&call, IdentityForm::Source));
        for another in [
            Invocation { ordinal: 1, ..call.clone() },
            Invocation { node: "N2", ..call.clone() },
            Invocation { run: "run-2", ..call.clone() },
            Invocation { provider: "openai-image", ..call.clone() },
            Invocation { tenant: &other, ..call.clone() },
        ] {
            assert_ne!(current(&another), current(&call), "{another:?}");
        }
    }

    #[test]
    fn parts_that_could_be_taken_for_two_are_refused() {
        let tenant = tenant();
        let call = call(&tenant);
        let long = "x".repeat(PART_BYTES_MAX + 1);
        for bad in ["", "a\0b", "a\nb", &long] {
            for call in [
                Invocation { run: bad, ..call.clone() },
                Invocation { node: bad, ..call.clone() },
                Invocation { provider: bad, ..call.clone() },
            ] {
                assert!(call.id(IdentityForm::Current).is_err(), "{call:?}");
            }
        }
        let colon = Invocation { node: "a:0", ..call.clone() };
        assert!(colon.id(IdentityForm::Current).is_ok());
        let refused = colon.id(IdentityForm::Source).unwrap_err();
        assert!(refused.to_string().contains("colon"), "{refused}");
        let last = Invocation { provider: "openai:chat", ..call };
        assert!(last.id(IdentityForm::Source).is_ok());
    }
}
