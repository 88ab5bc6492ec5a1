//! What a benchmark says: a table for people, and the same as JSON.
//!
//! A bar that does not hold is printed in red and is no failure: a benchmark measures, it does not
//! judge.

use std::path::Path;

use serde::Serialize;

/// What a case is asked to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bar {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// One thing that was measured, beside its baseline.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    #[serde(rename = "case")]
    name: &'static str,
    value: f64,
    unit: &'static str,
    baseline: f64,
    ratio: f64,
    bar: Option<f64>,
    holds: bool,
}

impl Case {
    /// The medians of both.
    pub(crate) fn new(
        name: &'static str,
        unit: &'static str,
        ours: &mut [f64],
        baseline: &mut [f64],
        bar: Bar,
    ) -> Self {
        let (value, baseline) = (median(ours), median(baseline));
        let (bar, holds) = match bar {
            Bar::AtMost(most) => (Some(most), value <= most),
            Bar::AtLeast(least) => (Some(least), value >= least),
        };
        Self { name, value, unit, baseline, ratio: value / baseline, bar, holds }
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

/// Prints `cases` and writes them to `bench/<name>.json` in the target directory.
pub(crate) fn write(name: &str, cases: &[Case]) {
    let machine = machine();
    println!("{name}: {machine}");
    println!("{:<44} {:>12} {:>12} {:>8} {:>10}", "case", "value", "baseline", "ratio", "bar");
    for case in cases {
        let bar = case.bar.map_or_else(|| "-".into(), |bar| format!("{bar}"));
        let line = format!(
            "{:<44} {:>9.2} {:<2} {:>12.2} {:>8.2} {:>10}",
            case.name, case.value, case.unit, case.baseline, case.ratio, bar
        );
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
