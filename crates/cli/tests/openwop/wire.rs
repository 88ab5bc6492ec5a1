//! One request over one connection, and all of the answer or none of it.
//!
//! Knows HTTP and nothing of workflows.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long a caller waits. Longer than anybody is stopped.
const WITHIN: Duration = Duration::from_secs(60);
/// The header that marks a replay.
pub(crate) const REPLAY: &str = "openwop-idempotent-replay";

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<(&'a str, &'a str)>,
    pub(crate) body: String,
}

impl<'a> Asked<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: "GET", path, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn post(path: &'a str, body: &Value) -> Self {
        Self { method: "POST", path, headers: Vec::new(), body: body.to_string() }
    }

    /// The same under a key.
    pub(crate) fn under(self, key: &'a str) -> Self {
        self.with("idempotency-key", key)
    }

    /// The same with one more header.
    pub(crate) fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// As it stands on the wire.
    fn text(&self) -> String {
        let Self { method, path, headers, body } = self;
        let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let (headers, length) = (lines.collect::<Vec<_>>().concat(), body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nhost: host\r\nconnection: close\r\n{headers}\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    }

    /// Sends it, and does not wait for what is said.
    ///
    /// # Errors
    /// When there is nobody.
    pub(crate) fn begin(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
        stream.set_read_timeout(Some(WITHIN))?;
        stream.write_all(self.text().as_bytes())?;
        Ok(stream)
    }

    /// Sends it, and gives the answer.
    ///
    /// # Errors
    /// When there is nobody, or the answer breaks off: then nothing was heard.
    pub(crate) fn send(&self, address: SocketAddr) -> io::Result<Heard> {
        let mut stream = self.begin(address)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        whole(&text).ok_or_else(|| io::Error::other("the answer broke off"))
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    /// With names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// Whether it was given before.
    pub(crate) fn is_replay(&self) -> bool {
        self.header(REPLAY) == Some("true")
    }

    /// The body as JSON, or nothing.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// A text in the body.
    pub(crate) fn text(&self, name: &str) -> String {
        let text = self.json()[name].as_str().map(str::to_owned);
        text.unwrap_or_else(|| panic!("there is no {name:?}: {self:?}"))
    }

    /// The code of an error.
    pub(crate) fn error(&self) -> Option<String> {
        self.json()["error"].as_str().map(str::to_owned)
    }

    /// The events of a stream, as they were sent.
    pub(crate) fn streamed(&self) -> Vec<Value> {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
        data.map(|data| serde_json::from_str(data.trim()).unwrap()).collect()
    }
}

fn whole(text: &str) -> Option<Heard> {
    let (lines, body) = text.split_once("\r\n\r\n")?;
    let (first, rest) = lines.split_once("\r\n").unwrap_or((lines, ""));
    let status = first.split(' ').nth(1)?.parse().ok()?;
    let headers = rest.split("\r\n").filter_map(|line| line.split_once(':'));
    let headers: Vec<_> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let heard = Heard { status, headers, body: body.to_owned() };
    if heard.header("transfer-encoding") == Some("chunked") {
        return Some(Heard { body: unchunked(body)?, ..heard });
    }
    let length = heard.header("content-length").map_or(Ok(0), str::parse).ok()?;
    (body.len() == length).then_some(heard)
}

/// A body without the lengths of its pieces, if it is whole.
fn unchunked(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n")?;
        let length = usize::from_str_radix(length, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.push_str(after.get(..length)?);
        rest = after.get(length..)?.strip_prefix("\r\n")?;
    }
}
