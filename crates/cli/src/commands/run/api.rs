//! The public door of a host of workflows, as its callers use it: creates a run, opens its events.
//!
//! Creating is repeated under the same key for as long as it may help; what was created once is
//! never created again. Shows no credential, not even to who gave it.

use std::time::Duration;

use anyhow::Result;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use onetake::core::Backoff;
use onetake_http::gateway::upstream::{Upstream, UpstreamBody, UpstreamOptions};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::stream::Events;
use crate::exit::Fault;

/// How often it is tried to create a run.
const TRIES_MAX: u32 = 8;
/// How long it is waited between two tries.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(5) };
/// The largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long the body of an answer may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// What a host says of an answer that it gave before.
const REPLAYED: &str = "openwop-idempotent-replay";
/// What a host says of a key that another request is using.
const IN_FLIGHT: &str = "idempotency_in_flight";

/// The door of a host.
pub(super) struct Api {
    upstream: Upstream<Full<Bytes>>,
    base: String,
    credential: Option<HeaderValue>,
}

/// A run that was created.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) run: String,
    pub(super) status: String,
    /// Whether an earlier request had created it.
    pub(super) is_replay: bool,
}

/// Why there is nothing.
pub(super) enum Trouble {
    /// It may pass.
    Later {
        why: String,
        /// Whether it is certain that the host has heard nothing.
        is_unsent: bool,
    },
    /// It would be the same again.
    Never(anyhow::Error),
}

/// How long to wait after so many failures in a row.
pub(super) fn pause(failures: u32) -> Duration {
    // The low bits of a fresh name are random.
    let spread = Uuid::now_v7().as_u64_pair().1;
    BACKOFF.delay(failures, spread)
}

