//! One call: its attempts, all under one identity, and what they come to together.
//!
//! Whether there is another attempt is decided by a function of values in hand. What an earlier
//! attempt may have done is never forgotten because a later one did nothing, and no attempt follows
//! one whose outcome is unknown unless the provider recognises it. Nothing here knows a store.

use std::time::{Duration, SystemTime};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use onetake_core::{Finality, Status};
use onetake_engine::Mint;
use tokio::time::{Instant, sleep};

use super::call::{HttpCall, HttpResult, kept, media_type};
use super::failure::{HttpFailure, LostCause, NotSentCause};
use super::send::{Miss, Opened, Read, Wire, read, read_some};
use super::settings::HttpSettings;
use crate::reply::Ending;

/// The most bytes that are read of an answer which is not kept.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// What a provider that is still busy with the first request says to the second.
const CONFLICT: u16 = 409;

/// How the caller wants the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// Whole, unless it is a stream by its type.
    Result,
    /// As it comes.
    Stream,
}

/// How a call is made, the same for all its attempts.
pub(super) struct Making<'a> {
    pub(super) wire: &'a Wire,
    pub(super) settings: &'a HttpSettings,
    pub(super) call: &'a HttpCall,
    pub(super) identity: HeaderName,
    pub(super) id: HeaderValue,
    pub(super) wants: Wants,
    /// Whether the provider recognises a second request.
    pub(super) is_recognised: bool,
    /// Whether the provider may have been called before.
    pub(super) is_recovery: bool,
}

/// What a call comes to.
pub(super) enum Made {
    /// It is over.
    Over(Ending<HttpResult, HttpFailure>),
    /// It was answered, with a stream.
    Stream(Opened),
}

/// What one attempt comes to.
enum Attempted {
    /// There is nothing more to do.
    Made(Made),
    /// Something that another attempt may change.
    Setback(Setback),
    /// As if nothing had been sent.
    Free(Refusal),
}

/// Why one attempt was not enough.
#[derive(Debug)]
enum Setback {
    NotSent(NotSentCause),
    Refused(Refusal),
    Lost(LostCause),
}

/// An answer that is not kept.
#[derive(Debug)]
struct Refusal {
    answer: HttpResult,
    retry_after: Option<Duration>,
}

impl Making<'_> {
    /// Makes the call.
    pub(super) async fn make(&self) -> Made {
        let until = Instant::now() + self.settings.within;
        let (mut course, mint) = (Course::default(), Mint::default());
        loop {
            course.attempts += 1;
            let setback = match self.attempt(until, course.lost).await {
                Attempted::Made(made) => return made,
                Attempted::Free(refusal) => return Made::Over(course.freed(refusal)),
                Attempted::Setback(setback) => setback,
            };
            let pause = self.after(&mut course, setback, until, mint.spread());
            let Some(pause) = pause else { return Made::Over(course.ending()) };
            sleep(pause).await;
        }
    }

    /// Notes a setback, and says how long to wait before the next attempt, if there is one.
    fn after(
        &self,
        course: &mut Course,
        setback: Setback,
        until: Instant,
        spread: u64,
    ) -> Option<Duration> {
        let attempt = course.attempts;
        match &setback {
            Setback::NotSent(why) => tracing::debug!(attempt, %why, "a call was not sent"),
            Setback::Refused(refusal) => {
                tracing::debug!(attempt, status = refusal.answer.status, "a call was not taken");
            }
            Setback::Lost(why) => tracing::warn!(attempt, %why, "a call was sent and broke off"),
        }
        let left = until.saturating_duration_since(Instant::now());
        let asked = course.note(setback);
        course.pause(self.settings, self.is_recognised, asked, left, spread)
    }

    async fn attempt(&self, until: Instant, was_lost: bool) -> Attempted {
        let until = until.min(Instant::now() + self.call.timeout.min(self.settings.within));
        let request = self.call.request(&self.identity, self.id.clone());
        let opened = match self.wire.open(request, until).await {
            Ok(opened) => opened,
            Err(Miss::NotSent(why)) => return Attempted::Setback(Setback::NotSent(why)),
            Err(Miss::Lost(why)) => return Attempted::Setback(Setback::Lost(why)),
        };
        let status = opened.response.status().as_u16();
        match self.finality(status, was_lost) {
            Finality::Final if self.is_stream(&opened) => Attempted::Made(Made::Stream(opened)),
            Finality::Final => self.result(opened, until).await,
            Finality::Retryable => {
                Attempted::Setback(Setback::Refused(self.refusal(opened, until).await))
            }
            Finality::Free => Attempted::Free(self.refusal(opened, until).await),
            Finality::Unknown => Attempted::Setback(Setback::Lost(LostCause::Status)),
        }
    }

    /// What becomes of an answer with this status.
    fn finality(&self, status: u16, was_lost: bool) -> Finality {
        // A request whose answer was lost may still be under way at the provider. That the second
        // one is in its way says nothing of what came of the first.
        if status == CONFLICT && (was_lost || self.is_recovery) {
            return Finality::Retryable;
        }
        // RFC 9110 §15: a status out of range is one of a broken server.
        let broken = || Status::new(500).expect("invariant: 500 is a status");
        self.settings.statuses.finality(Status::new(status).unwrap_or_else(broken))
    }

    fn is_stream(&self, opened: &Opened) -> bool {
        let response = &opened.response;
        let is_wanted = match self.wants {
            Wants::Stream => true,
            Wants::Result => {
                media_type(response.headers()).is_some_and(|it| it == "text/event-stream")
            }
        };
        is_wanted && response.status().is_success()
    }

    async fn result(&self, opened: Opened, until: Instant) -> Attempted {
        let Opened { response, .. } = opened;
        let (head, body) = response.into_parts();
        let (status, bytes_max) = (head.status.as_u16(), self.settings.response_bytes_max);
        let ending = match read(body, bytes_max, until).await {
            Ok(Read::Whole(body)) => {
                Ending::Succeeded(HttpResult { status, headers: kept(&head.headers), body })
            }
            Ok(Read::TooLarge) => Ending::Failed(HttpFailure::TooLarge { status, bytes_max }),
            Err(why) => return Attempted::Setback(Setback::Lost(why)),
        };
        Attempted::Made(Made::Over(ending))
    }

    async fn refusal(&self, opened: Opened, until: Instant) -> Refusal {
        let Opened { response, .. } = opened;
        let (head, body): (_, Incoming) = response.into_parts();
        let retry_after = retry_after(&head.headers, SystemTime::now());
        let bytes_max = self.settings.response_bytes_max.min(REFUSAL_BYTES_MAX);
        let body = read_some(body, bytes_max, until).await;
        let (status, headers) = (head.status.as_u16(), kept(&head.headers));
        Refusal { answer: HttpResult { status, headers, body }, retry_after }
    }
}

