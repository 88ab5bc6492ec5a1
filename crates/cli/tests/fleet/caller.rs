//! A caller of the fleet: one request over one connection, and all of the answer or none of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a caller waits. Longer than anybody is stopped.
const WITHIN: Duration = Duration::from_secs(60);
/// What is said about this very answer and not about the outcome.
const OF_THE_ANSWER: [&str; 3] = ["date", "connection", "idempotent-replayed"];

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    /// The headers, with names in lower case, in the order of their names.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// Whether it was given before, to whomever.
    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What every further answer has to repeat, byte for byte.
    pub(crate) fn kept(&self) -> Self {
        let is_kept = |name: &str| !OF_THE_ANSWER.contains(&name);
        let headers = self.headers.iter().filter(|(name, _)| is_kept(name)).cloned().collect();
        Self { headers, ..self.clone() }
    }
}

/// Places an order under `key`.
///
/// # Errors
/// When there is nobody, or the answer breaks off: then nothing was heard.
pub(crate) fn post(address: SocketAddr, key: &str, body: &str) -> io::Result<Heard> {
    let mut stream = TcpStream::connect_timeout(&address, WITHIN)?;
    stream.set_read_timeout(Some(WITHIN))?;
    let length = body.len();
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: api\r\nconnection: close\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    whole(&text).ok_or_else(|| io::Error::other("the answer broke off"))
}

fn whole(text: &str) -> Option<Heard> {
    let (lines, body) = text.split_once("\r\n\r\n")?;
    let (first, rest) = lines.split_once("\r\n")?;
    let status = first.split(' ').nth(1)?.parse().ok()?;
    let headers = rest.split("\r\n").filter_map(|line| line.split_once(':'));
    let mut headers: Vec<_> =
        headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    headers.sort();
    let heard = Heard { status, headers, body: body.to_owned() };
    let length: usize = heard.header("content-length")?.parse().ok()?;
    (length == body.len()).then_some(heard)
}
