//! Events: followed, polled, or read at once; and the workflows.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use onetake_engine::Journal;
use serde_json::{Value, json};

use super::{Caller, Door, no_run};
use crate::ask;
use crate::books::RunKey;
use crate::reply::{Reply, ReplyBody};
use crate::stream::{MODES, Modes, Wanted};

/// How many events are given at once.
const READ_MAX: usize = 10_000;
/// How long a poll may wait, in seconds.
const POLL_S: std::ops::RangeInclusive<u64> = 1..=60;
const POLL_S_DEFAULT: u64 = 30;

impl<S: Journal> Door<S> {
    pub(super) fn workflows(&self) -> Reply {
        let all = self.host.catalog().workflows();
        let listed: Vec<Value> = all
            .map(|one| json!({"id": one.id, "name": one.name, "version": one.version}))
            .collect();
        Reply::ok(json!({"workflows": listed}))
    }

    pub(super) fn workflow(&self, id: &str) -> Result<Reply, Reply> {
        let found = self.host.catalog().workflow(id);
        let missing = || Reply::not_found("workflow_not_found", "there is no such workflow");
        Ok(Reply::ok(found.ok_or_else(missing)?.written.clone()))
    }

    /// Follows a run, or reads what there is where the caller takes JSON.
    pub(super) async fn events(
        &self,
        parts: &Parts,
        caller: &Caller,
        run: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let modes = ask::query(parts, "streamMode");
        let Some(modes) = Modes::read(modes.as_deref()) else {
            let text = "there is no such stream mode, or these do not go together";
            let refused = Reply::error(StatusCode::BAD_REQUEST, "unsupported_stream_mode", text);
            return Err(refused.with("supported", json!(MODES)));
        };
        let buffer = ask::query(parts, "bufferMs");
        let buffer = Wanted::buffer(buffer.as_deref()).map_err(Reply::invalid)?;
        let (key, first) = self.found(caller, run).await?;
        let last = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
        let last = last.map(str::to_owned).or_else(|| ask::query(parts, "lastEventId"));
        let from = match last {
            None => 0,
            Some(text) => match text.trim().parse::<u64>() {
                Ok(seen) => seen.saturating_add(1),
                Err(_) => {
                    return Err(Reply::invalid("Last-Event-ID must be the sequence of an event"));
                }
            },
        };
        if takes_json(parts) {
            let page = self.host.events(&key, first, from, READ_MAX).await;
            let page = page.map_err(|error| Reply::failed(&error))?;
            let shown = json!({"events": page.events, "hasMore": page.more});
            return Ok(Reply::ok(shown).into_response());
        }
        let stream = self.host.stream(key, Wanted { modes, first, from, buffer });
        let Some(stream) = stream else { return Err(too_many_streams()) };
        let mut response = Response::new(stream);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }

    pub(super) async fn poll(
        &self,
        parts: &Parts,
        caller: &Caller,
        run: &str,
    ) -> Result<Reply, Reply> {
        let whole = |name: &str| match ask::query(parts, name) {
            None => Ok(None),
            Some(text) => text
                .parse::<i64>()
                .map(Some)
                .map_err(|_| Reply::invalid(format!("{name} must be a whole number"))),
        };
        // Without a place, from the start; with one, behind it.
        let from = whole("lastSequence")?.map_or(0, |seen| seen.saturating_add(1));
        let from = u64::try_from(from).unwrap_or(0);
        let within = match whole("timeout")? {
            None => POLL_S_DEFAULT,
            Some(asked) => {
                let asked = u64::try_from(asked).ok().filter(|asked| POLL_S.contains(asked));
                asked.ok_or_else(|| Reply::invalid("timeout must be 1 to 60 seconds"))?
            }
        };
        let (key, _) = self.found(caller, run).await?;
        let polled = self.host.poll(&key, from, Duration::from_secs(within)).await;
        let (events, is_complete) = polled.map_err(|error| Reply::failed(&error))?;
        Ok(Reply::ok(json!({
            "events": events, "isComplete": is_complete, "isTerminal": is_complete,
        })))
    }

    /// The run of that name, if it is the caller's, and the place of its first event.
    async fn found(&self, caller: &Caller, run: &str) -> Result<(RunKey, u64), Reply> {
        let key = caller.run(run)?;
        let found = self.host.run(&key).await.map_err(|error| Reply::failed(&error))?;
        found.map(|run| (key, run.first)).ok_or_else(no_run)
    }
}

fn too_many_streams() -> Reply {
    let text = "this tenant follows as many runs as it may; close a stream, or poll";
    Reply::error(StatusCode::TOO_MANY_REQUESTS, "rate_limited", text)
        .with("retryAfterMs", 5_000)
        .with("scope", "tenant")
        .header(header::RETRY_AFTER, HeaderValue::from_static("5"))
}

/// Whether the caller would rather have JSON than a stream.
fn takes_json(parts: &Parts) -> bool {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| {
        accept.contains("application/json") && !accept.contains("text/event-stream")
    })
}
