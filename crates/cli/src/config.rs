//! The configuration of the binary: one TOML file, then variables of the environment, then what is
//! built in.
//!
//! What leaves here is checked, typed and complete; what is wrong is told all at once, each with
//! its line. Opens no listener, no store and no connection, and shows no secret.

mod address;
mod auth;
mod bounds;
mod dialect;
mod environment;
mod openwop;
mod problem;
mod raw;
mod read;
mod route;
mod schema;
mod secret;
mod server;
mod shown;
mod tenant;
#[cfg(test)]
mod tests;
mod tree;
mod usable;
mod value;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::Uri;
use onetake::core::OnUnknown;
use serde::{Serialize, Serializer};

pub(crate) use auth::{AuthConfig, AuthMode, JwtConfig, JwtKeys, ScopeRule};
pub(crate) use dialect::{BodyShape, BuiltIn, DialectConfig, DialectName, NoKey};
pub(crate) use environment::Environment;
pub(crate) use openwop::OpenwopConfig;
pub(crate) use problem::{ConfigErrors, Place, Problem};
pub(crate) use route::{
    FingerprintConfig, ForwardKey, KeyUse, Mode, RouteConfig, RouteSettings, StoreDown,
};
pub(crate) use schema::schema;
pub(crate) use server::{AdminConfig, ServerConfig, StoreConfig};
pub(crate) use shown::{in_flight_text, unknown_text};
pub(crate) use tenant::{KeyConfig, TenantConfig};
pub(crate) use value::{Word, moment, size_text, span_text};

use problem::{Problems, nearest, quoted};
use raw::Tenants;
use raw::{
    Admin, Auth, Dialect, NOT_BUILT_IN, Openwop, Route, SECTIONS, Section, Server, Settings, Store,
};
use read::{Given, Options, read_table, refuse_unknown, sure};
use tree::{Node, Table, Value};

use crate::exit::Fault;

/// The file that is read when none is named.
pub(crate) const DEFAULT_FILE: &str = "onetake.toml";
/// The most tenants, routes or dialects.
const TABLES_MAX: usize = 10_000;

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    /// This file.
    File(&'a Path),
    /// This text, which problems call `name`. The empty text is what is built in.
    Text {
        /// What problems call it.
        name: &'a str,
        /// The text.
        text: &'a str,
    },
}

/// What a configuration is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To look at it or to change it: what it says must be right, and need not be enough.
    Look,
    /// To serve what it says: somebody must be able to use it.
    Serve,
    /// To serve an upstream that was typed, with the listeners and the store that it names.
    Front,
}

/// A configuration that was read, and what is wrong with it so far.
#[derive(Debug)]
pub(crate) struct Reading {
    config: Config,
    problems: Problems,
    has_routes: bool,
}

impl Reading {
    /// As far as it can be understood. What could not be read is as it is built in.
    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it describes routes, be they right or wrong.
    pub(crate) const fn has_routes(&self) -> bool {
        self.has_routes
    }

    /// Whether nothing is wrong so far with who may call.
    pub(crate) fn knows_callers(&self) -> bool {
        !self.problems.is_in("auth") && !self.problems.is_in("tenant")
    }

    /// Adds what was found out later.
    pub(crate) fn refuse(&mut self, errors: ConfigErrors) {
        self.problems.later(errors);
    }

    /// The configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub(crate) fn finish(mut self) -> Result<Config, ConfigErrors> {
        self.config.warnings = self.problems.warnings();
        self.problems.or(self.config)
    }
}

/// A configuration that was checked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Config {
    /// Where callers connect.
    pub(crate) server: ServerConfig,
    /// Where operators connect.
    pub(crate) admin: AdminConfig,
    /// Where the records are.
    pub(crate) store: StoreConfig,
    /// How callers prove who they are.
    pub(crate) auth: AuthConfig,
    /// Who may call.
    pub(crate) tenants: Vec<TenantConfig>,
    /// The contracts of the user's own.
    #[serde(serialize_with = "dialects_shown")]
    pub(crate) dialects: Vec<Arc<DialectConfig>>,
    /// What holds for every route that says nothing else.
    pub(crate) defaults: RouteSettings,
    /// Where requests go for which no route says it.
    #[serde(serialize_with = "shown::display_if")]
    pub(crate) upstream: Option<Uri>,
    /// Which requests go where.
    pub(crate) routes: Vec<RouteConfig>,
    /// Workflows, and the host that runs them, where there is one.
    pub(crate) openwop: Option<OpenwopConfig>,
    /// What works and is hardly meant.
    #[serde(skip)]
    pub(crate) warnings: Vec<Problem>,
}

fn dialects_shown<S: Serializer>(all: &[Arc<DialectConfig>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(AsRef::<DialectConfig>::as_ref))
}

