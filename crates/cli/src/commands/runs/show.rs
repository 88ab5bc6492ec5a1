//! Runs as people read them.
//!
//! Arranges and decides nothing. Names and values come from elsewhere, so they are tamed first.

use onetake_console::wire::{CancelDone, NodeRow, RunFailure, RunRow, RunShown, RunsPage};
use serde_json::Value;

use crate::events;
use crate::out::{lines, span, table, tame_line};

/// A page of runs.
pub(super) fn runs(page: &RunsPage) -> String {
    let head = ["TENANT", "RUN", "WORKFLOW", "STATUS", "NODE", "AGE", "TOOK"];
    let row = |row: &RunRow| {
        let took = row.ended_ms.map(|end| span(end.saturating_sub(row.created_ms)));
        [
            tame_line(&row.tenant),
            tame_line(&row.run),
            tame_line(&row.workflow),
            row.status.clone(),
            row.node.as_deref().map_or("-".to_owned(), tame_line),
            span(page.now_ms.saturating_sub(row.created_ms)),
            took.unwrap_or_else(|| "-".to_owned()),
        ]
    };
    table(head, &page.runs.iter().map(row).collect::<Vec<_>>())
}

/// One run with everything.
pub(super) fn run(shown: &RunShown) -> String {
    let (row, now) = (&shown.row, shown.now_ms);
    let mut pairs = vec![("tenant", tame_line(&row.tenant)), ("run", tame_line(&row.run))];
    let mut add = |name, value: Option<String>| pairs.extend(value.map(|value| (name, value)));
    add("created by", shown.principal.as_deref().map(tame_line));
    add("workflow", Some(tame_line(&row.workflow)));
    add("status", Some(row.status.clone()));
    add("created", Some(format!("{} ago", span(now.saturating_sub(row.created_ms)))));
    let took = row.ended_ms.map(|end| span(end.saturating_sub(row.created_ms)));
    add("ended", took.map(|took| format!("after {took}")));
    add("error", shown.error.as_ref().map(failure));
    add("reason", shown.reason.as_deref().map(tame_line));
    add("waits for", waits(shown));
    let waits = shown.waits.as_ref();
    let doubt = waits.and_then(|waits| events::doubtful(&waits.kind, &waits.key, &waits.data.0));
    add("find out at", doubt.map(|doubt| tame_line(&doubt)));
    add("part of", shown.parent.as_deref().map(tame_line));
    add("its runs", joined(&shown.children));
    add("tags", joined(&shown.tags));
    add("inputs", values(&shown.inputs.0));
    add("variables", values(&shown.variables.0));
    add("events", Some(row.events.to_string()));
    let nodes = table(
        ["NODE", "STATUS", "TRY", "TOOK", "WHAT"],
        &shown.nodes.iter().map(|row| node(row, now)).collect::<Vec<_>>(),
    );
    format!("{}\n\n{nodes}", lines(&pairs))
}

fn node(row: &NodeRow, now_ms: u64) -> [String; 5] {
    let what = row.error.as_ref().map(failure).or_else(|| row.child.as_deref().map(tame_line));
    [
        tame_line(&row.node),
        row.status.clone(),
        row.attempt.to_string(),
        span(row.ended_ms.unwrap_or(now_ms).saturating_sub(row.since_ms)),
        what.unwrap_or_default(),
    ]
}

fn waits(shown: &RunShown) -> Option<String> {
    let waits = shown.waits.as_ref()?;
    let kind = tame_line(events::awaited(&waits.kind, &waits.key));
    let node = tame_line(&waits.node);
    let choice = joined(&waits.actions).map(|words| format!(": {words}")).unwrap_or_default();
    let end = waits.until_ms.map(|end| {
        let left = span(end.saturating_sub(shown.now_ms));
        format!(", for {left} more")
    });
    Some(format!("{kind} at {node}{choice}{}", end.unwrap_or_default()))
}

fn failure(failure: &RunFailure) -> String {
    format!("{}: {}", tame_line(&failure.code), tame_line(&failure.message))
}

fn joined(words: &[String]) -> Option<String> {
    let words: Vec<_> = words.iter().map(|word| tame_line(word)).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn values(value: &Value) -> Option<String> {
    let is_empty = value.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then(|| tame_line(&value.to_string()))
}

/// What ending a run came to.
pub(super) fn cancelled(done: &CancelDone) -> String {
    let word = if done.repeated { "cancelled before" } else { "cancelled" };
    let CancelDone { row, .. } = done;
    format!("{word}: {} of {}", tame_line(&row.run), tame_line(&row.tenant))
}
