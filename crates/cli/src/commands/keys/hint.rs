//! Whose key it may be that the whole tenant does not have: keys live in the space of a subject
//! where there is one, and who looks for one by its name alone looks past it.
//!
//! Only adds words to a refusal; never tries another key in place of the one that was named.

use std::collections::BTreeSet;

use anyhow::Result;
use onetake::Code;
use onetake_console::wire::{ListAsk, Problem};

use super::Which;
use crate::operator::Operator;
use crate::out::tame;

/// The most rows of a page.
const ROWS: usize = 1_000;
/// The most pages that are looked through for the sake of a hint.
const PAGES_MAX: usize = 20;

/// What came of an act, or whose key was probably meant where there was none.
///
/// # Errors
/// That of the act.
pub(super) async fn or_whose<T>(operator: &Operator, which: &Which, done: Result<T>) -> Result<T> {
    let error = match done {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    let Some(problem) = error.downcast_ref::<Problem>().cloned() else { return Err(error) };
    if problem.known() != Some(Code::RecordMissing) {
        return Err(error);
    }
    match whose(operator, which).await {
        Some(hint) => {
            Err(Problem { detail: format!("{}; {hint}", problem.detail), ..problem }.into())
        }
        None => Err(error),
    }
}

/// Whose it may be; none when nobody has such keys, or a list cannot be had.
async fn whose(operator: &Operator, which: &Which) -> Option<String> {
    let (operation, key) = which.of_the_tenant()?;
    let mut ask = ListAsk {
        tenant: Some(which.tenant.clone()),
        operation: Some(operation.to_owned()),
        limit: Some(ROWS),
        ..ListAsk::default()
    };
    let (mut holders, mut other) = (BTreeSet::new(), None);
    for _ in 0..PAGES_MAX {
        let page = operator.list(&ask).await.ok()?;
        for row in page.keys {
            match row.principal {
                Some(name) if row.key.0 == key => drop(holders.insert(name)),
                Some(name) => other = other.or(Some(name)),
                None => {}
            }
        }
        ask.after = page.next;
        if ask.after.is_none() {
            break;
        }
    }
    let first = holders.first().map(|name| tame(name));
    match (first, holders.len(), other) {
        (Some(name), 1, _) => {
            Some(format!("the subject `{name}` has such a key: add `--principal {name}`"))
        }
        (Some(name), count, _) => {
            let more = count - 1;
            Some(format!("`{name}` and {more} more have such a key: add `--principal {name}`"))
        }
        (None, _, Some(name)) => {
            let name = tame(&name);
            Some(format!("keys of this operation are those of subjects: add `--principal {name}`"))
        }
        (None, _, None) => None,
    }
}
