//! What is known of providers: how each is told which call it is, and whether it recognises one.
//!
//! A table and nothing else. A provider that is not in it is told as most would understand it, and
//! is deduplicated by the log alone.

use std::collections::BTreeMap;

use onetake_core::OnUnknown;

/// The header that most providers read.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that AWS reads.
pub const AMZN_TOKEN: &str = "x-amzn-idempotency-token";

/// What is known of one provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provider {
    /// The header that carries the identity of a call.
    pub header: &'static str,
    /// What becomes of a call whose outcome nobody knows: called again under the same identity,
    /// where the provider recognises that, or held for somebody to find out.
    pub on_unknown: OnUnknown,
}

impl Provider {
    /// One that recognises the identity of a call, so that a second one does nothing.
    #[must_use]
    pub const fn deduplicating(header: &'static str) -> Self {
        Self { header, on_unknown: OnUnknown::Retry }
    }

    /// One that may do twice what it is asked twice.
    #[must_use]
    pub const fn forgetful(header: &'static str) -> Self {
        Self { header, on_unknown: OnUnknown::Hold }
    }
}

/// Providers by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Providers(BTreeMap<String, Provider>);

impl Default for Providers {
    /// Those that are known: `stripe` and `aws` recognise a call; `openai` and `anthropic` are told
    /// and promise nothing.
    fn default() -> Self {
        let known = [
            ("anthropic", Provider::forgetful(IDEMPOTENCY_KEY)),
            ("aws", Provider::deduplicating(AMZN_TOKEN)),
            ("openai", Provider::forgetful(IDEMPOTENCY_KEY)),
            ("stripe", Provider::deduplicating(IDEMPOTENCY_KEY)),
        ];
        Self(known.map(|(name, provider)| (name.to_owned(), provider)).into())
    }
}

impl Providers {
    /// The same with one more provider, or with what is known of it replaced.
    #[must_use]
    pub fn with(mut self, name: &str, provider: Provider) -> Self {
        self.0.insert(name.to_owned(), provider);
        self
    }

    /// The provider of a call. Its name may say more than whose it is: `openai-chat`, `aws:sqs` and
    /// `stripe.charges` are calls of `openai`, `aws` and `stripe`, unless they are named
    /// themselves.
    #[must_use]
    pub fn of(&self, name: &str) -> Provider {
        let whose = name.split(['-', ':', '.', '/']).next().unwrap_or(name);
        let known = self.0.get(name).or_else(|| self.0.get(whose));
        known.copied().unwrap_or(Provider::forgetful(IDEMPOTENCY_KEY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W16, W17
    #[test]
    fn w16_w17_every_provider_is_told_by_the_header_that_it_reads() {
        let providers = Providers::default();
        let table = [
            ("stripe", IDEMPOTENCY_KEY, OnUnknown::Retry),
            ("stripe.charges", IDEMPOTENCY_KEY, OnUnknown::Retry),
            ("openai-chat", IDEMPOTENCY_KEY, OnUnknown::Hold),
            ("anthropic", IDEMPOTENCY_KEY, OnUnknown::Hold),
            ("aws:sqs", AMZN_TOKEN, OnUnknown::Retry),
            ("nobody-knows", IDEMPOTENCY_KEY, OnUnknown::Hold),
            ("awsome", IDEMPOTENCY_KEY, OnUnknown::Hold),
        ];
        for (name, header, on_unknown) in table {
            assert_eq!(providers.of(name), Provider { header, on_unknown }, "{name}");
        }
        let own = providers.with("openai-chat", Provider::deduplicating(IDEMPOTENCY_KEY));
        assert_eq!(own.of("openai-chat").on_unknown, OnUnknown::Retry);
        assert_eq!(own.of("openai-image").on_unknown, OnUnknown::Hold);
    }
}
