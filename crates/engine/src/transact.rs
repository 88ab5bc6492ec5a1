//! The walk for effects inside our store: decide, compute, commit, answer.
//!
//! The record and its effects are one commit, so there is no lease, no unknown and one durable
//! write. The effects are computed by a pure function over what it read; every document that it
//! read is checked by the commit, so it is as if it had run alone. When a check fails it is run
//! again.

use std::sync::Arc;

use bytes::Bytes;
use onetake_core::{
    Address, Ask, Draft, Fence, Grounds, Keeping, Outcome, Policy, Record, Report, Settlement,
    Slot, Standing, Timestamp, decide,
};
use tracing::Instrument;

use crate::answer::{Answer, Step};
use crate::engine::Engine;
use crate::error::RunError;
use crate::journal::{
    Check, Commit, Counter, Cursor, Doc, Document, Found, Journal, Place, Position, Tx, Write,
};
use crate::run::belongs;
use crate::store::{Reply, Stamped, StoreError};
use crate::update::Update;
use crate::wait::News;
use crate::waiting::Waiting;

/// How often a transaction is computed again because others came first, or because it reads more.
const ROUNDS_MAX: u32 = 128;
/// How often one commit is repeated while the store cannot say whether it is written.
const COMMIT_TRIES_MAX: u32 = 6;

/// What a transaction may look at. Looking at a document makes the commit depend on it.
#[derive(Debug)]
pub struct View {
    now: Timestamp,
    /// In the order of places: there are few, and a tree takes more room than all of them.
    found: Vec<(Place, Found)>,
}

/// A place that must be read before the transaction can be computed. Pass it on with `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need(pub(crate) Place);

impl View {
    /// What `found` is at `places`.
    pub(crate) fn of(now: Timestamp, places: &[Place], found: Vec<Found>) -> Self {
        let mut found: Vec<_> = places.iter().cloned().zip(found).collect();
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        found.dedup_by(|(one, _), (other, _)| one == other);
        Self { now, found }
    }

    fn at(&self, place: &Place) -> Option<&Found> {
        let at = self.found.binary_search_by(|(other, _)| other.cmp(place)).ok()?;
        Some(&self.found[at].1)
    }

    /// The store's time. Not checked: the commit may come a little later.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The document, if it exists.
    ///
    /// # Errors
    /// [`Need`] when it was not read yet; the transaction is then computed again.
    pub fn doc(&self, doc: &Doc) -> Result<Option<&Document>, Need> {
        let place = Place::Doc(doc.clone());
        match self.at(&place) {
            Some(Found::Doc(document)) => Ok(document.as_ref()),
            _ => Err(Need(place)),
        }
    }

    /// The counter, as it was a moment ago. The commit does not depend on it; demand
    /// [`Check::AtLeast`] where it must not fall below a value.
    ///
    /// # Errors
    /// [`Need`] when it was not read yet; the transaction is then computed again.
    pub fn counter(&self, counter: &Counter) -> Result<i64, Need> {
        let place = Place::Counter(counter.clone());
        match self.at(&place) {
            Some(Found::Counter(value)) => Ok(*value),
            _ => Err(Need(place)),
        }
    }

    /// The cursor, as it was a moment ago. The commit does not depend on it.
    ///
    /// # Errors
    /// [`Need`] when it was not read yet; the transaction is then computed again.
    pub fn cursor(&self, cursor: &Cursor) -> Result<Position, Need> {
        let place = Place::Cursor(cursor.clone());
        match self.at(&place) {
            Some(Found::Cursor(position)) => Ok(*position),
            _ => Err(Need(place)),
        }
    }

    /// Every document that was looked at must still be as it was.
    pub(crate) fn checks(&self) -> impl Iterator<Item = Check> {
        self.found.iter().filter_map(|(place, found)| match (place, found) {
            (Place::Doc(doc), Found::Doc(document)) => {
                Some(Check::Doc(doc.clone(), document.as_ref().map(|there| there.version)))
            }
            _ => None,
        })
    }
}

/// What a transaction does: its outcome, and what it writes beside the record.
#[derive(Debug, Clone)]
#[must_use = "effects happen only when they are given to the walk"]
pub struct Effects {
    outcome: Outcome,
    checks: Vec<Check>,
    writes: Vec<Write>,
}

impl Effects {
    /// An outcome without effects so far.
    pub const fn new(outcome: Outcome) -> Self {
        Self { outcome, checks: Vec::new(), writes: Vec::new() }
    }

    /// What `update` of `anchor` is, with the outcome that it tells. The update must have looked at
    /// its anchor, so that the commit depends on it.
    pub fn of(anchor: &Doc, update: Update<Outcome>) -> Self {
        let Update { anchor: value, checks, mut writes, told } = update;
        writes.extend(value.map(|value| Write::Put(anchor.clone(), value)));
        Self { outcome: told, checks, writes }
    }

    /// Writes a document.
    pub fn put(self, doc: Doc, value: impl Into<Bytes>) -> Self {
        self.write(Write::Put(doc, value.into()))
    }

    /// Writes this as well.
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// Demands this as well.
    pub fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }
}

