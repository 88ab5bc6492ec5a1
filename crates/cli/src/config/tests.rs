//! The configuration as a whole: what loads, what is refused and where, and that nothing panics.
//!
//! Single values are tested beside their types; what is published, in `published.rs`.

mod published;

use std::fmt::Write as _;

use onetake::core::Status;
use onetake::{Finality, OnInFlight, OnUnknown};
use proptest::prelude::*;

use self::published::every_option;
use super::auth::{AuthMode, JwtKeys, ScopeRule};
use super::raw::SECTIONS;
use super::route::{ForwardKey, StoreDown};
use super::*;

const EXAMPLE: &str = include_str!("../../../../onetake.example.toml");

fn load_with<const N: usize>(
    text: &str,
    variables: [(&str, &str); N],
) -> Result<Config, ConfigErrors> {
    let source = Source::Text { name: "onetake.toml", text };
    Config::load(source, &Environment::of(variables))
}

fn loaded(text: &str) -> Config {
    load_with(text, []).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Everything that is said of `text`, without the name of the file.
fn told(text: &str) -> Vec<String> {
    let errors = load_with(text, []).expect_err("something is wrong with it");
    let line = |line: &str| line.strip_prefix("onetake.toml:").unwrap_or(line).to_owned();
    errors.to_string().lines().map(line).collect()
}

const ROUTE: &str = "[defaults]\nupstream = \"http://127.0.0.1:9000\"\n";

#[test]
fn nothing_given_is_safe() {
    let config = loaded("");
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.max_connections, 10_000);
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:8081");
    assert!(config.admin.token.is_none());
    assert_eq!(config.store.url.to_string(), crate::wiring::DEFAULT_URL);
    assert_eq!(config.store.bounds, onetake::stores::Bounds::default());
    assert!(matches!(config.auth.mode, AuthMode::ApiKey { header: None }));
    assert!(!config.auth.forward_credentials);
    assert_eq!(config.auth.scope, ScopeRule::Principal);
    let RouteSettings { dialect, key, policy, probe, .. } = &config.defaults;
    assert_eq!(dialect.as_str(), "ietf");
    assert_eq!((key, probe), (&KeyUse::ByDialect, &None));
    let safe = onetake::Policy::builder().timeout(std::time::Duration::from_secs(30)).build();
    assert_eq!(policy, &safe.unwrap());
    assert_eq!(config.defaults.store_down, StoreDown::Refuse);
    assert_eq!(config.defaults.max_request, 10 << 20);
    assert_eq!(config.defaults.forward_key, ForwardKey::Raw);
    assert_eq!(config.defaults.mode, Mode::Enforce);
    assert!(config.routes.is_empty() && config.tenants.is_empty() && config.upstream.is_none());
}

#[test]
fn an_unknown_option_is_refused_with_its_line_and_a_suggestion() {
    let text = "[defaults]\nretenton = \"24h\"\n\n[servr]\nlisten = 1\n[[route]]\nmach = \"x\"\n";
    let expected = [
        "2:1: unknown option `retenton` in [defaults]; did you mean `retention`?",
        "4:2: unknown section `servr`; did you mean `server`?",
        "6:1: route[0]: the route has no `match`",
        "7:1: unknown option `mach` in [[route]]; did you mean `match`?",
    ];
    assert_eq!(told(text), expected);
    assert_eq!(told("lease = 1\n"), ["1:1: unknown option `lease`"]);
    let inside = "[defaults]\nfingerprint = { qury = true }\n";
    let expected = "2:17: unknown option `qury` in [defaults.fingerprint]; did you mean `query`?";
    assert_eq!(told(inside), [expected]);
}

