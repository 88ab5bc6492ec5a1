//! Events as they come: server-sent events, from any place on, until the run ends.
//!
//! Reads the lane of the run and nothing else, so a stream that breaks off goes on where it was,
//! on any process. Bounded: a page of events in memory, and a client that does not read is closed
//! by the listener.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use onetake_core::Tenant;
use onetake_engine::Journal;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::ask::BUFFER_MS_MAX;
use crate::books::RunKey;
use crate::clock::rfc3339;
use crate::event::{Event, Kind};
use crate::host::{Host, lock};
use crate::reply::ReplyBody;

/// How often a stream looks unasked: another process may drive the run.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a stream is silent at most; then it says that it is still there.
const SILENT_MAX: Duration = Duration::from_secs(15);
/// How many events are read at once.
const PAGE: usize = 200;
/// The most streams of one tenant at one host.
const STREAMS_MAX: usize = 1_000;
/// After how many looks that found nothing a stream asks whether the run is over.
const IDLE_LOOKS: u32 = 10;
/// Frames that wait for a client to read them.
const FRAMES_MAX: usize = 16;

/// Which events a stream shows.
#[allow(clippy::struct_excessive_bools, reason = "each is a mode of its own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Modes {
    updates: bool,
    values: bool,
    messages: bool,
    debug: bool,
}

/// What can be asked for.
pub(crate) const MODES: [&str; 4] = ["values", "updates", "messages", "debug"];

impl Modes {
    /// Reads a list of modes; `None` when it names what there is not, or what does not go together.
    pub(crate) fn read(text: Option<&str>) -> Option<Self> {
        let mut modes = Self::default();
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Some(Self { updates: true, ..modes });
        };
        let mut count = 0;
        for name in text.split(',') {
            match name.trim() {
                "updates" => modes.updates = true,
                "values" => modes.values = true,
                "messages" => modes.messages = true,
                "debug" => modes.debug = true,
                _ => return None,
            }
            count += 1;
        }
        // States and changes of them in one stream could not be told apart.
        (count == 1 || !modes.values).then_some(modes)
    }

    fn shows(self, event: &Event) -> bool {
        let kind = Kind::named(&event.kind);
        let is_end = event.is_terminal();
        let is_told = is_end || (self.updates && kind.is_some_and(Kind::is_update));
        // States are all that those see who asked for them.
        self.debug || (is_told && !self.values)
    }
}

/// What a stream was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) modes: Modes,
    /// The place of the run's first event.
    pub(crate) first: u64,
    /// The first event that is shown.
    pub(crate) from: u64,
    /// How long events are gathered, if at all.
    pub(crate) buffer: Option<Duration>,
}

impl Wanted {
    /// How long events are to be gathered, as it was asked for.
    pub(crate) fn buffer(text: Option<&str>) -> Result<Option<Duration>, String> {
        let Some(text) = text else { return Ok(None) };
        match text.parse::<u64>() {
            Ok(0) => Ok(None),
            Ok(ms) if ms <= BUFFER_MS_MAX => Ok(Some(Duration::from_millis(ms))),
            Ok(_) | Err(_) => Err(format!("bufferMs must be 0 to {BUFFER_MS_MAX}")),
        }
    }
}

/// The body of a stream. It ends when nobody tells any more.
#[derive(Debug)]
pub struct Frames(mpsc::Receiver<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A place among the streams of a tenant, given back when it is dropped.
struct Followed<S> {
    host: Host<S>,
    tenant: Tenant,
}

impl<S> Drop for Followed<S> {
    fn drop(&mut self) {
        let mut streams = lock(&self.host.0.streams);
        if let Some(count) = streams.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.tenant);
            }
        }
    }
}

