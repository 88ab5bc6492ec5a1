//! The short history: one of everything that a caller can do, one after the other.
//!
//! It is played by a process that is ended somewhere in it, and then again from its beginning by
//! one that is not, as a caller would who never heard an answer. It judges nothing.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Ask, Asked, Fence, Key, OnUnknown, Operation, Outcome, Policy, Report, Scope, Status,
    StatusRules,
};
use onetake_engine::{
    Answer, Attempt, Counter, Doc, Effects, Engine, Lane, Need, Tried, View, Write,
};
use onetake_stores::{Embedded, crash_point};

use crate::common::options;

/// What is done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An effect outside; unknown is held.
    Pay,
    /// The first attempt comes to an answer that is on record and not given again.
    Unavailable,
    /// An effect outside; unknown is tried again, and told so.
    Recover,
    /// Effects inside, in one commit with the record.
    Book,
    /// A claim that nobody settles.
    Leave,
    /// A claim that is settled after an effect outside.
    Settle,
    /// A claim that is settled in one commit with effects inside.
    SettleBooking,
    /// A claim that is given back because nothing was done.
    Release,
}

/// One thing that a caller does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) tenant: &'static str,
    pub(crate) key: &'static str,
    body: &'static str,
}

impl Case {
    const fn new(name: &'static str, kind: Kind, whose: [&'static str; 3]) -> Self {
        let [tenant, key, body] = whose;
        Self { name, kind, tenant, key, body }
    }

    /// What the effects of this case are counted under.
    pub(crate) fn operation(&self) -> String {
        format!("{}/{}", self.tenant, self.key)
    }

    pub(crate) fn address(&self) -> Arc<Address> {
        let scope = Scope::tenant_named(self.tenant).unwrap();
        let operation = Operation::new("orders.create").unwrap();
        Arc::new(Address::new(scope, operation, Key::new(self.key).unwrap()))
    }

    fn ask(&self) -> Ask {
        let policy = match self.kind {
            Kind::Recover => Policy::builder().on_unknown(OnUnknown::Retry),
            Kind::Unavailable => Policy::builder().statuses(StatusRules::openwop()),
            Kind::Pay
            | Kind::Book
            | Kind::Leave
            | Kind::Settle
            | Kind::SettleBooking
            | Kind::Release => Policy::builder(),
        };
        let policy = Arc::new(policy.build().unwrap());
        Ask { address: self.address(), asked: Asked::raw(self.body), policy }
    }
}

/// What happens before the store is closed and opened again.
pub(crate) const BEFORE: &[Case] = &[
    Case::new("fresh", Kind::Pay, ["acme", "k1", "one"]),
    Case::new("the same again", Kind::Pay, ["acme", "k1", "one"]),
    Case::new("another body", Kind::Pay, ["acme", "k1", "two"]),
    Case::new("another tenant", Kind::Pay, ["globex", "k1", "one"]),
    Case::new("unavailable", Kind::Unavailable, ["acme", "k2", "one"]),
    Case::new("then available", Kind::Unavailable, ["acme", "k2", "one"]),
    Case::new("recoverable", Kind::Recover, ["acme", "k3", "one"]),
    Case::new("a booking", Kind::Book, ["acme", "k4", "one"]),
    Case::new("a claim that is left", Kind::Leave, ["acme", "k5", "one"]),
];

/// What happens after it.
pub(crate) const AFTER: &[Case] = &[
    Case::new("the same after opening", Kind::Pay, ["acme", "k1", "one"]),
    Case::new("the claim after opening", Kind::Leave, ["acme", "k5", "one"]),
    Case::new("another booking", Kind::Book, ["globex", "k4", "one"]),
    Case::new("the same booking", Kind::Book, ["acme", "k4", "one"]),
    Case::new("a claim that is settled", Kind::Settle, ["acme", "k6", "one"]),
    Case::new("a claim that books", Kind::SettleBooking, ["acme", "k7", "one"]),
    Case::new("a claim that is given back", Kind::Release, ["acme", "k8", "one"]),
    Case::new("and then used", Kind::Pay, ["acme", "k8", "one"]),
];

/// The documents, the lane and the counter of bookings.
pub(crate) fn booking(case: &Case) -> Doc {
    Doc { space: "bookings", key: case.operation().into() }
}

pub(crate) fn bookings() -> Lane {
    Lane(Bytes::from_static(b"bookings"))
}

pub(crate) fn booked() -> Counter {
    Counter(Bytes::from_static(b"booked"))
}

/// Lines in a file that are there once they were added, whatever happens to the process.
#[derive(Debug, Clone)]
pub(crate) struct Lines(PathBuf);

