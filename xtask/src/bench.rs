//! `cargo xtask bench [name]`: runs fixed workloads and keeps what they measured.
//!
//! Reads the report each one leaves in the target directory and appends it to `bench/history.csv`.
//! Never judges: a bar that does not hold is shown, and the command still succeeds, because a
//! number from one machine is not a verdict on a change.

use std::fs::{self, OpenOptions};
use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::workspace::{self, Workspace};

/// One benchmark: `cargo bench -p package --bench target --features features`.
struct Bench {
    name: &'static str,
    package: &'static str,
    target: &'static str,
    /// What the package does not have by default, separated by commas.
    features: &'static str,
}

const BENCHES: &[Bench] = &[
    Bench { name: "engine", package: "onetake-activity", target: "engine", features: "" },
    Bench { name: "store", package: "onetake-stores", target: "store", features: "" },
    Bench { name: "http", package: "onetake-http", target: "http", features: "axum,gateway" },
    Bench {
        name: "stores",
        package: "onetake-stores",
        target: "stores",
        features: "postgres,redis",
    },
    Bench { name: "openwop", package: "onetake-openwop", target: "openwop", features: "" },
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which one; all of them when absent
    name: Option<String>,
    /// Smaller and shorter, where a benchmark has such a mode; the report says so
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Larger and longer, where a benchmark has such a mode
    #[arg(long)]
    full: bool,
}

impl Args {
    /// What a benchmark is told.
    fn flags(&self) -> &'static [&'static str] {
        match (self.quick, self.full) {
            (true, _) => &["--", "--quick"],
            (_, true) => &["--", "--full"],
            _ => &[],
        }
    }
}

/// What a benchmark leaves in `<target dir>/bench/<name>.json`, as far as history needs it.
#[derive(Deserialize)]
struct Report {
    name: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "case")]
    name: String,
    value: f64,
    unit: String,
    ratio: Option<f64>,
    bar: Option<serde_json::Value>,
    holds: bool,
}

/// One line of `bench/history.csv`; the names of the fields are its header.
#[derive(Serialize)]
struct Row<'a> {
    date: &'a str,
    commit: &'a str,
    name: &'a str,
    case: &'a str,
    value: f64,
    unit: &'a str,
    ratio: Option<f64>,
    holds: bool,
}

/// Runs the chosen benchmarks, one after the other.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    let history = workspace.root.join("bench/history.csv");
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let (date, _time) = now.split_once('T').context("invariant: RFC 3339 has a T")?;
    let commit = workspace.git(&["rev-parse", "--short", "HEAD"])?;
    for bench in chosen(args.name.as_deref())? {
        let report = measure(workspace, bench, args.flags())?;
        append(&history, &rows(&report, date, commit.trim_end()))?;
        println!("{}: cases appended to bench/history.csv: {}", report.name, report.cases.len());
        for case in report.cases.iter().filter(|case| !case.holds) {
            println!("{}", in_red(&broken_bar(case), stdout().is_terminal()));
        }
    }
    Ok(())
}

fn chosen(name: Option<&str>) -> Result<Vec<&'static Bench>> {
    let Some(name) = name else {
        return Ok(BENCHES.iter().collect());
    };
    let found = BENCHES.iter().find(|bench| bench.name == name).ok_or_else(|| {
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        anyhow!("there is no benchmark `{name}`; there is: {}", names.join(", "))
    })?;
    Ok(vec![found])
}

fn measure(workspace: &Workspace, bench: &Bench, flags: &[&str]) -> Result<Report> {
    let file = workspace.target.join("bench").join(format!("{}.json", bench.name));
    // The report of an earlier run must not pass for this one.
    if file.exists() {
        fs::remove_file(&file)?;
    }
    let mut cargo = workspace.cargo();
    cargo.args(["bench", "-p", bench.package, "--bench", bench.target]);
    cargo.args(["--features", bench.features]);
    cargo.args(flags);
    workspace::run(&mut cargo)?;
    let text = fs::read_to_string(&file)
        .with_context(|| format!("`{}` left no report at {}", bench.name, file.display()))?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a report", file.display()))?;
    ensure!(report.name == bench.name, "{} reports on `{}`", file.display(), report.name);
    Ok(report)
}