impl<S: Journal> Host<S> {
    /// The events of a run as they come; `None` when its tenant follows as many as it may.
    pub(crate) fn stream(&self, key: RunKey, wanted: Wanted) -> Option<ReplyBody> {
        let mut streams = lock(&self.0.streams);
        let count = streams.entry(key.tenant.clone()).or_default();
        if *count >= STREAMS_MAX {
            return None;
        }
        *count += 1;
        drop(streams);
        let followed = Followed { host: self.clone(), tenant: key.tenant.clone() };
        let (sender, frames) = mpsc::channel(FRAMES_MAX);
        let host = self.clone();
        self.spawn(async move {
            let _followed = followed;
            tokio::select! {
                () = host.follow(&key, wanted, &sender) => {}
                () = sender.closed() => {}
                () = host.0.end.cancelled() => {}
            }
        });
        Some(ReplyBody::Right(Frames(frames)))
    }

    async fn follow(&self, key: &RunKey, wanted: Wanted, sender: &mpsc::Sender<Bytes>) {
        let mut ear = self.0.ears.listen(key);
        let mut outbox = Outbox { wanted, gathered: VecDeque::new(), since: None };
        let (mut seen, mut idle) = (u64::MAX, IDLE_LOOKS - 1);
        let (mut next, mut spoke) = (wanted.from.max(wanted.first), Instant::now());
        // One frame at once, so that whoever follows knows that the stream stands.
        if sender.send(Bytes::from_static(b": follow\n\n")).await.is_err() {
            return;
        }
        if wanted.modes.values && wanted.from > wanted.first {
            // Whoever comes back sees first where the run stands.
            let frame = self.state_frame(key, wanted.from - 1, "").await;
            if let Some(frame) = frame
                && sender.send(frame).await.is_err()
            {
                return;
            }
        }
        loop {
            let Ok(page) = self.events(key, wanted.first, next, PAGE).await else {
                sleep(LOOK_EVERY).await;
                continue;
            };
            next = page.next;
            let (mut is_end, mut is_urgent) = (false, false);
            for event in page.events {
                is_end |= event.is_terminal();
                // Somebody is waited for.
                is_urgent |= event.kind == Kind::NodeSuspended.as_str();
                let value = if wanted.modes.values {
                    self.state_frame(key, event.sequence, &event.timestamp).await
                } else {
                    None
                };
                for frame in outbox.take(event, value) {
                    spoke = Instant::now();
                    if sender.send(frame).await.is_err() {
                        return;
                    }
                }
            }
            let is_time = is_end || is_urgent || outbox.is_full();
            if let Some(frame) = is_time.then(|| outbox.flush()).flatten() {
                spoke = Instant::now();
                if sender.send(frame).await.is_err() {
                    return;
                }
            }
            // The end comes as an event; only who came behind it has to ask.
            idle = if next > seen { 1 } else { idle + 1 };
            seen = next;
            if is_end || (idle % IDLE_LOOKS == 0 && self.is_over(key, next).await) {
                return;
            }
            if page.more {
                continue;
            }
            let full_at = outbox.full_at().unwrap_or_else(|| Instant::now() + LOOK_EVERY);
            tokio::select! {
                () = ear.hear() => {}
                () = sleep(LOOK_EVERY) => {}
                () = sleep_until(full_at) => {}
            }
            if spoke.elapsed() >= SILENT_MAX {
                spoke = Instant::now();
                if sender.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Whether the run has ended and there is nothing behind `next`.
    async fn is_over(&self, key: &RunKey, next: u64) -> bool {
        match self.run(key).await {
            Ok(Some(run)) => run.status.is_terminal() && next >= run.next_sequence(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// The state of the run, as a frame.
    async fn state_frame(&self, key: &RunKey, place: u64, at: &str) -> Option<Bytes> {
        let (run, now) = self.seen(key).await.ok().flatten()?;
        let state = self.shown(&run, now, false);
        let at = if at.is_empty() { rfc3339(run.created) } else { at.to_owned() };
        let data = json!({
            "eventId": format!("{}.{place}.state", run.id), "runId": run.id,
            "type": "state.snapshot", "payload": state, "timestamp": at, "sequence": place,
        });
        Some(frame(Some(place), "state.snapshot", &data.to_string()))
    }

    /// Waits until there are events from `from` on, or the run has ended, or `within` has passed.
    pub(crate) async fn poll(
        &self,
        key: &RunKey,
        mut from: u64,
        within: Duration,
    ) -> Result<(Vec<Event>, bool), onetake_engine::RunError> {
        const POLLED_MAX: usize = 1_000;
        let ends = Instant::now() + within;
        let mut ear = self.0.ears.listen(key);
        loop {
            // The run first: what it counts is then in its lane.
            let Some(run) = self.run(key).await? else { return Ok((Vec::new(), true)) };
            let page = self.events(key, run.first, from, POLLED_MAX).await?;
            let is_complete = run.status.is_terminal() && page.next >= run.next_sequence();
            if !page.events.is_empty() || is_complete || Instant::now() >= ends {
                return Ok((page.events, is_complete));
            }
            from = page.next;
            let left = ends.saturating_duration_since(Instant::now()).min(LOOK_EVERY);
            let _ = timeout(left, ear.hear()).await;
        }
    }
}

/// What is on its way to a client.
struct Outbox {
    wanted: Wanted,
    gathered: VecDeque<Event>,
    since: Option<Instant>,
}

impl Outbox {
    /// The frames that an event makes at once; the others are gathered.
    fn take(&mut self, event: Event, value: Option<Bytes>) -> Vec<Bytes> {
        let mut frames: Vec<Bytes> = value.into_iter().collect();
        if !self.wanted.modes.shows(&event) {
            return frames;
        }
        if self.wanted.buffer.is_some() {
            self.since.get_or_insert_with(Instant::now);
            self.gathered.push_back(event);
            return frames;
        }
        frames.push(one(&event));
        frames
    }

    fn full_at(&self) -> Option<Instant> {
        Some(self.since? + self.wanted.buffer?)
    }

    fn is_full(&self) -> bool {
        self.full_at().is_some_and(|at| at <= Instant::now()) || self.gathered.len() >= PAGE
    }

    /// What was gathered.
    fn flush(&mut self) -> Option<Bytes> {
        self.since = None;
        let events: Vec<Event> = self.gathered.drain(..).collect();
        let last = events.last()?.sequence;
        let data = serde_json::to_string(&events).expect("invariant: it is JSON");
        Some(frame(Some(last), "batch", &data))
    }
}

fn one(event: &Event) -> Bytes {
    let data = serde_json::to_string(event).expect("invariant: it is JSON");
    frame(Some(event.sequence), &event.kind, &data)
}

/// A frame: JSON has no line breaks of its own.
fn frame(id: Option<u64>, name: &str, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    Bytes::from(format!("{id}event: {name}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_this_table() {
        let is = |text| Modes::read(Some(text)).is_some();
        assert_eq!(Modes::read(None), Modes::read(Some("updates")));
        for good in ["values", "updates", "messages", "debug", "updates,messages", "debug,updates"]
        {
            assert!(is(good), "{good}");
        }
        for bad in ["values,updates", "updates,bogus", "bogus", "updates,,debug"] {
            assert!(!is(bad), "{bad}");
        }
    }

    #[test]
    fn gathering_has_a_bound() {
        assert_eq!(Wanted::buffer(None), Ok(None));
        assert_eq!(Wanted::buffer(Some("0")), Ok(None));
        assert_eq!(Wanted::buffer(Some("5000")), Ok(Some(Duration::from_secs(5))));
        for bad in ["5001", "-1", "x", ""] {
            assert!(Wanted::buffer(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_frame_is_what_clients_read() {
        let text = frame(Some(3), "node.completed", "{}");
        assert_eq!(text, "id: 3\nevent: node.completed\ndata: {}\n\n".as_bytes());
    }
}
