//! What is known of a run that is followed: where it stands, its nodes, whom it waits for.
//!
//! Made of events alone, and pure: the time comes in. Invariant: hearing an event twice changes
//! nothing more than hearing it once.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::api::{part, run_path};
use crate::events;
use crate::out::{span, tame_line};

/// The most nodes that are shown; those before them have long ended.
const SHOWN_MAX: usize = 16;
/// What turns while something is under way.
const SPINNER: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What can be said of a call that nobody knows the end of.
const CHOICE: &str = r#"  it did:           {"action":"complete","result":{…}}, what the node gives
  it did not:       {"action":"retry"}
  nobody can tell:  {"action":"fail"}"#;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Running,
    /// For somebody's word.
    Waiting,
    Done,
    Failed,
    Skipped,
    Cancelled,
}

/// One node.
#[derive(Debug)]
struct Line {
    node: String,
    mark: Mark,
    since_ms: u64,
    ended_ms: Option<u64>,
    note: String,
}

/// A word that somebody is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Asked {
    node: String,
    kind: String,
    key: String,
    data: Value,
}

impl Asked {
    /// Whom to ask, if nobody knows what became of a call.
    fn doubt(&self) -> Option<String> {
        events::doubtful(&self.kind, &self.key, &self.data)
    }

    fn list(&self, name: &str) -> impl Iterator<Item = &Value> {
        self.data.get(name).and_then(Value::as_array).into_iter().flatten()
    }

    fn actions(&self) -> Vec<&str> {
        self.list("actions").filter_map(Value::as_str).collect()
    }

    /// Whether the line is to have a key. Whoever approves may pass the line on to the next one,
    /// who must not be taken for the first; and what an event must have is not always known, so a
    /// first try may be refused and another one follow.
    fn has_key(&self) -> bool {
        !matches!(self.kind.as_str(), "approval" | "external-event")
    }

    /// A word that would do. For what only a person knows there are dots, which are no JSON: as
    /// long as they stand there, nothing is taken for an answer.
    fn word(&self) -> String {
        let actions = self.actions();
        match (self.kind.as_str(), actions.first()) {
            // To say the wrong thing here can be to pay twice, so nothing is suggested.
            _ if self.doubt().is_some() => r#"{"action":…}"#.to_owned(),
            ("clarification", _) => {
                let name = |one| Value::get(one, "id").unwrap_or(one).as_str();
                let names = self.list("questions").filter_map(name);
                let answers: Vec<_> = names.map(|name| format!("{}:…", json!(name))).collect();
                format!(r#"{{"answers":{{{}}}}}"#, answers.join(","))
            }
            (_, Some(action)) => json!({"action": action}).to_string(),
            ("approval", None) => json!({"action": "accept"}).to_string(),
            (_, None) => "{}".to_owned(),
        }
    }

    /// What is asked, and what can be said.
    fn question(&self) -> String {
        let (node, what) = (tame_line(&self.node), events::awaited(&self.kind, &self.key));
        let what = tame_line(what);
        if let Some(whom) = self.doubt() {
            return format!(
                "{node} waits for {what}: the call may or may not have taken effect\n\
                 first find out ({}), then say one of these:\n{CHOICE}",
                tame_line(&whom)
            );
        }
        let title = self.data.get("title").and_then(Value::as_str);
        let title = title.map(|title| format!(": {}", tame_line(title))).unwrap_or_default();
        let others = match self.actions().get(1..) {
            Some(others) if !others.is_empty() => {
                format!(" (or {})", tame_line(&others.join(", ")))
            }
            Some(_) | None => String::new(),
        };
        format!("{node} waits for {what}{title}\nto answer{others}:")
    }
}

/// What is known of a run.
#[derive(Debug)]
pub(super) struct Board {
    run: String,
    workflow: String,
    status: String,
    lines: Vec<Line>,
    asked: Vec<Asked>,
    began_ms: u64,
    /// The time of the latest event, on the host's clock.
    last_ms: u64,
    error: String,
}

impl Board {
    pub(super) fn new(run: &str, workflow: &str) -> Self {
        let (run, workflow) = (run.to_owned(), workflow.to_owned());
        let (status, error) = ("pending".to_owned(), String::new());
        let (lines, asked) = (Vec::new(), Vec::new());
        Self { run, workflow, status, lines, asked, began_ms: 0, last_ms: 0, error }
    }

    pub(super) fn status(&self) -> &str {
        &self.status
    }

    /// Takes in an event; gives whom it asks for a word, if it does.
    pub(super) fn hear(&mut self, event: &Value) -> Option<Asked> {
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        let at_ms = moment(text("timestamp")).unwrap_or(self.last_ms);
        self.last_ms = self.last_ms.max(at_ms);
        if self.began_ms == 0 {
            self.began_ms = at_ms;
        }
        let (kind, node) = (text("type"), text("nodeId"));
        if let Some(what) = kind.strip_prefix("run.") {
            self.status =
                if matches!(what, "started" | "resumed") { "running" } else { what }.into();
            self.asked.retain(|_| matches!(what, "started" | "resumed" | "paused"));
            self.error = events::detail(event);
            return None;
        }
        if kind == "interrupt.requested" {
            return Some(self.ask(node, event.get("payload").unwrap_or(&Value::Null)));
        }
        let mark = match kind {
            "node.started" | "node.retried" | "node.resumed" => Mark::Running,
            "node.suspended" => Mark::Waiting,
            "node.completed" => Mark::Done,
            "node.failed" => Mark::Failed,
            "node.skipped" => Mark::Skipped,
            "node.cancelled" => Mark::Cancelled,
            _ => return None,
        };
        self.mark(node, mark, at_ms, events::detail(event));
        None
    }

