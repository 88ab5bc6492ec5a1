//! What operators type against the database itself, whether nodes run on it or not.

use serde_json::{Value, json};

use crate::api::Api;
use crate::nodes::{Clock, Fleet, onetake, schema, server};

const ORDER: &str = "{}";
const HELD: &str = "{\"held\":true}";
const SETTINGS: &str = "lease = \"1s\"\nunknown = \"hold\"";

/// Two nodes on which `order-1` is done and `order-2` is unknown, because a node was killed.
fn with_an_unknown(api: &Api) -> Fleet {
    let fleet = Fleet::start(api.address, SETTINGS, &[Clock::Right; 2]);
    let first = fleet.nodes[0].post("order-1", ORDER);
    assert_eq!(first.status, 201, "{first:#?}");
    assert_eq!(api.arrived.recv().unwrap(), "order-1");
    let gateway = fleet.nodes[0].gateway();
    let asking = std::thread::spawn(move || crate::caller::post(gateway, "order-2", HELD));
    assert_eq!(api.arrived.recv().unwrap(), "order-2");
    fleet.nodes[0].kill();
    api.go_on.send(()).unwrap();
    assert!(asking.join().unwrap().is_err(), "nobody answers");
    fleet.settled();
    fleet
}

fn record(fleet: &Fleet, key: &str) -> Value {
    let listed = fleet.listed();
    let found = listed.into_iter().find(|record| record["key"] == key);
    let slot = found.expect("it is listed")["slot"].as_str().unwrap().to_owned();
    fleet.json(&["keys", "show", "anonymous", &slot])
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap()
}

/// X10: what one settles in the database every node answers.
#[test]
fn x10_keys_are_listed_resolved_and_released_in_the_database_while_nodes_run() {
    let api = Api::start();
    let fleet = with_an_unknown(&api);
    let node = &fleet.nodes[1];
    let held = node.post("order-2", HELD);
    assert!(held.status == 409 && held.body.contains("outcome_unknown"), "{held:#?}");
    let unknown = fleet.json(&["keys", "list", "--phase", "unknown"]);
    assert_eq!(unknown["keys"].as_array().unwrap().len(), 1);
    let unknown = record(&fleet, "order-2");
    assert_eq!(unknown["phase"], "unknown");
    let (slot, seen) = (text(&unknown, "slot"), text(&unknown, "version"));
    let resolve = ["keys", "resolve", "anonymous", slot, "--seen", seen, "--status", "201"];
    let done = fleet.json(&[&resolve[..], &["--body", "found out"]].concat());
    assert_eq!(done["phase"], "done");
    let told = node.post("order-2", HELD);
    assert_eq!((told.status, told.body.as_str(), told.is_replay()), (201, "found out", true));

    let first = record(&fleet, "order-1");
    let stale = ["keys", "release", "anonymous", text(&first, "slot"), "--seen", seen];
    assert_eq!(fleet.typed(&stale).status.code(), Some(4), "it was another that was seen");
    assert!(node.post("order-1", ORDER).is_replay());
    assert_eq!(api.effects().len(), 2);
}

/// X10: a key that is freed in the database is executed again, once.
#[test]
fn x10_an_unknown_that_is_released_in_the_database_is_executed_by_whichever_node_is_asked() {
    let api = Api::start();
    let fleet = with_an_unknown(&api);
    let unknown = record(&fleet, "order-2");
    let (slot, seen) = (text(&unknown, "slot"), text(&unknown, "version"));
    let freed = fleet.json(&["keys", "release", "anonymous", slot, "--seen", seen]);
    assert_eq!(freed["phase"], "free");
    fleet.nodes[0].restart();
    api.go_on.send(()).unwrap();
    let [one, other] = [0, 1].map(|node: usize| fleet.nodes[node].post("order-2", HELD));
    assert_eq!((one.status, one.is_replay(), other.is_replay()), (201, false, true), "{one:#?}");
    assert_eq!(one.kept(), other.kept());
    assert_eq!(api.effects_of("order-2").len(), 2, "the one that was lost, and this");
}

