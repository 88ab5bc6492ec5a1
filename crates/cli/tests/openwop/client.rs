//! The public client for Python, and a stranger's scenarios, against the built binary.
//!
//! Both are scripts of their own in `python/`; here a host is started for them, and what they say
//! is shown when something did not hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::home::{ACME, Home, Node, ONLOOKER, ZOO};

/// The client, as the registry calls it.
const CLIENT: &str = "openwop-client==1.7.0";

/// Where the client is, which is fetched once.
fn client() -> &'static Path {
    static CLIENT_AT: OnceLock<PathBuf> = OnceLock::new();
    CLIENT_AT.get_or_init(|| {
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let at = tmp.join(CLIENT);
        if at.join("openwop_client").is_dir() {
            return at;
        }
        // Whole or not at all: another process may want it at the same time.
        fs::create_dir_all(tmp).unwrap();
        let draft = tempfile::tempdir_in(tmp).unwrap();
        let fetched = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
            .arg(draft.path())
            .arg(CLIENT)
            .output()
            .expect("python3 is installed");
        let why = String::from_utf8_lossy(&fetched.stderr);
        assert!(fetched.status.success(), "the client cannot be fetched: {why}");
        let _ = fs::rename(draft.path(), &at);
        assert!(at.join("openwop_client").is_dir(), "{}", at.display());
        at
    })
}

fn host() -> (Home, Node) {
    let home = Home::alone("test_seams = true\nallow_private_targets = true", &[]);
    let node = home.start();
    (home, node)
}

/// Runs a script against `node`, and demands that it ends well; gives what it said.
fn run(script: &str, node: &Node) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openwop/python");
    let said = Command::new("python3")
        .arg(scripts.join(script))
        .args([&format!("http://{}", node.address()), ACME, ZOO])
        .env("PYTHONPATH", client())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENWOP_TEST_LOW_SCOPE_KEY", ONLOOKER)
        .output()
        .expect("python3 is installed");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let why = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{script} does not end well:\n{text}\n{why}");
    text
}

/// W1 to W4, W7 to W10, W20, W25: the client that others use, from the first run to the last
/// webhook.
#[test]
fn w1_w4_w9_w20_w25_the_public_client_finds_everything_as_it_expects() {
    let (_home, node) = host();
    let said = run("client_test.py", &node);
    assert!(said.contains(" held, 0 broken"), "{said}");
}

/// W1, W4, W9, W13, W20, W25: what a stranger's suite would look at, by what discovery offers.
#[test]
fn w1_w4_w9_w13_w20_w25_the_scenarios_of_the_contract_hold() {
    let (_home, node) = host();
    let said = run("scenarios.py", &node);
    assert!(said.contains(" passed, 0 failed, "), "{said}");
}
