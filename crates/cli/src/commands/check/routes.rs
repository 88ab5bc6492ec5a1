//! The routes of a configuration as a table that fits a terminal.
//!
//! What is as it is built in on every route is left out and named below; what all routes share in
//! place of it goes above. Where it is still too wide, each route is a paragraph. Shows no secret.

use onetake::core::Status;
use onetake::{Finality, Operation, Outcome};

use crate::config::{
    FingerprintConfig, KeyUse, RouteConfig, RouteSettings, in_flight_text, size_text, span_text,
    unknown_text,
};
use crate::out::{lines, table_of};

/// The widest table, in characters.
const WIDTH_MAX: usize = 100;
/// What a cell shows that says nothing.
const NOTHING: &str = "-";

/// What there is to say of routes.
pub(super) struct Shown {
    /// The upstream of all of them, where it is one.
    pub(super) shared: Option<String>,
    /// The table, and what was left out of it.
    pub(super) text: String,
}

/// A column: its head, what is built in, and what a route says.
struct Column {
    head: &'static str,
    /// None for a column that is never left out.
    built_in: Option<&'static str>,
    cell: fn(&RouteConfig) -> String,
}

const fn optional(
    head: &'static str,
    built_in: &'static str,
    cell: fn(&RouteConfig) -> String,
) -> Column {
    Column { head, built_in: Some(built_in), cell }
}

const UPSTREAM: Column =
    Column { head: "UPSTREAM", built_in: None, cell: |route| route.upstream.to_string() };

/// What a route that passes everything through says as well.
const ALWAYS: [Column; 2] = [
    Column { head: "MATCH", built_in: None, cell: |route| route.pattern.to_string() },
    Column { head: "OPERATION", built_in: None, cell: operation },
];
const REQUIRES: Column = optional("REQUIRES", NOTHING, |route| {
    route.settings.requires.as_ref().map_or(NOTHING.to_owned(), |word| word.0.clone())
});
const TIMEOUT: Column = optional("TIMEOUT", "30s", |route| {
    route.settings.policy.timeout().map_or_else(|| NOTHING.to_owned(), span_text)
});
/// What it does not.
const PROTECTED: [Column; 14] = [
    optional("DIALECT", "ietf", |route| route.settings.dialect.as_str().to_owned()),
    optional("KEY", "by dialect", |route| key(&route.settings)),
    optional("RETENTION", "24h", |route| span_text(route.settings.policy.retention())),
    optional("LEASE", "30s", |route| span_text(route.settings.policy.lease())),
    optional("IN FLIGHT", "wait 10s", |route| in_flight_text(&route.settings.policy)),
    optional("UNKNOWN", "hold", |route| unknown(&route.settings)),
    optional("MODE", "enforce", |route| route.settings.mode.as_str().to_owned()),
    optional("SCOPE", "principal", |route| route.settings.scope.as_str().to_owned()),
    optional("FINGERPRINT", "json body", |route| fingerprint(&route.settings.fingerprint)),
    optional("STATUSES", "by dialect", |route| statuses(&route.settings)),
    optional("STORE DOWN", "refuse", |route| route.settings.store_down.as_str().to_owned()),
    optional("FORWARD KEY", "raw", |route| route.settings.forward_key.as_str().to_owned()),
    optional("ANSWER WITHIN", NOTHING, |route| {
        route.settings.policy.answer_within().map_or_else(|| NOTHING.to_owned(), span_text)
    }),
    optional("MAX STORED RESPONSE", "10MiB", |route| size_text(route.settings.max_stored_response)),
];
const MAX_REQUEST: Column =
    optional("MAX REQUEST", "10MiB", |route| size_text(route.settings.max_request));

/// Arranges `routes`, of which there is at least one.
pub(super) fn shown(routes: &[RouteConfig]) -> Shown {
    let first = routes.first().map(|route| &route.upstream);
    let is_shared = routes.iter().all(|route| Some(&route.upstream) == first);
    let shared = first.filter(|_| is_shared).map(ToString::to_string);
    let mut columns: Vec<(&str, Vec<String>)> = Vec::new();
    let mut as_built_in = Vec::new();
    let mut add = |column: Column, is_for_all: bool| {
        let is_said = |route: &&RouteConfig| is_for_all || !route.passes_through;
        let is_plain = column.built_in.is_some_and(|built_in| {
            routes.iter().filter(is_said).all(|route| (column.cell)(route) == built_in)
        });
        if is_plain {
            let built_in = column.built_in.filter(|built_in| *built_in != NOTHING);
            let name = column.head.to_lowercase();
            as_built_in.extend(built_in.map(|built_in| format!("{name} {built_in}")));
            return;
        }
        let cell = |route: &RouteConfig| {
            if is_said(&route) { (column.cell)(route) } else { NOTHING.to_owned() }
        };
        columns.push((column.head, routes.iter().map(cell).collect()));
    };
    for column in ALWAYS {
        add(column, true);
    }
    if !is_shared {
        add(UPSTREAM, true);
    }
    add(REQUIRES, true);
    for column in PROTECTED {
        add(column, false);
    }
    add(TIMEOUT, true);
    add(MAX_REQUEST, true);
    let mut text = arranged(&columns);
    if !as_built_in.is_empty() {
        let words = as_built_in.join(", ");
        text = format!("{text}\n\n{}", wrapped(&format!("On every route as built in: {words}")));
    }
    Shown { shared, text }
}