#[test]
fn a_section_of_a_door_that_is_not_built_in_says_so() {
    let text = "[events]\n[mcp]\n[[region.peer]]\nname = \"x\"\n";
    let what = |line, column, name| {
        let what = "configures a door that this build does not have";
        format!("{line}:{column}: the section [{name}] {what}")
    };
    let expected = [what(1, 2, "events"), what(2, 2, "mcp"), what(3, 3, "region")];
    assert_eq!(told(text), expected);
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "\
[server]
listen = \"nowhere\"
max_connections = 0
header_timeout = 10
trusted_proxies = [\"10.0.0.0/8\", \"ten\"]
[store]
url = \"sqlite:x\"
[defaults]
lease = \"50ms\"
retention = \"11000days\"
in_flight = \"wait 2h\"
max_request = \"2GiB\"
unknown = \"prob\"
[[route]]
match = \"POST orders\"
upstream = \"http://user:hunter2@x\"
";
    let told = told(text);
    let expected = [
        "2:10: server.listen: `nowhere` is not an address and a port",
        "3:19: server.max_connections: 0 is out of bounds; from 1 to 1000000 is allowed",
        "4:18: server.header_timeout: expected a duration such as",
        "5:34: server.trusted_proxies[1]: `ten` is not a network",
        "7:7: store.url: not the URL of a store",
        "9:9: defaults.lease: 50ms is out of bounds; from 100ms to 1h is allowed",
        "10:13: defaults.retention: ",
        "11:13: defaults.in_flight: 2h is out of bounds; from 1ms to 1h is allowed",
        "12:15: defaults.max_request: 2GiB is out of bounds; from 1 to 1GiB is allowed",
        "13:11: defaults.unknown: expected \"hold\"",
        "15:9: route[0].match: the path `orders` does not begin with a slash",
        "16:12: route[0].upstream: a URL with a user name or password",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\nis not\n{expected}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn a_wrong_default_is_told_once_however_many_routes_have_it() {
    let routes = "[[route]]\nmatch = \"POST /a\"\n[[route]]\nmatch = \"POST /b\"\n";
    let text = format!("{ROUTE}lease = \"2h\"\n{routes}");
    assert_eq!(told(&text).len(), 1);
}

#[test]
fn faults_of_syntax_do_not_hide_the_rest() {
    let text = "[server]\nlisten = 127.0.0.1:80\n[defaults]\nlease = 30s\nlese = \"1s\"\n";
    let told = told(text);
    assert!(told[0].starts_with("2:"), "{told:?}");
    assert!(told[1].starts_with("4:"), "{told:?}");
    assert_eq!(told[2], "5:1: unknown option `lese` in [defaults]; did you mean `lease`?");
    assert_eq!(told.len(), 3, "{told:?}");
}

#[test]
fn a_key_that_is_given_twice_is_refused() {
    let told = told("[defaults]\nlease = \"1s\"\nlease = \"2s\"\n");
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("3:1: not TOML: duplicate key"), "{told:?}");
}

#[test]
fn a_variable_wins_over_the_file_and_is_named_when_it_is_wrong() {
    let text = "[defaults]\nretention = \"48h\"\nlease = \"1s\"\n";
    let variables = [
        ("ONETAKE_DEFAULTS__RETENTION", "72h"),
        ("ONETAKE_SERVER__LISTEN", "0.0.0.0:80"),
        ("ONETAKE_SERVER__TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("ONETAKE_SERVER__MAX_CONNECTIONS", "5_000"),
        ("ONETAKE_SERVER__PRESERVE_HOST", "true"),
        ("ONETAKE_DEFAULTS__MAX_REQUEST", "1MiB"),
        ("ONETAKE_DEFAULTS__STATUSES__FREED", "500, 502-504"),
        ("ONETAKE_STORE__URL", "memory:"),
    ];
    let config = load_with(text, variables).unwrap();
    assert_eq!(config.defaults.policy.retention().as_secs(), 72 * 3_600);
    assert_eq!(config.defaults.policy.lease().as_secs(), 1);
    assert_eq!(config.server.listen.port(), 80);
    assert_eq!(config.server.trusted_proxies.len(), 2);
    assert_eq!(config.server.max_connections, 5_000);
    assert!(config.server.preserve_host);
    assert_eq!(config.defaults.max_request, 1 << 20);
    assert_eq!(config.store.url.to_string(), "memory:");

    let wrong = load_with(text, [("ONETAKE_DEFAULTS__LEASE", "2h")]).unwrap_err();
    let expected =
        "ONETAKE_DEFAULTS__LEASE: defaults.lease: 2h is out of bounds; from 100ms to 1h is allowed";
    assert_eq!(wrong.to_string(), expected);
}

/// X3: a probe names what its route has, and what it does not is told with its line.
#[test]
fn x3_a_probe_names_only_what_its_route_has() {
    let probe = |url: &str| {
        format!(
            "{ROUTE}[[route]]\nmatch = \"POST /orders/{{order_id}}\"\n\
             unknown = \"probe GET {url}\"\n"
        )
    };
    let config = loaded(&probe("/status/{tenant}/{order_id}?key={key}"));
    let probe_of = |config: &Config| config.routes[0].settings.probe.clone().unwrap().to_string();
    assert_eq!(probe_of(&config), "/status/{tenant}/{order_id}?key={key}");
    let line = probe("").lines().count();
    let strange = "route[0].unknown: nothing in `POST /orders/{order_id}` stands for";
    let knows = "a probe of it knows {key}, {tenant}, {order_id}";
    assert_eq!(
        told(&probe("/{key}/{ordr_id}/{else}")),
        [
            format!("{line}:11: {strange} {{ordr_id}}; {knows}; did you mean `order_id`?"),
            format!("{line}:11: {strange} {{else}}; {knows}"),
        ]
    );
    let told_of = told(&probe("http://u:secret@h/{key}"));
    assert_eq!(told_of.len(), 1);
    assert!(told_of[0].starts_with(&format!("{line}:11: route[0].unknown: ")), "{told_of:?}");
    assert!(!told_of[0].contains("secret"));
    let by_default = "[defaults]\nupstream = \"http://x\"\nunknown = \"probe GET /{id}/{key}\"\n\
         [[route]]\nmatch = \"POST /a/{id}\"\n[[route]]\nmatch = \"POST /b\"\n\
         [[route]]\nmatch = \"* /**\"\n";
    let nothing = "3:11: defaults.unknown: nothing in `POST /b` stands for {id}; \
         a probe of it knows {key}, {tenant}";
    assert_eq!(told(by_default), [nothing], "for one route it means something, for another not");
}

/// W5: at least 24 hours under the contract of `OpenWOP`, wherever the retention was given.
#[test]
fn w5_openwop_keeps_for_24_hours_at_least() {
    let text = format!("{ROUTE}retention = \"1h\"\n[[route]]\nmatch = \"POST /a\"\n");
    assert!(load_with(&text, []).is_ok());
    let told_of = told(&format!("{text}dialect = \"openwop\"\n"));
    let expected = "3:13: defaults.retention: 1h is out of bounds; from 24h to 3650days is allowed";
    assert_eq!(told_of, [expected]);
    let custom = "[[dialect]]\nname = \"mine\"\nbase = \"openwop\"\n";
    let text = format!("{text}dialect = \"mine\"\n{custom}");
    assert_eq!(told(&text).len(), 1, "a dialect that builds upon it is bound by it");
}

#[test]
fn a_route_says_what_differs_and_the_defaults_the_rest() {
    let text = format!(
        "{ROUTE}lease = \"5s\"\nfingerprint = {{ query = true }}\nstatuses = {{ freed = [500] }}\n\
         [[route]]\nmatch = \"POST,PUT /a/{{id}}\"\nkey = \"fingerprint\"\nwindow = \"2s\"\n\
         in_flight = \"refuse\"\nunknown = \"probe GET http://x/{{key}}\"\nscope = \"tenant\"\n\
         fingerprint = {{ ignore = [\"/t\"] }}\nstatuses = {{ unknown = [\"50x\", 409] }}\n"
    );
    assert_eq!(told(&text).len(), 1, "50x is no status");
    let config = loaded(&text.replace("\"50x\"", "\"502-504\""));
    let RouteSettings { key, policy, probe, scope, fingerprint, .. } = &config.routes[0].settings;
    assert_eq!(*key, KeyUse::Fingerprint { window: std::time::Duration::from_secs(2) });
    assert_eq!(policy.lease().as_secs(), 5);
    assert_eq!(policy.on_in_flight(), OnInFlight::Refuse);
    assert_eq!(policy.on_unknown(), OnUnknown::Probe);
    assert_eq!(probe.as_ref().map(ToString::to_string).as_deref(), Some("http://x/{key}"));
    assert_eq!(*scope, ScopeRule::Tenant);
    assert!(fingerprint.query && fingerprint.json && fingerprint.ignore.len() == 1);
    let of = |code| {
        let outcome = onetake::Outcome::NotKept { status: Status::new(code) };
        policy.finality(&outcome)
    };
    assert_eq!(of(500), Finality::Free, "from the defaults");
    assert_eq!(of(503), Finality::Unknown, "from the route");
    assert_eq!(of(409), Finality::Unknown);
    assert_eq!(of(200), Finality::Final, "from the dialect");
}

#[test]
fn a_custom_dialect_builds_upon_another() {
    let dialect = "[[dialect]]\nname = \"mine\"\nbase = \"davepi\"\nin_flight_status = 425\n\
                   statuses = { kept = [404], unknown = [\"5xx\"] }\n";
    let route = "[[route]]\nmatch = \"POST /a\"\ndialect = \"mine\"\n";
    let config = loaded(&format!("{ROUTE}{dialect}{route}"));
    assert_eq!(config.dialects[0].in_flight_status, Some(425));
    assert_eq!(config.dialects[0].mismatch_status, None);
    let rules = config.dialects[0].statuses;
    let of = |code| rules.finality(Status::new(code).unwrap());
    assert_eq!(of(404), Finality::Final);
    assert_eq!(of(400), Finality::Free);
    assert_eq!(of(502), Finality::Unknown);
    assert_eq!(config.routes[0].settings.dialect.base().name(), "davepi");

    let wrong = "[[dialect]]\nname = \"ietf\"\nbase = \"ietf\"\n[[dialect]]\nname = \"a\"\n\
                 [[dialect]]\nname = \"b\"\nbase = \"itef\"\nmismatch_status = 200\n\
                 statuses = { kept = [500], freed = [\"5xx\"] }\n";
    let told_of = told(&format!("{wrong}[defaults]\ndialect = \"strip\"\n"));
    let expected = [
        "2:8: dialect[0].name: this name is built in; choose another",
        "4:1: dialect[1]: the dialect has no `base`",
        "8:8: dialect[2].base: `itef` is none of \"ietf\", \"stripe\", \"openwop\", \"davepi\", \
         \"cnerium\"; did you mean `ietf`?",
        "12:11: defaults.dialect: there is no dialect `strip`; known are ietf, stripe, openwop, \
         davepi, cnerium, ietf; did you mean `stripe`?",
    ];
    assert_eq!(told_of, expected);
    let twice = wrong.replace("itef", "ietf").replace("name = \"a\"", "name = \"b\"");
    let told_of = told(&twice.replacen("name = \"ietf\"", "name = \"c\"", 1));
    let of = |what: &str| told_of.iter().any(|line| line.contains(what));
    assert!(of("200 is out of bounds; from 400 to 599 is allowed"), "{told_of:?}");
    assert!(of("500 is in another of these lists as well"), "{told_of:?}");
}

#[test]
fn routes_that_cannot_be_meant_are_refused() {
    let text = "[[route]]\nmatch = \"POST /a\"\n\
                [[route]]\nmatch = \"POST /a\"\nupstream = \"http://x\"\nwindow = \"1s\"\n\
                fingerprint = { ignore = [\"/a\"], json = false }\n";
    let expected = [
        "2:9: route[0].match: the route has no `upstream`, and [defaults] has none either",
        "4:9: route[1].match: there is a route of this match already, at onetake.toml:2:9",
        "6:10: route[1].window: this means something with key = \"fingerprint\" only",
        "7:26: route[1].fingerprint.ignore: fields can be ignored with json = true only",
    ];
    assert_eq!(told(text), expected);
    let expected = "1:1: route: give each under [[route]], in double brackets";
    assert_eq!(told("[route]\nmatch = \"POST /a\"\n"), [expected]);
    for bad in ["POST", "post /a", "POST a", "POST /a b", " /a", "POST, PUT /a", "*,POST /a", ""] {
        let text = format!("{ROUTE}[[route]]\nmatch = \"{bad}\"\n");
        assert!(load_with(&text, []).is_err(), "{bad}");
    }
}

#[test]
fn a_route_of_every_method_passes_through_unless_it_is_named() {
    let text = format!("{ROUTE}[[route]]\nmatch = \"* /**\"\n[[route]]\nmatch = \"* /a\"\n");
    let config = loaded(&format!("{text}operation = \"a\"\n"));
    let passes: Vec<_> = config.routes.iter().map(|route| route.passes_through).collect();
    assert_eq!(passes, [true, false]);
    let place = config.routes[1].place.to_string();
    assert_eq!(place, "onetake.toml:5:1");
    let error = Config::error_at(&config.routes[1].place, "it can never match");
    assert_eq!(error.to_string(), "onetake.toml:5:1: it can never match");
}

#[test]
fn a_route_that_passes_everything_through_cannot_claim_to_protect_it() {
    let text = format!("{ROUTE}[[route]]\nmatch = \"* /**\"\ntimeout = \"5s\"\n");
    assert!(loaded(&text).routes[0].passes_through);
    let told_of = told(&format!("{text}key = \"required\"\n"));
    assert_eq!(told_of.len(), 1);
    let expected = "6:7: route[0].key: a route of every method without an `operation` passes";
    assert!(told_of[0].starts_with(expected), "{told_of:?}");
}

#[test]
fn however_many_problems_there_are_all_are_counted() {
    let lines: Vec<_> = (0..2_000).map(|at| format!("wrong{at} = 1\n")).collect();
    let lines = lines.concat();
    let errors = load_with(&format!("{lines}[server]\n{lines}"), []).unwrap_err();
    assert_eq!((errors.problems.len(), errors.more), (50, 3_950));
    let fault = Fault::from(ConfigErrors::one(Place::File("a.toml".into()), "no"));
    assert_eq!(fault.to_string(), "the configuration is wrong\na.toml: no");
    assert_eq!(crate::exit::Exit::of(&fault.into()), crate::exit::Exit::Usage);
}

/// The names of the contract, as they have been since the first release.
#[test]
fn a_file_of_the_contract_loads() {
    let text = "\
[server]
listen = \"127.0.0.1:8080\"
[admin]
listen = \"127.0.0.1:8081\"
token  = \"env:ONETAKE_ADMIN_TOKEN\"
[store]
url = \"embedded:./onetake-data\"
[auth]
mode = \"api-key\"
[[tenant]]
name = \"acme\"
keys = [\"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\"]
[defaults]
dialect = \"ietf\"
retention = \"24h\"
lease = \"30s\"
in_flight = \"wait 10s\"
unknown = \"hold\"
store_down = \"refuse\"
timeout = \"30s\"
max_request = \"10MiB\"
max_stored_response = \"10MiB\"
[[route]]
match = \"POST /orders\"
operation = \"orders.create\"
upstream = \"http://127.0.0.1:9000\"
key = \"required\"
fingerprint = { ignore = [\"/client_time\"], query = true }
[[route]]
match = \"* /**\"
upstream = \"http://127.0.0.1:9000\"
";
    let config = load_with(text, [("ONETAKE_ADMIN_TOKEN", "0123456789abcdef")]).unwrap();
    assert_eq!((config.routes.len(), config.tenants.len()), (2, 1));
    assert_eq!(config.routes[0].settings.key, KeyUse::Required);
    assert!(config.routes[0].settings.fingerprint.query);
}

#[test]
fn every_mode_of_auth_has_what_it_needs_and_nothing_else() {
    let auth = |text: &str| loaded(&format!("[auth]\n{text}")).auth;
    let jwt = auth("mode = \"jwt\"\njwks = \"./keys.json\"\naudience = \"a\"\n");
    let AuthMode::Jwt(jwt_config) = jwt.mode else { panic!("a jwt") };
    assert!(matches!(&jwt_config.keys, JwtKeys::File(path) if path.ends_with("keys.json")));
    assert_eq!((jwt_config.audience.len(), jwt_config.algorithms.len()), (1, 3));
    assert!(jwt.forward_credentials);
    let url = auth("mode = \"jwt\"\njwks = \"https://x/jwks\"\naudience = [\"a\", \"b\"]\n");
    assert!(matches!(url.mode, AuthMode::Jwt(jwt) if matches!(jwt.keys, JwtKeys::Url(_))));
    let trusted = auth("mode = \"trusted-header\"\nfrom = [\"10.0.0.0/8\"]\n");
    assert!(matches!(trusted.mode, AuthMode::TrustedHeader { from, .. } if from.len() == 1));
    let anonymous = auth("mode = \"anonymous\"\ntenant = \"all\"\nscope = \"tenant\"\n");
    assert!(matches!(anonymous.mode, AuthMode::Anonymous { tenant } if tenant.as_str() == "all"));

    let wrong = |text: &str| told(&format!("[auth]\n{text}"));
    let needs = "2:8: auth.mode: this mode needs `jwks`, a file or a URL, or `secret`";
    assert_eq!(wrong("mode = \"jwt\"\n"), [needs]);
    assert!(wrong("mode = \"trusted-header\"\n")[0].contains("this mode needs `from`"));
    let other = "2:8: auth.jwks: this means something with mode = \"jwt\" only";
    assert_eq!(wrong("jwks = \"x\"\n"), [other]);
    let plain = "mode = \"jwt\"\njwks = \"http://login.example/jwks\"\n";
    assert!(wrong(plain)[0].contains("by https only"));
    let mixed = "mode = \"jwt\"\njwks = \"x\"\nalgorithms = [\"RS256\", \"HS256\"]\n";
    assert!(wrong(mixed)[0].contains("HS256, HS384 and HS512 go with `secret`"));
    let none = wrong("mode = \"jwt\"\njwks = \"x\"\nalgorithms = [\"none\"]\n");
    assert!(none[0].contains("`none` is none of \"RS256\""), "{none:?}");
    let one = "mode = \"trusted-header\"\nfrom = [\"::1\"]\ntenant_header = \"A\"\n\
               principal_header = \"a\"\n";
    assert!(wrong(one)[0].contains("cannot be in one header"));
}

#[test]
fn a_mode_that_a_variable_chose_leaves_the_options_of_the_file_alone() {
    let text = "[auth]\nmode = \"jwt\"\njwks = \"x\"\n";
    let config = load_with(text, [("ONETAKE_AUTH__MODE", "anonymous")]).unwrap();
    assert!(matches!(config.auth.mode, AuthMode::Anonymous { .. }));
}

/// X11: neither what is shown nor what is refused holds a secret.
#[test]
fn x11_secrets_are_resolved_and_never_shown() {
    let text = "[admin]\ntoken = \"env:ONETAKE_ADMIN_TOKEN\"\n\
                [auth]\nmode = \"jwt\"\nsecret = \"env:JWT\"\n";
    let (token, secret) = ("token-of-hunter2-long", "hunter2-hunter2-hunter2-hunter2-");
    let config = load_with(text, [("ONETAKE_ADMIN_TOKEN", token), ("JWT", secret)]).unwrap();
    assert!(config.admin.token.as_ref().unwrap().is(token.as_bytes()));
    let AuthMode::Jwt(jwt) = &config.auth.mode else { panic!("a jwt") };
    assert!(matches!(&jwt.keys, JwtKeys::Secret(given) if given.expose() == secret));
    let shown = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");

    let short = [("ONETAKE_ADMIN_TOKEN", "hunter2"), ("JWT", "hunter2")];
    let refused = load_with(text, short).unwrap_err().to_string();
    assert_eq!(refused.lines().count(), 2, "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
    let in_the_file = "[admin]\ntoken = \"hunter2\"\n[[tenant]]\nname = \"a\"\n\
                       keys = [\"hunter2\"]\n[store]\nurl = \"sqlite://u:hunter2@x\"\n";
    let mut problems = Problems::of("onetake.toml", in_the_file.to_owned());
    let table = tree::parse(&mut problems);
    let written = Written::read(&table, &mut problems);
    let shown = format!("{problems:?} {table:?} {written:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
    let refused = load_with(in_the_file, []).unwrap_err().to_string();
    assert_eq!(refused.lines().count(), 3, "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
}

#[test]
fn no_two_tenants_share_a_name_or_a_key() {
    let key = format!("\"sha256:{}\"", "ab".repeat(32));
    let tenant = |name: &str| format!("[[tenant]]\nname = \"{name}\"\nkeys = [{key}]\n");
    let told_of = told(&format!("{}{}", tenant("a"), tenant("b")));
    assert_eq!(told_of, ["6:9: tenant[1].keys[0]: this key is given already, at onetake.toml:3:9"]);
    let told_of = told("[[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"a\"\n[[tenant]]\n");
    let expected = [
        "4:8: tenant[1].name: there is a tenant of this name already, at onetake.toml:2:8",
        "5:1: tenant[2]: the tenant has no `name`",
    ];
    assert_eq!(told_of, expected);
    let bad = "[[tenant]]\nname = \"a\"\n\
               keys = [{ name = \"x\" }, 7, { hash = \"x\", expires = 1 }]\n\
               new_keys_per_minute = 0\n";
    let told_of = told(bad);
    assert_eq!(told_of.len(), 4, "{told_of:#?}");
}

#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let name = "ONETAKE_SERVER__LISTEN".to_owned();
    let value = std::ffi::OsString::from_vec(vec![0xff]);
    let environment = Environment::of_pairs([(name.into(), value)]);
    let source = Source::Text { name: "x", text: "" };
    let told = Config::load(source, &environment).unwrap_err().to_string();
    assert_eq!(told, "ONETAKE_SERVER__LISTEN: server.listen: the value is not UTF-8");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(bytes in any::<Vec<u8>>()) {
        let text = read_input(bytes.as_slice());
        prop_assert_eq!(text.is_ok(), std::str::from_utf8(&bytes).is_ok());
        let _ = load_with(&String::from_utf8_lossy(&bytes), []);
    }

    #[test]
    fn random_edits_of_the_example_never_panic_and_every_problem_has_a_line(
        at in 0..EXAMPLE.len(), cut in 0..40_usize, put in "[\\[\\]{}=\".,#a-z0-9 \n\\\\é]{0,8}",
    ) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, put.bytes());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Err(errors) = load_with(&text, []) {
            prop_assert!(!errors.problems.is_empty() && errors.problems.len() <= 50);
            for problem in errors.problems {
                prop_assert!(problem.to_string().starts_with("onetake.toml"), "{problem}");
            }
        }
    }

    #[test]
    fn random_values_of_random_options_never_panic(
        pick in 0..usize::MAX,
        value in "(\"[ -~]{0,20}\"|-?[0-9]{1,20}|\\[\"[a-z]{0,3}\"\\]|\\{\\}|1979-05-27)",
    ) {
        let options = every_option();
        let (path, _) = &options[pick % options.len()];
        let (section, rest) = path.split_once('.').unwrap();
        let repeats = SECTIONS.iter().any(|known| known.name == section && known.repeats);
        let header = if repeats { format!("[[{section}]]") } else { format!("[{section}]") };
        let _ = load_with(&format!("{header}\n{rest} = {value}\n"), []);
    }

    #[test]
    fn random_variables_never_panic(pick in 0..usize::MAX, value in any::<String>()) {
        let all = environment::variables();
        let name = all.keys().nth(pick % all.len()).unwrap();
        let _ = load_with("", [(name.as_str(), value.as_str())]);
    }
}