/// What the attempts so far came to.
#[derive(Debug, Default)]
struct Course {
    attempts: u32,
    /// Whether one of them was sent and never answered.
    lost: bool,
    /// The last answer.
    refusal: Option<Refusal>,
    /// Why nothing was sent, the last time.
    not_sent: Option<NotSentCause>,
}

impl Course {
    /// Notes what an attempt came to; gives how long the provider asked to be left alone.
    fn note(&mut self, setback: Setback) -> Option<Duration> {
        match setback {
            Setback::NotSent(why) => {
                self.not_sent = Some(why);
                None
            }
            Setback::Refused(refusal) => self.refusal.insert(refusal).retry_after,
            Setback::Lost(_) => {
                self.lost = true;
                None
            }
        }
    }

    /// How long to wait before the next attempt, with `left` until the call must end. `None`: there
    /// is no next attempt.
    fn pause(
        &self,
        settings: &HttpSettings,
        is_recognised: bool,
        asked: Option<Duration>,
        left: Duration,
        spread: u64,
    ) -> Option<Duration> {
        let asked = asked.unwrap_or_default();
        let may_go_on = is_recognised || !self.lost;
        if !may_go_on || self.attempts >= settings.attempts_max || asked > settings.retry_after_max
        {
            return None;
        }
        let pause = settings.backoff.delay(self.attempts, spread).max(asked);
        (pause < left).then_some(pause)
    }

    /// What a call comes to whose attempts are used up.
    fn ending(self) -> Ending<HttpResult, HttpFailure> {
        let attempts = self.attempts;
        match (self.lost, self.refusal) {
            (true, _) => Ending::Unknown,
            (false, Some(refusal)) => Ending::Retryable(refusal.failure(attempts)),
            (false, None) => {
                let why = self.not_sent.unwrap_or(NotSentCause::NoConnection);
                Ending::NotDispatched(HttpFailure::NotSent { why, attempts })
            }
        }
    }

    /// What a call comes to that was answered as if nothing had been sent.
    fn freed(self, refusal: Refusal) -> Ending<HttpResult, HttpFailure> {
        if self.lost {
            return Ending::Unknown;
        }
        Ending::NotDispatched(refusal.failure(self.attempts))
    }
}

impl Refusal {
    fn failure(self, attempts: u32) -> HttpFailure {
        let Self { answer, retry_after } = self;
        let ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        HttpFailure::Unavailable { answer, retry_after_ms: retry_after.map(ms), attempts }
    }
}

