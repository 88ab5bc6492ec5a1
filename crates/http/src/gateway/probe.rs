//! Asks a status URL what came of an attempt whose outcome is unknown.
//!
//! A `2xx` is the outcome, but for a `202`, which says that there is none yet. A `404` or `410`
//! says that there was no effect, and is believed only once the attempt has had its whole time:
//! before that the upstream may still be at it. Anything else leaves the outcome as unknown as it
//! was. The probe is a GET that changes nothing; it is never recorded as an execution, never
//! follows a redirect, and carries nothing of the caller's request but who asks, the key, and what
//! kind of answer is wanted.

mod turns;
mod url;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use onetake_core::Outcome;
use tokio::time::{Instant, timeout_at};

use self::turns::Turn;
pub(super) use self::turns::Turns;
pub use self::url::{PROBE_URL_BYTES_MAX, ProbeUrl, ProbeUrlError};
use super::forward::{self, upstream_uri};
use super::proxy::{Proxy, ProxyUpstream, set};
use crate::body::DoorBody;
use crate::execute::{is_stream, outcome_of};
use crate::read::{Read, read};
use crate::spare::{Learned, SOON, Unsettled};

/// The longest that a probe may take, however long its route may.
const WITHIN_MAX: Duration = Duration::from_secs(10);
/// How long a second caller stays for the answer to the first one's probe: longer than a probe and
/// the store calls around it, so that only a stalled process is ever given up.
const WAIT_MAX: Duration = Duration::from_secs(30);

const PROBE: HeaderName = HeaderName::from_static("onetake-probe");
/// What of the caller's headers says which kind of answer is wanted. Conditions and ranges stay
/// behind: they would turn the outcome into a part of it.
const WANTED: [HeaderName; 3] = [header::HOST, header::ACCEPT, header::ACCEPT_LANGUAGE];

/// Where the outcome of a route is asked for.
#[derive(Debug, Clone)]
pub struct Probe {
    url: ProbeUrl,
    /// `None`: the upstream of the route itself.
    elsewhere: Option<ProxyUpstream>,
}

impl Probe {
    /// A probe of a path of the route's own upstream. The host of `url`, if it has one, is not
    /// looked at.
    #[must_use]
    pub const fn here(url: ProbeUrl) -> Self {
        Self { url, elsewhere: None }
    }

    /// A probe of another upstream, which is at the [base](ProbeUrl::base) of `url`.
    #[must_use]
    pub const fn elsewhere(url: ProbeUrl, upstream: ProxyUpstream) -> Self {
        Self { url, elsewhere: Some(upstream) }
    }
}

/// What the parameters of a route's path stand for in one request.
#[derive(Debug, Clone)]
pub(super) struct PathParams(pub(super) Arc<[(Arc<str>, String)]>);

/// What a status URL said.
enum Said {
    /// There was an effect, and this came of it.
    Outcome(Outcome),
    /// There was none, as far as it knows.
    NoEffect,
    /// Nothing that helps.
    Nothing,
}

/// Finds out what came of `unsettled`, and records it if that is an outcome.
///
/// One caller at a time asks about a key. The others stay for that answer instead of being sent
/// away: it takes seconds at most, it is very likely what they want, and sending them away would
/// make them ask again. They never ask a second time themselves, so that a status URL in trouble
/// gets one request for all of them.
pub(super) async fn learn(proxy: &Proxy, unsettled: Unsettled<'_>) -> Learned {
    let Some(probe) = &proxy.target.probe else { return Learned::Nothing(None) };
    let Unsettled { door, ask, fence, .. } = unsettled;
    let turn = match proxy.target.shared.turns.take(ask.address.slot()) {
        Turn::Mine(turn) => turn,
        Turn::Anothers(ended) => {
            let heard = tokio::time::timeout(WAIT_MAX, ended.wait()).await;
            return heard.map_or(Learned::Nothing(Some(SOON)), |()| Learned::LookAgain);
        }
        Turn::TooMany => return Learned::Nothing(Some(SOON)),
    };
    // Seen before anything is asked: what is said is about this record, and its age is what it was
    // when the question was put.
    let doubt = match door.walk.doubt(&ask.address, fence).await {
        Ok(Some(doubt)) => doubt,
        Ok(None) => return Learned::LookAgain,
        Err(error) => return unsettled_still(&error),
    };
    let limit = proxy.target.timeout;
    match probe.ask(proxy, unsettled).await {
        Said::Outcome(outcome) => match door.walk.settle(&doubt, &ask.policy, outcome).await {
            Ok(_) => Learned::LookAgain,
            Err(error) => unsettled_still(&error),
        },
        Said::NoEffect if doubt.age() >= limit => Learned::NoEffect(doubt, Box::new(turn)),
        Said::NoEffect => Learned::Nothing(Some(limit.saturating_sub(doubt.age()))),
        Said::Nothing => Learned::Nothing(Some(SOON)),
    }
}

