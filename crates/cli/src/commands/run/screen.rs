//! How a run is shown: lines that move on a terminal, one plain line an event on a pipe, JSON for
//! programs.
//!
//! Decides nothing, and leaves a terminal as it was, whenever it is left.

use std::cell::Cell;
use std::env;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;

use serde_json::Value;

use super::board::{Board, Mark};
use crate::events;
use crate::out::print;

/// Who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Terminal,
    Pipe,
    Program,
}

/// Where a run is shown.
#[derive(Debug)]
pub(super) struct Screen {
    way: Way,
    has_colour: bool,
    /// Lines that are drawn and may be drawn over.
    drawn: Cell<usize>,
    frame: Cell<usize>,
}

impl Screen {
    /// Looks at standard output once.
    pub(super) fn new(json: bool) -> Self {
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let way = match json {
            true => Way::Program,
            false if stdout().is_terminal() && !is_dumb => Way::Terminal,
            false => Way::Pipe,
        };
        // https://no-color.org
        let has_colour = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { way, has_colour, drawn: Cell::new(0), frame: Cell::new(0) }
    }

    /// Whether it moves.
    pub(super) fn moves(&self) -> bool {
        self.way == Way::Terminal
    }

    /// What was created.
    pub(super) fn opening(&self, said: &Value, text: &str) {
        match self.way {
            Way::Terminal | Way::Pipe => print(text),
            Way::Program => print(&said.to_string()),
        }
    }

    /// Something beside the events, for people only.
    pub(super) fn note(&self, text: &str) {
        match self.way {
            Way::Terminal => {
                self.clear();
                print(text);
            }
            Way::Pipe => eprintln!("{text}"),
            Way::Program => {}
        }
    }

    pub(super) fn event(&self, event: &Value) {
        match self.way {
            Way::Terminal => {}
            Way::Pipe => print(&events::line(event)),
            Way::Program => print(&event.to_string()),
        }
    }

    /// Draws the run over what was drawn before.
    pub(super) fn draw(&self, board: &Board, since_last: Duration) {
        if self.way != Way::Terminal {
            return;
        }
        let lines = board.lines(since_last, self.frame.get(), |mark, sign| self.paint(mark, sign));
        self.frame.set(self.frame.get().wrapping_add(1));
        self.clear();
        // Without wrapping a line stays a line, however narrow the terminal is.
        let _ = writeln!(stdout(), "\u{1b}[?7l{}\u{1b}[?7h", lines.join("\n"));
        let _ = stdout().flush();
        self.drawn.set(lines.len());
    }

    /// Leaves what is drawn where it is.
    pub(super) fn leave(&self) {
        self.drawn.set(0);
    }

    fn clear(&self) {
        let drawn = self.drawn.replace(0);
        if drawn > 0 {
            let _ = write!(stdout(), "\r\u{1b}[{drawn}A\u{1b}[J");
        }
    }

    fn paint(&self, mark: Mark, sign: &str) -> String {
        let colour = match mark {
            Mark::Running => "36",
            Mark::Waiting => "33",
            Mark::Done => "32",
            Mark::Failed => "31",
            Mark::Skipped | Mark::Cancelled => "2",
        };
        if self.has_colour { format!("\u{1b}[{colour}m{sign}\u{1b}[0m") } else { sign.to_owned() }
    }
}