/// A table, or a paragraph for each route where that is too wide.
fn arranged(columns: &[(&str, Vec<String>)]) -> String {
    let rows = columns.first().map_or(0, |(_, cells)| cells.len());
    let row = |at: usize| columns.iter().map(|(_, cells)| cells[at].clone()).collect();
    let head: Vec<String> = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let table = table_of(&head, &(0..rows).map(row).collect::<Vec<Vec<String>>>());
    if table.lines().all(|line| line.chars().count() <= WIDTH_MAX) {
        return table;
    }
    let names: Vec<String> = head.iter().map(|head| format!("  {}", head.to_lowercase())).collect();
    let paragraph = |at: usize| {
        let said =
            columns.iter().zip(&names).skip(1).filter(|((_, cells), _)| cells[at] != NOTHING);
        let pairs: Vec<_> = said.map(|((_, cells), name)| (&**name, cells[at].clone())).collect();
        format!("{}\n{}", columns[0].1[at], lines(&pairs))
    };
    (0..rows).map(paragraph).collect::<Vec<_>>().join("\n\n")
}

/// `text` in lines that fit, broken between its parts.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for part in text.split_inclusive(", ") {
        let last = lines.last_mut().expect("invariant: there is a line from the beginning");
        if last.chars().count() + part.trim_end().chars().count() > WIDTH_MAX {
            last.truncate(last.trim_end().len());
            lines.push(format!("  {part}"));
        } else {
            last.push_str(part);
        }
    }
    lines.join("\n")
}

fn operation(route: &RouteConfig) -> String {
    if route.passes_through {
        return "passes through".to_owned();
    }
    route.operation.as_ref().map_or("by match", Operation::as_str).to_owned()
}

fn key(settings: &RouteSettings) -> String {
    match settings.key {
        KeyUse::ByDialect => "by dialect".to_owned(),
        KeyUse::Required => "required".to_owned(),
        KeyUse::Optional => "optional".to_owned(),
        KeyUse::Fingerprint { window } => format!("fingerprint {}", span_text(window)),
    }
}

fn unknown(settings: &RouteSettings) -> String {
    match &settings.probe {
        Some(url) => format!("probe GET {url}"),
        None => unknown_text(&settings.policy).to_owned(),
    }
}

/// Statuses of which the route says something else than its dialect, from the first to the last.
fn statuses(settings: &RouteSettings) -> String {
    let usual = settings.dialect.statuses();
    let mut runs: Vec<(u16, u16, Finality)> = Vec::new();
    for code in 100..=599 {
        let Some(status) = Status::new(code) else { continue };
        let own = settings.policy.finality(&Outcome::NotKept { status: Some(status) });
        if own == usual.finality(status) {
            continue;
        }
        match runs.last_mut() {
            Some((_, last, said)) if *last + 1 == code && *said == own => *last = code,
            Some(_) | None => runs.push((code, code, own)),
        }
    }
    if runs.is_empty() {
        return "by dialect".to_owned();
    }
    let said = |(first, last, finality): &(u16, u16, Finality)| {
        let word = match finality {
            Finality::Final => "kept",
            Finality::Retryable => "retryable",
            Finality::Free => "freed",
            Finality::Unknown => "unknown",
        };
        if first == last { format!("{first} {word}") } else { format!("{first}-{last} {word}") }
    };
    runs.iter().map(said).collect::<Vec<_>>().join(" ")
}

/// What counts beside method and path, and what does not.
fn fingerprint(fingerprint: &FingerprintConfig) -> String {
    let body = if fingerprint.json { "json body" } else { "body bytes" };
    let query = if fingerprint.query { " + query" } else { "" };
    let ignored: Vec<_> = fingerprint.ignore.iter().map(ToString::to_string).collect();
    match ignored.len() {
        0 => format!("{body}{query}"),
        _ => format!("{body}{query} without {}", ignored.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_for_a_terminal_is_told_in_paragraphs() {
        let columns = [
            ("MATCH", vec!["POST /a".to_owned(), "* /**".to_owned()]),
            ("OPERATION", vec!["a".repeat(60), "b".to_owned()]),
            ("UNKNOWN", vec!["c".repeat(60), "-".to_owned()]),
        ];
        let (a, c) = ("a".repeat(60), "c".repeat(60));
        let expected =
            format!("POST /a\n  operation  {a}\n  unknown    {c}\n\n* /**\n  operation  b");
        assert_eq!(arranged(&columns), expected);
        assert!(arranged(&columns[..2]).starts_with("MATCH    OPERATION\n"));
    }

    #[test]
    fn a_long_line_is_broken_between_its_parts() {
        let text = format!("{}, {}, c", "a".repeat(90), "b".repeat(20));
        let expected = format!("{},\n  {}, c", "a".repeat(90), "b".repeat(20));
        assert_eq!(wrapped(&text), expected);
    }
}
