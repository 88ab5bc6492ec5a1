//! What is published about the configuration agrees with what is built: the example, the
//! reference, the schema.

use std::collections::BTreeSet;

use super::super::raw::SECTIONS;
use super::super::read::Known;
use super::*;

const REFERENCE: &str = include_str!("../../../../../docs/configuration.md");
const SCHEMA: &str = include_str!("../../../../../docs/onetake.schema.json");

#[test]
fn the_example_loads_and_means_what_it_says() {
    let config = loaded(EXAMPLE);
    let [orders, rest] = config.routes.as_slice() else { panic!("two routes") };
    assert_eq!(orders.operation.as_ref().unwrap().as_str(), "orders.create");
    assert_eq!(orders.settings.dialect.as_str(), "house");
    assert_eq!(orders.settings.fingerprint.ignore[0].to_string(), "/client_time");
    assert!(!orders.passes_through && rest.passes_through);
    assert_eq!(rest.upstream, "http://127.0.0.1:9000");
    assert_eq!(config.tenants[0].keys.len(), 2);
    let till = &config.tenants[0].keys[1];
    assert_eq!(till.name.as_ref().unwrap().as_str(), "till-7");
    assert!(till.expires.is_some() && till.scopes.is_some());
}

/// What the mark in the example says of a line.
const MARK: &str = " # example";

/// Every option in single brackets that the example shows: its section, its line without a hash,
/// and whether it is marked as an example.
fn shown_alone() -> Vec<(&'static str, &'static str, bool)> {
    let mut section = "";
    let mut all = Vec::new();
    for line in EXAMPLE.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.strip_suffix(']').unwrap_or_default();
        }
        let line = line.strip_prefix('#').unwrap_or(line);
        let is_option = line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" = ");
        if is_option && !section.starts_with('[') {
            all.push((section, line.trim_end_matches(MARK), line.ends_with(MARK)));
        }
    }
    all
}

/// What a file with this line in this section comes to, beside one without it: both as JSON.
fn with_and_without(section: &str, line: &str) -> [serde_json::Value; 2] {
    let option = line.split(' ').next().unwrap();
    // What belongs to one mode only is tried in that mode, with what it needs.
    let of_jwt = ["jwks", "secret", "issuer", "audience", "algorithms", "leeway"];
    let mode = if of_jwt.contains(&option) || option.ends_with("_claim") {
        "mode = \"jwt\"\n"
    } else if option == "from" || option.ends_with("_header") {
        "mode = \"trusted-header\"\n"
    } else if (section, option) == ("auth", "tenant") {
        "mode = \"anonymous\"\n"
    } else {
        ""
    };
    let needs = match (mode, option) {
        (_, "jwks" | "secret" | "from") => "",
        ("mode = \"jwt\"\n", _) => "jwks = \"x\"\n",
        ("mode = \"trusted-header\"\n", _) => "from = [\"::1\"]\n",
        // Without workflows there is no host for the rest to be about.
        (_, name) if section == "openwop" && name != "workflows" => "workflows = \"x\"\n",
        _ => "",
    };
    let load = |line: &str| {
        let text = format!("[{section}]\n{mode}{needs}{line}\n");
        // A variable that no line names would be refused.
        let token = [("ONETAKE_ADMIN_TOKEN", "0123456789abcdef")];
        let is_named = text.contains("ONETAKE_ADMIN_TOKEN");
        let config = if is_named { load_with(&text, token) } else { load_with(&text, []) };
        config.map_or(serde_json::Value::Null, |config| serde_json::to_value(&config).unwrap())
    };
    [load(line), load("")]
}

/// The head of the example tells which of its values are built in: those without a mark.
#[test]
fn the_example_marks_what_is_not_built_in_and_nothing_else() {
    let shown = shown_alone();
    assert!(shown.len() > 50 && EXAMPLE.contains("unless its line ends\n# with `# example`"));
    for (section, line, is_example) in shown {
        let (option, value) = line.split_once(" = ").unwrap();
        let known = SECTIONS.iter().find(|known| known.name == section).unwrap();
        let known = known.known().find(|known| known.name == option).unwrap();
        if let Some(built_in) = known.built_in {
            assert_eq!((value, is_example), (built_in, false), "{section}.{option}");
        }
        let [with, without] = with_and_without(section, line);
        let is_same = with == without && !with.is_null();
        assert_eq!(!is_same, is_example, "[{section}] {line}: {with}");
    }
}

