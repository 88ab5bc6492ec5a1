//! What a check of a store found, as data: what is damaged, where, and what to do about it.
//!
//! A store fills it in; this file only says what counts as damage and how it reads.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::out::{lines, table};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "no store has notes or warnings yet")]
pub(crate) enum Severity {
    /// Worth knowing.
    Note,
    /// Nothing is lost yet.
    Warning,
    /// Something cannot be true, or cannot be read.
    Damage,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// How bad it is.
    pub(crate) severity: Severity,
    /// Where: a file, an offset, a slot by its digest.
    pub(crate) place: String,
    /// What.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) advice: String,
}

/// What a check came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct CheckReport {
    /// Whether nothing is damaged.
    pub(crate) ok: bool,
    /// What was found, the worst first.
    pub(crate) findings: Vec<Finding>,
    /// How much was looked at, by name.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl CheckReport {
    /// A report of these findings and counts.
    pub(crate) fn of<'a>(
        mut findings: Vec<Finding>,
        counts: impl IntoIterator<Item = (&'a str, u64)>,
    ) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let ok = findings.iter().all(|finding| finding.severity < Severity::Damage);
        let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        Self { ok, findings, counts }
    }

    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let verdict = if self.ok { "ok: nothing is damaged" } else { "DAMAGED" };
        let counts: Vec<_> =
            self.counts.iter().map(|(name, count)| (name.as_str(), count.to_string())).collect();
        let mut text = format!("{verdict}\n{}", lines(&counts));
        if !self.findings.is_empty() {
            let word = |severity| match severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Damage => "DAMAGE",
            };
            let row = |finding: &Finding| {
                let Finding { severity, place, what, advice } = finding.clone();
                [word(severity).to_owned(), place, what, advice]
            };
            let rows: Vec<_> = self.findings.iter().map(row).collect();
            text.push_str("\n\n");
            text.push_str(&table(["SEVERITY", "PLACE", "WHAT", "WHAT TO DO"], &rows));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_the_worst_first_and_is_not_ok_with_damage() {
        let finding = |severity, place: &str| Finding {
            severity,
            place: place.to_owned(),
            what: "checksum".to_owned(),
            advice: "restore it".to_owned(),
        };
        let found = vec![finding(Severity::Note, "a"), finding(Severity::Damage, "b")];
        let report = CheckReport::of(found, [("records", 7)]);
        assert!(!report.ok);
        let expected = "\
DAMAGED
records  7

SEVERITY  PLACE  WHAT      WHAT TO DO
DAMAGE    b      checksum  restore it
note      a      checksum  restore it";
        assert_eq!(report.text(), expected);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["findings"][0]["severity"], "damage");
        let clean = CheckReport::of(vec![finding(Severity::Warning, "a")], []);
        assert!(clean.ok, "a warning is no damage");
    }
}
