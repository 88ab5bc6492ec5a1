//! Events of a run as people read them, one line each; and how a run ended, as an exit code.
//!
//! Arranges what a host tells and decides nothing. Words come from workflows, so they are tamed.

use serde_json::Value;

use crate::exit::Exit;
use crate::out::{span, tame_line};

/// What a run waits for when nobody knows whether a call took effect.
const OUTCOME_UNKNOWN: &str = "outcome_unknown";
/// The longest detail, in characters.
const DETAIL_CHARS_MAX: usize = 160;
/// How wide the type of an event is.
const TYPE_WIDTH: usize = 23;

/// One line for an event: when, which, what, of which node, and what is worth knowing about it.
pub(crate) fn line(event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    // Of a date and a time, the time.
    let time = tame_line(text("timestamp").get(11..23).unwrap_or("            "));
    let sequence = event.get("sequence").and_then(Value::as_u64).unwrap_or_default();
    let (kind, node) = (tame_line(text("type")), tame_line(text("nodeId")));
    let detail = detail(event);
    format!("{time}  {sequence:>4}  {kind:TYPE_WIDTH$}  {node}  {detail}").trim_end().to_owned()
}

/// What is worth knowing about an event.
pub(crate) fn detail(event: &Value) -> String {
    let payload = event.get("payload").unwrap_or(&Value::Null);
    let of = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let joined = |parts: [String; 2]| {
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(": ")
    };
    let text = match event.get("type").and_then(Value::as_str).unwrap_or_default() {
        "run.started" => of("workflowId"),
        "run.failed" | "node.failed" => failure(payload.get("error")),
        "run.cancelled" => joined([format!("by {}", of("cancelledBy")), of("reason")]),
        "run.paused" | "node.skipped" | "node.cancelled" => of("reason"),
        "node.retried" => {
            let delay = payload.get("delayMs").and_then(Value::as_u64).unwrap_or_default();
            joined([format!("again in {}", span(delay)), failure(payload.get("lastError"))])
        }
        "node.suspended" => format!("waits for {}", awaited(&of("kind"), &of("key"))),
        "interrupt.requested" => {
            let data = payload.get("data").unwrap_or(&Value::Null);
            doubtful(&of("kind"), &of("key"), data).unwrap_or_default()
        }
        "approval.requested" => of("title"),
        "approval.received" => joined([of("action"), of("comment")]),
        "cap.breached" => of("kind"),
        "log.appended" => of("message"),
        _ => String::new(),
    };
    shortened(&tame_line(&text))
}

/// What a run waits for. What is nobody's kind in particular is known by its own name.
pub(crate) fn awaited<'a>(kind: &'a str, key: &'a str) -> &'a str {
    if kind == "custom" && !key.is_empty() { key } else { kind }
}

/// Whom to ask for what became of a call, if that is what a run waits for: nobody knows whether it
/// took effect. An interrupt of an author's own may have the same name, and not what belongs to it.
pub(crate) fn doubtful(kind: &str, key: &str, data: &Value) -> Option<String> {
    let of = |name: &str| data.get(name).and_then(Value::as_str);
    let is_one = kind == "custom" && key == OUTCOME_UNKNOWN;
    of("since").filter(|_| is_one)?;
    let provider = of("provider").unwrap_or("its provider");
    Some(match of("idempotencyKey") {
        Some(key) => format!("{provider}, Idempotency-Key {key}"),
        None => provider.to_owned(),
    })
}

fn failure(error: Option<&Value>) -> String {
    let of = |name: &str| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    format!("{}: {}", of("code").unwrap_or("failed"), of("message").unwrap_or_default())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(DETAIL_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The exit code of a run that stands so, if it has ended.
pub(crate) fn ended(status: &str) -> Option<Exit> {
    match status {
        "completed" => Some(Exit::Done),
        "failed" => Some(Exit::RunFailed),
        "cancelled" => Some(Exit::RunCancelled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, node: Option<&str>, payload: &Value) -> String {
        line(&json!({
            "type": kind, "nodeId": node, "payload": payload, "sequence": 3,
            "timestamp": "2023-11-14T22:13:20.123Z",
        }))
    }

    #[test]
    fn an_event_is_one_line_with_what_is_worth_knowing() {
        let error = json!({"code": "timeout", "message": "no\nanswer\u{1b}[2J"});
        let call = json!({"provider": "bank", "idempotencyKey": "k-1", "since": "s"});
        let lines = [
            event("node.started", Some("pay"), &json!({})),
            event("node.retried", Some("pay"), &json!({"delayMs": 1500, "lastError": error})),
            event("run.failed", None, &json!({"error": error})),
            event("run.cancelled", None, &json!({"cancelledBy": "operator", "reason": "why"})),
            event(
                "node.suspended",
                Some("pay"),
                &json!({"kind": "custom", "key": OUTCOME_UNKNOWN}),
            ),
            event(
                "interrupt.requested",
                Some("pay"),
                &json!({"kind": "custom", "key": OUTCOME_UNKNOWN, "data": call}),
            ),
        ];
        let expected = "\
22:13:20.123     3  node.started             pay
22:13:20.123     3  node.retried             pay  again in 1s: timeout: no answer\\u{1b}[2J
22:13:20.123     3  run.failed                 timeout: no answer\\u{1b}[2J
22:13:20.123     3  run.cancelled              by operator: why
22:13:20.123     3  node.suspended           pay  waits for outcome_unknown
22:13:20.123     3  interrupt.requested      pay  bank, Idempotency-Key k-1";
        assert_eq!(lines.join("\n"), expected);
        assert!(line(&json!({"type": "ä"})).ends_with('ä'), "whatever comes, it is shown");
    }

    #[test]
    fn a_run_ends_in_three_ways() {
        let codes = ["completed", "failed", "cancelled", "running", "waiting-approval"].map(ended);
        let expected =
            [Some(Exit::Done), Some(Exit::RunFailed), Some(Exit::RunCancelled), None, None];
        assert_eq!(codes, expected);
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), DETAIL_CHARS_MAX + 1);
    }
}
