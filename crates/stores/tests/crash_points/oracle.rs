//! What must hold after a crash, wherever in the history it was.
//!
//! It opens the store that was left behind, looks, plays the whole history again as a caller would
//! who retries everything, and compares: with what was heard before the crash, with the effects
//! that happened outside, and once more with itself. It never looks at how the store does it.

use std::collections::BTreeMap;

use onetake_core::Phase;
use onetake_engine::{Engine, Found, Journal as _, Place as Spot, Position};
use onetake_stores::Embedded;

use super::history::{AFTER, BEFORE, Case, Kind, Place, booked, booking, bookings};

/// Every promise that does not hold in what a crash left behind.
pub(crate) async fn complaints(place: &Place) -> Vec<String> {
    let heard: BTreeMap<_, _> = place
        .heard
        .read()
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(case, answer)| (case.to_owned(), answer.to_owned()))
        .collect();
    let engine = place.open();
    let mut found = bookings_are_whole(&engine, &heard).await;
    let mut again = BTreeMap::new();
    for case in cases() {
        let answer = place.act(&engine, case).await;
        let before = heard.get(case.name).map(String::as_str);
        if !may_follow(case, before, &answer) {
            found.push(format!("{:?} heard {before:?}, and then {answer:?}", case.name));
        }
        again.insert(case.name, answer);
    }
    found.extend(effects_are_counted(place, &again));
    found.extend(bookings_are_whole(&engine, &heard).await);
    found.extend(nothing_moves(place, &engine, &again).await);
    engine.stop(std::time::Duration::from_secs(10)).await;
    found
}

fn cases() -> impl Iterator<Item = &'static Case> {
    BEFORE.iter().chain(AFTER)
}

/// Whether a caller who heard `before`, or nothing, may then hear `after` to the same.
fn may_follow(case: &Case, before: Option<&str>, after: &str) -> bool {
    let is_unknown = after.starts_with("unknown ");
    match before {
        // On record, and not given again: what a retry comes to takes its place.
        Some(before) if before.starts_with("response 503") => {
            after.starts_with("response 201 ") || is_unknown
        }
        // Whoever held the claim is gone.
        Some(before) if before.starts_with("claimed ") => {
            Some(after.replace("unknown", "claimed").as_str()) == Some(before)
        }
        // Free for whoever comes next, and somebody may have come.
        Some("given back") => after == "given back" || after.starts_with("value ") || is_unknown,
        Some(before) => after == before,
        None if case.name == "another body" => after == "mismatch",
        None => match case.kind {
            Kind::Pay | Kind::Settle => after.starts_with("value receipt ") || is_unknown,
            Kind::Unavailable => after.starts_with("response ") || is_unknown,
            // X3: a declared recovery executes, so it is never left at unknown.
            Kind::Recover => after.starts_with("value receipt "),
            // Nothing inside the store can be unknown.
            Kind::Book => after.starts_with("value booked "),
            Kind::Leave => after.starts_with("claimed ") || after == "in flight" || is_unknown,
            Kind::SettleBooking => after.starts_with("value booked ") || is_unknown,
            Kind::Release => after == "given back" || after.starts_with("value ") || is_unknown,
        },
    }
}

