//! Server-sent events, read as they come.
//!
//! Takes only what a host of workflows sends: JSON in the data of each event. Everything that is
//! held is bounded.

use std::time::Duration;

use http_body_util::BodyExt;
use onetake_http::gateway::upstream::UpstreamBody;
use serde_json::Value;
use std::collections::VecDeque;
use tokio::time::timeout;

/// How long a stream may be silent; a host says something more often than that.
const SILENT_MAX: Duration = Duration::from_secs(45);
/// The largest event, in bytes.
const EVENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A stream of events.
pub(super) struct Events {
    body: UpstreamBody,
    reader: Reader,
    ready: VecDeque<String>,
}

impl Events {
    pub(super) fn new(body: UpstreamBody) -> Self {
        Self { body, reader: Reader::default(), ready: VecDeque::new() }
    }

    /// The next event; none when the stream has ended.
    ///
    /// # Errors
    /// Why the stream is of no use any more.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, &'static str> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                let event = serde_json::from_str(&data);
                return event.map(Some).map_err(|_| "the host sent something that is no event");
            }
            let frame = timeout(SILENT_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| "the stream fell silent")?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|_| "the stream broke off")?;
            if let Some(bytes) = frame.data_ref() {
                self.reader.read(bytes, &mut self.ready);
            }
            if self.reader.size() > EVENT_BYTES_MAX {
                return Err("the host sent an event that is too large");
            }
        }
    }
}

/// Reads lines, and makes events of them.
#[derive(Default)]
struct Reader {
    line: Vec<u8>,
    data: String,
    has_data: bool,
}

impl Reader {
    fn size(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn read(&mut self, bytes: &[u8], ready: &mut VecDeque<String>) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.last() != Some(&b'\n') {
                return;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            self.take(line.trim_end_matches(['\n', '\r']), ready);
        }
    }

    fn take(&mut self, line: &str, ready: &mut VecDeque<String>) {
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            if std::mem::take(&mut self.has_data) {
                ready.push_back(data);
            }
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if name != "data" {
            return;
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push('\n');
        }
        self.data.push_str(value.strip_prefix(' ').unwrap_or(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_come() {
        let text = ": follow\n\nid: 1\nevent: a\ndata: {\"x\":\ndata: \"ä\"}\n\n\
                    : still here\n\ndata:2\r\n\r\ndata: cut";
        for size in 1..text.len() {
            let (mut reader, mut ready) = (Reader::default(), VecDeque::new());
            for piece in text.as_bytes().chunks(size) {
                reader.read(piece, &mut ready);
            }
            assert_eq!(ready, ["{\"x\":\n\"ä\"}", "2"], "in pieces of {size}");
            assert_eq!(reader.line, b"data: cut", "what is not whole is no event");
        }
    }
}
