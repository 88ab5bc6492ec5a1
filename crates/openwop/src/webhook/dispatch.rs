//! Sends what is to be told: each delivery until it is acknowledged, or dead.
//!
//! A delivery is moved on in the schedule before it is sent, so no two processes send it at once
//! and none that is gone takes it along. A receiver may hear of an event twice, never of another
//! one. How a receiver fares is kept with it: one that fails again and again is left alone for a
//! while.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onetake_core::{Tenant, Timestamp};
use onetake_engine::{Check, Journal, Need, Place, RunError, Stamped, Update, View, Write};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::circuit::{Circuit, CircuitState};
use super::schedule::{Next, Schedule, Tried};
use super::send::{Attempt, Sender};
use super::sign::{Delivery as Signed, Secret};
use super::{Delivery, Hook};
use crate::books::{self, DELIVERIES, ENDPOINTS};
use crate::host::{Host, lock};

/// How often the schedule of deliveries is looked at unasked.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many deliveries are read at once.
const PAGE: usize = 100;
/// How many are sent at once.
const SENT_MAX: usize = 32;
/// How long a delivery that is being sent is left alone by others at least: longer than one takes.
const LEASE_MS_MIN: u64 = 10_000;

/// How a receiver fares, as it is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Endpoint {
    failures: u32,
    open_until: Option<u64>,
    acknowledged: u64,
    dead: u64,
    /// Whether it said that it is gone for good.
    #[serde(default)]
    gone: bool,
}

impl Endpoint {
    fn circuit(&self) -> Circuit {
        Circuit { failures: self.failures, open_until: self.open_until.map(Timestamp::from_millis) }
    }

    fn fares(&mut self, circuit: Circuit) {
        self.failures = circuit.failures;
        self.open_until = circuit.open_until.map(Timestamp::as_millis);
    }
}

/// A receiver that is being told something; the next delivery to it is looked for when it ends.
struct Busy<S: Journal> {
    host: Host<S>,
    receiver: (String, String),
}

impl<S: Journal> Drop for Busy<S> {
    fn drop(&mut self) {
        lock(&self.host.0.sending).remove(&self.receiver);
        self.host.0.deliveries.notify_one();
    }
}

/// What becomes of a delivery after an attempt.
enum Verdict {
    Acknowledged,
    Gone,
    Failed {
        retry_after: Option<Duration>,
    },
    /// Its subscription is no more.
    Forsaken,
}

