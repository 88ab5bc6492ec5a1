//! Follows a run: its events, over as many connections as it takes, until it ends or its watcher
//! leaves.
//!
//! A stream that breaks off is opened again behind the last event that was heard, so nothing is
//! missed and nothing is shown twice. Leaving changes nothing for the run.

use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use super::api::{Api, Trouble, pause};
use super::board::Board;
use super::screen::Screen;
use super::tail_words;
use crate::events;
use crate::exit::{Exit, Fault};

/// How often a stream that cannot be opened is tried in a row.
const TRIES_MAX: u32 = 30;
/// A stream that stood for this long was a good one.
const STOOD: Duration = Duration::from_secs(5);
/// How often the screen is drawn while nothing happens.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Events that wait to be shown.
const HEARD_MAX: usize = 64;

/// What comes of following.
enum Heard {
    Event(Value),
    Trouble(&'static str),
}

/// Follows `run` until it ends, or somebody interrupts.
///
/// # Errors
/// When the host refuses, or cannot be reached for too long.
pub(super) async fn follow(api: &Api, run: &str, workflow: &str, screen: Screen) -> Result<Exit> {
    let (sender, mut heard) = mpsc::channel(HEARD_MAX);
    let (mut board, mut latest) = (Board::new(run, workflow), Instant::now());
    let (mut feeding, mut ended) = (pin!(feed(api, run, sender)), None);
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut tick = interval(DRAW_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = &mut interrupted => {
                screen.draw(&board, latest.elapsed());
                screen.leave();
                let words = tail_words(run);
                screen.note(&format!("the run goes on without you; to follow it again: {words}"));
                return Ok(Exit::RunOpen);
            }
            next = heard.recv() => match next {
                Some(Heard::Event(event)) => {
                    latest = Instant::now();
                    screen.event(&event);
                    if let Some(asked) = board.hear(&event) {
                        let key = Uuid::now_v7().to_string();
                        let words = board.answer(&asked, api.base(), api.has_credential(), &key);
                        screen.note(&words);
                    }
                }
                Some(Heard::Trouble(why)) => screen.note(&format!("{why}; connecting again")),
                None => break,
            },
            fed = &mut feeding, if ended.is_none() => ended = Some(fed),
            _ = tick.tick(), if screen.moves() => screen.draw(&board, latest.elapsed()),
        }
    }
    screen.draw(&board, latest.elapsed());
    screen.leave();
    ended.unwrap_or(Ok(()))?;
    Ok(events::ended(board.status()).unwrap_or(Exit::RunOpen))
}

/// Sends the events of a run until its last.
async fn feed(api: &Api, run: &str, sender: mpsc::Sender<Heard>) -> Result<()> {
    let (mut last, mut failures) = (None::<u64>, 0);
    loop {
        let mut opened = None;
        let why = match api.events(run, last).await {
            Err(Trouble::Never(error)) => return Err(error),
            Err(Trouble::Later { .. }) => "the host cannot be reached",
            Ok(mut stream) => loop {
                opened.get_or_insert_with(Instant::now);
                let event = match stream.next().await {
                    Ok(Some(event)) => event,
                    Ok(None) => break "the stream ended before the run",
                    Err(why) => break why,
                };
                let place = event.get("sequence").and_then(Value::as_u64);
                if place.is_some_and(|place| last.is_some_and(|last| place <= last)) {
                    continue;
                }
                (last, failures) = (place.or(last), 0);
                let is_last = event
                    .get("type")
                    .and_then(Value::as_str)
                    .and_then(|kind| kind.strip_prefix("run."))
                    .is_some_and(|what| events::ended(what).is_some());
                // Whoever left does not want to hear more.
                if sender.send(Heard::Event(event)).await.is_err() || is_last {
                    return Ok(());
                }
            },
        };
        let stood = opened.is_some_and(|since| since.elapsed() >= STOOD);
        failures = if stood { 1 } else { failures + 1 };
        if failures >= TRIES_MAX {
            let words = tail_words(run);
            return Err(Fault::Unreachable(format!("{why}; to follow it later: {words}")).into());
        }
        if sender.send(Heard::Trouble(why)).await.is_err() {
            return Ok(());
        }
        sleep(pause(failures)).await;
    }
}
