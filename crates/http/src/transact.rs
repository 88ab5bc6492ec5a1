//! Requests whose effects are in our own store: the response and the effects are one commit.
//!
//! For doors that are built in. A request is read as every other one; what it changes is computed
//! by a pure function and committed with the record of its key. So there is no lease, nothing can
//! become unknown, and a retry finds the response or nothing. A request without a key makes the
//! same change, and is not remembered.

use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;
use onetake_core::{Ask, Key, Operation, Outcome, Scope};
use onetake_engine::{Answer, Doc, Effects, Engine, Journal, Need, Place, RunError, Update, View};

use crate::ask;
use crate::idempotency::Idempotency;
use crate::reply::{self, Said};
use crate::room::Share;
use crate::walk::has_new_keys_left;

/// A request that was read whole.
#[derive(Debug)]
pub struct WholeRequest<'r> {
    parts: &'r Parts,
    body: Bytes,
    scope: Scope,
    ask: Option<Ask>,
    /// What it takes of the room for requests, until it is answered.
    _taken: Share,
}

impl WholeRequest<'_> {
    /// Its head.
    #[must_use]
    pub const fn parts(&self) -> &Parts {
        self.parts
    }

    /// Its body.
    #[must_use]
    pub const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Who asks.
    #[must_use]
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The key that it carries.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        self.ask.as_ref().map(|ask| ask.address.key())
    }

    /// The name of what it asks for, if it carries a key.
    #[must_use]
    pub fn operation(&self) -> Option<&Operation> {
        self.ask.as_ref().map(|ask| ask.address.operation())
    }
}

impl Idempotency {
    /// Reads a request whole, with its key, if it carries one; for a door that knows who asks, and
    /// what that is called.
    ///
    /// # Errors
    /// The response to a request that cannot be read; it is never remembered.
    ///
    /// # Cancel safety
    /// Nothing has happened when it is dropped.
    pub async fn read<'r, B>(
        &self,
        parts: &'r Parts,
        body: B,
        scope: Scope,
        operation: Operation,
    ) -> Result<WholeRequest<'r>, Response<Bytes>>
    where
        B: Body<Data = Bytes> + Send,
    {
        let settings = &*self.settings;
        let refuse = |refused: &_| reply::refuse(refused, &settings.dialect);
        let keyed = ask::keyed(parts, settings).map_err(|refused| refuse(&refused))?;
        ask::announced(&body, settings.request_bytes_max).map_err(|refused| refuse(&refused))?;
        let read = ask::body(body, settings, || self.room.share(scope.tenant())).await;
        let (body, taken) = read.map_err(|(refused, _)| refuse(&refused))?;
        let taken = taken.or_else(|| self.room.share_of(scope.tenant(), body.len()));
        let taken = taken.ok_or_else(|| refuse(&ask::no_room()))?;
        let named = (scope.clone(), Some(operation));
        let ask = keyed.map(|keyed| ask::ask(parts, &body, keyed, named, settings));
        let ask = ask.transpose().map_err(|refused| refuse(&refused))?;
        Ok(WholeRequest { parts, body, scope, ask, _taken: taken })
    }

    /// The answer to `request` if it was answered before, from memory alone. `None` says nothing.
    #[must_use]
    pub fn known(&self, request: &WholeRequest<'_>) -> Option<Response<Bytes>> {
        let known = self.walk.at_hand(request.ask.as_ref()?)?;
        Some(self.said(known))
    }

    /// Answers `request` with what `compute` makes of it: a change of the document `anchor`, and
    /// the response. Both are one commit. `places` are read with the anchor, at once.
    ///
    /// `compute` must be pure, for it is run again when others came first. A response that the
    /// policy does not keep must come without a change. Whoever asks [`known`](Self::known) before
    /// has the answer to most retries for less.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of it committed or nothing; a retry with the key tells.
    pub async fn commit<S, F>(
        &self,
        engine: &Engine<S>,
        request: &WholeRequest<'_>,
        anchor: &Doc,
        places: Vec<Place>,
        compute: F,
    ) -> Response<Bytes>
    where
        S: Journal,
        F: Fn(&View) -> Result<Update<Outcome>, Need> + Send,
    {
        let Some(ask) = &request.ask else {
            return match engine.update(anchor, places, compute).await {
                Ok(outcome) => reply::whole(&outcome, None, &self.settings.dialect),
                Err(error) => self.said(Err(error)),
            };
        };
        if let Err(refused) = has_new_keys_left(self, ask).await {
            return reply::refuse(&refused, &self.settings.dialect);
        }
        let mut places = places;
        let place = Place::Doc(anchor.clone());
        if !places.contains(&place) {
            places.push(place);
        }
        let effects = move |view: &View| Ok(Effects::of(anchor, compute(view)?));
        let ended = engine.transact_reading(ask.clone(), places, effects).await;
        if let (Some(new_keys), Ok(Answer::Executed { .. })) = (&self.new_keys, &ended) {
            new_keys.spend(ask.address.tenant(), Instant::now());
        }
        self.said(ended)
    }

    fn said(&self, ended: Result<Answer, RunError>) -> Response<Bytes> {
        let dialect = &self.settings.dialect;
        match ended {
            Ok(Answer::Executed { outcome, expires_at }) => {
                reply::whole(&outcome, expires_at, dialect)
            }
            ended => match reply::say(ended, dialect) {
                Said::Whole(response) => response,
                Said::Own(_) => unreachable!("invariant: that arm is above"),
            },
        }
    }
}
