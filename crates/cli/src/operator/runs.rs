//! What an operator asks of the runs of a workflow host.

use anyhow::Result;
use onetake_console::wire::{
    CancelAsk, CancelDone, EventsAsk, EventsPage, RunShown, RunsAsk, RunsPage,
};
use onetake_console::{Desk, RunsDesk};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Call, Hand, Operator, json, query};
use crate::runs::HostRuns;
use crate::wiring::AnyStore;

/// Which run: its tenant, and its name.
#[derive(Debug, Clone)]
pub(crate) struct RunPlace {
    pub(crate) tenant: String,
    pub(crate) run: String,
}

impl RunPlace {
    fn path(&self) -> String {
        let part = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        format!("/v1/runs/{}/{}", part(&self.tenant), part(&self.run))
    }
}

/// The runs of a store that this process opened, which drives none of them.
fn at_rest(desk: &Desk<AnyStore>) -> RunsDesk<HostRuns> {
    RunsDesk::new(HostRuns::at_rest(desk.engine().clone()))
}

impl Operator {
    pub(crate) async fn runs(&self, list: &RunsAsk) -> Result<RunsPage> {
        match &self.hand {
            Hand::Direct(desk) => Ok(at_rest(desk).list(list).await?),
            Hand::Remote(client) => {
                client.ask(Call::get(format!("/v1/runs?{}", query(list)?))).await
            }
        }
    }

    pub(crate) async fn run(&self, place: &RunPlace) -> Result<RunShown> {
        match &self.hand {
            Hand::Direct(desk) => Ok(at_rest(desk).show(&place.tenant, &place.run).await?),
            Hand::Remote(client) => client.ask(Call::get(place.path())).await,
        }
    }

    pub(crate) async fn cancel(&self, place: &RunPlace, cancel: &CancelAsk) -> Result<CancelDone> {
        let by = Some(self.by.as_str());
        match &self.hand {
            Hand::Direct(desk) => {
                Ok(at_rest(desk).cancel(by, &place.tenant, &place.run, cancel).await?)
            }
            Hand::Remote(client) => {
                let path = format!("{}/cancel", place.path());
                client.ask(Call::post(path, json(cancel)?, by)).await
            }
        }
    }

    pub(crate) async fn events(&self, place: &RunPlace, events: &EventsAsk) -> Result<EventsPage> {
        match &self.hand {
            Hand::Direct(desk) => {
                Ok(at_rest(desk).events(&place.tenant, &place.run, events).await?)
            }
            Hand::Remote(client) => {
                let path = format!("{}/events?{}", place.path(), query(events)?);
                client.ask(Call::get(path)).await
            }
        }
    }
}
