//! The bounds of single options.
//!
//! A value out of bounds is told with both ends, and goes on as it is: whoever reports a problem
//! never runs.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::problem::Problems;
use super::read::Given;
use super::value::{Size, Span, span_text};

/// A span from `least` to `most`.
pub(super) fn span(
    given: &Given<Span>,
    bounds: RangeInclusive<Duration>,
    problems: &mut Problems,
) -> Duration {
    let Span(span) = given.value;
    if !bounds.contains(&span) {
        given.refuse(problems, out_of(span, *bounds.start(), *bounds.end()));
    }
    span
}

/// What is said of a span that is out of bounds.
pub(super) fn out_of(span: Duration, least: Duration, most: Duration) -> String {
    let [span, least, most] = [span, least, most].map(span_text);
    format!("{span} is out of bounds; from {least} to {most} is allowed")
}

/// A number within `bounds`.
pub(super) fn number(
    given: &Given<u64>,
    bounds: RangeInclusive<u64>,
    problems: &mut Problems,
) -> u64 {
    if !bounds.contains(&given.value) {
        let (value, least, most) = (given.value, bounds.start(), bounds.end());
        let what = format!("{value} is out of bounds; from {least} to {most} is allowed");
        given.refuse(problems, what);
    }
    given.value
}

/// A size within `bounds`.
pub(super) fn size(
    given: &Given<Size>,
    bounds: RangeInclusive<u64>,
    problems: &mut Problems,
) -> u64 {
    let Size(bytes) = given.value;
    if !bounds.contains(&bytes) {
        let [size, least, most] = [bytes, *bounds.start(), *bounds.end()].map(Size::text);
        let what = format!("{size} is out of bounds; from {least} to {most} is allowed");
        given.refuse(problems, what);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::problem::Spot;
    use super::*;

    fn told<T>(value: T, check: impl FnOnce(&Given<T>, &mut Problems)) -> String {
        let mut problems = Problems::of("a.toml", String::new());
        let given = Given { value, spot: Spot::Byte(0), option: "x".to_owned() };
        check(&given, &mut problems);
        problems.or(()).map_or_else(|errors| errors.to_string(), |()| String::new())
    }

    #[test]
    fn a_value_out_of_bounds_is_told_both_ends() {
        let second = Duration::from_secs(1);
        let check = |value| {
            told(value, |given, problems| {
                span(given, second..=second * 60, problems);
            })
        };
        assert_eq!(check(Span(second)), "");
        let expected = "a.toml:1:1: x: 2m is out of bounds; from 1s to 1m is allowed";
        assert_eq!(check(Span(second * 120)), expected);
        let zero = told(0, |given, problems| {
            number(given, 1..=9, problems);
        });
        assert_eq!(zero, "a.toml:1:1: x: 0 is out of bounds; from 1 to 9 is allowed");
        let large = told(Size(2 << 30), |given, problems| {
            size(given, 1..=1 << 30, problems);
        });
        assert_eq!(large, "a.toml:1:1: x: 2GiB is out of bounds; from 1 to 1GiB is allowed");
    }
}
