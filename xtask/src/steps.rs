//! Several steps in a row, each with a headline and a duration, and one summary at the end.
//!
//! Knows nothing of what a step does, and never hides a failure behind a later success.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// One thing to do.
pub(crate) struct Step<'a> {
    name: &'static str,
    act: Box<dyn Fn() -> Result<Done> + 'a>,
}

impl<'a> Step<'a> {
    /// A step that either succeeds or fails.
    pub(crate) fn new(name: &'static str, act: impl Fn() -> Result<()> + 'a) -> Self {
        Self::optional(name, move || act().map(|()| Done::Ok))
    }

    /// A step that may find that it cannot be done here.
    pub(crate) fn optional(name: &'static str, act: impl Fn() -> Result<Done> + 'a) -> Self {
        Self { name, act: Box::new(act) }
    }
}

/// How a step ended that did not fail.
pub(crate) enum Done {
    /// It did what it is for.
    Ok,
    /// It was left out, and this is why.
    Skipped(String),
}

/// What a failure means for the steps after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// They still run: the developer wants the whole list.
    GoOn,
    /// They do not: they are slow and mean little now.
    Stop,
}

#[derive(Debug, PartialEq, Eq)]
enum Ending {
    Ok,
    Failed,
    Skipped,
    NotRun,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::NotRun => "not run",
        })
    }
}

struct Line {
    name: &'static str,
    ending: Ending,
    took: Duration,
}

/// Takes the steps in order and prints what became of each.
///
/// # Errors
///
/// When a step failed.
pub(crate) fn walk(steps: &[Step<'_>], on_failure: OnFailure) -> Result<()> {
    let lines = take_all(steps, on_failure);
    print!("\n{}", summary(&lines));
    let failed: Vec<_> =
        lines.iter().filter(|line| line.ending == Ending::Failed).map(|line| line.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn take_all(steps: &[Step<'_>], on_failure: OnFailure) -> Vec<Line> {
    let mut stopped = false;
    let mut lines = Vec::new();
    for step in steps {
        if stopped {
            lines.push(Line { name: step.name, ending: Ending::NotRun, took: Duration::ZERO });
            continue;
        }
        let line = take(step);
        stopped = line.ending == Ending::Failed && on_failure == OnFailure::Stop;
        lines.push(line);
    }
    lines
}

fn take(step: &Step<'_>) -> Line {
    println!("\n== {}", step.name);
    let start = Instant::now();
    let ending = match (step.act)() {
        Ok(Done::Ok) => Ending::Ok,
        Ok(Done::Skipped(why)) => {
            println!("skipped: {why}");
            Ending::Skipped
        }
        Err(error) => {
            println!("failed: {error:#}");
            Ending::Failed
        }
    };
    let took = start.elapsed();
    println!("== {}: {ending} in {:.1} s", step.name, took.as_secs_f64());
    Line { name: step.name, ending, took }
}

fn summary(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    lines.iter().fold(String::new(), |text, Line { name, ending, took }| {
        text + &format!("{name:width$}  {ending:7}  {:6.1} s\n", took.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;

    use super::*;

    fn endings(on_failure: OnFailure) -> Vec<Ending> {
        let steps = [
            Step::new("good", || Ok(())),
            Step::optional("absent", || Ok(Done::Skipped("not installed".to_owned()))),
            Step::new("bad", || bail!("no")),
            Step::new("late", || Ok(())),
        ];
        take_all(&steps, on_failure).into_iter().map(|line| line.ending).collect()
    }

    #[test]
    fn a_check_goes_on_after_a_failure() {
        use Ending::{Failed, Ok, Skipped};
        assert_eq!(endings(OnFailure::GoOn), [Ok, Skipped, Failed, Ok]);
    }

    #[test]
    fn a_test_stops_at_the_first_failure() {
        use Ending::{Failed, NotRun, Ok, Skipped};
        assert_eq!(endings(OnFailure::Stop), [Ok, Skipped, Failed, NotRun]);
    }

    #[test]
    fn a_step_after_the_stop_does_not_run() {
        let ran = Cell::new(false);
        let late = || {
            ran.set(true);
            Ok(())
        };
        let steps = [Step::new("bad", || bail!("no")), Step::new("late", late)];
        let error = walk(&steps, OnFailure::Stop).unwrap_err();
        assert_eq!(error.to_string(), "failed: bad");
        assert!(!ran.get());
    }

    #[test]
    fn a_skipped_step_is_not_a_failure() {
        let skip = || Ok(Done::Skipped("not installed".to_owned()));
        assert!(walk(&[Step::optional("absent", skip)], OnFailure::GoOn).is_ok());
    }

    #[test]
    fn the_summary_has_one_line_per_step() {
        let lines = [
            Line { name: "tests", ending: Ending::Ok, took: Duration::from_millis(61_540) },
            Line { name: "tidy", ending: Ending::Failed, took: Duration::from_millis(40) },
            Line { name: "plant", ending: Ending::NotRun, took: Duration::ZERO },
        ];
        let expected = "\
tests  ok         61.5 s
tidy   failed      0.0 s
plant  not run     0.0 s
";
        assert_eq!(summary(&lines), expected);
    }
}