impl<S: Journal> Engine<S> {
    /// Computes `effects` and commits them with the record of `ask`, once; every further attempt
    /// gets the same outcome.
    ///
    /// `effects` must be pure: it is run again when others came first. An outcome that the policy
    /// does not keep may have no effects.
    ///
    /// # Errors
    /// A [`RunError`] when the promise could not be kept. After [`RunError::ExecutedNotRecorded`]
    /// the commit may have happened; a retry with the same key tells.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the transaction committed whole or not at all; a retry with the
    /// same key tells.
    pub async fn transact<F>(&self, ask: Ask, effects: F) -> Result<Answer, RunError>
    where
        F: Fn(&View) -> Result<Effects, Need> + Send,
    {
        self.transact_reading(ask, Vec::new(), effects).await
    }

    /// Like [`transact`](Self::transact), for whoever knows beforehand what the transaction looks
    /// at: `places` are read with the slot, at once.
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    ///
    /// # Cancel safety
    /// That of [`transact`](Self::transact).
    pub async fn transact_reading<F>(
        &self,
        ask: Ask,
        places: Vec<Place>,
        effects: F,
    ) -> Result<Answer, RunError>
    where
        F: Fn(&View) -> Result<Effects, Need> + Send,
    {
        self.refuse_when_stopping()?;
        self.keep_house();
        let span = self.0.meters.span("transact", &ask.address);
        let ended = self.walk_inside(&ask, places, effects).instrument(span.clone()).await;
        self.0.meters.count(&ended, &span);
        ended
    }

    async fn walk_inside<F>(
        &self,
        ask: &Ask,
        mut needed: Vec<Place>,
        effects: F,
    ) -> Result<Answer, RunError>
    where
        F: Fn(&View) -> Result<Effects, Need> + Send,
    {
        let (mut waiting, mut rounds) = (Waiting::default(), 0);
        let mut unsure = false;
        loop {
            self.refuse_when_stopping()?;
            let (found, view) = self.look(ask.address.slot(), &needed).await?;
            belongs(found.as_deref(), ask)?;
            match Step::of(decide(ask, found.as_deref(), view.now), view.now) {
                Step::Say(answer) => return Ok(answer),
                Step::Wait { same, lease_left } => {
                    if let Some(answer) = waiting.attend(self, ask, same, lease_left).await {
                        return Ok(answer);
                    }
                }
                Step::Execute(grounds) => {
                    if let Some(answer) = waiting.share(found.as_deref(), view.now) {
                        return Ok(answer);
                    }
                    if rounds == ROUNDS_MAX || needed.len() > Tx::STEPS_MAX {
                        return Err(RunError::Busy("too many rivals or reads for one transaction"));
                    }
                    match effects(&view) {
                        Err(Need(place)) => needed.push(place),
                        Ok(effects) => {
                            rounds += 1;
                            let commit = self.commit(ask, grounds, &view, effects, &mut unsure);
                            match commit.await? {
                                Some(answer) => return Ok(answer),
                                None => waiting.leave(),
                            }
                        }
                    }
                }
            }
        }
    }
}

impl<S: Journal> Engine<S> {
    /// Reads the slot and every place that the transaction needs, at one moment.
    async fn look(
        &self,
        slot: &Slot,
        needed: &[Place],
    ) -> Result<(Option<Arc<Record>>, View), RunError> {
        let mut places = vec![Place::Slot(slot.clone())];
        places.extend_from_slice(needed);
        let Stamped { now, value } = self.fetch(&places).await?;
        let mut value = value.into_iter();
        let Some(Found::Slot(found)) = value.next() else {
            return Err(StoreError::Corrupt("asked for a slot, got another thing".into()).into());
        };
        Ok((found, View::of(now, needed, value.collect())))
    }

    /// What all `places` hold at one moment.
    pub(crate) async fn fetch(&self, places: &[Place]) -> Reply<Vec<Found>> {
        let fetched = self.in_time(self.0.store.fetch(places)).await;
        fetched.unwrap_or_else(|| Err(StoreError::Unavailable("no reply in time".into())))
    }

    /// Commits once. `None`: others came first, compute again.
    async fn commit(
        &self,
        ask: &Ask,
        grounds: Grounds,
        view: &View,
        effects: Effects,
        unsure: &mut bool,
    ) -> Result<Option<Answer>, RunError> {
        let Effects { outcome, checks, writes } = effects;
        let settlement = self.settlement(outcome, &ask.policy);
        if !is_kept(&settlement) {
            // An earlier round may still arrive and commit; "nothing happened" would be a guess.
            if *unsure {
                return Err(RunError::ExecutedNotRecorded);
            }
            return refused_without_effects(settlement, &writes).map(Some);
        }
        let draft = self.done(ask, grounds, &settlement);
        let tx = Tx::on_slot(grounds.expected, draft.clone());
        let tx = view.checks().chain(checks).fold(tx, Tx::check);
        let tx = writes.into_iter().fold(tx, Tx::write);
        let Some(now) = self.commit_known(tx, unsure).await? else { return Ok(None) };
        Ok(Some(self.announce(draft, now, settlement)))
    }