impl Lines {
    pub(crate) fn add(&self, line: &str) {
        let mut file = File::options().append(true).create(true).open(&self.0).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    pub(crate) fn read(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// Where a history takes place.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    folder: PathBuf,
    /// Every effect outside: operation, attempt, whether it is a recovery, fence.
    pub(crate) ledger: Lines,
    /// Every answer that a caller has heard: case, answer.
    pub(crate) heard: Lines,
}

impl Place {
    pub(crate) fn at(folder: &Path) -> Self {
        let lines = |name| Lines(folder.join(name));
        Self { folder: folder.join("store"), ledger: lines("ledger"), heard: lines("heard") }
    }

    pub(crate) fn open(&self) -> Engine<Embedded> {
        Engine::new(Embedded::open_with(&self.folder, options()).unwrap())
    }

    /// The whole history, with every answer kept before it goes on.
    pub(crate) async fn play(&self) {
        for cases in [BEFORE, AFTER] {
            let engine = self.open();
            for case in cases {
                let answer = self.act(&engine, case).await;
                crash_point("answered");
                self.heard.add(&format!("{}: {answer}", case.name));
                crash_point("heard");
            }
            engine.stop(std::time::Duration::from_secs(10)).await;
        }
    }

    /// Does what `case` says; gives what the caller hears.
    pub(crate) async fn act(&self, engine: &Engine<Embedded>, case: &Case) -> String {
        let ask = case.ask();
        match case.kind {
            Kind::Pay | Kind::Unavailable | Kind::Recover => {
                let (place, case) = (self.clone(), *case);
                let execute = move |attempt| async move { place.effect(&case, &attempt) };
                said(&engine.run(ask, execute).await.unwrap())
            }
            Kind::Book => {
                let effects = |view: &View| book(case, view);
                said(&engine.transact(ask, effects).await.unwrap())
            }
            Kind::Leave | Kind::Settle | Kind::SettleBooking | Kind::Release => {
                match engine.try_claim(&ask).await.unwrap() {
                    Tried::Answered(answer) => said(&answer),
                    Tried::Claimed(claim) => self.settle(engine, case, &ask, &claim).await,
                }
            }
        }
    }

    async fn settle(
        &self,
        engine: &Engine<Embedded>,
        case: &Case,
        ask: &Ask,
        claim: &onetake_engine::Claim,
    ) -> String {
        let (address, fence, policy) = (&claim.address, claim.fence, &ask.policy);
        match case.kind {
            Kind::Pay | Kind::Unavailable | Kind::Recover | Kind::Book | Kind::Leave => {
                format!("claimed {fence}")
            }
            Kind::Settle => {
                let key = Some(address.key().clone());
                let attempt = Attempt { key, fence, number: claim.attempt, recovery: false };
                let report = self.effect(case, &attempt);
                said(&engine.settle_claim(address, fence, policy, report).await.unwrap())
            }
            Kind::SettleBooking => {
                let effects = |view: &View| book(case, view);
                said(&engine.settle_claim_with(address, fence, policy, effects).await.unwrap())
            }
            Kind::Release => {
                let nothing = Report::NotDispatched(Outcome::NotKept { status: None });
                drop(engine.settle_claim(address, fence, policy, nothing).await.unwrap());
                "given back".into()
            }
        }
    }

    /// The effect outside, and what the executor reports of it.
    fn effect(&self, case: &Case, attempt: &Attempt) -> Report {
        crash_point("before-effect");
        let Attempt { number, recovery, fence, .. } = attempt;
        let told = if *recovery { "recovery" } else { "first" };
        self.ledger.add(&format!("{} {number} {told} {fence}", case.operation()));
        crash_point("after-effect");
        let receipt = receipt(case, *fence);
        Report::Finished(match (case.kind, number) {
            (Kind::Unavailable, 1) => response(503, "later"),
            (Kind::Unavailable, _) => response(201, receipt),
            (_, _) => Outcome::Value(receipt.into()),
        })
    }
}

fn response(status: u16, body: impl Into<Bytes>) -> Outcome {
    let status = Status::new(status).unwrap();
    Outcome::Response { status, headers: Vec::new(), body: body.into() }
}

/// What proves which effect an answer is about.
fn receipt(case: &Case, fence: Fence) -> String {
    format!("receipt for {} by {fence}", case.operation())
}

fn book(case: &Case, view: &View) -> Result<Effects, Need> {
    let before = view.counter(&booked())?;
    Ok(Effects::new(Outcome::Value(format!("booked after {before}").into()))
        .put(booking(case), "booked")
        .write(Write::Append(bookings(), case.operation().into()))
        .write(Write::Add(booked(), 1)))
}

/// An answer in words that are the same for everyone who gets the same outcome.
fn said(answer: &Answer) -> String {
    match answer {
        Answer::Executed { outcome, .. }
        | Answer::Replayed { outcome, .. }
        | Answer::Joined { outcome, .. } => match &**outcome {
            Outcome::Value(bytes) => format!("value {}", text(bytes)),
            Outcome::Response { status, body, .. } => {
                format!("response {} {}", status.code(), text(body))
            }
            Outcome::Failure(bytes) => format!("failure {}", text(bytes)),
            Outcome::NotKept { .. } => "not kept".into(),
        },
        Answer::Freed => "freed".into(),
        Answer::Mismatch => "mismatch".into(),
        Answer::InFlight { .. } => "in flight".into(),
        Answer::StillExecuting { .. } => "still executing".into(),
        Answer::Unknown { fence, .. } => format!("unknown {fence}"),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