/// How long a provider asks to be left alone: in seconds, or until a date, which is compared with
/// the provider's own clock where it says what that shows.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let asked = text(header::RETRY_AFTER)?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds are for ever.
        return Some(Duration::from_secs(asked.parse().unwrap_or(u64::from(u32::MAX))));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    let theirs = text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    Some(until.duration_since(theirs.unwrap_or(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use onetake_core::Backoff;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn settings() -> HttpSettings {
        let backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(8) };
        HttpSettings::new().attempts_max(3).backoff(backoff).retry_after_max(MINUTE / 2)
    }

    fn refused(status: u16, retry_after: Option<Duration>) -> Setback {
        let answer = HttpResult { status, headers: Vec::new(), body: "b".into() };
        Setback::Refused(Refusal { answer, retry_after })
    }

    /// The pause after these setbacks, in milliseconds, and what the call comes to without another
    /// attempt.
    fn course(setbacks: Vec<Setback>, is_recognised: bool, left: Duration) -> String {
        let (mut course, mut asked) = (Course::default(), None);
        for setback in setbacks {
            course.attempts += 1;
            asked = course.note(setback);
        }
        let pause = course.pause(&settings(), is_recognised, asked, left, 0);
        let pause = pause.map_or("over".into(), |pause| pause.as_millis().to_string());
        let ending = match course.ending() {
            Ending::Succeeded(_) | Ending::Failed(_) => panic!("no result"),
            Ending::Retryable(failure) => format!("retryable: {failure}"),
            Ending::NotDispatched(failure) => format!("freed: {failure}"),
            Ending::Unknown => "unknown".into(),
        };
        format!("{pause} | {ending}")
    }

    fn not_sent() -> Setback {
        Setback::NotSent(NotSentCause::Refused)
    }

    fn lost() -> Setback {
        Setback::Lost(LostCause::Reset)
    }

    /// W14, X3: whether there is another attempt, and what the call is without one.
    #[test]
    fn w14_x3_attempts_that_were_not_enough() {
        let busy =
            |attempts| format!("retryable: the provider answered 503, {attempts} attempts in all");
        let refusal = || refused(503, None);
        let unsent = "freed: the provider refused the connection; nothing was sent";
        let table = [
            (vec![refusal()], false, format!("500 | {}", busy(1))),
            (vec![refusal(), refusal()], false, format!("1000 | {}", busy(2))),
            (vec![refusal(), refusal(), refusal()], false, format!("over | {}", busy(3))),
            (vec![not_sent()], false, format!("500 | {unsent}, 1 attempts in all")),
            (
                vec![not_sent(), not_sent(), not_sent()],
                true,
                format!("over | {unsent}, 3 attempts in all"),
            ),
            (vec![lost()], false, "over | unknown".into()),
            (vec![lost()], true, "500 | unknown".into()),
            // What the first may have done is not forgotten because the second did nothing.
            (vec![lost(), not_sent()], true, "1000 | unknown".into()),
            (vec![lost(), refusal()], true, "1000 | unknown".into()),
            (vec![refusal(), not_sent()], false, format!("1000 | {}", busy(2))),
            (vec![refusal(), lost()], false, "over | unknown".into()),
        ];
        for (setbacks, is_recognised, wanted) in table {
            let shown = format!("{setbacks:?}");
            assert_eq!(course(setbacks, is_recognised, MINUTE), wanted, "{shown}");
        }
    }

    #[test]
    fn a_pause_that_the_provider_asks_for_is_kept_or_ends_the_call() {
        let after = |asked: u64, left| {
            let asked = Some(Duration::from_secs(asked));
            let told = course(vec![refused(429, asked)], false, left);
            told.split_once(" |").unwrap().0.to_owned()
        };
        assert_eq!(after(0, MINUTE), "500", "never sooner than without it");
        assert_eq!(after(7, MINUTE), "7000");
        assert_eq!(after(30, MINUTE), "30000");
        assert_eq!(after(31, MINUTE), "over", "longer than the settings allow");
        assert_eq!(after(7, MINUTE / 10), "over", "longer than the call may take");
        let told = course(vec![refused(429, Some(MINUTE))], false, MINUTE * 5);
        assert!(told.starts_with("over | retryable"), "{told}");
    }

    #[test]
    fn a_free_answer_frees_unless_an_attempt_was_lost() {
        let answer = || Refusal {
            answer: HttpResult { status: 401, headers: Vec::new(), body: "b".into() },
            retry_after: Some(MINUTE),
        };
        let plain = Course { attempts: 1, ..Course::default() }.freed(answer());
        let Ending::NotDispatched(failure) = plain else { panic!("{plain:?}") };
        assert_eq!(failure.retry_after(), Some(MINUTE));
        let course = Course { attempts: 2, lost: true, ..Course::default() };
        assert_eq!(course.freed(answer()), Ending::Unknown);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_providers_own_clock() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let date = |secs| httpdate::fmt_http_date(now + Duration::from_secs(secs));
        let asked = |retry: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(retry).unwrap());
            if let Some(date) = date {
                headers.insert(header::DATE, HeaderValue::from_str(date).unwrap());
            }
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(asked("120", None), Some(120));
        assert_eq!(asked(" 5 ", None), Some(5));
        assert_eq!(asked("99999999999999999999", None), Some(u64::from(u32::MAX)));
        assert_eq!(asked(&date(90), None), Some(90));
        assert_eq!(asked(&date(90), Some(&date(60))), Some(30), "its clock is ahead of ours");
        assert_eq!(asked(&date(0), Some(&date(60))), Some(0), "that is over");
        for nothing in ["", "soon", "-1", "1.5"] {
            assert_eq!(asked(nothing, None), None, "{nothing}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