impl<S: Journal> Host<S> {
    /// Sends what is due, until the end.
    pub(crate) async fn dispatch(self) {
        let Some(sender) = self.0.sender.clone() else { return };
        let places = Arc::new(Semaphore::new(SENT_MAX));
        let work = async {
            loop {
                if let Err(error) = self.send_due(&sender, &places).await {
                    tracing::warn!(%error, "deliveries cannot be read");
                }
                tokio::select! {
                    () = self.0.deliveries.notified() => {}
                    () = sleep(LOOK_EVERY) => {}
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = self.0.end.cancelled() => {}
        }
    }

    /// Begins to send what is due now: to one receiver one after the other, in order.
    async fn send_due(
        &self,
        sender: &Arc<Sender>,
        places: &Arc<Semaphore>,
    ) -> Result<(), RunError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = self.0.engine.store().scan(DELIVERIES, b"", after.as_deref(), PAGE).await?;
            let Stamped { now, value: page } = page;
            for (_, document) in &page.items {
                let Some(delivery) = books::decode::<Delivery>(document) else { continue };
                if delivery.due > now.as_millis() {
                    return Ok(());
                }
                self.begin(sender, places, &delivery).await?;
            }
            after = page.items.last().map(|(doc, _)| doc.key.to_vec());
            if !page.more || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Begins to send a delivery, unless its receiver is busy or somebody else sends it.
    async fn begin(
        &self,
        sender: &Arc<Sender>,
        places: &Arc<Semaphore>,
        delivery: &Delivery,
    ) -> Result<(), RunError> {
        let receiver = (delivery.tenant.clone(), delivery.hook.clone());
        if !lock(&self.0.sending).insert(receiver.clone()) {
            return Ok(());
        }
        let busy = Busy { host: self.clone(), receiver };
        let Some((taken, hook)) = self.take(delivery).await? else { return Ok(()) };
        let place = Arc::clone(places).acquire_owned().await;
        let sender = Arc::clone(sender);
        self.spawn(async move {
            busy.host.send(&sender, taken, hook).await;
            drop((busy, place));
        });
        Ok(())
    }

    /// Takes a delivery for this process, if nobody else has; with its subscription, if there is
    /// one still.
    async fn take(
        &self,
        delivery: &Delivery,
    ) -> Result<Option<(Delivery, Option<Hook>)>, RunError> {
        let Ok(tenant) = Tenant::new(&delivery.tenant) else { return Ok(None) };
        let (endpoint_doc, old) = (endpoint_doc(&tenant, &delivery.hook), delivery.doc());
        let places =
            vec![Place::Doc(old.clone()), Place::Doc(books::tenant_doc(books::HOOKS, &tenant))];
        let taking = self.0.engine.update(&endpoint_doc, places, |view| {
            let Some(there) = view.doc(&old)? else { return Ok(Update::nothing(None)) };
            let hooks = books::read_hooks(view, &tenant)?;
            let hook = hooks.hooks.into_iter().find(|hook| hook.id == delivery.hook);
            let endpoint = endpoint(view, &endpoint_doc)?;
            let lease_ms = self.at(view.now()).lease_ms.max(LEASE_MS_MIN);
            let now = view.now().as_millis();
            // One that is left alone for a while is not bothered with this either.
            let until = match endpoint.circuit().state(view.now()) {
                CircuitState::Open { until } => Some(until.as_millis()),
                CircuitState::Closed | CircuitState::Trial => None,
            };
            let mut taken = delivery.clone();
            taken.due = until.unwrap_or(now + lease_ms);
            if until.is_none() {
                taken.attempts += 1;
            }
            let check = Check::Doc(old.clone(), Some(there.version));
            // What nobody wants any more, or came too late, is given up.
            let age = Duration::from_millis(now.saturating_sub(delivery.created));
            let hook = hook.filter(|_| !endpoint.gone && age < Schedule::default().horizon);
            let told = until.is_none().then(|| (taken.clone(), hook));
            Ok(Update::to(books::encode(&endpoint), told)
                .check(check)
                .write(Write::Delete(old.clone()))
                .write(Write::Put(taken.doc(), books::encode(&taken))))
        });
        taking.await
    }

    async fn send(&self, sender: &Sender, delivery: Delivery, hook: Option<Hook>) {
        let verdict = match hook {
            Some(hook) => self.attempt(sender, &delivery, &hook).await,
            None => Verdict::Forsaken,
        };
        if let Err(error) = self.settle(&delivery, &verdict).await {
            // It comes again when its lease has passed.
            tracing::warn!(%error, "what became of a delivery cannot be recorded");
        }
    }

    async fn attempt(&self, sender: &Sender, delivery: &Delivery, hook: &Hook) -> Verdict {
        let failed = Verdict::Failed { retry_after: None };
        let Ok(target) = self.0.guard.registrable(&hook.url) else { return failed };
        let Ok(secret) = Secret::new(hook.secret.clone()) else { return failed };
        let body = Bytes::from(delivery.body.clone());
        let Ok(signed) = Signed::new(&hook.id, &delivery.kind, body) else { return failed };
        let unix_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let unix_s = unix_s.map_or(0, |since| since.as_secs());
        match sender.send(&target, &signed, &secret, unix_s).await {
            Attempt::Acknowledged => Verdict::Acknowledged,
            Attempt::Gone => Verdict::Gone,
            Attempt::Refused { retry_after, .. } => Verdict::Failed { retry_after },
            Attempt::Unreachable(_) | Attempt::Forbidden(_) => failed,
        }
    }

    /// Records what became of an attempt, and of the delivery with it.
    async fn settle(&self, delivery: &Delivery, verdict: &Verdict) -> Result<(), RunError> {
        let Ok(tenant) = Tenant::new(&delivery.tenant) else { return Ok(()) };
        let (anchor, doc) = (endpoint_doc(&tenant, &delivery.hook), delivery.doc());
        let places = vec![Place::Doc(doc.clone())];
        self.0
            .engine
            .update(&anchor, places, |view| {
                let Some(there) = view.doc(&doc)? else { return Ok(Update::nothing(())) };
                let check = Check::Doc(doc.clone(), Some(there.version));
                let mut endpoint = endpoint(view, &anchor)?;
                let next = next(&mut endpoint, delivery, verdict, view.now());
                let update = Update::to(books::encode(&endpoint), ())
                    .check(check)
                    .write(Write::Delete(doc.clone()));
                Ok(match next {
                    Some(next) => update.write(Write::Put(next.doc(), books::encode(&next))),
                    None => update,
                })
            })
            .await
    }
}

/// What becomes of a delivery: when it is sent again, if it is.
fn next(
    endpoint: &mut Endpoint,
    delivery: &Delivery,
    verdict: &Verdict,
    now: Timestamp,
) -> Option<Delivery> {
    let retry_after = match verdict {
        Verdict::Acknowledged => {
            endpoint.fares(Circuit::CLOSED);
            endpoint.acknowledged += 1;
            return None;
        }
        Verdict::Forsaken | Verdict::Gone => {
            endpoint.dead += 1;
            endpoint.gone |= matches!(verdict, Verdict::Gone);
            return None;
        }
        Verdict::Failed { retry_after } => *retry_after,
    };
    endpoint.fares(endpoint.circuit().failed(now));
    let since = Timestamp::from_millis(delivery.created);
    let tried = Tried { since, attempts: delivery.attempts, retry_after };
    let spread =
        delivery.created.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(delivery.attempts);
    match Schedule::default().next(tried, now, spread) {
        Next::At(at) => Some(Delivery { due: at.as_millis(), ..delivery.clone() }),
        Next::Dead(_) => {
            endpoint.dead += 1;
            tracing::warn!(webhook = %delivery.hook, "a delivery is given up");
            None
        }
    }
}

fn endpoint_doc(tenant: &Tenant, hook: &str) -> onetake_engine::Doc {
    books::thing_doc(ENDPOINTS, tenant, hook)
}

fn endpoint(view: &View, doc: &onetake_engine::Doc) -> Result<Endpoint, Need> {
    Ok(view.doc(doc)?.and_then(books::decode).unwrap_or_default())
}
