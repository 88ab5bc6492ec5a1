//! Databases that cannot be used: the exit code and the words name the problem, and never a
//! password. And what `onetake check` says of one, which asks nobody.

use std::fs;

use onetake_testkit::servers::{Server, free_port};

use crate::nodes::{Clock, Fleet, onetake, server};

const PASSWORD: &str = "s3cret-w0rd";

/// What a command says, and its exit code.
fn said(words: &[&str]) -> (Option<i32>, String) {
    let output = onetake(words, &[]);
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

/// Lets `locked` in with its password only, and everybody else as before.
fn asks_for_a_password(server: &Server) {
    let hba = server.ask("SHOW hba_file");
    let _ = server.ask(&format!("CREATE ROLE locked LOGIN PASSWORD '{PASSWORD}'"));
    let _ = server.ask(&format!(
        "COPY (VALUES ('host all locked 127.0.0.1/32 scram-sha-256'),
            ('host all all 127.0.0.1/32 trust')) TO '{hba}'"
    ));
    assert_eq!(server.ask("SELECT pg_reload_conf()"), "t");
    server.wait_for("SELECT count(*) FROM pg_hba_file_rules WHERE 'locked' = ANY (user_name)", "1");
}

/// Every command that opens a store says what is in the way.
#[test]
fn a_database_that_cannot_be_used_is_named_and_its_password_is_not() {
    let forgets = Server::shared();
    asks_for_a_password(forgets);
    let (port, nobody) = (forgets.port, free_port());
    let wrong = format!("postgres://locked:{PASSWORD}-not@127.0.0.1:{port}/postgres");
    let unreachable = format!("postgres://locked:{PASSWORD}@127.0.0.1:{nobody}/postgres");
    let unnamed = format!("postgres://locked:{PASSWORD}@no-such-host.invalid/postgres");
    let missing = format!("postgres://locked:{PASSWORD}@127.0.0.1:{port}/no_such_database");
    let unsafe_one = format!("postgres://onetake:{PASSWORD}@127.0.0.1:{port}/postgres");
    let no_address = format!("postgres://locked:{PASSWORD}@127.0.0.1:port/postgres");
    let table = [
        (wrong.as_str(), 5, "password authentication failed"),
        (&unreachable, 5, "cannot be reached"),
        (&unnamed, 5, "cannot be reached"),
        (&missing, 5, "no_such_database"),
        (&unsafe_one, 5, "`fsync = off`"),
        (&no_address, 2, "not the address of a PostgreSQL database"),
    ];
    for (url, code, why) in table {
        let serve = ["serve", "--admin-listen", "127.0.0.1:0", "--store", url];
        for words in [
            &serve[..],
            &["keys", "list", "--store", url],
            &["store", "stats", "--store", url],
            &["store", "migrate", "--store", url],
        ] {
            let (found, text) = said(words);
            assert!(text.contains(why), "{}: no `{why}` in {text}", words[0]);
            assert_eq!(found, Some(code), "{}: {text}", words[0]);
            assert!(!text.contains(PASSWORD), "{}: {text}", words[0]);
        }
    }
}

/// What a check reads is what would run; it opens nothing, and shows no password.
#[test]
fn a_check_reads_the_settings_of_a_database_and_asks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("onetake.toml");
    let check = |store: &str| {
        let rest = "[auth]\nmode = \"anonymous\"\n[[route]]\nmatch = \"POST /orders\"\n\
                    upstream = \"http://127.0.0.1:1\"\n";
        fs::write(&path, format!("[store]\n{store}\n{rest}")).unwrap();
        let config = path.to_str().unwrap();
        let (code, text) = said(&["check", "--config", config]);
        let (of_json, json) = said(&["check", "--json", "--config", config]);
        assert_eq!(code, of_json, "{text}{json}");
        assert!(!(text.clone() + &json).contains(PASSWORD), "{text}{json}");
        (code, text)
    };
    let url = format!("postgres://me:{PASSWORD}@db.invalid/app");
    let listen = format!("postgres://me:{PASSWORD}@direct.invalid/app");
    let whole = format!("url = \"{url}\"\nlisten_url = \"{listen}\"\nschema = \"orders\"");
    let (code, text) = check(&whole);
    assert!(code == Some(0) && text.contains("postgres://db.invalid/app"), "{text}");
    for (store, why) in [
        (format!("url = \"{url}\"\nschemas = \"x\""), "schema"),
        (format!("url = \"{url}\"\naccept_loss = \"maybe\""), "accept_loss"),
        ("url = \"postgres:db\"".to_owned(), "url"),
    ] {
        let (code, text) = check(&store);
        assert!(code == Some(2) && text.contains(why) && text.contains("onetake.toml:"), "{text}");
    }
}

/// A command that reads the configuration of a running node acts on the same store.
#[test]
fn commands_find_the_database_in_the_configuration_of_the_nodes() {
    let api = crate::api::Api::start();
    let fleet = Fleet::start(api.address, "", &[Clock::Right]);
    fleet.nodes[0].post("order-1", "{}");
    let config = fleet.config.to_str().unwrap();
    let (code, text) = said(&["keys", "list", "--config", config]);
    assert!(code == Some(0) && text.contains("order-1"), "{text}");
    let (code, text) = said(&["store", "stats", "--config", config]);
    let place = format!("postgres://127.0.0.1:{}/postgres", server().port);
    assert!(code == Some(0) && text.contains(&place), "{text}");
}
