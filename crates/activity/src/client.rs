//! The HTTP client of side effects inside a workflow node: each call goes through the log, once.
//!
//! A call carries its identity in the header that its provider reads, and all its attempts carry
//! the same. What the provider answered is kept, a refusal too; what was certainly not sent is
//! free; what broke off is made again where the provider recognises it, and is held otherwise.
//! Nothing here follows a redirect, keeps a cookie, stores a stream or logs what is sent.

mod call;
mod dial;
mod failure;
mod retry;
mod send;
mod settings;
mod stream;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{HeaderName, HeaderValue};
use onetake_core::{Finality, OnUnknown};
use onetake_engine::Slots;
use tokio::sync::oneshot;

pub use self::call::{HttpCall, HttpCallError, HttpResult};
pub use self::failure::{HttpFailure, NotSentCause, StreamEnd};
use self::retry::{Made, Making, Wants};
use self::send::Wire;
pub use self::settings::{HttpSettings, HttpSettingsError, Roots};
use self::stream::{Begun, Recorded, pass};
pub use self::stream::{HttpStream, StreamError};
use crate::activities::{Calling, Named, NodeCalls};
use crate::error::ExecuteError;
use crate::invocation::InvocationError;
use crate::reply::{Ending, Take};

/// Calls providers. Clones share connections and bounds.
///
/// # Example
///
/// ```no_run
/// use http::Method;
/// use onetake_activity::{Activities, HttpCall, HttpClient, HttpReply, HttpSettings, Site};
/// use onetake_core::Tenant;
/// use onetake_engine::{Engine, Memory};
///
/// # async fn charge() -> Result<(), Box<dyn std::error::Error>> {
/// let log = Activities::new(Engine::new(Memory::new()));
/// let client = HttpClient::new(HttpSettings::new())?;
/// let tenant = Tenant::new("acme")?;
/// let mut node = log.enter(Site { tenant, run: "run-1".into(), node: "N1".into(), attempt: 0 });
/// let call = HttpCall::new(Method::POST, "https://api.stripe.com/v1/charges")?.body("amount=5");
/// match node.http(&client, "stripe", call).await? {
///     HttpReply::Kept(take) => println!("{}, again: {}", take.value.status, take.is_repeat()),
///     HttpReply::Stream(mut stream) => while stream.next().await.transpose()?.is_some() {},
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

struct Inner {
    wire: Wire,
    settings: HttpSettings,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpClient").field(&self.0.settings).finish()
    }
}

impl HttpClient {
    /// A client with these settings. Opens no connection. HTTP/1.1 is spoken, and HTTP/2 where TLS
    /// agrees on it.
    ///
    /// # Errors
    /// An [`HttpSettingsError`] that says what to change.
    pub fn new(settings: HttpSettings) -> Result<Self, HttpSettingsError> {
        settings.check()?;
        Ok(Self(Arc::new(Inner { wire: Wire::new(&settings)?, settings })))
    }

    /// Makes one call, as the effect of an execution.
    async fn make(self, order: Order, calling: Calling) -> Ending<HttpResult, HttpFailure> {
        let Order { call, identity, wants, begins, is_answering } = order;
        let id = HeaderValue::from_str(calling.id.as_str());
        let making = Making {
            wire: &self.0.wire,
            settings: &self.0.settings,
            call: &call,
            identity,
            id: id.expect("invariant: an identity is letters and digits"),
            wants,
            is_recognised: calling.provider.on_unknown == OnUnknown::Retry,
            is_recovery: calling.attempt.recovery,
        };
        match making.make().await {
            Made::Over(ending) => ending,
            Made::Stream(opened) => {
                is_answering.store(true, Ordering::SeqCst);
                let status = opened.response.status().as_u16();
                let ended = pass(opened, begins, &self.0.settings).await;
                Ending::Retryable(HttpFailure::Streamed { status, ended })
            }
        }
    }
}

/// What an execution is to do, and where a stream begins.
struct Order {
    call: HttpCall,
    identity: HeaderName,
    wants: Wants,
    begins: oneshot::Sender<Begun>,
    /// Whether the caller is being answered before the end.
    is_answering: Arc<AtomicBool>,
}