impl Config {
    /// Reads, overlays and checks the configuration of `source`, to look at it.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its place.
    pub(crate) fn load(
        source: Source<'_>,
        environment: &Environment,
    ) -> Result<Self, ConfigErrors> {
        Self::read(source, environment, Purpose::Look)?.finish()
    }

    /// Reads and overlays the configuration of `source`, and checks what `purpose` asks for.
    ///
    /// # Errors
    /// Everything that is wrong with it, where it cannot be understood at all.
    pub(crate) fn read(
        source: Source<'_>,
        environment: &Environment,
        purpose: Purpose,
    ) -> Result<Reading, ConfigErrors> {
        let mut problems = match source {
            Source::File(path) => Problems::of(&path.display().to_string(), tree::read_file(path)?),
            Source::Text { name, text } => Problems::of(name, text.to_owned()),
        };
        let mut table = tree::parse(&mut problems);
        let is_toml = problems.is_empty();
        environment.overlay(&mut table, &mut problems);
        let written = Written::read(&table, &mut problems);
        // What was not understood as TOML may be the very thing that seems to be missing.
        if !is_toml {
            return Err(problems.into());
        }
        let has_routes = table.get("route").is_some();
        let config = written.check(environment, purpose, &mut problems);
        Ok(Reading { config, problems, has_routes })
    }

    /// A problem that was found later, at the place where its cause was given.
    pub(crate) fn error_at(place: &Place, what: impl Into<String>) -> ConfigErrors {
        ConfigErrors::one(place.clone(), what)
    }
}

/// A command that cannot run for its configuration was not understood.
impl From<ConfigErrors> for Fault {
    fn from(errors: ConfigErrors) -> Self {
        Self::Usage(format!("the configuration is wrong\n{errors}"))
    }
}

/// The file of a configuration: the one that was named, or the usual one where it is.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists());
    named.map(Path::to_owned).or_else(usual)
}

/// The text of a configuration that comes from elsewhere than a file.
///
/// # Errors
/// When it cannot be read, is too large, or not UTF-8.
pub(crate) fn read_input(input: impl std::io::Read) -> Result<String, ConfigErrors> {
    let place = Place::File("standard input".into());
    tree::read_text(input, &place).map_err(|error| match error {
        tree::Unread::Io(why) => ConfigErrors::one(place, format!("cannot be read: {why}")),
        tree::Unread::Refused(errors) => errors,
    })
}

/// Everything that was given, read and not yet checked.
#[derive(Debug)]
struct Written {
    server: Server,
    admin: Admin,
    store: Store,
    auth: Auth,
    tenants: Vec<Given<Tenants>>,
    dialects: Vec<Given<Dialect>>,
    defaults: Settings,
    routes: Vec<(Given<Route>, Settings)>,
    openwop: Openwop,
}

impl Written {
    fn read(table: &Table, problems: &mut Problems) -> Self {
        refuse_sections(table, problems);
        let route = |(node, option): (&Node, String), problems: &mut Problems| {
            let Value::Table(fields) = &node.value else { return None };
            let own = Settings::take(fields, &option, problems);
            let route = Route::take(fields, &option, problems);
            Some((Given { value: route, spot: node.spot.clone(), option }, own))
        };
        Self {
            server: section(table, "server", problems),
            admin: section(table, "admin", problems),
            store: section(table, "store", problems),
            auth: section(table, "auth", problems),
            tenants: sections(table, "tenant", problems, one),
            dialects: sections(table, "dialect", problems, one),
            defaults: section(table, "defaults", problems),
            routes: sections(table, "route", problems, route),
            openwop: section(table, "openwop", problems),
        }
    }

