//! What a benchmark says: a table for people, and the same as JSON.
//!
//! Every benchmark includes this file by its path. A bar that does not hold is printed in red and
//! is no failure: a benchmark measures, it does not judge.
#![allow(dead_code, reason = "every benchmark uses a part of it")]

use std::path::Path;

use serde::Serialize;

/// What a case is asked to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// This, and nothing else.
    Exactly(f64),
    /// No less than so many times its baseline.
    Ratio(f64),
    /// Nothing: it is shown because it is good to know.
    None,
}

/// One thing that was measured, beside its baseline.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    name: String,
    value: f64,
    unit: &'static str,
    baseline: Option<f64>,
    ratio: Option<f64>,
    bar: Option<f64>,
    holds: bool,
}

impl Case {
    /// The medians of both, by round. The ratio is taken inside each round, so that a machine that
    /// is busy in one of them slows both sides of it.
    pub(crate) fn new(
        name: impl Into<String>,
        unit: &'static str,
        ours: &mut [f64],
        baseline: &mut [f64],
        bar: Bar,
    ) -> Self {
        let mut ratios: Vec<_> =
            ours.iter().zip(baseline.iter().cycle()).map(|(ours, bare)| ours / bare).collect();
        Self::judged(name.into(), unit, ours, Some((median(baseline), median(&mut ratios))), bar)
    }

    /// A case that only a bar can be beside: there is nothing smaller that does the same.
    pub(crate) fn alone(
        name: impl Into<String>,
        unit: &'static str,
        ours: &mut [f64],
        bar: Bar,
    ) -> Self {
        Self::judged(name.into(), unit, ours, None, bar)
    }

    #[allow(clippy::float_cmp, reason = "who asks for exactly this much means it")]
    fn judged(
        name: String,
        unit: &'static str,
        ours: &mut [f64],
        beside: Option<(f64, f64)>,
        bar: Bar,
    ) -> Self {
        let value = median(ours);
        let (baseline, ratio) = beside.unzip();
        let (bar, holds) = match bar {
            Bar::AtMost(most) => (Some(most), value <= most),
            Bar::AtLeast(least) => (Some(least), value >= least),
            Bar::Exactly(this) => (Some(this), value == this),
            Bar::Ratio(least) => (Some(least), ratio.is_some_and(|ratio| ratio >= least)),
            Bar::None => (None, true),
        };
        Self { name, value, unit, baseline, ratio, bar, holds }
    }
}

/// The median; sorts what it is given.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[derive(Serialize)]
struct Sheet<'a> {
    name: &'a str,
    machine: String,
    cases: &'a [Case],
}

/// Prints `cases` and writes them to `bench/<name>.json` in the target directory. A `remark` says
/// what was different from a full run, if anything was.
pub(crate) fn write(name: &str, remark: &str, cases: &[Case]) {
    let machine = format!("{}{remark}", machine());
    println!("{name}: {machine}");
    let row = |case: &str, value: &str, unit: &str, rest: [&str; 3]| {
        let [baseline, ratio, bar] = rest;
        format!("{case:<60} {value:>12} {unit:<3} {baseline:>12} {ratio:>8} {bar:>10}")
    };
    println!("{}", row("case", "value", "", ["baseline", "ratio", "bar"]));
    let shown = |number: Option<f64>| number.map_or_else(|| "-".into(), |n| format!("{n:.2}"));
    for case in cases {
        let bar = case.bar.map_or_else(|| "-".into(), |bar| format!("{bar}"));
        let (baseline, ratio) = (shown(case.baseline), shown(case.ratio));
        let value = format!("{:.2}", case.value);
        let line = row(&case.name, &value, case.unit, [&baseline, &ratio, &bar]);
        if case.holds { println!("{line}") } else { println!("\x1b[31m{line}  MISSED\x1b[0m") }
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("inside the target");
    let sheet = Sheet { name, machine, cases };
    let json = serde_json::to_vec_pretty(&sheet).expect("numbers and words");
    std::fs::create_dir_all(target.join("bench")).expect("the target directory can be written");
    std::fs::write(target.join(format!("bench/{name}.json")), json).expect("likewise");
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}

/// A line of `/proc/self/status` that is a size, in mebibytes; zero where there is none.
pub(crate) fn status_mib(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1_024.0
}
