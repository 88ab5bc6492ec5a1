//! How commands speak: tables for people, JSON for programs.
//!
//! Arranges what it is given and never fails over a reader that went away. Text that came from
//! elsewhere is shown without its control characters, for a terminal would obey them.

use std::io::{ErrorKind, Write, stdout};
use std::time::Duration;

use anyhow::Result;
use onetake::Code;
use onetake_console::wire::Problem;
use serde::Serialize;
use serde_json::json;

use crate::exit::Fault;
use crate::wiring::OpenError;

/// Spaces between two columns.
const GAP: usize = 2;

/// Prints one line or many. A reader that went away is ignored; a disk that is full is not.
pub(crate) fn print(text: &str) {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("onetake: the output cannot be written: {error}");
            std::process::exit(1);
        }
        Ok(()) | Err(_) => {}
    }
}

/// Says `value`: as JSON for programs, or in the words of `text` for people.
///
/// # Errors
/// When it cannot be written as JSON.
pub(crate) fn say(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    let said = if json { serde_json::to_string_pretty(value)? } else { text() };
    print(&said);
    Ok(())
}

/// A failure as JSON: the problem that a surface named, or the code of what failed here. What has
/// no code is a failure of this program, such as a file that cannot be read.
pub(crate) fn failure(error: &anyhow::Error) -> String {
    let problem = error.downcast_ref::<Problem>().map(|problem| json!(problem));
    let code = error.downcast_ref::<OpenError>().map(OpenError::code);
    let refused = error.downcast_ref::<Fault>().and_then(|fault| match fault {
        Fault::Refused { status, code, message } => {
            Some(json!({ "code": code, "status": status, "detail": message }))
        }
        Fault::Usage(_) | Fault::Unreachable(_) => None,
    });
    let failure = problem.or(refused).unwrap_or_else(|| {
        let code = code.map(Code::as_str);
        json!({ "code": code, "detail": format!("{error:#}") })
    });
    format!("{failure:#}")
}

/// A table: a head, then rows, each column as wide as its widest cell.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.to_vec()).collect();
    table_of(&head.map(str::to_owned), &rows)
}

/// The same with as many columns as its head has.
pub(crate) fn table_of(head: &[String], rows: &[Vec<String>]) -> String {
    let all: Vec<&[String]> = std::iter::once(head).chain(rows.iter().map(Vec::as_slice)).collect();
    let width =
        |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:0$}", width + GAP));
        cells.collect::<String>().trim_end().to_owned()
    };
    all.iter().map(|row| line(row)).collect::<Vec<_>>().join("\n")
}

/// Lines of a name and a value.
pub(crate) fn lines(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + GAP;
    let line = |(name, value): &(&str, String)| format!("{name:width$}{value}");
    pairs.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A span for people: its two largest units.
pub(crate) fn span(ms: u64) -> String {
    let whole = if ms < 1_000 { ms } else { ms / 1_000 * 1_000 };
    let text = humantime::format_duration(Duration::from_millis(whole)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `text` without what a terminal would obey.
pub(crate) fn tame(text: &str) -> String {
    let shown = |c: char| {
        let is_plain = !c.is_control() || matches!(c, '\n' | '\t');
        if is_plain { String::from(c) } else { c.escape_unicode().to_string() }
    };
    text.chars().map(shown).collect()
}

/// The same in one line, for what stands beside other words.
pub(crate) fn tame_line(text: &str) -> String {
    tame(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_columns_in_line() {
        let rows = [["a".to_owned(), "zoë".to_owned()], ["long".to_owned(), String::new()]];
        assert_eq!(table(["X", "NAME"], &rows), "X     NAME\na     zoë\nlong");
        assert_eq!(table(["X"], &[]), "X");
        assert_eq!(lines(&[("a", "1".to_owned()), ("long", "2".to_owned())]), "a     1\nlong  2");
    }

    #[test]
    fn a_span_is_told_in_two_units() {
        let table = [(0, "0s"), (7, "7ms"), (1_999, "1s"), (90_061_000, "1day 1h")];
        for (ms, text) in table {
            assert_eq!(span(ms), text);
        }
    }

    #[test]
    fn a_terminal_is_told_nothing_by_what_it_shows() {
        assert_eq!(tame("a\n\tb\u{1b}[2J\r"), "a\n\tb\\u{1b}[2J\\u{d}");
    }
}