    fn check(self, environment: &Environment, purpose: Purpose, problems: &mut Problems) -> Config {
        let is_served = purpose != Purpose::Look;
        let listens = [&self.server.listen, &self.admin.listen].map(|given| sure(given.clone()));
        let mode = sure(self.auth.mode.clone());
        let has_route = !self.routes.is_empty();
        // Routes and workflows alike are for callers who say who they are.
        let first_route = self.routes.first().map(|(given, _)| given.spot.clone());
        let hosted = self.openwop.workflows.as_ref().map(|given| given.spot.clone());
        let has_host = hosted.is_some();
        let first_route = first_route.or(hosted);
        let auth = auth::auth(self.auth, environment, problems);
        let tenants = tenant::tenants(self.tenants, problems);
        let dialects = dialect::dialects(self.dialects, problems);
        let held = is_served.then(|| usable::held(&mode, &tenants, problems)).flatten();
        let grounds = route::Grounds {
            dialects: &dialects,
            defaults: &self.defaults,
            scope: auth.scope,
            held,
            knows_scopes: matches!(
                mode.value,
                raw::AuthModeChoice::ApiKey | raw::AuthModeChoice::Jwt
            ),
        };
        let upstream = self.defaults.upstream.as_ref().map(|given| given.value.0.clone());
        let is_required = |own: &Settings| own.requires.is_some();
        let asks_for_scopes = is_required(&self.defaults)
            || self.routes.iter().any(|(_, own)| is_required(own))
            || problems.is_in("route")
            || problems.is_in("defaults");
        let store = server::store(self.store, problems);
        let config = Config {
            server: server::server(self.server, problems),
            admin: server::admin(self.admin, environment, problems),
            openwop: openwop::openwop(self.openwop, &store.url, problems),
            store,
            defaults: route::settings(Settings::default(), &grounds, problems),
            upstream,
            routes: route::routes(self.routes, &grounds, problems),
            dialects: dialects.values().cloned().collect(),
            tenants,
            auth,
            warnings: Vec::new(),
        };
        if is_served {
            let [server, admin] = &listens;
            let has_gateway = first_route.is_some() || purpose == Purpose::Front;
            usable::listeners(server, admin, has_gateway, problems);
            usable::keys(&mode, &config.tenants, first_route.as_ref(), problems);
            if has_route && !has_host && !asks_for_scopes {
                usable::asked_for(&config.tenants, problems);
            }
            if !has_gateway && !problems.is_in("route") {
                usable::no_route(config.admin.listen, problems);
            }
            let holds = |it: &RouteSettings| it.policy.on_unknown() == OnUnknown::Hold;
            let is_front = purpose == Purpose::Front && holds(&config.defaults);
            if is_front || config.routes.iter().any(|route| holds(&route.settings)) {
                usable::held_for_ever(&config.store, problems);
            }
        }
        config
    }
}

/// Refuses sections that nobody knows, and those of doors that are not there.
fn refuse_sections(table: &Table, problems: &mut Problems) {
    for (name, (spot, node)) in &table.rows {
        if SECTIONS.iter().any(|section| section.name == name) {
            continue;
        }
        if problems.is_full() {
            problems.count_only();
            continue;
        }
        if NOT_BUILT_IN.contains(&name.as_str()) {
            let what = environment::not_built_in(name);
            problems.unknown(spot, name, what, None);
            continue;
        }
        let names = SECTIONS.iter().map(|section| section.name);
        let is_section = matches!(node.value, Value::Table(_));
        let kind = if is_section { "section" } else { "option" };
        let what = format!("unknown {kind} {}", quoted(name));
        problems.unknown(spot, name, what, nearest(name, names));
    }
}

/// The section `name`: what is given, above what is built in.
fn section<T: Options + Default>(table: &Table, name: &str, problems: &mut Problems) -> T {
    let node = table.get(name);
    let given: Option<T> = node.and_then(|node| read_table(node, name, problems));
    given.unwrap_or_default().or(T::built_in())
}

/// One of several sections.
fn one<T: Options>((node, option): (&Node, String), problems: &mut Problems) -> Option<Given<T>> {
    let Value::Table(fields) = &node.value else { return None };
    let value = T::take(fields, &option, problems);
    Some(Given { value, spot: node.spot.clone(), option })
}

/// Every section `[[name]]`, without unknown options, with those that are needed.
fn sections<T>(
    table: &Table,
    name: &str,
    problems: &mut Problems,
    read: impl Fn((&Node, String), &mut Problems) -> Option<T>,
) -> Vec<T> {
    let Some(node) = table.get(name) else { return Vec::new() };
    let of_name = |section: &&Section| section.name == name;
    let section = SECTIONS.iter().find(of_name).expect("invariant: it is one of the sections");
    let Value::List(nodes) = &node.value else {
        let what = format!("give each under [[{name}]], in double brackets");
        problems.value(&node.spot, name, what);
        return Vec::new();
    };
    if nodes.len() > TABLES_MAX {
        let what = format!("{} of them; at most {TABLES_MAX} are allowed", nodes.len());
        problems.value(&node.spot, name, what);
        return Vec::new();
    }
    let mut all = Vec::new();
    for (node, at) in nodes.iter().zip(0..) {
        let option = format!("{name}[{at}]");
        let Value::Table(fields) = &node.value else {
            let what = format!("give each under [[{name}]], in double brackets");
            problems.value(&node.spot, &option, what);
            continue;
        };
        refuse_unknown(fields, &option, &section.known(), problems);
        for needed in section.needs.iter().filter(|needed| fields.get(needed).is_none()) {
            problems.value(&node.spot, &option, format!("the {name} has no `{needed}`"));
        }
        all.extend(read((node, option), problems));
    }
    all
}
