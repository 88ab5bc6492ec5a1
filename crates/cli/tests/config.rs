//! `onetake check` through the real binary: what it prints, where, and with which exit code.
//!
//! What each option means is tested beside the configuration itself.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../onetake.example.toml");

/// `onetake check` in `folder`, without the variables of whoever runs the test.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
    command.arg("check").args(args).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ONETAKE_") {
            command.env_remove(name);
        }
    }
    command
}

fn check(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the binary writes UTF-8")
}

#[test]
fn the_example_shows_what_would_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), &["--config", EXAMPLE]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "\
server     127.0.0.1:8080
admin      127.0.0.1:8081, token kept in a file
store      embedded:./onetake-data
auth       api-key
tenants    1
dialects   house
workflows  ./workflows, which is not there
upstream   http://127.0.0.1:9000/

POST /orders
  operation      orders.create
  requires       orders:write
  dialect        house
  key            required
  fingerprint    json body without /client_time
  answer within  25s

* /**
  operation  passes through
  requires   orders:write

On every route as built in: retention 24h, lease 30s, in flight wait 10s, unknown hold,
  mode enforce, scope principal, statuses by dialect, store down refuse, forward key raw,
  max stored response 10MiB, timeout 30s, max request 10MiB
";
    assert_eq!(text(&output.stdout), expected);
    assert!(!folder.path().join("onetake-data").exists(), "it opens nothing");
}

/// X3: what is held where nobody can settle it is said before it happens.
#[test]
fn x3_a_store_that_cannot_settle_what_is_held_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    for (url, unknown, is_warned) in [
        ("redis://cache", "hold", true),
        ("redis://cache", "retry", false),
        ("postgres://db/app", "hold", false),
    ] {
        let text_of = format!(
            "[store]\nurl = \"{url}\"\n[auth]\nmode = \"anonymous\"\n[[route]]\n\
             match = \"POST /orders\"\nupstream = \"http://127.0.0.1:1\"\nunknown = \"{unknown}\"\n"
        );
        fs::write(folder.path().join("onetake.toml"), text_of).unwrap();
        let checked = check(folder.path(), &[]);
        assert_eq!(checked.status.code(), Some(0), "{url}: {}", text(&checked.stderr));
        let warned = text(&checked.stderr).contains("held for ever");
        assert_eq!(warned, is_warned, "{url}, {unknown}: {}", text(&checked.stderr));
    }
}

#[test]
fn onetake_toml_is_read_from_here_and_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let missing = check(folder.path(), &[]);
    assert_eq!(missing.status.code(), Some(2));
    let expected = "onetake.toml: there is no such file; name one with `--config FILE`\n";
    assert_eq!(text(&missing.stderr), expected);
    fs::write(folder.path().join("onetake.toml"), "").unwrap();
    let empty = check(folder.path(), &[]);
    assert_eq!(empty.status.code(), Some(0));
    assert!(text(&empty.stdout).ends_with("routes   none: no request is passed on\n"));
    let warning = "warning: onetake.toml: there is no [[route]], so `onetake serve` opens no \
                   gateway: only the admin surface, on 127.0.0.1:8081; add a [[route]]\n";
    assert_eq!(text(&empty.stderr), warning);
    let json = check(folder.path(), &["--json"]);
    assert_eq!((json.status.code(), text(&json.stderr)), (Some(0), ""));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["warnings"][0]["place"]["file"], "onetake.toml");
    assert!(json["warnings"][0]["what"].as_str().unwrap().starts_with("there is no [[route]]"));
}

#[test]
fn every_problem_is_a_line_that_can_be_clicked_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[defaults]\nretenton = \"24h\"\nlease = 30\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let expected = "\
onetake.toml:2:1: unknown option `retenton` in [defaults]; did you mean `retention`?
onetake.toml:3:9: defaults.lease: expected a duration such as \"10ms\", \"30s\" or \"24h\", \
found a whole number
";
    assert_eq!(text(&output.stderr), expected);

    let output = check(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ok"], &json["more"]), (&false.into(), &0.into()));
    let first = &json["problems"][0];
    assert_eq!(first["place"]["file"], "onetake.toml");
    assert_eq!((&first["place"]["line"], &first["place"]["column"]), (&2.into(), &1.into()));
    assert_eq!(first["option"], "defaults.retenton");
    assert_eq!(first["meant"], "retention");
}

#[test]
fn the_environment_of_the_process_counts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("onetake.toml"), "[server]\nlisten = \"127.0.0.1:1\"\n").unwrap();
    let run = |name: &str, value: &str| {
        command(folder.path(), &["--json"]).env(name, value).output().unwrap()
    };
    let output = run("ONETAKE_SERVER__LISTEN", "127.0.0.1:2");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["config"]["server"]["listen"], "127.0.0.1:2");
    let output = run("ONETAKE_SERVER__LISTN", "127.0.0.1:2");
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["problems"][0]["place"]["variable"], "ONETAKE_SERVER__LISTN");
    assert_eq!(json["problems"][0]["meant"], "ONETAKE_SERVER__LISTEN");
}

/// X11: a token shows neither in what is printed nor in what is refused.
#[test]
fn x11_a_token_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("token"), "hunter2-hunter2-hunter2\n").unwrap();
    let file = "[admin]\ntoken = \"file:token\"\n";
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    for args in [&[][..], &["--json"]] {
        let output = check(folder.path(), args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains("given"));
        assert!(!text(&output.stdout).contains("hunter2"));
    }
}

#[test]
fn the_standard_input_can_be_checked() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path(), &["--config", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"[defaults]\nlease = \"2h\"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).starts_with("standard input:2:9: defaults.lease: 2h is out of"));
}

#[test]
fn the_schema_can_be_printed() {
    let folder = tempfile::tempdir().unwrap();
    let output = check(folder.path(), &["--schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["properties"]["defaults"]["properties"]["lease"]["default"], "30s");
}

/// What `check` and `serve` say of this file, which both must refuse.
fn refused(file: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let checked = check(folder.path(), &[]);
    assert_eq!(checked.status.code(), Some(2), "{file}\n{}", text(&checked.stderr));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_onetake"));
    let served = serve.arg("serve").current_dir(folder.path()).output().unwrap();
    assert_eq!(served.status.code(), Some(2), "{file}\n{}", text(&served.stderr));
    assert_eq!(text(&served.stderr), format!("error: {}", text(&checked.stderr)));
    assert!(!folder.path().join("onetake-data").exists(), "nothing was opened");
    text(&checked.stderr).lines().map(str::to_owned).collect()
}

const UPSTREAM: &str = "[defaults]\nupstream = \"http://127.0.0.1:9\"\n";
const ORDERS: &str = "[[route]]\nmatch = \"POST /orders\"\n";
const ANONYMOUS: &str = "[auth]\nmode = \"anonymous\"\n";

/// A tenant with one key and these further lines.
fn tenant(name: &str, more: &str) -> String {
    let digits = name.bytes().next().map(|byte| format!("{byte:02x}")).unwrap().repeat(32);
    format!("[[tenant]]\nname = \"{name}\"\nkeys = [\"sha256:{digits}\"]\n{more}")
}

/// Callers that must have a key, and nobody has one: the file serves nobody.
#[test]
fn keys_that_nobody_has_are_refused_with_what_to_do() {
    let what = "auth.mode: callers prove who they are by an API key, and no tenant has one; make \
                one with `onetake tenant add NAME`, or say mode = \"anonymous\" under [auth] if \
                everybody may call";
    let by_default = format!("{UPSTREAM}{ORDERS}");
    assert_eq!(refused(&by_default), [format!("onetake.toml:3:1: {what}")]);
    let given = format!("[auth]\nmode = \"api-key\"\n{by_default}[[tenant]]\nname = \"a\"\n");
    assert_eq!(refused(&given), [format!("onetake.toml:2:8: {what}")]);
    let wrong = format!("{by_default}[[tenant]]\nname = \"a\"\nkeys = [\"x\"]\n");
    let told = refused(&wrong);
    assert_eq!(told.len(), 1, "a key that cannot be read is not missing as well: {told:?}");
    let misspelt = format!("[auth]\nmode = \"apikey\"\nheader = \"X-Key\"\n{by_default}");
    let told = refused(&misspelt);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("did you mean `api-key`?"), "{told:?}");
}

#[test]
fn two_listeners_on_one_address_are_refused() {
    for (server, admin) in [
        ("127.0.0.1:8085", "127.0.0.1:8085"),
        ("0.0.0.0:8085", "127.0.0.1:8085"),
        ("[::]:8085", "127.0.0.1:8085"),
    ] {
        let file = format!("[server]\nlisten = \"{server}\"\n[admin]\nlisten = \"{admin}\"\n");
        let what = format!(
            "onetake.toml:4:10: admin.listen: callers ({server}) and operators ({admin}) cannot \
             have one address; give `server.listen` and `admin.listen` different ports"
        );
        assert_eq!(refused(&file), [what]);
    }
    let told = refused("[server]\nlisten = \"127.0.0.1:8081\"\n");
    assert!(told[0].starts_with("onetake.toml:2:10: server.listen: callers"), "{told:?}");
}

/// A scope that nobody has would shut a route to everybody.
#[test]
fn a_scope_that_nobody_has_is_refused_with_the_nearest() {
    let tenants = tenant("acme", "scopes = [\"orders:write\", \"orders:read\"]\n")
        + &tenant("globex", "scopes = [\"orders:read\"]\n");
    let file = format!("{UPSTREAM}{ORDERS}requires = \"order:write\"\n{tenants}");
    let expected = "onetake.toml:5:12: route[0].requires: no tenant and no key has the scope \
                    `order:write`, so nobody could call this; they have orders:read, \
                    orders:write; did you mean `orders:write`?";
    assert_eq!(refused(&file), [expected]);
    let folder = tempfile::tempdir().unwrap();
    let all = format!("{UPSTREAM}{ORDERS}requires = \"any:thing\"\n{}", tenant("acme", ""));
    fs::write(folder.path().join("onetake.toml"), all).unwrap();
    assert_eq!(check(folder.path(), &[]).status.code(), Some(0), "one tenant may do everything");
}

/// X6: a guard that nobody could keep is not promised.
#[test]
fn x6_a_scope_is_refused_where_callers_have_none() {
    let told = refused(&format!("{ANONYMOUS}{UPSTREAM}{ORDERS}requires = \"orders:write\"\n"));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("route[0].requires: callers have scopes only with"), "{told:?}");
}

/// A key with more scopes than its tenant is told where it stands.
#[test]
fn a_key_with_more_scopes_than_its_tenant_is_told_with_its_line() {
    let hash = format!("sha256:{}", "ab".repeat(32));
    let file = format!(
        "{UPSTREAM}{ORDERS}requires = \"a\"\n[[tenant]]\nname = \"acme\"\nscopes = [\"a\"]\n\
         keys = [{{ hash = \"{hash}\", scopes = [\"a\", \"b\"] }}]\n"
    );
    let told = refused(&file);
    let expected = "onetake.toml:9:102: tenant[0].keys[0].scopes: a key has no more scopes than \
                    its tenant, which has no `b`; add it to the scopes at onetake.toml:8:10";
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with(expected), "{told:?}");
}

/// Safe methods have no keys, so a route that asks for one there protects nothing.
#[test]
fn a_key_that_is_required_of_safe_methods_only_is_refused() {
    let route = "[[route]]\nmatch = \"GET,HEAD /orders\"\nkey = \"required\"\n";
    let expected = "onetake.toml:7:7: route[0].key: GET,HEAD changes nothing, so a key is neither \
                    asked for nor looked at; remove `key`, or match a method that changes \
                    something, such as POST";
    assert_eq!(refused(&format!("{ANONYMOUS}{UPSTREAM}{route}")), [expected]);
    let folder = tempfile::tempdir().unwrap();
    let inherited = route.replace("key = \"required\"\n", "");
    let file = format!("{ANONYMOUS}{UPSTREAM}key = \"required\"\n{inherited}");
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    assert_eq!(check(folder.path(), &[]).status.code(), Some(0), "it only inherits it");
}

/// Whoever mends a file mends all of it at once.
#[test]
fn everything_that_is_wrong_is_told_at_once_and_nothing_that_follows_from_it() {
    let routes =
        ["POST /a/{x}", "POST /a/{y}", "POST,PUT /b", "PUT,PATCH /b", "GET /c", "POST /a/{z}"];
    let route = |pattern: &&str| format!("[[route]]\nmatch = \"{pattern}\"\n");
    let routes: String = routes.iter().map(route).collect();
    let jwt = "[auth]\nmode = \"jwt\"\njwks = \"https://login.example/keys\"\n";
    let file = format!("{jwt}[defaults]\nupstream = \"127.0.0.1:9000\"\n{routes}lease = \"2h\"\n");
    let told = refused(&file);
    let expected = [
        "onetake.toml:2:8: `",
        "onetake.toml:5:12: defaults.upstream: expected a URL such as \"http://127.0.0.1:9000\"; \
         did you mean `http://127.0.0.1:9000`?",
        "onetake.toml:9:9: route[1].match: the routes `POST /a/{x}` and `POST /a/{y}` match the \
         same requests; keep one of them (the other is at onetake.toml:7:9)",
        "onetake.toml:13:9: route[3].match: the routes `POST,PUT /b` and `PATCH,PUT /b` match",
        "onetake.toml:17:9: route[5].match: the routes `POST /a/{x}` and `POST /a/{z}` match",
        "onetake.toml:18:9: route[5].lease: 2h is out of bounds",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}\nis not\n{expected}");
    }
    let misspelt = format!("{ANONYMOUS}[defaults]\nupsteam = \"http://x\"\n{ORDERS}");
    let told = refused(&misspelt);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("did you mean `upstream`?"), "{told:?}");
}

/// Whatever a route says of itself is shown, most of all what protects less.
#[test]
fn the_table_shows_every_setting_of_a_route() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "{ANONYMOUS}{UPSTREAM}{ORDERS}answer_within = \"1s\"\nmax_stored_response = 20\n\
         max_request = 100\nstore_down = \"pass\"\nforward_key = \"scoped\"\n\
         statuses = {{ freed = [\"5xx\"] }}\n"
    );
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for (name, value) in [
        ("answer within", "1s"),
        ("max stored response", "20"),
        ("max request", "100"),
        ("store down", "pass"),
        ("forward key", "scoped"),
    ] {
        let is_shown = |line: &str| {
            let rest = line.trim().strip_prefix(name);
            rest.is_some_and(|rest| rest.trim() == value)
        };
        assert!(shown.lines().any(is_shown), "{name} {value}: {shown}");
    }
    assert!(shown.contains("  statuses             5"), "{shown}");
    assert!(shown.contains(" freed"), "{shown}");
}

/// What a route says beside the usual is in the table, and it fits a terminal.
#[test]
fn the_table_shows_what_differs_and_leaves_out_what_is_built_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "{}{UPSTREAM}{ORDERS}requires = \"orders:write\"\nscope = \"tenant\"\n\
         unknown = \"probe GET /status/{{key}}\"\n\
         fingerprint = {{ ignore = [\"/at\"], query = true }}\n\
         [[route]]\nmatch = \"* /**\"\n",
        tenant("acme", "scopes = [\"orders:write\"]\n")
    );
    fs::write(folder.path().join("onetake.toml"), file).unwrap();
    let output = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let expected = "\
server    127.0.0.1:8080
admin     127.0.0.1:8081, token kept in a file
store     embedded:./onetake-data
auth      api-key
tenants   1
upstream  http://127.0.0.1:9/

POST /orders
  operation    by match
  requires     orders:write
  unknown      probe GET /status/{key}
  scope        tenant
  fingerprint  json body + query without /at

* /**
  operation  passes through

On every route as built in: dialect ietf, key by dialect, retention 24h, lease 30s,
  in flight wait 10s, mode enforce, statuses by dialect, store down refuse, forward key raw,
  max stored response 10MiB, timeout 30s, max request 10MiB
";
    assert_eq!(text(&output.stdout), expected);
    assert!(text(&output.stdout).lines().all(|line| line.chars().count() <= 100));
    let json = check(folder.path(), &["--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["warnings"], Value::Array(Vec::new()));
    let settings = &json["config"]["routes"][0]["settings"];
    assert_eq!(settings["probe"], "/status/{key}");
    assert_eq!(
        (&settings["requires"], &settings["scope"]),
        (&"orders:write".into(), &"tenant".into())
    );
    let expected = serde_json::json!({ "ignore": ["/at"], "query": true, "json": true });
    assert_eq!(settings["fingerprint"], expected);
}

/// A flag that cannot be meant is refused like an option, with what was probably meant.
#[test]
fn a_flag_that_cannot_be_meant_is_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let serve = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        let output = command.arg("serve").args(words).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let said = serve(&["--upstream", "127.0.0.1:9"]);
    let expected = "error: --upstream: expected a URL such as \"http://127.0.0.1:9000\"; did you \
                    mean `http://127.0.0.1:9`?\n";
    assert_eq!(said, expected);
    let said = serve(&["--upstream", "http://user:hunter2@x"]);
    assert!(said.contains("--upstream: a URL with a user name") && !said.contains("hunter2"));
    let said =
        serve(&["--listen", "8080", "--admin-listen", "nowhere", "--store", "sqlite:hunter2"]);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 3, "all at once: {said}");
    assert!(lines[0].contains("--admin-listen: `nowhere` is not an address"), "{said}");
    assert!(lines[1].starts_with("--listen: `8080` is not"), "{said}");
    assert!(lines[1].ends_with("did you mean `127.0.0.1:8080`?"), "{said}");
    assert!(lines[2].contains("--store: not the URL of a store") && !said.contains("hunter2"));
    let said = serve(&["--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:8081"]);
    assert!(said.starts_with("error: --listen: callers (127.0.0.1:8081) and operators"), "{said}");
    assert!(!folder.path().join("onetake-data").exists(), "no store was made");
}

/// Keys that have all ended are no fault of the file, and hardly meant.
#[test]
fn keys_that_have_all_expired_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let key = |expires: &str| {
        let hash = format!("sha256:{}", "ab".repeat(32));
        format!("[[tenant]]\nname = \"acme\"\nkeys = [{{ hash = \"{hash}\"{expires} }}]\n")
    };
    let warned = |expires: &str| {
        let file = format!("{UPSTREAM}{ORDERS}{}", key(expires));
        fs::write(folder.path().join("onetake.toml"), file).unwrap();
        let output = check(folder.path(), &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let said = warned(", expires = 2001-01-31T00:00:00Z");
    assert!(said.starts_with("warning: onetake.toml:3:1: every API key has expired"), "{said}");
    assert_eq!(warned(", expires = 2999-01-31T00:00:00Z"), "");
    assert_eq!(warned(""), "");
}
