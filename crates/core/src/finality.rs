//! What becomes of an outcome: kept, kept but executed again, freed, or unknown.
//!
//! Each contract's answer is a total function over all 500 statuses, as data. A status here is one
//! that the executed party *sent*; a timeout or a broken connection has no status and is unknown in
//! every dialect. No other file may ask "is this a 4xx".

use std::fmt;
use std::ops::RangeInclusive;

use crate::outcome::Status;

/// What becomes of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Finality {
    /// Kept for the retention and given to every further attempt.
    Final,
    /// Recorded, but a further attempt with the same content executes again.
    Retryable,
    /// Not kept: the key is free, also for other content.
    Free,
    /// Nobody can say whether the effect happened.
    Unknown,
}

/// A total function from status to [`Finality`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusRules([Finality; 500]);

impl StatusRules {
    /// Every status means `finality`.
    #[must_use]
    pub const fn all(finality: Finality) -> Self {
        Self([finality; 500])
    }

    /// The same rules, except that `statuses` mean `finality`. Statuses that do not exist are
    /// passed over.
    #[must_use]
    pub const fn except(self, statuses: &[u16], finality: Finality) -> Self {
        let mut rules = self;
        let mut i = 0;
        while i < statuses.len() {
            rules = rules.span(statuses[i]..=statuses[i], finality);
            i += 1;
        }
        rules
    }

    /// The same rules, except that every status of `span` means `finality`.
    #[must_use]
    pub const fn span(mut self, span: RangeInclusive<u16>, finality: Finality) -> Self {
        let mut status = *span.start();
        while status <= *span.end() && status <= Status::MAX {
            if status >= Status::MIN {
                self.0[(status - Status::MIN) as usize] = finality;
            }
            status += 1;
        }
        self
    }

    /// What becomes of a response with this status.
    #[must_use]
    pub fn finality(&self, status: Status) -> Finality {
        self.0[usize::from(status.code() - Status::MIN)]
    }

    /// The default contract: everything is kept, 500 included (the handler may have charged before
    /// it failed), but what says that nothing was tried.
    #[must_use]
    pub const fn ietf() -> Self {
        Self::all(Finality::Final).except(&[401, 403, 407, 408, 409, 425, 429, 503], Finality::Free)
    }

    /// Everything is kept once execution began.
    #[must_use]
    pub const fn stripe() -> Self {
        Self::all(Finality::Final).except(&[401, 429], Finality::Free)
    }

    /// 2xx and 4xx are kept, except those that are no final answer. 429 and 5xx are recorded, never
    /// given again, and replaced by what a retry yields.
    #[must_use]
    pub const fn openwop() -> Self {
        Self::all(Finality::Free)
            .span(200..=299, Finality::Final)
            .span(400..=499, Finality::Final)
            .except(&[400, 401, 403, 408], Finality::Free)
            .except(&[429], Finality::Retryable)
            .span(500..=599, Finality::Retryable)
    }

    /// Only 2xx is kept.
    #[must_use]
    pub const fn davepi() -> Self {
        Self::all(Finality::Free).span(200..=299, Finality::Final)
    }

    /// Whatever the handler returned is kept.
    #[must_use]
    pub const fn cnerium() -> Self {
        Self::all(Finality::Final)
    }
}

/// Runs of equal finality, one a line, such as `200-299 Final`.
impl fmt::Debug for StatusRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut from = 0;
        while from < self.0.len() {
            let run = self.0[from..].iter().take_while(|&&next| next == self.0[from]).count();
            writeln!(f, "{}-{} {:?}", from + 100, from + 99 + run, self.0[from])?;
            from += run;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole of a dialect as text, so that a reader checks the contract without reading Rust.
    fn check(rules: &StatusRules, expected: &[&str]) {
        assert_eq!(format!("{rules:?}").lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn c6_ietf_keeps_everything_but_what_was_not_tried() {
        check(
            &StatusRules::ietf(),
            &[
                "100-400 Final",
                "401-401 Free",
                "402-402 Final",
                "403-403 Free",
                "404-406 Final",
                "407-409 Free",
                "410-424 Final",
                "425-425 Free",
                "426-428 Final",
                "429-429 Free",
                "430-502 Final",
                "503-503 Free",
                "504-599 Final",
            ],
        );
    }

    #[test]
    fn stripe_keeps_everything_once_execution_began() {
        check(
            &StatusRules::stripe(),
            &["100-400 Final", "401-401 Free", "402-428 Final", "429-429 Free", "430-599 Final"],
        );
    }

    /// W7: 400, 401 and 403 are never kept. W8: 2xx and non-retryable 4xx are final; 429, 500, 502,
    /// 503 and 504 are never given again.
    #[test]
    fn w7_w8_openwop_keeps_final_answers_only() {
        check(
            &StatusRules::openwop(),
            &[
                "100-199 Free",
                "200-299 Final",
                "300-401 Free",
                "402-402 Final",
                "403-403 Free",
                "404-407 Final",
                "408-408 Free",
                "409-428 Final",
                "429-429 Retryable",
                "430-499 Final",
                "500-599 Retryable",
            ],
        );
    }

    /// D8
    #[test]
    fn d8_davepi_keeps_2xx_and_frees_the_rest() {
        check(&StatusRules::davepi(), &["100-199 Free", "200-299 Final", "300-599 Free"]);
    }

    /// C6: a validation error that the handler returned is an answer like any other.
    #[test]
    fn c6_cnerium_keeps_whatever_the_handler_returned() {
        check(&StatusRules::cnerium(), &["100-599 Final"]);
    }

    #[test]
    fn a_route_may_override_single_statuses_and_spans_beyond_the_range_do_no_harm() {
        let rules = StatusRules::cnerium()
            .except(&[409, 0, 999], Finality::Unknown)
            .span(590..=u16::MAX - 1, Finality::Free);
        check(&rules, &["100-408 Final", "409-409 Unknown", "410-589 Final", "590-599 Free"]);
    }

    #[test]
    fn every_status_has_an_answer_in_every_dialect() {
        let dialects = [
            StatusRules::ietf(),
            StatusRules::stripe(),
            StatusRules::openwop(),
            StatusRules::davepi(),
            StatusRules::cnerium(),
        ];
        for rules in dialects {
            let answers = Status::all().map(|status| rules.finality(status));
            assert_eq!(answers.filter(|answer| *answer != Finality::Unknown).count(), 500);
        }
    }
}