    fn mark(&mut self, node: &str, mark: Mark, at_ms: u64, detail: String) {
        let ended_ms = (!matches!(mark, Mark::Running | Mark::Waiting)).then_some(at_ms);
        if let Some(line) = self.lines.iter_mut().find(|line| line.node == node) {
            (line.mark, line.ended_ms, line.note) = (mark, ended_ms, detail);
        } else {
            let (node, since_ms) = (node.to_owned(), at_ms);
            self.lines.push(Line { node, mark, since_ms, ended_ms, note: detail });
        }
        if mark != Mark::Waiting {
            self.asked.retain(|asked| asked.node != node);
        }
        if self.asked.is_empty() && self.status.starts_with("waiting-") {
            "running".clone_into(&mut self.status);
        }
    }

    fn ask(&mut self, node: &str, payload: &Value) -> Asked {
        let of = |name: &str| payload.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, key) = (of("kind"), of("key").to_owned());
        let data = payload.get("data").cloned().unwrap_or(Value::Null);
        let asked = Asked { node: node.to_owned(), kind: kind.to_owned(), key, data };
        match kind {
            "approval" => "waiting-approval",
            "clarification" => "waiting-input",
            _ => "waiting-external",
        }
        .clone_into(&mut self.status);
        if !self.asked.contains(&asked) {
            self.asked.push(asked.clone());
        }
        asked
    }