/// X10: a purge in the database holds for every node when it returns; and all of it is audited.
#[test]
fn x10_after_a_purge_in_the_database_no_node_remembers() {
    let api = Api::start();
    let fleet = Fleet::start(api.address, SETTINGS, &[Clock::Right; 2]);
    for node in &fleet.nodes {
        assert_eq!(node.post("order-1", ORDER).status, 201);
    }
    let purged = fleet.json(&["keys", "purge", "anonymous", "--yes"]);
    assert_eq!(purged, json!({ "tombstones": 1, "live": 0 }));
    let [one, other] = [1, 0].map(|node: usize| fleet.nodes[node].post("order-1", ORDER));
    assert_eq!((one.is_replay(), other.is_replay()), (false, true), "{one:#?}");
    assert_eq!(api.effects().len(), 2);
    let audit = fleet.json(&["keys", "audit"]);
    assert_eq!(audit["entries"][0]["by"], "ann");
}

/// A dry run prints what would be done, and does none of it.
#[test]
fn a_migration_can_be_read_before_it_is_done() {
    let (url, schema) = (server().url(), schema());
    let typed = |words: &[&str]| {
        let output =
            onetake(&[words, &["--store", &url]].concat(), &[("ONETAKE_STORE__SCHEMA", &schema)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    };
    let schemas = format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'");
    let (code, said) = typed(&["store", "migrate", "--dry-run"]);
    assert!(code == Some(0) && said.contains("CREATE TABLE slots"), "{said}");
    assert_eq!(server().ask(&schemas), "0", "nothing was made");
    let (code, said) = typed(&["keys", "list"]);
    assert!(code == Some(5) && said.contains("onetake store migrate"), "{said}");
    let done = "the tables are up to date now\n".to_owned();
    assert_eq!(typed(&["store", "migrate"]), (Some(0), done));
    assert_eq!(server().ask(&schemas), "1");
    let nothing = "the tables are up to date\n".to_owned();
    assert_eq!(typed(&["store", "migrate", "--dry-run"]), (Some(0), nothing));
    let (code, said) = typed(&["keys", "list"]);
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
}

/// X11: tables that were made with a master key open with nothing else, and their key can be
/// changed by whoever has it.
#[test]
fn x11_a_sealed_database_is_opened_and_rotated_by_those_who_have_its_key() {
    let (url, schema) = (server().url(), schema());
    let (key, other) = ("5a".repeat(32), "6b".repeat(32));
    let typed = |words: &[&str], keys: &[(&str, &str)]| {
        let env = [keys, &[("ONETAKE_STORE__SCHEMA", schema.as_str())]].concat();
        let output = onetake(&[words, &["--json", "--store", &url]].concat(), &env);
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains(&key), "{said}");
        (output.status.code(), said)
    };
    let (name, old) = ("ONETAKE_STORE__KEY", "ONETAKE_STORE__OLD_KEY");
    let (code, said) = typed(&["store", "migrate"], &[(name, &key)]);
    assert_eq!(code, Some(0), "{said}");
    for keys in [&[][..], &[(name, other.as_str())]] {
        let (code, said) = typed(&["keys", "list"], keys);
        assert!(code == Some(5) && said.contains("store_sealed"), "{code:?} {said}");
    }
    let (code, said) = typed(&["keys", "list"], &[(name, &key)]);
    assert_eq!(code, Some(0), "{said}");
    // The other key takes over, and then opens it alone.
    let (code, said) = typed(&["store", "rotate"], &[(name, &other), (old, &key)]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = typed(&["keys", "list"], &[(name, &other)]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = typed(&["keys", "list"], &[(name, &key)]);
    assert!(code == Some(5) && said.contains("store_sealed"), "{said}");
}

/// The numbers of the database, with and without nodes.
#[test]
fn the_numbers_of_the_store_count_its_nodes() {
    let api = Api::start();
    let fleet = Fleet::start(api.address, SETTINGS, &[Clock::Right; 2]);
    let stats = fleet.json(&["store", "stats"]);
    // The command is one, too.
    assert_eq!(stats["numbers"]["nodes"], 3, "{stats}");
    assert!(stats["numbers"]["disk_bytes"].as_u64().unwrap() > 0, "{stats}");
    assert!(stats["store"].as_str().unwrap().starts_with("postgres://127.0.0.1:"), "{stats}");
}
