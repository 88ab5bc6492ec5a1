//! The environment: which variables give options, and which of them nobody knows.
//!
//! `ONETAKE_DEFAULTS__RETENTION` gives `retention` in `[defaults]`: two underscores between levels.
//! A variable with our prefix that is none of ours is refused, for it was surely meant to do
//! something. Values are never quoted; they could be secrets. Flags of a command that stand for an
//! option are laid over it in the same way.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::problem::{Problems, Spot, nearest};
use super::raw::{NOT_BUILT_IN, SECTIONS};
use super::read::Known;
use super::secret::SecretText;
use super::tree::{Node, Table, Value};

/// What all our variables begin with.
const PREFIX: &str = "ONETAKE_";
/// What stands between two levels.
const LEVEL: &str = "__";
/// Ours, but no options: read elsewhere in this program, or by its tests.
const OTHERS: [&str; 9] = [
    "ONETAKE_STORE__KEY",
    "ONETAKE_STORE__KEY_FILE",
    "ONETAKE_STORE__OLD_KEY",
    "ONETAKE_STORE__OLD_KEY_FILE",
    "ONETAKE_OPERATOR",
    "ONETAKE_API_KEY",
    "ONETAKE_URL",
    "ONETAKE_CRASH_AT",
    "ONETAKE_CRASH_LOG",
];

/// The variables that were set when the program started; none when its value is not UTF-8.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, Option<String>>,
    typed: Vec<Typed>,
}

/// A flag that was typed in place of an option.
#[derive(Clone)]
struct Typed {
    flag: &'static str,
    path: [&'static str; 2],
    word: String,
}

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        Self::of_pairs(std::env::vars_os())
    }

    /// These variables, as a system gives them.
    pub(super) fn of_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let pair = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()))
        };
        Self { variables: pairs.into_iter().filter_map(pair).collect(), typed: Vec::new() }
    }

    /// The same with what was typed for the option at `path`, if anything was: it comes before
    /// variables and the file.
    #[must_use]
    pub(crate) fn typed(
        mut self,
        flag: &'static str,
        path: [&'static str; 2],
        word: Option<&str>,
    ) -> Self {
        self.typed.extend(word.map(|word| Typed { flag, path, word: word.to_owned() }));
        self
    }

    /// These variables.
    #[cfg(test)]
    pub(crate) fn of<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
        Self { variables: variables.into_iter().map(pair).collect(), typed: Vec::new() }
    }

    /// The value of `name`, where it is set.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.as_deref()
    }

    /// Puts every variable that is an option into `table`, and refuses those that nobody knows.
    pub(super) fn overlay(&self, table: &mut Table, problems: &mut Problems) {
        let named = secrets_named(table);
        let known = variables();
        for (name, value) in self.variables.range(PREFIX.to_owned()..) {
            if !name.starts_with(PREFIX) {
                break;
            }
            let spot = || Spot::Variable(name.as_str().into());
            let is_elsewhere = OTHERS.contains(&name.as_str()) || named.contains(name);
            match (known.get(name), value.as_deref()) {
                // A file that composes containers sets what it has no value for to nothing.
                (Some(_), Some("")) => {}
                (Some(path), Some(word)) => {
                    let path: Vec<&str> = path.iter().map(String::as_str).collect();
                    table.put(&path, &Arc::from(name.as_str()), word);
                }
                (Some(path), None) => {
                    problems.value(&spot(), &path.join("."), "the value is not UTF-8");
                }
                (None, _) if is_elsewhere || is_of_an_orchestrator(name) => {}
                (None, _) => refuse(name, &spot(), &known, problems),
            }
        }
        for Typed { flag, path, word } in &self.typed {
            table.put(path, &Arc::from(*flag), word);
        }
    }
}

/// Says that there is no such variable, and which was probably meant.
fn refuse(name: &str, spot: &Spot, known: &BTreeMap<String, Vec<String>>, problems: &mut Problems) {
    let rest = name[PREFIX.len()..].to_lowercase();
    let section = rest.split(LEVEL).next().unwrap_or_default();
    let is_list = |found: &&super::raw::Section| found.name == section && found.repeats;
    let what = if NOT_BUILT_IN.contains(&section) {
        not_built_in(section)
    } else if SECTIONS.iter().find(is_list).is_some() {
        format!("[[{section}]] can be given in the file only")
    } else {
        "no option has this variable".to_owned()
    };
    let meant = nearest(name, known.keys().map(String::as_str));
    problems.unknown(spot, name, what, meant);
}

/// What is said of a section whose door this build does not have.
pub(super) fn not_built_in(section: &str) -> String {
    format!("the section [{section}] configures a door that this build does not have")
}

/// Every variable that gives an option, with the path of the option.
pub(super) fn variables() -> BTreeMap<String, Vec<String>> {
    let mut all = BTreeMap::new();
    for section in SECTIONS.iter().filter(|section| !section.repeats) {
        for known in section.known() {
            add(&mut all, &[section.name], known);
        }
    }
    all
}

