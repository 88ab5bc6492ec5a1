//! What is counted, under which name, and what the numbers must add up to.
//!
//! Numbers only: this file never looks at a store or a file, and never rounds anything away.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// One thing that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Sent,
    Executed,
    Recoveries,
    Unheard,
    Replayed,
    Refused,
    Unknown,
    Freed,
    LedgerLines,
    Twice,
}

impl Count {
    /// Every count, in the order of the table.
    pub(super) const ALL: [Self; 10] = [
        Self::Sent,
        Self::Executed,
        Self::Recoveries,
        Self::Unheard,
        Self::Replayed,
        Self::Refused,
        Self::Unknown,
        Self::Freed,
        Self::LedgerLines,
        Self::Twice,
    ];

    /// The name in JSON.
    const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Executed => "executed",
            Self::Recoveries => "recoveries",
            Self::Unheard => "unheard",
            Self::Replayed => "replayed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Freed => "freed",
            Self::LedgerLines => "ledger_lines",
            Self::Twice => "executed_twice",
        }
    }

    /// The word for it inside a sentence.
    const fn word(self) -> &'static str {
        match self {
            Self::Recoveries => "recovered",
            Self::LedgerLines => "in the ledger",
            Self::Twice => "executed twice",
            Self::Sent
            | Self::Executed
            | Self::Unheard
            | Self::Replayed
            | Self::Refused
            | Self::Unknown
            | Self::Freed => self.name(),
        }
    }

    /// The name in the table, and what it means.
    pub(super) const fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Sent => ("sent", "requests to the gateway"),
            Self::Executed => ("executed", "requests that reached the API, counted by itself"),
            Self::Recoveries => ("  as recoveries", "told that the effect may be there already"),
            Self::Unheard => ("  unheard", "the caller hung up, or the gateway was killed"),
            Self::Replayed => ("replayed", "got the first answer again, marked as such"),
            Self::Refused => ("refused", "the same key, another body"),
            Self::Unknown => ("unknown", "told that nobody knows, not tried again unasked"),
            Self::Freed => ("freed", "the API was down: nothing was sent, the key is free"),
            Self::LedgerLines => ("ledger lines", "the side effect, read from the file again"),
            Self::Twice => ("executed twice", "lines beyond the first for the same thing"),
        }
    }
}

/// A number for everything that is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts([u64; Count::ALL.len()]);

impl Counts {
    /// These numbers, and zero for the rest.
    pub(super) fn of(numbers: &[(Count, u64)]) -> Self {
        let mut counts = Self::default();
        for (count, number) in numbers {
            counts.add(*count, *number);
        }
        counts
    }

    pub(super) const fn get(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    pub(super) const fn add(&mut self, count: Count, number: u64) {
        self.0[count as usize] += number;
    }

    /// What was added since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] - before.0[i]))
    }

    /// What cannot be true of the end of a demo, in words.
    pub(super) fn contradiction(&self) -> Option<String> {
        let ends = [Count::Executed, Count::Replayed, Count::Refused, Count::Unknown, Count::Freed];
        let ended: u64 = ends.iter().map(|end| self.get(*end)).sum();
        let sent = self.get(Count::Sent);
        (sent != ended).then(|| format!("{sent} requests were sent, {ended} are accounted for"))
    }
}

/// What is not zero, in one line: `20 sent, 1 executed, 19 replayed`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = Count::ALL.into_iter().filter(|count| self.get(*count) > 0);
        let words: Vec<String> =
            said.map(|count| format!("{} {}", grouped(self.get(count)), count.word())).collect();
        f.write_str(&if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Count::ALL.len()))?;
        for count in Count::ALL {
            map.serialize_entry(count.name(), &self.get(count))?;
        }
        map.end()
    }
}

/// `1032` as `1,032`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        text.extend(comma(at).then_some(','));
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_a_place_of_its_own() {
        for (place, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, place, "{count:?}");
        }
    }

    #[test]
    fn a_scene_is_what_was_added_since_it_began() {
        let before = Counts::of(&[(Count::Sent, 2), (Count::Executed, 1)]);
        let after = Counts::of(&[(Count::Sent, 5), (Count::Executed, 1), (Count::Replayed, 3)]);
        assert_eq!(after.since(&before).to_string(), "3 sent, 3 replayed");
        assert_eq!(after.since(&after).to_string(), "nothing");
    }

    #[test]
    fn a_request_that_nobody_can_account_for_is_a_contradiction() {
        let sound = Counts::of(&[(Count::Sent, 3), (Count::Executed, 1), (Count::Replayed, 2)]);
        assert_eq!(sound.contradiction(), None);
        let mut lost = sound;
        lost.add(Count::Sent, 1);
        let expected = "4 requests were sent, 3 are accounted for";
        assert_eq!(lost.contradiction().as_deref(), Some(expected));
    }

    #[test]
    fn json_has_the_order_of_the_table_and_every_number() {
        let json = serde_json::to_string(&Counts::of(&[(Count::Sent, 1)])).unwrap();
        assert!(json.starts_with(r#"{"sent":1,"executed":0,"recoveries":0,"#), "{json}");
        assert!(json.ends_with(r#""ledger_lines":0,"executed_twice":0}"#), "{json}");
    }

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1_000, 1_032, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,032", "1,234,567"]);
    }
}