/// The paths of all options: `server.listen`, `defaults.fingerprint.json`, `tenant.keys.hash`.
pub(super) fn every_option() -> Vec<(String, &'static Known)> {
    fn add(all: &mut Vec<(String, &'static Known)>, above: &str, known: &'static Known) {
        let path = format!("{above}.{}", known.name);
        for inside in (known.inside)() {
            add(all, &path, inside);
        }
        all.push((path, known));
    }
    let mut all = Vec::new();
    for section in &SECTIONS {
        section.known().for_each(|known| add(&mut all, section.name, known));
    }
    all
}

/// Takes the single `#` from the options that are not in force.
fn all_in_force(example: &str) -> String {
    let is_option = |line: &&str| {
        line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_lowercase())
    };
    let line = |line: &str| if is_option(&line) { line[1..].to_owned() } else { line.to_owned() };
    example.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The paths of everything that is written.
fn names(shown: &mut BTreeSet<String>, above: &str, node: &Node) {
    match &node.value {
        Value::Table(table) => {
            for (name, (_, node)) in &table.rows {
                let path = format!("{above}{name}");
                names(shown, &format!("{path}."), node);
                shown.insert(path);
            }
        }
        Value::List(nodes) => nodes.iter().for_each(|node| names(shown, above, node)),
        Value::Text(_)
        | Value::Integer(_)
        | Value::Float
        | Value::Bool(_)
        | Value::Date(_)
        | Value::Word(_) => {}
    }
}

#[test]
fn the_example_shows_every_option() {
    let mut problems = Problems::of("example", all_in_force(EXAMPLE));
    let table = tree::parse(&mut problems);
    let mut shown = BTreeSet::new();
    names(&mut shown, "", &Node { spot: problem::Spot::Whole, value: Value::Table(table) });
    // What a route shares with the defaults is shown there.
    let is_shared = |path: &str| {
        path.strip_prefix("route.").is_some_and(|rest| shown.contains(&format!("defaults.{rest}")))
    };
    let missing: Vec<_> = every_option()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| !shown.contains(path) && !is_shared(path))
        .collect();
    assert!(missing.is_empty(), "not in onetake.example.toml: {missing:?}");
}

#[test]
fn what_the_example_shows_behind_a_hash_is_right_too() {
    let told = told(&all_in_force(EXAMPLE));
    // Not everything goes together: some is for another mode, some for another store.
    let is_apart = |line: &String| {
        line.contains("this means something with mode = ")
            || line.contains("only a store in PostgreSQL has it")
    };
    let other: Vec<_> = told.iter().filter(|line| !is_apart(line)).collect();
    assert_eq!(other.len(), 1, "{other:#?}");
    assert!(other[0].ends_with("the variable `ONETAKE_ADMIN_TOKEN` is not set"));
}

/// One line of a table of the documentation.
fn row(known: &Known) -> String {
    let built_in = known.built_in.map_or_else(|| "none".to_owned(), |toml| format!("`{toml}`"));
    let expected = (known.expected)().replace('|', "\\|");
    format!("| `{}` | {expected} | {built_in} | {} |", known.name, known.meaning())
}

#[test]
fn every_option_is_documented_with_its_type_its_default_and_its_meaning() {
    let mut missing = String::new();
    for (path, known) in every_option().into_iter().filter(|(path, _)| {
        !path.starts_with("route.") || ["route.match", "route.operation"].contains(&path.as_str())
    }) {
        let row = row(known);
        if !REFERENCE.lines().any(|line| line == row) {
            writeln!(missing, "{path}: {row}").unwrap();
        }
    }
    assert!(missing.is_empty(), "not in docs/configuration.md:\n{missing}");
}

#[test]
fn the_published_schema_is_the_one_of_this_build() {
    let now = serde_json::to_string_pretty(&schema()).unwrap();
    assert_eq!(SCHEMA.trim_end(), now, "run `cargo xtask schema`");
}
