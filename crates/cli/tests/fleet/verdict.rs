//! What must be true after a run, with every node running again.
//!
//! Compares what callers heard, what the API counted, what operators see and what each node answers
//! now. A key that was answered once has that answer for ever.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use crate::api::{Api, Effect};
use crate::caller::Heard;
use crate::load::{Plan, Said, Wanted};
use crate::nodes::{Clock, Fleet};

/// How far clocks may be apart that are right: the run itself takes its time.
const ABOUT: Duration = Duration::from_secs(10 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// The retention when none is set.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// What became of the keys.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) done: usize,
    pub(crate) unknown: usize,
    pub(crate) free: usize,
    /// Executed more than once, and said so.
    pub(crate) again: usize,
}

/// A run that is over.
pub(crate) struct Verdict<'a> {
    fleet: &'a Fleet,
    api: &'a Api,
    plan: &'a Plan,
    said: &'a [Said],
    /// The phase of every key that has a record.
    phases: HashMap<String, String>,
    pub(crate) counts: Counts,
}

impl<'a> Verdict<'a> {
    /// Waits until every claim is settled or has lapsed.
    pub(crate) fn of(fleet: &'a Fleet, api: &'a Api, plan: &'a Plan, said: &'a [Said]) -> Self {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let records = fleet.settled();
        let phases = records.iter().map(|record| (text(&record["key"]), text(&record["phase"])));
        let (phases, counts) = (phases.collect(), Counts::default());
        Self { fleet, api, plan, said, phases, counts }
    }

    /// What every caller heard who heard that it was done: one answer.
    fn answer(&self, key: usize) -> Option<Heard> {
        let successes = self.said.iter().filter(|said| said.key == key && said.heard.is_success());
        let mut answers: Vec<_> = successes.map(|said| said.heard.kept()).collect();
        answers.dedup();
        let name = &self.plan.wanted[key].key;
        assert!(answers.len() <= 1, "{name} was answered in several ways: {answers:#?}");
        answers.pop()
    }

    /// What each node answers now; all of them the same.
    fn asked(&self, wanted: &Wanted) -> Heard {
        let nodes = self.fleet.nodes.iter();
        let heard: Vec<_> = nodes.map(|node| node.post(&wanted.key, &wanted.body)).collect();
        let replays = heard.iter().filter(|heard| heard.is_success() && !heard.is_replay()).count();
        assert!(replays <= 1, "{}: executed more than once: {heard:#?}", wanted.key);
        let kept: HashSet<_> = heard.iter().map(|heard| format!("{:?}", heard.kept())).collect();
        assert_eq!(kept.len(), 1, "{}: the nodes do not agree: {kept:#?}", wanted.key);
        heard[0].clone()
    }

    /// One of the clocks is an hour off, and no record shows it.
    pub(crate) fn clocks(&self, off: Clock) {
        let now = SystemTime::now();
        let apart = |one: SystemTime, other: SystemTime| {
            one.duration_since(other).unwrap_or_else(|error| error.duration())
        };
        let time = |heard: &Heard, name: &str| {
            httpdate::parse_http_date(heard.header(name).expect("every answer has it")).unwrap()
        };
        let (mut right, mut wrong) = (0, 0);
        for Said { node, heard, .. } in self.said.iter().filter(|said| said.heard.is_success()) {
            let expires = time(heard, "idempotency-expires");
            assert!(apart(expires, now + RETENTION) < ABOUT, "{heard:#?}");
            let date = time(heard, "date");
            let is_off = apart(date, now) + ABOUT > HOUR;
            assert_eq!(is_off, *node + 1 == self.fleet.nodes.len(), "{off:?}: {heard:#?}");
            if is_off { wrong += 1 } else { right += 1 }
        }
        assert!(right > 0 && wrong > 0, "{right} and {wrong} answers");
    }

    /// Everything happened at most once, whatever the records say.
    pub(crate) fn holds(&mut self) {
        for (index, wanted) in self.plan.wanted.iter().enumerate() {
            let (answer, name) = (self.answer(index), &wanted.key);
            let effects = self.api.effects_of(name);
            assert!(effects.len() <= 1, "{effects:#?}");
            match self.phases.get(name).map(String::as_str) {
                Some("done") => {
                    self.counts.done += 1;
                    let replay = self.asked(wanted);
                    assert!(replay.is_success() && replay.is_replay(), "{replay:#?}");
                    assert_eq!((effects.len(), effects[0].attempt), (1, 1), "{effects:#?}");
                    assert!(answer.is_none_or(|answer| answer == replay.kept()), "{replay:#?}");
                }
                Some("unknown") => {
                    self.counts.unknown += 1;
                    assert_eq!(answer, None, "{name}: it was answered, and nobody knows");
                    let held = self.asked(wanted);
                    let is_held = held.status == 409 && held.body.contains("outcome_unknown");
                    assert!(is_held, "{held:#?}");
                }
                None | Some("free") => {
                    self.counts.free += 1;
                    assert_eq!((answer, effects.len()), (None, 0), "{name} is free");
                    assert!(self.asked(wanted).is_success(), "{name} can be had");
                    assert_eq!(self.api.effects_of(name).len(), 1);
                    continue;
                }
                Some(other) => panic!("{name} is {other}"),
            }
            let now = self.api.effects_of(name).len();
            assert_eq!(now, effects.len(), "{name}: asking again had an effect");
        }
    }

    /// Everything comes to an end, and whatever happened once more was said to be a recovery.
    pub(crate) fn retries(&mut self) {
        for (index, wanted) in self.plan.wanted.iter().enumerate() {
            let (answer, name) = (self.answer(index), &wanted.key);
            let was_done = self.phases.get(name).is_some_and(|phase| phase == "done");
            let before = self.api.effects_of(name).len();
            assert!(was_done || answer.is_none(), "{name} was answered, and is not done");
            let last = self.asked(wanted);
            assert!(last.is_success(), "{last:#?}");
            assert!(answer.is_none_or(|answer| answer == last.kept()), "{last:#?}");
            let effects = self.api.effects_of(name);
            assert!(!was_done || effects.len() == before, "{name}: done, and done again");
            self.counts.done += 1;
            self.counts.again += usize::from(effects.len() > 1);
            told(name, &effects);
        }
    }
}

/// The API could have told every effect beyond the first: no two attempts have the same number, and
/// all but one say that they are a recovery.
fn told(name: &str, effects: &[Effect]) {
    let numbers: HashSet<_> = effects.iter().map(|effect| effect.attempt).collect();
    assert_eq!(numbers.len(), effects.len(), "{name}: {effects:#?}");
    for effect in effects {
        assert_eq!(effect.is_recovery, effect.attempt > 1, "{name}: {effects:#?}");
    }
    assert!(!effects.is_empty(), "{name} was answered without having happened");
}