    /// Wakes those who wait, and gives what the caller hears, once `draft` is committed.
    fn announce(&self, draft: Draft, now: Timestamp, settlement: Settlement) -> Answer {
        let record = draft.at(now);
        let news = News::of(&record, settlement);
        let answer = news.to_executor();
        self.0.waiters.settle(record.address.slot(), || news);
        answer
    }

    fn settlement(&self, outcome: Outcome, policy: &Policy) -> Settlement {
        let settlement = Settlement::of(Report::Finished(outcome), policy);
        settlement.within(self.0.limits.outcome_bytes_max)
    }

    fn done(&self, ask: &Ask, grounds: Grounds, settlement: &Settlement) -> Draft {
        let (fence, write) = (self.0.mint.fence(), self.0.mint.id());
        // A record that was never claimed is drafted from the claim that would have been.
        let claim = ask.claim(grounds, fence, write).at(Timestamp::ZERO);
        settlement.draft(&claim, &ask.policy, write)
    }

    /// Repeats one commit until the store can say whether it is written. Gives when, if it is.
    /// `unsure` says whether it ever could not.
    pub(crate) async fn commit_known(
        &self,
        tx: Tx,
        unsure: &mut bool,
    ) -> Result<Option<Timestamp>, RunError> {
        for failures in 1..=COMMIT_TRIES_MAX {
            match self.in_time(self.0.store.commit(tx.clone())).await {
                Some(Ok(Stamped { now, value })) => match value {
                    Commit::Committed { .. } | Commit::Repeated => return Ok(Some(now)),
                    // An earlier copy may have been written and then replaced by somebody else; the
                    // next look at the slot tells, for the record of this key would be there.
                    Commit::Conflict { .. } => return Ok(None),
                    Commit::Unknown => *unsure = true,
                },
                Some(Err(error)) if !*unsure => return Err(error.into()),
                Some(Err(_)) => {}
                None => *unsure = true,
            }
            self.pause(failures).await;
        }
        Err(RunError::ExecutedNotRecorded)
    }
}

impl<S: Journal> Engine<S> {
    /// Settles a claim, and commits `effects` with it: state, outgoing events and completion are
    /// one write. The holder of the claim executes somewhere else; see [`Engine::try_claim`].
    ///
    /// `effects` must be pure: it is run again when others came first. Its outcome must be one that
    /// the policy keeps, unless it has no effects. A claim that this fence settled before is
    /// answered with what is on record, and nothing is written again.
    ///
    /// # Errors
    /// [`RunError::Fenced`] when the claim is no longer `fence`'s to settle;
    /// [`RunError::ExecutedNotRecorded`] when the store could not say: say it again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves all of it committed or nothing; say it again.
    pub async fn settle_claim_with<F>(
        &self,
        address: &Address,
        fence: Fence,
        policy: &Policy,
        effects: F,
    ) -> Result<Answer, RunError>
    where
        F: Fn(&View) -> Result<Effects, Need> + Send,
    {
        let (mut needed, mut unsure) = (Vec::new(), false);
        for _ in 0..ROUNDS_MAX {
            let (found, view) = self.look(address.slot(), &needed).await?;
            let claim = found.filter(|there| there.fence == fence && *there.address == *address);
            let claim = claim.ok_or(RunError::Fenced)?;
            if let Standing::Final { outcome, expires_at } = claim.standing(view.now) {
                return Ok(Answer::Replayed { outcome: Arc::clone(outcome), expires_at });
            }
            if !claim.is_open() {
                return Err(RunError::Fenced);
            }
            let Effects { outcome, checks, writes } = match effects(&view) {
                Ok(effects) => effects,
                Err(Need(place)) => {
                    needed.push(place);
                    continue;
                }
            };
            let settlement = self.settlement(outcome, policy);
            if !is_kept(&settlement) && !writes.is_empty() {
                return Err(RunError::EffectsNotKept);
            }
            let draft = settlement.draft(&claim, policy, self.0.mint.id());
            let tx = Tx::on_slot(Some(claim.version), draft.clone());
            let tx = view.checks().chain(checks).fold(tx, Tx::check);
            let tx = writes.into_iter().fold(tx, Tx::write);
            if let Some(now) = self.commit_known(tx, &mut unsure).await? {
                return Ok(self.announce(draft, now, settlement));
            }
        }
        Err(RunError::Busy("too many rivals for one transaction"))
    }
}

/// Whether further attempts get this outcome. Only then may there be effects: a retry would repeat
/// them.
const fn is_kept(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Done { keeping: Keeping::Final, .. })
}

/// An outcome that is not kept changes nothing, so it is answered and not written.
fn refused_without_effects(settlement: Settlement, writes: &[Write]) -> Result<Answer, RunError> {
    if !writes.is_empty() {
        return Err(RunError::EffectsNotKept);
    }
    match settlement {
        Settlement::Done { outcome, .. } | Settlement::Freed(Some(outcome)) => {
            Ok(Answer::Executed { outcome, expires_at: None })
        }
        Settlement::Freed(None) | Settlement::Unknown(_) => Ok(Answer::Freed),
    }
}
