//! Who may depend on whom, as data, and the comparison with what cargo resolved.
//!
//! Only normal dependencies count: tests may use anything. Cargo reports one set of features for
//! the whole workspace, so a ban may fire for a feature that only a neighbour switched on; it
//! never stays silent about a package that is really built.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result};
use cargo_metadata::{CargoOpt, DependencyKind, Metadata, MetadataCommand, Node};

use super::Complaint;
use crate::workspace::Workspace;

const CRATES_MAX: usize = 12;
const TESTKIT: &str = "onetake-testkit";

/// What one crate may and must not use.
struct Row {
    package: &'static str,
    /// Ours that it may name in its `Cargo.toml`.
    may_use: &'static [&'static str],
    /// What must not be built with it, however indirectly.
    never: &'static [&'static str],
}

const CORE: &str = "onetake-core";
const ENGINE: &str = "onetake-engine";
const STORES: &str = "onetake-stores";
const HTTP: &str = "onetake-http";
const ACTIVITY: &str = "onetake-activity";
const EVENTS: &str = "onetake-events";
const OPENWOP: &str = "onetake-openwop";
const MCP: &str = "onetake-mcp";
const CONSOLE: &str = "onetake-console";
const FACADE: &str = "onetake";

const LIBRARIES: &[&str] = &[CORE, ENGINE, STORES, HTTP, ACTIVITY, EVENTS, OPENWOP, MCP, CONSOLE];

#[rustfmt::skip] // A table is read by its columns.
const TABLE: &[Row] = &[
    Row { package: CORE, may_use: &[],
          never: &["tokio", "futures", "futures-core", "futures-util", "tracing", "rand", "http"] },
    Row { package: ENGINE, may_use: &[CORE],
          never: &["http", "axum", "hyper", "tokio-postgres", "sqlx", "redis", "fjall"] },
    Row { package: STORES, may_use: &[ENGINE, CORE],
          never: &["http", HTTP, ACTIVITY, EVENTS, OPENWOP, MCP, CONSOLE] },
    Row { package: HTTP, may_use: &[ENGINE, CORE], never: &[STORES, ACTIVITY, CONSOLE] },
    Row { package: ACTIVITY, may_use: &[ENGINE, CORE], never: &[STORES, HTTP, CONSOLE] },
    Row { package: CONSOLE, may_use: &[ENGINE, CORE], never: &[STORES, HTTP, ACTIVITY] },
    Row { package: EVENTS, may_use: &[ENGINE, CORE, HTTP], never: &[STORES] },
    Row { package: MCP, may_use: &[ENGINE, CORE, HTTP], never: &[STORES] },
    Row { package: OPENWOP, may_use: &[ENGINE, CORE, HTTP, ACTIVITY, EVENTS], never: &[STORES] },
    Row { package: FACADE, may_use: LIBRARIES, never: &["clap"] },
    Row { package: "onetake-cli",
          may_use: &[CORE, ENGINE, STORES, HTTP, ACTIVITY, EVENTS, OPENWOP, MCP, CONSOLE, FACADE],
          never: &[TESTKIT] },
    Row { package: TESTKIT, may_use: &[ENGINE, CORE, ACTIVITY], never: &[] },
];

/// What cargo resolved, as far as the table asks.
pub(super) struct Graph(BTreeMap<String, Package>);

struct Package {
    name: String,
    /// From the root, for a member of the workspace.
    manifest: Option<String>,
    uses: Vec<Use>,
}

struct Use {
    /// The key of the package that is used.
    id: String,
    kind: DependencyKind,
}

