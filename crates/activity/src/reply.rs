//! From what a function returns to a [`Report`], and from an [`Answer`] to what the caller gets.
//!
//! Everyone gets the value from the kept bytes, the one who executed too, so nobody can see a value
//! that a retry would not.

use bytes::Bytes;
use onetake_core::{Cause, Outcome, Report};
use onetake_engine::{Answer, RunError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::ExecuteError;

/// How a function ended. Most return a plain `Result`; this says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending<T, E> {
    /// It succeeded.
    Succeeded(T),
    /// It failed; the policy keeps that or frees the key.
    Failed(E),
    /// It failed for now: recorded whatever the policy says, told to those who wait, and the next
    /// call executes again.
    Retryable(E),
    /// It failed before anything was sent, so the key is free whatever the policy says.
    NotDispatched(E),
    /// Its request was sent, and nobody can say what came of it.
    Unknown,
}

/// What a function may return: a `Result` or an [`Ending`].
pub trait IntoEnding {
    /// What it gives when it succeeds.
    type Value: Serialize + DeserializeOwned;
    /// What it gives when it fails.
    type Failure: Serialize + DeserializeOwned;

    /// How it ended.
    fn into_ending(self) -> Ending<Self::Value, Self::Failure>;
}

impl<T, E> IntoEnding for Result<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned,
{
    type Value = T;
    type Failure = E;

    fn into_ending(self) -> Ending<T, E> {
        match self {
            Ok(value) => Ending::Succeeded(value),
            Err(failure) => Ending::Failed(failure),
        }
    }
}

impl<T, E> IntoEnding for Ending<T, E>
where
    T: Serialize + DeserializeOwned,
    E: Serialize + DeserializeOwned,
{
    type Value = T;
    type Failure = E;

    fn into_ending(self) -> Self {
        self
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// This call executed the function.
    Executed,
    /// An earlier call did.
    Replayed,
    /// Another call was executing; this one waited for it.
    Joined,
    /// There was no key, so nothing is remembered.
    PassedThrough,
}

/// The value of a call, the same for every attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Take<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl<T> Take<T> {
    /// Whether another call executed the function.
    pub const fn is_repeat(&self) -> bool {
        matches!(self.source, Source::Replayed | Source::Joined)
    }
}

/// What a call of a function that returns `O` gives.
pub type Taken<O> =
    Result<Take<<O as IntoEnding>::Value>, ExecuteError<<O as IntoEnding>::Failure>>;

/// What the engine hears of an ending.
pub(crate) fn report<T: Serialize, E: Serialize>(ending: Ending<T, E>) -> Report {
    match ending {
        Ending::Succeeded(value) => Report::Finished(encode(&value, Outcome::Value)),
        Ending::Failed(failure) => Report::Finished(encode(&failure, Outcome::Failure)),
        Ending::Retryable(failure) => Report::Retryable(encode(&failure, Outcome::Failure)),
        Ending::NotDispatched(failure) => Report::NotDispatched(encode(&failure, Outcome::Failure)),
        Ending::Unknown => Report::Unknown(Cause::Reported),
    }
}

/// What cannot be written as JSON was still executed, and must never be executed again for that.
pub(crate) fn encode<T: Serialize>(value: &T, outcome: impl FnOnce(Bytes) -> Outcome) -> Outcome {
    match serde_json::to_vec(value) {
        Ok(json) => outcome(json.into()),
        Err(_) => Outcome::NotKept { status: None },
    }
}

/// What the caller gets.
pub(crate) fn reply<T, E>(answer: Result<Answer, RunError>) -> Result<Take<T>, ExecuteError<E>>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    match answer? {
        Answer::Executed { outcome, .. } => take(&outcome, Source::Executed),
        Answer::Replayed { outcome, .. } => take(&outcome, Source::Replayed),
        Answer::Joined { outcome, .. } => take(&outcome, Source::Joined),
        Answer::Freed => Err(ExecuteError::Freed),
        Answer::Mismatch => Err(ExecuteError::Mismatch),
        Answer::InFlight { retry_after } => Err(ExecuteError::ClaimedByAnother { retry_after }),
        Answer::StillExecuting { retry_after } => Err(ExecuteError::StillExecuting { retry_after }),
        Answer::Unknown { fence, since, cause } => {
            Err(ExecuteError::Unknown { fence, since, cause })
        }
    }
}

fn take<T, E>(outcome: &Outcome, source: Source) -> Result<Take<T>, ExecuteError<E>>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    match outcome {
        Outcome::Value(json) => Ok(Take { value: decode(json)?, source }),
        Outcome::Failure(json) => {
            let repeat = source != Source::Executed;
            Err(ExecuteError::Failed { failure: decode(json)?, repeat })
        }
        Outcome::NotKept { .. } => Err(ExecuteError::ResultNotKept),
        Outcome::Response { .. } => Err(ExecuteError::ResultOfOtherType("a response".into())),
    }
}

fn decode<T: DeserializeOwned, E>(json: &[u8]) -> Result<T, ExecuteError<E>> {
    // The words of the parser may quote the value, and a kept value does not belong in a log.
    serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        ExecuteError::ResultOfOtherType(format!("its JSON does not fit at {line}:{column}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Failure;

    #[test]
    fn an_ending_becomes_the_report_that_the_policy_judges() {
        let ok: Result<u32, Failure> = Ok(7);
        assert_eq!(report(ok.into_ending()), Report::Finished(Outcome::Value("7".into())));
        let failed: Result<u32, Failure> = Err(Failure::new("no"));
        let failure = || Outcome::Failure(r#"{"message":"no"}"#.into());
        assert_eq!(report(failed.into_ending()), Report::Finished(failure()));
        let refused = Ending::<u32, _>::NotDispatched(Failure::new("no"));
        assert_eq!(report(refused.into_ending()), Report::NotDispatched(failure()));
        let for_now = Ending::<u32, _>::Retryable(Failure::new("no"));
        assert_eq!(report(for_now), Report::Retryable(failure()));
        let unknown = Ending::<u32, Failure>::Unknown;
        assert_eq!(report(unknown), Report::Unknown(Cause::Reported));
    }

    #[test]
    fn a_value_that_json_cannot_hold_is_not_kept_and_says_so() {
        let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
        let ending: Ending<_, Failure> = Ending::Succeeded(odd);
        assert_eq!(report(ending), Report::Finished(Outcome::NotKept { status: None }));
        let kept = Outcome::NotKept { status: None };
        let got: Result<Take<u32>, ExecuteError<Failure>> = take(&kept, Source::Replayed);
        assert_eq!(got, Err(ExecuteError::ResultNotKept));
    }

    #[test]
    fn a_kept_result_of_another_type_is_named_and_not_guessed() {
        let kept = Outcome::Value(r#""text""#.into());
        let got: Result<Take<u32>, ExecuteError<Failure>> = take(&kept, Source::Replayed);
        let error = got.unwrap_err();
        assert_eq!(error.code().unwrap().as_str(), "result_of_other_type");
        assert!(!error.to_string().contains("text"), "{error}");
    }
}