/// W12: a record, its document, its entry and its count are all there or none of them is.
async fn bookings_are_whole(
    engine: &Engine<Embedded>,
    heard: &BTreeMap<String, String>,
) -> Vec<String> {
    let store = engine.store();
    let lane = store.read_lane(&bookings(), Position(0), 100).await.unwrap().value.items;
    let (mut found, mut done) = (Vec::new(), 0);
    for case in cases().filter(|case| matches!(case.kind, Kind::Book | Kind::SettleBooking)) {
        if case.name == "the same booking" {
            continue;
        }
        let address = case.address();
        let places = [Spot::Slot(address.slot().clone()), Spot::Doc(booking(case))];
        let seen = store.fetch(&places).await.unwrap().value;
        let [Found::Slot(record), Found::Doc(document)] = seen.as_slice() else {
            unreachable!("a store answers what it was asked")
        };
        let is_done =
            record.as_ref().is_some_and(|record| matches!(record.phase, Phase::Done { .. }));
        let entries = lane.iter().filter(|entry| entry.value == case.operation()).count();
        if (is_done, usize::from(is_done)) != (document.is_some(), entries) {
            let doc = document.is_some();
            found.push(format!(
                "{:?} in parts: record {is_done}, document {doc}, entries {entries}",
                case.name
            ));
        }
        if heard.get(case.name).is_some_and(|answer| answer.starts_with("value")) && !is_done {
            found.push(format!("{:?} was answered and is gone", case.name));
        }
        done += i64::from(is_done);
    }
    let counted = store.fetch(&[Spot::Counter(booked())]).await.unwrap().value;
    if counted != [Found::Counter(done)] {
        found.push(format!("{done} bookings, counted as {counted:?}"));
    }
    let places: Vec<_> = lane.iter().map(|entry| entry.position.0).collect();
    if !places.iter().copied().eq(1..=places.len() as u64) {
        found.push(format!("the lane has gaps: {places:?}"));
    }
    found
}

/// One effect outside.
#[derive(Debug, PartialEq, Eq)]
struct Effect {
    attempt: u32,
    recovery: bool,
    fence: String,
}

fn effects(place: &Place) -> BTreeMap<String, Vec<Effect>> {
    let mut effects = BTreeMap::<String, Vec<Effect>>::new();
    for line in place.ledger.read() {
        let [operation, attempt, told, fence] =
            line.split(' ').collect::<Vec<_>>().try_into().expect("a line has four words");
        let (attempt, recovery) = (attempt.parse().unwrap(), told == "recovery");
        let effect = Effect { attempt, recovery, fence: fence.to_owned() };
        effects.entry(operation.to_owned()).or_default().push(effect);
    }
    effects
}

/// X3: at most one effect for each attempt that the rule allows, and every answer is about one that
/// happened.
fn effects_are_counted(place: &Place, again: &BTreeMap<&str, String>) -> Vec<String> {
    let effects = effects(place);
    let mut found = Vec::new();
    for (operation, effects) in &effects {
        let of = |kind| cases().any(|case| case.kind == kind && case.operation() == *operation);
        let mut attempts: Vec<_> = effects.iter().map(|effect| effect.attempt).collect();
        attempts.sort_unstable();
        let expected: Vec<_> = (1..).take(attempts.len()).collect();
        let untold = effects.iter().skip(1).filter(|effect| !effect.recovery).count();
        let is_allowed = match effects.len() {
            0 | 1 => true,
            2 if of(Kind::Unavailable) => attempts == expected,
            2 if of(Kind::Recover) => attempts == expected && untold == 0,
            _ => false,
        };
        if !is_allowed {
            found.push(format!("{operation} had {effects:?}"));
        }
    }
    for (name, answer) in again {
        let Some((_, receipt)) = answer.split_once("receipt for ") else { continue };
        let (operation, fence) = receipt.split_once(" by ").expect("a receipt names its fence");
        let of = effects.get(operation).map_or(&[][..], Vec::as_slice);
        if !of.iter().any(|effect| effect.fence == fence) {
            found.push(format!("{name:?} heard of an effect that never was: {answer:?}"));
        }
    }
    found
}

/// Whoever asks once more hears the same, and nothing happens again.
async fn nothing_moves(
    place: &Place,
    engine: &Engine<Embedded>,
    again: &BTreeMap<&str, String>,
) -> Vec<String> {
    let (mut found, ledger) = (Vec::new(), place.ledger.read());
    let later: BTreeMap<_, _> = cases().map(|case| (case.operation(), case)).collect();
    for case in later.values() {
        match case.kind {
            // A claim of this process is alive, which is another answer.
            Kind::Leave | Kind::Release => continue,
            Kind::Pay
            | Kind::Unavailable
            | Kind::Recover
            | Kind::Book
            | Kind::Settle
            | Kind::SettleBooking => {}
        }
        let (before, after) = (&again[case.name], place.act(engine, case).await);
        if *before != after {
            found.push(format!("{:?} heard {before:?}, and once more {after:?}", case.name));
        }
    }
    if place.ledger.read() != ledger {
        found.push("a further retry had an effect".into());
    }
    found
}
