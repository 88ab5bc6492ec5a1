//! From what an effect returns to an [`Outcome`], and from a kept outcome to what the caller gets.
//!
//! Values and failures are kept as JSON, exactly as the door for functions keeps them, so each door
//! replays what the other did. Everyone gets the value from the kept bytes, the one who executed
//! too, so nobody can see a value that a retry would not.

use bytes::Bytes;
use onetake_core::{Finality, Outcome, Policy};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::InsideError;

/// The most bytes of a value or a failure: what an engine keeps by default.
pub(super) const OUTCOME_BYTES_MAX: usize = 10 * 1024 * 1024;

/// How an effect ended. Most return a plain `Result`; this says more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending<T, E> {
    /// It succeeded: its writes and its value are committed together.
    Succeeded(T),
    /// It failed. Its writes are undone; the policy keeps the failure or frees the key.
    Failed(E),
    /// It was refused, and a retry shall hear the same. Its writes are undone, the failure is kept
    /// whatever the policy says.
    Refused(E),
    /// It came to nothing. Its writes are undone and the key is free whatever the policy says.
    Undone(E),
}

impl<T, E> Ending<T, E> {
    /// A result of which only those failures are kept that `is_refusal` names: a refusal that no
    /// retry could change. A failure of the database never is one.
    pub fn refusing(result: Result<T, E>, is_refusal: impl FnOnce(&E) -> bool) -> Self {
        match result {
            Ok(value) => Self::Succeeded(value),
            Err(failure) if is_refusal(&failure) => Self::Refused(failure),
            Err(failure) => Self::Undone(failure),
        }
    }
}

/// What an effect may return: a `Result` or an [`Ending`].
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
    /// This call executed the effect; it counts once the caller has committed.
    Executed,
    /// An earlier call did, and its transaction is committed.
    Replayed,
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
    /// Whether another call executed the effect.
    pub const fn is_repeat(&self) -> bool {
        matches!(self.source, Source::Replayed)
    }
}

/// What a call with an effect that returns `O` gives.
pub type Taken<O> = Result<Take<<O as IntoEnding>::Value>, InsideError<<O as IntoEnding>::Failure>>;

/// What becomes of an effect.
pub(super) enum Ended<E> {
    /// Its writes stay, and this is recorded with them.
    Kept(Outcome),
    /// Its writes are undone, and this failure is recorded.
    Remembered(Outcome),
    /// Its writes are undone, and nothing is recorded.
    Undone(E),
}

/// What becomes of an effect that ended so, under `policy`.
pub(super) fn ended<T: Serialize, E: Serialize>(
    ending: Ending<T, E>,
    policy: &Policy,
) -> Result<Ended<E>, InsideError<E>> {
    let failure = match ending {
        Ending::Succeeded(value) => return encode(&value, Outcome::Value).map(Ended::Kept),
        Ending::Undone(failure) => return Ok(Ended::Undone(failure)),
        Ending::Refused(failure) => failure,
        // Whatever a policy makes of failures, inside a transaction none is unknown, and one that
        // may be tried again need not be on record.
        Ending::Failed(failure) => match policy.finality(&Outcome::Failure(Bytes::new())) {
            Finality::Final => failure,
            Finality::Retryable | Finality::Free | Finality::Unknown => {
                return Ok(Ended::Undone(failure));
            }
        },
    };
    encode(&failure, Outcome::Failure).map(Ended::Remembered)
}

/// What cannot be kept is not done either: the caller hears so, and its writes are undone.
fn encode<T: Serialize, E>(
    value: &T,
    outcome: impl FnOnce(Bytes) -> Outcome,
) -> Result<Outcome, InsideError<E>> {
    let json = serde_json::to_vec(value).map_err(|_| InsideError::ResultNotKeepable)?;
    if json.len() > OUTCOME_BYTES_MAX {
        return Err(InsideError::ResultTooLarge { bytes: json.len(), max: OUTCOME_BYTES_MAX });
    }
    Ok(outcome(json.into()))
}