fn rows<'a>(report: &'a Report, date: &'a str, commit: &'a str) -> Vec<Row<'a>> {
    let row = |case: &'a Case| Row {
        date,
        commit,
        name: &report.name,
        case: &case.name,
        value: case.value,
        unit: &case.unit,
        ratio: case.ratio,
        holds: case.holds,
    };
    report.cases.iter().map(row).collect()
}

fn append(history: &Path, rows: &[Row<'_>]) -> Result<()> {
    if let Some(parent) = history.parent() {
        fs::create_dir_all(parent)?;
    }
    let is_new = fs::metadata(history).map_or(true, |found| found.len() == 0);
    let file = OpenOptions::new().create(true).append(true).open(history)?;
    let mut writer = csv::WriterBuilder::new().has_headers(is_new).from_writer(file);
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(writer.flush()?)
}

fn broken_bar(case: &Case) -> String {
    let ratio = case.ratio.map_or_else(|| "none".to_owned(), |ratio| ratio.to_string());
    let bar = case.bar.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let Case { name, value, unit, .. } = case;
    format!("does not hold: {name} is {value} {unit} (ratio {ratio}, bar {bar})")
}

fn in_red(text: &str, is_terminal: bool) -> String {
    if is_terminal { format!("\u{1b}[31m{text}\u{1b}[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"name": "engine", "machine": "2 cores", "cases": [
        {"case": "new key", "value": 1250.5, "unit": "ns", "baseline": 1000, "ratio": 1.25,
         "bar": 2, "holds": true},
        {"case": "replay, hot", "value": 90, "unit": "ns", "baseline": null, "ratio": null,
         "bar": "at most 50 ns", "holds": false}]}"#;

    fn report() -> Report {
        serde_json::from_str(REPORT).unwrap()
    }

    #[test]
    fn history_grows_by_one_line_per_case_and_has_one_header() {
        let dir = tempfile::tempdir().unwrap();
        let history = dir.path().join("bench/history.csv");
        append(&history, &rows(&report(), "2030-01-01", "abc1234")).unwrap();
        append(&history, &rows(&report(), "2030-01-02", "def5678")).unwrap();
        let expected = "\
date,commit,name,case,value,unit,ratio,holds
2030-01-01,abc1234,engine,new key,1250.5,ns,1.25,true
2030-01-01,abc1234,engine,\"replay, hot\",90.0,ns,,false
2030-01-02,def5678,engine,new key,1250.5,ns,1.25,true
2030-01-02,def5678,engine,\"replay, hot\",90.0,ns,,false
";
        assert_eq!(fs::read_to_string(&history).unwrap(), expected);
    }

    #[test]
    fn a_broken_bar_is_said_in_words() {
        let said = broken_bar(&report().cases[1]);
        let expected = r#"does not hold: replay, hot is 90 ns (ratio none, bar "at most 50 ns")"#;
        assert_eq!(said, expected);
    }

    #[test]
    fn red_is_for_terminals_only() {
        assert_eq!(in_red("no", false), "no");
        assert_eq!(in_red("no", true), "\u{1b}[31mno\u{1b}[0m");
    }

    #[test]
    fn a_benchmark_is_told_how_much_to_measure() {
        let flags = |quick, full| Args { name: None, quick, full }.flags();
        assert!(flags(false, false).is_empty());
        assert_eq!(flags(true, false), ["--", "--quick"]);
        assert_eq!(flags(false, true), ["--", "--full"]);
    }

    #[test]
    fn no_name_means_all_of_them() {
        assert_eq!(chosen(None).unwrap().len(), BENCHES.len());
        assert_eq!(chosen(Some("engine")).unwrap()[0].package, "onetake-activity");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = chosen(Some("engines")).err().map(|error| error.to_string());
        let expected = "there is no benchmark `engines`; there is: engine, store, http, stores, \
             openwop";
        assert_eq!(error.as_deref(), Some(expected));
    }
}
