//! Keys, acts and the audit as people read them.
//!
//! Arranges and decides nothing. Names and bodies come from elsewhere, so they are tamed first.

use onetake::engine::operate::{Form, Kind};
use onetake_console::wire::{
    ActDone, AuditPage, AuditRow, Content, Field, KeyRow, KeyShown, Keys, OutcomeRow, PurgeDone,
};

use crate::out::{lines, span, table, table_of, tame};

/// A page of keys.
pub(super) fn keys(page: &Keys) -> String {
    // Most keys are their tenant's, and a column of dashes says nothing.
    let has_principals = page.keys.iter().any(|row| row.principal.is_some());
    let principal = |name: &Option<String>| name.as_deref().map_or("-".to_owned(), tame);
    let mut head = vec!["TENANT"];
    head.extend(has_principals.then_some("PRINCIPAL"));
    head.extend(["OPERATION", "KEY", "PHASE", "AGE", "ATTEMPT", "OUTCOME", "SLOT"]);
    let row = |row: &KeyRow| {
        let mut cells = vec![tame(&row.tenant)];
        cells.extend(has_principals.then(|| principal(&row.principal)));
        cells.extend([
            tame(&row.operation),
            tame(&row.key.0),
            row.phase.to_string(),
            span(row.age_ms),
            row.attempt.to_string(),
            said(row),
            row.slot.clone(),
        ]);
        cells
    };
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    table_of(&head, &page.keys.iter().map(row).collect::<Vec<_>>())
}

/// What came of it in a few words, or why nobody knows.
fn said(row: &KeyRow) -> String {
    match (&row.outcome, &row.cause) {
        (Some(OutcomeRow { form, status, bytes }), _) => {
            let form = match form {
                Form::Response => "response",
                Form::Value => "value",
                Form::Failure => "failure",
                Form::NotKept => "not kept",
            };
            let status = status.map(|code| format!(" {code}")).unwrap_or_default();
            format!("{form}{status}, {bytes} B")
        }
        (None, Some(cause)) => cause.replace('_', " "),
        (None, None) => "-".to_owned(),
    }
}

/// One key with everything.
pub(super) fn key(shown: &KeyShown) -> String {
    let KeyShown { row, fingerprint, content, now_ms } = shown;
    let mut pairs = vec![("tenant", tame(&row.tenant))];
    pairs.extend(row.principal.as_ref().map(|name| ("principal", tame(name))));
    pairs.extend([
        ("operation", tame(&row.operation)),
        ("key", tame(&row.key.0)),
        ("slot", row.slot.clone()),
        ("phase", format!("{} for {}", row.phase, span(row.age_ms))),
    ]);
    if let Some(end) = row.until_ms {
        let until = match end.checked_sub(*now_ms) {
            Some(left) if left > 0 => format!("in {}", span(left)),
            Some(_) | None => format!("{} ago", span(now_ms.saturating_sub(end))),
        };
        pairs.push((end_word(row.phase), until));
    }
    pairs.extend([
        ("outcome", said(row)),
        ("attempt", row.attempt.to_string()),
        ("recovery", if row.recovery { "yes" } else { "no" }.to_owned()),
        ("fingerprint", fingerprint.clone()),
        ("fence", row.fence.clone()),
        ("version", row.version.clone()),
    ]);
    let mut text = lines(&pairs);
    if let Some(content) = content {
        text.push_str("\n\n");
        text.push_str(&self::content(content));
    }
    text
}

/// What the point in time of a record is.
const fn end_word(phase: Kind) -> &'static str {
    match phase {
        Kind::Live | Kind::Unknown => "lease ends",
        Kind::Done | Kind::Retryable => "forgotten",
        Kind::Free => "removable",
    }
}

fn content(content: &Content) -> String {
    let field = |field: &Field| format!("{}: {}", tame(&field.name), tame(&field.value.0));
    let mut parts: Vec<_> = content.headers.iter().map(field).collect();
    if !parts.is_empty() {
        parts.push(String::new());
    }
    match (&content.body, &content.body_hex) {
        (Some(body), _) => parts.push(tame(&body.0)),
        (None, Some(digits)) => {
            parts.push(format!("(not text, in hexadecimal digits)\n{}", digits.0));
        }
        (None, None) => {}
    }
    parts.join("\n")
}

/// What an act came to.
pub(super) fn act(word: &str, done: &ActDone) -> String {
    let word = if done.repeated { format!("{word} before") } else { word.to_owned() };
    let ActDone { row, .. } = done;
    format!("{word}: {} of {} is {} now", tame(&row.key.0), tame(&row.tenant), row.phase)
}

/// What a purge came to.
pub(super) fn purged(done: &PurgeDone) -> String {
    let live = match done.live {
        0 => String::new(),
        live => format!("; live and left alone: {live}, purge again when they have ended"),
    };
    format!("purged: {}{live}", done.tombstones)
}

/// A page of the audit.
pub(super) fn audit(page: &AuditPage) -> String {
    let head = ["POSITION", "TIME", "BY", "ACT", "TENANT", "OPERATION", "WHAT", "SLOT"];
    let row = |row: &AuditRow| {
        let AuditRow { position, at_ms, audit } = row;
        let word = |kind: Option<Kind>| kind.map_or("?", Kind::as_str);
        let force = if audit.forced { ", by force" } else { "" };
        let what = match (audit.tombstones, &audit.run) {
            (Some(count), _) => format!("{count} purged, {} live", audit.live.unwrap_or(0)),
            (None, Some(run)) => tame(run),
            (None, None) => format!("{} to {}{force}", word(audit.before), word(audit.after)),
        };
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(*at_ms);
        [
            position.to_string(),
            humantime::format_rfc3339_seconds(time).to_string(),
            tame(&audit.by),
            audit.act.as_str().to_owned(),
            tame(&audit.tenant),
            audit.operation.as_deref().map_or("-".to_owned(), tame),
            what,
            audit.slot.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table(head, &page.entries.iter().map(row).collect::<Vec<_>>())
}