    /// What to type to give the word that is asked for, at the host at `base`; under `key`, which
    /// makes typing it twice harmless.
    pub(super) fn answer(
        &self,
        asked: &Asked,
        base: &str,
        has_credential: bool,
        key: &str,
    ) -> String {
        let place = format!("{}/interrupts/{}", run_path(&self.run), part(&asked.node));
        let credential =
            if has_credential { " -H \"Authorization: Bearer $ONETAKE_API_KEY\"" } else { "" };
        let key = asked.has_key().then(|| format!(" -H 'Idempotency-Key: {key}'"));
        let body = format!(r#"{{"resumeValue":{}}}"#, asked.word()).replace('\'', r"'\''");
        format!(
            "{}\ncurl -X POST {base}{place}{credential}{} -d '{}'",
            asked.question(),
            key.unwrap_or_default(),
            tame_line(&body)
        )
    }

    /// The run in a few lines. `since_last` is how long ago the latest event was heard, `frame`
    /// says how far the spinner has turned.
    pub(super) fn lines(
        &self,
        since_last: Duration,
        frame: usize,
        paint: impl Fn(Mark, &str) -> String,
    ) -> Vec<String> {
        let is_over = events::ended(&self.status).is_some();
        let since = u64::try_from(since_last.as_millis()).unwrap_or(u64::MAX);
        let now_ms = if is_over { self.last_ms } else { self.last_ms.saturating_add(since) };
        let took = elapsed(now_ms.saturating_sub(self.began_ms));
        let mut head =
            format!("{}  {}  {took}", tame_line(&self.workflow), tame_line(&self.status));
        if is_over && !self.error.is_empty() {
            head.push_str("  ");
            head.push_str(&self.error);
        }
        let skipped = self.lines.len().saturating_sub(SHOWN_MAX);
        let shown = &self.lines[skipped..];
        let width = shown.iter().map(|line| line.node.chars().count()).max().unwrap_or(0);
        let mut all = vec![head];
        if skipped > 0 {
            all.push(format!("  … {skipped} before"));
        }
        all.extend(shown.iter().map(|line| {
            let sign = match line.mark {
                Mark::Running => SPINNER[frame % SPINNER.len()],
                Mark::Waiting => '?',
                Mark::Done => '✓',
                Mark::Failed => '✗',
                Mark::Skipped | Mark::Cancelled => '-',
            };
            let sign = paint(line.mark, &sign.to_string());
            let took = elapsed(line.ended_ms.unwrap_or(now_ms).saturating_sub(line.since_ms));
            let text =
                format!("  {sign} {:width$}  {took:>6}  {}", tame_line(&line.node), line.note);
            text.trim_end().to_owned()
        }));
        all
    }
}

fn moment(text: &str) -> Option<u64> {
    let at: SystemTime = humantime::parse_rfc3339(text).ok()?;
    u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// A span that somebody watches grow.
fn elapsed(ms: u64) -> String {
    if ms < 60_000 { format!("{}.{}s", ms / 1_000, ms % 1_000 / 100) } else { span(ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(second: u64, kind: &str, node: &str, payload: &Value) -> Value {
        let timestamp = format!("2023-11-14T22:13:{second:02}.500Z");
        json!({"type": kind, "nodeId": node, "payload": payload, "timestamp": timestamp})
    }

    fn text(board: &Board, since_last: u64) -> String {
        let lines = board.lines(Duration::from_secs(since_last), 0, |_, sign| sign.to_owned());
        lines.join("\n")
    }

    #[test]
    fn a_run_is_shown_node_by_node() {
        let mut board = Board::new("run-1", "orders");
        let error = json!({"code": "timeout", "message": "no answer"});
        for event in [
            event(0, "run.started", "", &json!({"workflowId": "orders"})),
            event(0, "node.started", "reserve", &json!({})),
            event(2, "node.completed", "reserve", &json!({})),
            event(2, "node.started", "pay", &json!({})),
            event(3, "node.retried", "pay", &json!({"delayMs": 500, "lastError": error})),
            event(3, "node.skipped", "refund", &json!({"reason": "not-triggered"})),
        ] {
            assert_eq!(board.hear(&event), None);
        }
        let expected = "orders  running  13.0s
  ✓ reserve    2.0s
  ⠋ pay       11.0s  again in 500ms: timeout: no answer
  - refund     0.0s  not-triggered";
        assert_eq!(text(&board, 10), expected);
        board.hear(&event(9, "node.failed", "pay", &json!({"error": error})));
        board.hear(&event(9, "run.failed", "", &json!({"error": error})));
        let expected = "orders  failed  9.0s  timeout: no answer
  ✓ reserve    2.0s
  ✗ pay        7.0s  timeout: no answer
  - refund     0.0s  not-triggered";
        assert_eq!(text(&board, 10), expected, "no time passes after the end");
    }

    #[test]
    fn whoever_is_asked_is_told_what_to_type() {
        let mut board = Board::new("run-1", "orders");
        let data = json!({"title": "Pay?", "actions": ["accept", "reject"]});
        let asked = json!({"kind": "approval", "data": data});
        board.hear(&event(0, "run.started", "", &json!({})));
        board.hear(&event(0, "node.started", "the gate", &json!({})));
        board.hear(&event(0, "node.suspended", "the gate", &json!({"kind": "approval"})));
        let asked = board.hear(&event(0, "interrupt.requested", "the gate", &asked)).unwrap();
        assert_eq!(board.status(), "waiting-approval");
        let expected = "the gate waits for approval: Pay?\nto answer (or reject):\n\
            curl -X POST http://h:1/v1/runs/run-1/interrupts/the%20gate \
            -H \"Authorization: Bearer $ONETAKE_API_KEY\" \
            -d '{\"resumeValue\":{\"action\":\"accept\"}}'";
        assert_eq!(board.answer(&asked, "http://h:1", true, "k"), expected);
        let questions = json!({"questions": [{"id": "q1"}, "q2"]});
        let (node, kind, key) = ("ask".into(), "clarification".into(), "ask".into());
        let open = Asked { node, kind, key, data: questions };
        let answer = board.answer(&open, "http://h:1", false, "k");
        let end = r#"-H 'Idempotency-Key: k' -d '{"resumeValue":{"answers":{"q1":…,"q2":…}}}'"#;
        assert!(answer.ends_with(end), "{answer}");
        let happens = Asked { kind: "external-event".into(), data: json!({}), ..open };
        assert!(!board.answer(&happens, "http://h:1", false, "k").contains("Idempotency-Key"));
        board.hear(&event(1, "node.resumed", "the gate", &json!({})));
        assert_eq!((board.status(), board.asked.len()), ("running", 0));
    }

    /// To say the wrong thing of an unknown outcome can be to pay twice.
    #[test]
    fn nothing_is_suggested_where_nobody_knows_what_happened() {
        let mut board = Board::new("run-1", "orders");
        let data = json!({"provider": "bank\n", "idempotencyKey": "ow-1", "since": "s"});
        let asked = json!({"kind": "custom", "key": "outcome_unknown", "data": data});
        let asked = board.hear(&event(0, "interrupt.requested", "pay", &asked)).unwrap();
        let expected = format!(
            "pay waits for outcome_unknown: the call may or may not have taken effect\n\
             first find out (bank , Idempotency-Key ow-1), then say one of these:\n{CHOICE}\n\
             curl -X POST http://h:1/v1/runs/run-1/interrupts/pay -H 'Idempotency-Key: k' -d {}",
            r#"'{"resumeValue":{"action":…}}'"#
        );
        assert_eq!(board.answer(&asked, "http://h:1", false, "k"), expected);
    }

    #[test]
    fn a_long_run_fits_on_a_screen() {
        let mut board = Board::new("run-1", "orders");
        for number in 0..40 {
            board.hear(&event(1, "node.started", &format!("n{number}"), &json!({})));
        }
        let lines = board.lines(Duration::ZERO, 3, |_, sign| sign.to_owned());
        assert_eq!((lines.len(), lines[1].as_str()), (SHOWN_MAX + 2, "  … 24 before"));
        assert!(lines.last().unwrap().contains("⠸ n39"));
    }
}