impl Api {
    /// The host at `url`.
    ///
    /// # Errors
    /// When that is no URL, or the key no credential.
    pub(super) fn new(url: &str, key: Option<&str>) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|why| Fault::Usage(format!("--url: {why}")))?;
        let upstream = Upstream::new(uri, UpstreamOptions::new())
            .map_err(|why| Fault::Usage(format!("--url: {why}")))?;
        let credential = key.filter(|key| !key.is_empty()).map(|key| {
            let value = HeaderValue::try_from(format!("Bearer {key}"));
            value.map_err(|_| Fault::Usage("--key: not what an API key can be".to_owned()))
        });
        let mut credential = credential.transpose()?;
        if let Some(value) = &mut credential {
            value.set_sensitive(true);
        }
        Ok(Self { upstream, base, credential })
    }

    /// Where the host is.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Whether callers say who they are.
    pub(super) const fn has_credential(&self) -> bool {
        self.credential.is_some()
    }

    /// Creates the run that `body` describes under `key`, once; `tell` hears what went wrong on the
    /// way.
    ///
    /// # Errors
    /// A [`Fault`] when the host refused, or could not be reached.
    pub(super) async fn create(
        &self,
        body: &Value,
        key: &str,
        tell: impl Fn(&str),
    ) -> Result<Created> {
        let bytes = Bytes::from(body.to_string());
        let (mut failures, mut nothing_sent) = (0, true);
        loop {
            let why = match self.try_create(&bytes, key).await {
                Ok(created) => return Ok(created),
                Err(Trouble::Never(error)) => return Err(error),
                Err(Trouble::Later { why, is_unsent }) => {
                    nothing_sent &= is_unsent;
                    why
                }
            };
            failures += 1;
            if failures >= TRIES_MAX {
                let known = if nothing_sent {
                    "nothing was created".to_owned()
                } else {
                    format!("it may have been created: say the same with `--idempotency-key {key}`")
                };
                let base = &self.base;
                return Err(Fault::Unreachable(format!("{base}: {why}; {known}")).into());
            }
            tell(&format!("{why}; trying again under the same key"));
            sleep(pause(failures)).await;
        }
    }

    async fn try_create(&self, body: &Bytes, key: &str) -> Result<Created, Trouble> {
        let request = self
            .request("POST", "/v1/runs")
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", key)
            .body(Full::new(body.clone()));
        let request = request.map_err(|_| {
            let why = "--idempotency-key: not what a key can be";
            Trouble::Never(Fault::Usage(why.to_owned()).into())
        })?;
        let response = self.sent(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let answer = answer(response).await?;
        let run = answer.get("runId").and_then(Value::as_str);
        let (Some(run), true) = (run, status.is_success()) else {
            return Err(self.refusal(status, &answer));
        };
        let standing = answer.get("status").and_then(Value::as_str).unwrap_or("running");
        Ok(Created {
            run: run.to_owned(),
            status: standing.to_owned(),
            is_replay: headers.get(REPLAYED).is_some_and(|value| value == "true"),
        })
    }

    /// Opens the events of a run behind the sequence `last`.
    ///
    /// # Errors
    /// [`Trouble`], which may pass or not.
    pub(super) async fn events(&self, run: &str, last: Option<u64>) -> Result<Events, Trouble> {
        let path = format!("{}/events?streamMode=debug", run_path(run));
        let mut request = self.request("GET", &path).header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let request = request.body(Full::default()).map_err(|why| Trouble::Never(why.into()))?;
        let response = self.sent(request).await?;
        if response.status() == StatusCode::OK {
            return Ok(Events::new(response.into_body()));
        }
        let status = response.status();
        let answer = answer(response).await?;
        Err(self.refusal(status, &answer))
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        match &self.credential {
            Some(value) => request.header(header::AUTHORIZATION, value),
            None => request,
        }
    }

    async fn sent(&self, request: Request<Full<Bytes>>) -> Result<Response<UpstreamBody>, Trouble> {
        self.upstream.send(request).await.map_err(|error| Trouble::Later {
            // What is behind the semicolon is about one try, and this is about all of them.
            why: error
                .to_string()
                .split(';')
                .next()
                .unwrap_or_default()
                .replace("upstream", "host"),
            is_unsent: error.is_unsent(),
        })
    }

    /// What an answer means that is none.
    fn refusal(&self, status: StatusCode, answer: &Value) -> Trouble {
        let of = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        let code = of("error").or_else(|| of("code"));
        let is_passing = matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502..=504)
            || code.as_deref() == Some(IN_FLIGHT);
        if is_passing {
            let code = code.unwrap_or_else(|| "no reason".to_owned());
            let why = format!("the host answered {} ({code})", status.as_u16());
            return Trouble::Later { why, is_unsent: false };
        }
        let is_hosts = of("error").is_some() && of("message").is_some();
        let message = if status == StatusCode::UNAUTHORIZED && self.credential.is_none() {
            "the host wants to know who asks: set ONETAKE_API_KEY to an API key".to_owned()
        } else if is_hosts {
            of("message").unwrap_or_default()
        } else if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) {
            let base = &self.base;
            format!("there is no workflow host at {base}: `[openwop]` in its configuration has one")
        } else {
            of("detail").unwrap_or_else(|| format!("the host answered {status}"))
        };
        let code = code.unwrap_or_else(|| "refused".to_owned());
        Trouble::Never(Fault::Refused { status: status.as_u16(), code, message }.into())
    }
}

/// The path of a run.
pub(super) fn run_path(run: &str) -> String {
    format!("/v1/runs/{}", part(run))
}

/// A name as it stands in a path.
pub(super) fn part(name: &str) -> String {
    const PLAIN: &percent_encoding::AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(name, PLAIN).to_string()
}

/// The JSON of an answer; nothing where it is none.
async fn answer(response: Response<UpstreamBody>) -> Result<Value, Trouble> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
    let later = |why: &str| Trouble::Later { why: why.to_owned(), is_unsent: false };
    let body = timeout(BODY_WITHIN, body).await.map_err(|_| later("the answer took too long"))?;
    let body = body.map_err(|_| later("the answer broke off"))?;
    Ok(serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null))
}