impl Graph {
    /// Asks cargo, with every feature switched on, about the platform we are on.
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .current_dir(&workspace.root)
            .features(CargoOpt::AllFeatures)
            // Otherwise cargo would download what only other platforms need.
            .other_options(["--filter-platform", "host-tuple"].map(str::to_owned))
            .exec()?;
        Self::from_metadata(&metadata)
    }

    fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo resolved nothing")?;
        let package = |node: &Node| {
            let found = &metadata[&node.id];
            let manifest = found.manifest_path.strip_prefix(&metadata.workspace_root).ok();
            let is_member = metadata.workspace_members.contains(&node.id);
            let package = Package {
                name: found.name.to_string(),
                manifest: manifest
                    .filter(|_| is_member)
                    .map(|path| path.as_str().replace('\\', "/")),
                uses: uses(node),
            };
            (node.id.repr.clone(), package)
        };
        Ok(Self(resolve.nodes.iter().map(package).collect()))
    }

    fn package(&self, id: &str) -> Option<&Package> {
        self.0.get(id)
    }

    /// The members, with their keys and manifests.
    fn members(&self) -> impl Iterator<Item = (&str, &Package, &str)> {
        self.0
            .iter()
            .filter_map(|(id, package)| Some((id.as_str(), package, package.manifest.as_deref()?)))
    }

    /// The names of what a package uses in the given way.
    fn used(&self, package: &Package, is_asked: impl Fn(DependencyKind) -> bool) -> BTreeSet<&str> {
        let asked = package.uses.iter().filter(|used| is_asked(used.kind));
        asked.filter_map(|used| Some(self.package(&used.id)?.name.as_str())).collect()
    }

    /// For everything that is built with a package, by name: the shortest chain that leads to it.
    fn chains(&self, start: &str) -> BTreeMap<&str, String> {
        let mut chains = BTreeMap::new();
        let mut seen = BTreeSet::from([start]);
        let name = |id: &str| self.package(id).map(|package| package.name.clone());
        let mut queue = VecDeque::from([(start, name(start).unwrap_or_default())]);
        while let Some((id, chain)) = queue.pop_front() {
            let uses = self.package(id).map_or(&[][..], |package| &package.uses);
            for used in uses.iter().filter(|used| used.kind == DependencyKind::Normal) {
                let Some(package) = self.package(&used.id) else {
                    continue;
                };
                if seen.insert(&used.id) {
                    let longer = format!("{chain} -> {}", package.name);
                    chains.entry(package.name.as_str()).or_insert_with(|| longer.clone());
                    queue.push_back((&used.id, longer));
                }
            }
        }
        chains
    }

    /// A workspace in which what starts with `onetake` is ours. A word before a colon is the kind
    /// of the dependency.
    #[cfg(test)]
    pub(super) fn of(packages: &[(&str, &[&str])]) -> Self {
        let used = |word: &&str| match word.split_once(':') {
            Some(("dev", id)) => Use { id: id.to_owned(), kind: DependencyKind::Development },
            Some((_, id)) => Use { id: id.to_owned(), kind: DependencyKind::Build },
            None => Use { id: (*word).to_owned(), kind: DependencyKind::Normal },
        };
        let package = |&(name, uses): &(&str, &[&str])| {
            let folder = name.strip_prefix("onetake").map(|rest| rest.trim_start_matches('-'));
            let package = Package {
                name: name.to_owned(),
                manifest: folder.map(|folder| format!("crates/{folder}/Cargo.toml")),
                uses: uses.iter().map(used).collect(),
            };
            (name.to_owned(), package)
        };
        Self(packages.iter().map(package).collect())
    }
}

fn uses(node: &Node) -> Vec<Use> {
    let kinds = |dep: &cargo_metadata::NodeDep| -> Vec<Use> {
        let of_kind = |kind: DependencyKind| Use { id: dep.pkg.repr.clone(), kind };
        dep.dep_kinds.iter().map(|info| of_kind(info.kind)).collect()
    };
    node.deps.iter().flat_map(kinds).collect()
}

/// Compares the graph with the table.
pub(super) fn check(graph: &Graph) -> Vec<Complaint> {
    let rules = [known_crates, number_of_crates, direct, indirect, testkit_in_tests_only];
    rules.iter().flat_map(|rule| rule(graph)).collect()
}

fn row(package: &Package) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.package == package.name)
}

fn is_crate(manifest: &str) -> bool {
    manifest.starts_with("crates/")
}

fn known_crates(graph: &Graph) -> Vec<Complaint> {
    let unknown = graph
        .members()
        .filter(|(_, package, manifest)| is_crate(manifest) && row(package).is_none());
    let what = |package: &Package| format!("`{}` has no row in the dependency table", package.name);
    unknown.map(|(_, package, manifest)| Complaint::new(manifest, 1, what(package))).collect()
}

fn number_of_crates(graph: &Graph) -> Vec<Complaint> {
    let number = graph.members().filter(|(_, _, manifest)| is_crate(manifest)).count();
    if number <= CRATES_MAX {
        return Vec::new();
    }
    vec![Complaint::new("crates", 1, format!("{number} crates, at most {CRATES_MAX}"))]
}

fn direct(graph: &Graph) -> Vec<Complaint> {
    let ours: BTreeSet<&str> =
        graph.members().map(|(_, package, _)| package.name.as_str()).collect();
    let mut found = Vec::new();
    for (_, package, manifest) in graph.members() {
        let Some(row) = row(package) else { continue };
        let used = graph.used(package, |kind| kind == DependencyKind::Normal);
        for name in used.intersection(&ours).filter(|name| !row.may_use.contains(name)) {
            let what = format!("`{}` may not use `{name}`", package.name);
            found.push(Complaint::new(manifest, 1, what));
        }
    }
    found
}