fn unsettled_still(error: &onetake_engine::RunError) -> Learned {
    tracing::warn!(%error, "what a status URL said could not be recorded");
    Learned::Nothing(Some(SOON))
}

impl Probe {
    async fn ask(&self, proxy: &Proxy, unsettled: Unsettled<'_>) -> Said {
        let target = &*proxy.target;
        let deadline = Instant::now() + target.timeout.min(WITHIN_MAX);
        let Some(request) = self.request(proxy, unsettled) else {
            tracing::warn!("a status URL cannot be made of this request");
            return Said::Nothing;
        };
        let upstream = self.elsewhere.as_ref().unwrap_or(&target.upstream);
        let Some(place) = upstream.try_place() else {
            tracing::warn!(upstream = %upstream.authority(), "no place for a probe");
            return Said::Nothing;
        };
        let within = target.timeout.min(WITHIN_MAX);
        let response = match upstream.send_in(place, request, within).await {
            Ok(response) => response,
            Err(error) => {
                tracing::warn!(%error, upstream = %upstream.authority(), "a probe failed");
                return Said::Nothing;
            }
        };
        let status = response.status();
        tracing::info!(%status, upstream = %upstream.authority(), "a status URL was asked");
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Said::NoEffect,
            // Not done yet, by its own word.
            StatusCode::ACCEPTED => Said::Nothing,
            status if status.is_success() => {
                let read = timeout_at(deadline, outcome(response, target.response_bytes_max));
                read.await.ok().flatten().map_or(Said::Nothing, Said::Outcome)
            }
            _ => Said::Nothing,
        }
    }

    /// The request to the status URL; `None` when this key makes no URL of it.
    fn request(
        &self,
        proxy: &Proxy,
        unsettled: Unsettled<'_>,
    ) -> Option<Request<DoorBody<Incoming>>> {
        let (target, parts) = (&*proxy.target, unsettled.parts);
        let upstream = self.elsewhere.as_ref().unwrap_or(&target.upstream);
        let key = unsettled.ask.address.key();
        let params = parts.extensions.get::<PathParams>().map(|params| Arc::clone(&params.0));
        let tenant = unsettled.ask.address.tenant().as_str();
        let asked =
            self.url.fill(&proxy.key_sent(key), tenant, params.as_deref().unwrap_or_default())?;
        let mut headers = HeaderMap::new();
        let own = target.upstream.base();
        let is_own = own.scheme() == upstream.base().scheme()
            && own.authority() == upstream.base().authority();
        // What a caller shows to one host is not for another.
        let credentials = if is_own { &*target.shared.credentials } else { &[] };
        let wanted = WANTED.iter().chain([&target.dialect.key_header]);
        for name in wanted.chain(credentials) {
            for value in parts.headers.get_all(name) {
                headers.append(name, value.clone());
            }
        }
        target.shared.forwarding.request(
            &mut headers,
            &parts.uri,
            &proxy.caller,
            upstream.authority(),
        );
        if !is_own {
            // The caller's own host, where that is wanted, is one of the route's upstream.
            set(&mut headers, header::HOST, upstream.authority().as_str());
        }
        proxy.identify(&mut headers);
        proxy.set_key(&mut headers, key);
        headers.insert(PROBE, HeaderValue::from_static("true"));
        let mut request = Request::new(DoorBody::whole(Bytes::new()));
        *request.method_mut() = Method::GET;
        *request.uri_mut() = upstream_uri(upstream.base(), &asked).ok()?;
        *request.headers_mut() = headers;
        Some(request)
    }
}

/// What a response is as an outcome; `None` when it cannot be kept whole. An outcome that cannot
/// be given again settles nothing: the key stays unknown, and an operator can still say.
async fn outcome(response: Response<super::Given>, bytes_max: usize) -> Option<Outcome> {
    let (mut parts, body) = response.into_parts();
    forward::response(&mut parts.headers, parts.version);
    if is_stream(&parts.headers) {
        return None;
    }
    match read(body, bytes_max).await {
        (Read::Whole, body) => {
            let outcome = outcome_of(parts.status, &parts.headers, &body.into_bytes());
            Some(outcome).filter(|outcome| matches!(outcome, Outcome::Response { .. }))
        }
        (Read::WithTrailers | Read::TooLarge | Read::NoRoom | Read::Broken, _) => {
            tracing::warn!("the answer of a status URL cannot be kept; the outcome stays unknown");
            None
        }
    }
}