/// What an HTTP call gives.
#[derive(Debug)]
pub enum HttpReply {
    /// A result, the same for every attempt.
    Kept(Take<HttpResult>),
    /// A stream, for this caller alone.
    Stream(HttpStream),
}

impl HttpReply {
    /// The result, unless it is a stream.
    #[must_use]
    pub fn kept(self) -> Option<Take<HttpResult>> {
        match self {
            Self::Kept(take) => Some(take),
            Self::Stream(_) => None,
        }
    }

    /// The stream, unless it is a result.
    #[must_use]
    pub fn stream(self) -> Option<HttpStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Kept(_) => None,
        }
    }
}

/// What [`NodeCalls::http`] gives.
pub type HttpReplied = Result<HttpReply, ExecuteError<HttpFailure>>;

impl<S: Slots> NodeCalls<S> {
    /// Makes the next call over HTTP, or gives what the provider answered when it was made before.
    ///
    /// An answer is kept, whatever it says, except one that is only so for now (408, 425, 429 and
    /// 5xx): then the call is tried again a few times, under the same identity. An answer of type
    /// `text/event-stream` is passed on as it comes and not kept; see
    /// [`http_stream`](Self::http_stream).
    ///
    /// # Errors
    /// [`ExecuteError::Failed`] with an [`HttpFailure`], which says whether the call may be made
    /// again. [`ExecuteError::Unknown`]: the request was sent, nobody knows what came of it, and
    /// the provider does not recognise a second one. [`ExecuteError::ResultNotKept`]: the call was
    /// made, and its result is larger than the engine keeps. Otherwise as
    /// [`call`](Self::call).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing but who hears the result. A stream that nobody waits for
    /// any more is ended as soon as it begins.
    pub async fn http(
        &mut self,
        client: &HttpClient,
        provider: &str,
        call: HttpCall,
    ) -> HttpReplied {
        self.over_http(client, provider, call, Wants::Result).await
    }

    /// Like [`http`](Self::http), but whatever the provider answers with success is passed on as it
    /// comes. That the call was made, and how its stream ended, is recorded; its body is not, so a
    /// node that runs again makes the call again, also when nobody knows what came of the last one.
    /// Whoever waited for another's stream hears [`HttpFailure::Streamed`].
    ///
    /// # Errors
    /// Those of [`http`](Self::http).
    ///
    /// # Cancel safety
    /// That of [`http`](Self::http).
    pub async fn http_stream(
        &mut self,
        client: &HttpClient,
        provider: &str,
        call: HttpCall,
    ) -> HttpReplied {
        self.over_http(client, provider, call, Wants::Stream).await
    }

    async fn over_http(
        &mut self,
        client: &HttpClient,
        provider: &str,
        call: HttpCall,
        wants: Wants,
    ) -> HttpReplied {
        let Named { id, provider, executor, scope } = self.next(provider)?;
        let identity = HeaderName::from_bytes(provider.header.as_bytes());
        let identity = identity.map_err(|_| InvocationError::Header)?;
        // A call that was answered is never made again because its answer could not be kept.
        let policy = executor.policy().to_builder().failures(Finality::Final);
        let policy = match wants {
            Wants::Result => policy,
            // A complete stream is called again, so one that broke off unseen may be, too.
            Wants::Stream => policy.on_unknown(OnUnknown::Retry),
        };
        let policy = Arc::new(policy.build()?);
        let asked = call.asked(&identity);
        let (begins, begun) = oneshot::channel();
        let is_answering = Arc::new(AtomicBool::new(false));
        let (client, answers) = (client.clone(), Arc::clone(&is_answering));
        let order = Order { call, identity, wants, begins, is_answering };
        let mut recorded: Recorded = Box::pin(async move {
            let key = id.key().clone();
            let effect = move |attempt| client.make(order, Calling { id, provider, attempt });
            let is_answering = move || answers.load(Ordering::SeqCst);
            executor.execute_by(&policy, &scope, Some(&key), asked, effect, is_answering).await
        });
        tokio::select! {
            biased;
            Ok(begun) = begun => Ok(HttpReply::Stream(HttpStream::new(begun, recorded))),
            ended = &mut recorded => ended.map(HttpReply::Kept),
        }
    }
}