fn indirect(graph: &Graph) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (id, package, manifest) in graph.members() {
        let Some(row) = row(package) else { continue };
        let chains = graph.chains(id);
        for (name, chain) in row.never.iter().filter_map(|name| chains.get_key_value(name)) {
            let what = format!("must not be built with `{name}`: {chain}");
            found.push(Complaint::new(manifest, 1, what));
        }
    }
    found
}

fn testkit_in_tests_only(graph: &Graph) -> Vec<Complaint> {
    let built_in = graph.members().filter(|(_, package, _)| {
        graph.used(package, |kind| kind != DependencyKind::Development).contains(TESTKIT)
    });
    let what = format!("`{TESTKIT}` may only be a dev-dependency");
    built_in.map(|(_, _, manifest)| Complaint::new(manifest, 1, what.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(packages: &[(&str, &[&str])]) -> Vec<String> {
        check(&Graph::of(packages)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_graph_of_the_design_passes() {
        let design: &[(&str, &[&str])] = &[
            (CORE, &["sha2", "dev:rand", "dev:onetake-testkit"]),
            (ENGINE, &[CORE, "tokio"]),
            (STORES, &[ENGINE, "redis"]),
            (HTTP, &[ENGINE, "http"]),
            (EVENTS, &[ENGINE, HTTP]),
            (TESTKIT, &[ENGINE, "rand"]),
            ("onetake-cli", &[STORES, HTTP, "clap"]),
            ("sha2", &[]),
            ("tokio", &[]),
            ("redis", &[]),
            ("http", &[]),
            ("rand", &[]),
            ("clap", &[]),
        ];
        assert_eq!(complaints(design), [""; 0]);
    }

    #[test]
    fn a_door_may_not_use_a_store() {
        let expected = [
            "crates/http/Cargo.toml:1: `onetake-http` may not use `onetake-stores`",
            "crates/http/Cargo.toml:1: must not be built with `onetake-stores`: \
             onetake-http -> onetake-stores",
        ];
        assert_eq!(complaints(&[(HTTP, &[STORES]), (STORES, &[])]), expected);
        assert_eq!(complaints(&[(HTTP, &["dev:onetake-stores"]), (STORES, &[])]), [""; 0]);
    }

    #[test]
    fn a_ban_reaches_through_others_and_shows_the_way() {
        let far: &[(&str, &[&str])] = &[
            (CORE, &["digest"]),
            ("digest", &["entropy", "dev:tokio"]),
            ("entropy", &["rand"]),
            ("rand", &["digest"]),
            ("tokio", &[]),
        ];
        let expected = "crates/core/Cargo.toml:1: must not be built with `rand`: \
                        onetake-core -> digest -> entropy -> rand";
        assert_eq!(complaints(far), [expected]);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        let what = "`onetake-testkit` may only be a dev-dependency";
        let engine = format!("crates/engine/Cargo.toml:1: {what}");
        assert_eq!(complaints(&[(ENGINE, &["build:onetake-testkit"]), (TESTKIT, &[])]), [engine]);
        let cli = complaints(&[("onetake-cli", &[TESTKIT]), (TESTKIT, &[])]);
        assert!(cli.contains(&format!("crates/cli/Cargo.toml:1: {what}")), "{cli:?}");
        assert_eq!(complaints(&[(ENGINE, &["dev:onetake-testkit"]), (TESTKIT, &[])]), [""; 0]);
    }

    #[test]
    fn a_thirteenth_crate_is_one_too_many() {
        let mut all: Vec<(&str, &[&str])> =
            TABLE.iter().map(|row| (row.package, &[][..])).collect();
        assert_eq!(all.len(), CRATES_MAX);
        assert_eq!(complaints(&all), [""; 0]);
        all.push(("onetake-extra", &[]));
        let expected = [
            "crates/extra/Cargo.toml:1: `onetake-extra` has no row in the dependency table",
            "crates:1: 13 crates, at most 12",
        ];
        assert_eq!(complaints(&all), expected);
    }

    #[test]
    fn cargo_tells_us_about_this_workspace() {
        let graph = Graph::read(&Workspace::load().unwrap()).unwrap();
        let (id, xtask, manifest) =
            graph.members().find(|(_, package, _)| package.name == "xtask").unwrap();
        assert_eq!(manifest, "xtask/Cargo.toml");
        assert!(graph.used(xtask, |kind| kind == DependencyKind::Development).contains("tempfile"));
        assert!(graph.chains(id).contains_key("clap_builder"));
        assert!(!graph.chains(id).contains_key("tempfile"));
    }
}