fn add(all: &mut BTreeMap<String, Vec<String>>, above: &[&str], known: &Known) {
    if !(known.fits_a_variable)() {
        return;
    }
    let path: Vec<&str> = above.iter().copied().chain([known.name]).collect();
    let inside = (known.inside)();
    for known in inside {
        add(all, &path, known);
    }
    if inside.is_empty() {
        let name = format!("{PREFIX}{}", path.join(LEVEL).to_uppercase());
        all.insert(name, path.into_iter().map(str::to_owned).collect());
    }
}

/// The variables that the file itself names as holding secrets.
fn secrets_named(table: &Table) -> Vec<String> {
    let secrets = [("admin", "token"), ("auth", "secret")];
    let named = |(section, option): (&str, &str)| {
        let Value::Table(section) = &table.get(section)?.value else { return None };
        let Node { value: Value::Text(text), .. } = section.get(option)? else { return None };
        SecretText::variable(text).map(str::to_owned)
    };
    secrets.into_iter().filter_map(named).collect()
}

/// Whether an orchestrator sets this variable for a service called `onetake` or `onetake-…`:
/// `ONETAKE_SERVICE_HOST`, `ONETAKE_PORT_8080_TCP_ADDR`.
fn is_of_an_orchestrator(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').skip(1).collect();
    let is_service = |pair: &[&str]| matches!(pair, ["SERVICE", "HOST" | "PORT"]);
    let is_port = |pair: &[&str]| {
        let is_number = pair[1].bytes().all(|byte| byte.is_ascii_digit());
        pair[0] == "PORT" && is_number && !pair[1].is_empty()
    };
    let ends_so = words.last() == Some(&"PORT");
    ends_so || words.windows(2).any(|pair| is_service(pair) || is_port(pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told<const N: usize>(file: &str, variables: [(&str, &str); N]) -> (Table, String) {
        let mut problems = Problems::of("a.toml", file.to_owned());
        let mut table = super::super::tree::parse(&mut problems);
        Environment::of(variables).overlay(&mut table, &mut problems);
        (table, problems.or(()).map_or_else(|errors| errors.to_string(), |()| String::new()))
    }

    #[test]
    fn every_option_of_a_single_section_has_a_variable() {
        let all = variables();
        for name in [
            "ONETAKE_SERVER__LISTEN",
            "ONETAKE_SERVER__TRUSTED_PROXIES",
            "ONETAKE_ADMIN__TOKEN",
            "ONETAKE_STORE__URL",
            "ONETAKE_AUTH__MODE",
            "ONETAKE_DEFAULTS__RETENTION",
            "ONETAKE_DEFAULTS__FINGERPRINT__QUERY",
            "ONETAKE_DEFAULTS__STATUSES__KEPT",
        ] {
            assert!(all.contains_key(name), "{name}");
        }
        assert_eq!(
            all["ONETAKE_DEFAULTS__FINGERPRINT__QUERY"].join("."),
            "defaults.fingerprint.query"
        );
        assert!(!all.keys().any(|name| name.contains("ROUTE") || name.contains("TENANT__")));
    }

    #[test]
    fn a_variable_that_nobody_knows_is_refused_with_what_was_meant() {
        let (_, text) = told(
            "",
            [
                ("ONETAKE_ADMIN_TOKEN", "hunter2"),
                ("ONETAKE_DEFAULTS__RETENTON", "1h"),
                ("ONETAKE_COLOUR", "red"),
                ("ONETAKE_ROUTE__MATCH", "x"),
                ("ONETAKE_MCP__OPENAPI", "x"),
            ],
        );
        let expected = "\
ONETAKE_ADMIN_TOKEN: no option has this variable; did you mean `ONETAKE_ADMIN__TOKEN`?
ONETAKE_COLOUR: no option has this variable
ONETAKE_DEFAULTS__RETENTON: no option has this variable; did you mean `ONETAKE_DEFAULTS__RETENTION`?
ONETAKE_MCP__OPENAPI: the section [mcp] configures a door that this build does not have
ONETAKE_ROUTE__MATCH: [[route]] can be given in the file only";
        assert_eq!(text, expected);
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        let file = "[admin]\ntoken = \"env:ONETAKE_ADMIN_TOKEN\"\n";
        let (_, text) = told(
            file,
            [
                ("ONETAKE_ADMIN_TOKEN", "named by the file"),
                ("ONETAKE_STORE__KEY_FILE", "x"),
                ("ONETAKE_OPERATOR", "ann"),
                ("ONETAKE_API_KEY", "x"),
                ("ONETAKE_URL", "x"),
                ("ONETAKE_SERVICE_HOST", "10.0.0.1"),
                ("ONETAKE_GATEWAY_SERVICE_PORT_HTTP", "80"),
                ("ONETAKE_PORT", "tcp://10.0.0.1:80"),
                ("ONETAKE_PORT_80_TCP_ADDR", "10.0.0.1"),
                ("OTHER", "x"),
            ],
        );
        assert_eq!(text, "");
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        let (table, text) = told("", [("ONETAKE_ADMIN__TOKEN", "")]);
        assert_eq!((table.rows.len(), text.as_str()), (0, ""));
    }
}
