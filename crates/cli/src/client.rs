//! Asks the admin surface of a running process: one request, one connection, one answer.
//!
//! Speaks plain HTTP/1.1 to where `admin.json` says, which is the loopback. Never retries: an act
//! that may be done is said so, and saying it again is harmless.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use onetake_console::Token;
use onetake_console::wire::{OPERATOR_HEADER, Problem};
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::admin::{self, AdminFile};
use crate::exit::Fault;

/// How long a request may take; more than the surface itself allows.
const WITHIN: Duration = Duration::from_secs(45);
/// How long a copy of a whole store may take.
pub(crate) const BACKUP_WITHIN: Duration = Duration::from_secs(60 * 60 + 15);
/// The largest answer that is taken, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The admin surface of a running process.
#[derive(Debug)]
pub(crate) struct Client {
    authority: String,
    token: Token,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Path and query.
    pub(crate) path: String,
    /// The body of a `POST`; a `GET` has none.
    pub(crate) body: Option<Vec<u8>>,
    /// Who acts.
    pub(crate) by: Option<&'a str>,
    /// How long it may take.
    pub(crate) within: Duration,
}

impl Call<'_> {
    /// A `GET` of `path`.
    pub(crate) const fn get(path: String) -> Self {
        Call { path, body: None, by: None, within: WITHIN }
    }
}

impl<'a> Call<'a> {
    /// A `POST` of `body` to `path`, in the name of `by`.
    pub(crate) const fn post(path: String, body: Vec<u8>, by: Option<&'a str>) -> Self {
        Call { path, body: Some(body), by, within: WITHIN }
    }
}

impl Client {
    /// The surface that listens on `address`.
    pub(crate) fn at(address: SocketAddr, token: Token) -> Self {
        Self { authority: admin::reachable(address).to_string(), token }
    }

    /// The surface that `file` names. The token that was `given` comes first, then the one that
    /// the file names, then the one that is `configured`.
    ///
    /// # Errors
    /// When there is no token, or the URL is none.
    pub(crate) fn of(
        file: &AdminFile,
        given: Option<Token>,
        configured: Option<Token>,
    ) -> Result<Self> {
        let uri: Uri = file.url.parse().context("admin.json holds no URL")?;
        let authority = uri.authority().context("admin.json names no host")?.to_string();
        let token = match (given, &file.token_file, configured) {
            (Some(token), _, _) | (None, None, Some(token)) => token,
            (None, Some(path), _) => Token::read(path)?,
            (None, None, None) => {
                let why = "the running process has its token from the environment; \
                           give ONETAKE_ADMIN__TOKEN here as well";
                return Err(Fault::Usage(why.to_owned()).into());
            }
        };
        Ok(Self { authority, token })
    }

    /// Sends `call` and reads the answer.
    ///
    /// # Errors
    /// A [`Problem`] when the surface refused; a [`Fault`] when it cannot be reached.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T> {
        let within = call.within;
        let answer = timeout(within, self.exchange(call)).await;
        let unreachable = |why: String| {
            let authority = &self.authority;
            Fault::Unreachable(format!("the process at {authority} does not answer: {why}"))
        };
        let (is_ok, body) = answer
            .map_err(|_| unreachable(format!("not within {} s", within.as_secs())))?
            .map_err(|why| unreachable(format!("{why:#}")))?;
        if is_ok {
            return serde_json::from_slice(&body).context("the answer is not what it should be");
        }
        let problem: Problem =
            serde_json::from_slice(&body).context("the refusal is not what it should be")?;
        Err(problem.into())
    }

    async fn exchange(&self, call: Call<'_>) -> Result<(bool, Bytes)> {
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(if call.body.is_some() { "POST" } else { "GET" })
            .uri(call.path)
            .header(header::HOST, &self.authority)
            .header(header::AUTHORIZATION, self.token.authorization())
            .header(header::CONNECTION, "close");
        if call.body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(name) = call.by {
            request = request.header(OPERATOR_HEADER, name.as_bytes());
        }
        let request = request.body(Full::new(Bytes::from(call.body.unwrap_or_default())))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let is_ok = response.status().is_success();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|why| anyhow::anyhow!("the answer broke off: {why}"))?;
            Ok((is_ok, body.to_bytes()))
        };
        // The connection must be driven for the answer to come, and ends after it.
        let (answer, _ended) = tokio::join!(answer, connection);
        answer
    }
}