/// What the caller gets of a kept outcome.
pub(super) fn take<T, E>(outcome: &Outcome, source: Source) -> Result<Take<T>, InsideError<E>>
where
    T: DeserializeOwned,
    E: DeserializeOwned,
{
    match outcome {
        Outcome::Value(json) => Ok(Take { value: decode(json)?, source }),
        Outcome::Failure(json) => {
            let repeat = source != Source::Executed;
            Err(InsideError::Failed { failure: decode(json)?, repeat })
        }
        Outcome::NotKept { .. } => Err(InsideError::ResultNotKept),
        Outcome::Response { .. } => Err(InsideError::ResultOfOtherType("a response".into())),
    }
}

fn decode<T: DeserializeOwned, E>(json: &[u8]) -> Result<T, InsideError<E>> {
    // The words of the parser may quote the value, and a kept value does not belong in a log.
    serde_json::from_slice(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        InsideError::ResultOfOtherType(format!("its JSON does not fit at {line}:{column}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ending: Ending<u32, String>, policy: &Policy) -> &'static str {
        match ended(ending, policy) {
            Ok(Ended::Kept(_)) => "kept with its writes",
            Ok(Ended::Remembered(_)) => "remembered without its writes",
            Ok(Ended::Undone(_)) => "undone",
            Err(_) => "an error",
        }
    }

    /// K9, W14: failures free the key by default, and are remembered where that was asked for.
    #[test]
    fn k9_w14_what_becomes_of_an_effect_is_said_by_its_ending_and_the_policy() {
        let (free, keep) = (Policy::default(), Policy::activity().build().expect("in bounds"));
        let failure = || "no".to_owned();
        let table = [
            (Ending::Succeeded(1), "kept with its writes", "kept with its writes"),
            (Ending::Failed(failure()), "undone", "remembered without its writes"),
            (
                Ending::Refused(failure()),
                "remembered without its writes",
                "remembered without its writes",
            ),
            (Ending::Undone(failure()), "undone", "undone"),
        ];
        for (ending, by_default, keeping) in table {
            assert_eq!(of(ending.clone(), &free), by_default, "{ending:?}");
            assert_eq!(of(ending.clone(), &keep), keeping, "{ending:?}");
        }
        let unknown = Policy::builder().failures(Finality::Unknown).build().expect("in bounds");
        assert_eq!(of(Ending::Failed(failure()), &unknown), "undone", "nothing is unknown here");
    }

    #[test]
    fn a_value_that_cannot_be_kept_is_an_error_and_not_a_silent_success() {
        let odd = std::collections::BTreeMap::from([((1, 2), 3)]);
        let refused = ended::<_, String>(Ending::Succeeded(odd), &Policy::default());
        assert!(matches!(refused, Err(InsideError::ResultNotKeepable)));
        let large = "x".repeat(OUTCOME_BYTES_MAX);
        let refused = ended::<_, String>(Ending::Succeeded(large), &Policy::default());
        let Err(InsideError::ResultTooLarge { bytes, max }) = refused else {
            panic!("ten mebibytes and two quotes")
        };
        assert_eq!((bytes, max), (OUTCOME_BYTES_MAX + 2, OUTCOME_BYTES_MAX));
    }

    #[test]
    fn a_kept_result_of_another_type_is_named_and_not_quoted() {
        let kept = Outcome::Value(r#""secret""#.into());
        let got: Result<Take<u32>, InsideError<String>> = take(&kept, Source::Replayed);
        let error = got.expect_err("text is no number");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(error.code().map(onetake_core::Code::as_str), Some("result_of_other_type"));
    }

    #[test]
    fn only_the_failures_that_are_named_are_refusals() {
        let refusing = |result| Ending::<u32, u32>::refusing(result, |failure| *failure == 1);
        assert_eq!(refusing(Ok(7)), Ending::Succeeded(7));
        assert_eq!(refusing(Err(1)), Ending::Refused(1));
        assert_eq!(refusing(Err(2)), Ending::Undone(2));
    }
}
