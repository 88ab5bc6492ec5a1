//! Runs of workflows as people start, follow and end them: the built binary against a host, on a
//! bad line, and on the files that it leaves.
//!
//! Only what comes out of the commands counts. The bad line is a few lines of sockets in between.

#![allow(clippy::unwrap_used, reason = "a test says that something is wrong by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use onetake_testkit::servers::Server;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where the workflows of the contract's own tests are.
const WORKFLOWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../openwop/conformance");
const APPROVAL: &str = "conformance-approval";
/// Where the workflows of the examples are.
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/workflows");

/// A folder with a configuration, a store and the keys of two tenants.
struct Bench {
    folder: TempDir,
    acme: String,
    zoo: String,
}

impl Bench {
    fn new() -> Self {
        Self::on("embedded:data")
    }

    fn on(store: &str) -> Self {
        Self::with(store, WORKFLOWS)
    }

    fn with(store: &str, workflows: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [store]\nurl = {store:?}\n[openwop]\nworkflows = {workflows:?}\n"
        );
        fs::write(folder.path().join("onetake.toml"), config).unwrap();
        let mut bench = Self { folder, acme: String::new(), zoo: String::new() };
        bench.acme = bench.tenant("acme");
        bench.zoo = bench.tenant("zoo");
        bench
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onetake"));
        command.current_dir(self.folder.path()).args(words).env("ONETAKE_OPERATOR", "ann");
        command.env("ONETAKE_API_KEY", &self.acme);
        command
    }

    fn typed(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary starts")
    }

    /// What comes out of a command that must be done.
    fn json(&self, words: &[&str]) -> Value {
        let output = self.typed(&[words, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn tenant(&self, name: &str) -> String {
        let added = self.json(&["tenant", "add", name]);
        added["key"].as_str().unwrap_or_else(|| panic!("{added}")).to_owned()
    }

    fn serve(&self) -> Serving {
        let mut child =
            self.command(&["serve"]).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let line = until(&mut said, "the workflow host is at http://");
        let rest = line.split("http://").nth(1).unwrap();
        let address = rest.split('/').next().unwrap().parse().unwrap();
        Serving { child, address, said }
    }

    /// Creates a run and does not follow it.
    fn detached(&self, url: &str, workflow: &str) -> String {
        let created = self.json(&["run", workflow, "--url", url, "--detach"]);
        created["runId"].as_str().unwrap().to_owned()
    }

    /// Creates a run, and leaves it once it waits for an approval.
    fn waiting(&self, url: &str) -> String {
        let (mut child, mut stdout, _stderr) = self.following(&["run", APPROVAL, "--url", url]);
        let line = until(&mut stdout, "created, under the key");
        child.kill().unwrap();
        child.wait().unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    }

    /// Follows a run that nobody ends, until it says how to answer.
    fn following(&self, words: &[&str]) -> (Child, BufReader<ChildStdout>, BufReader<ChildStderr>) {
        let mut command = self.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        until(&mut stderr, "curl -X POST");
        (child, stdout, stderr)
    }
}

/// A host, killed when dropped.
struct Serving {
    child: Child,
    address: SocketAddr,
    said: BufReader<ChildStderr>,
}

impl Serving {
    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it in peace.
    fn stop(mut self) {
        signal(&self.child, "TERM");
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
    }

    /// Answers the only question of a run.
    fn accept(&self, run: &str, key: &str) {
        self.answer(run, "gate", key, r#"{"resumeValue":{"action":"accept"}}"#);
    }

    fn answer(&self, run: &str, node: &str, key: &str, body: &str) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "POST /v1/runs/{run}/interrupts/{node} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
             authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// The first line that has `words` in it.
fn until(said: &mut impl BufRead, words: &str) -> String {
    let mut all = String::new();
    loop {
        let mut line = String::new();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "no `{words}` in {all}");
        if line.contains(words) {
            return line;
        }
        all.push_str(&line);
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The sequences and the types of events that were printed one a line, as JSON.
fn told(lines: &str) -> Vec<(u64, String)> {
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        Some((event["sequence"].as_u64()?, event["type"].as_str()?.to_owned()))
    };
    lines.lines().filter_map(event).collect()
}

fn refused(bench: &Bench, words: &[&str], code: i32, why: &str) {
    let output = bench.typed(words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}", text(&output.stderr));
    assert!(text(&output.stderr).contains(why), "{words:?}: {}", text(&output.stderr));
}

/// A run is created and followed with one command, whose exit code says how it ended.
#[test]
fn a_run_is_followed_to_its_end_and_the_exit_code_says_how() {
    let bench = Bench::new();
    let serving = bench.serve();
    let url = serving.url();
    let run = |words: &[&str]| bench.typed(&[&["run"], words, &["--url", &url]].concat());
    let done = run(&["conformance-multi-node"]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let lines: Vec<_> = text(&done.stdout).lines().collect();
    assert!(lines[0].starts_with("run run-") && lines[0].contains("under the key "), "{lines:?}");
    let words: Vec<_> =
        lines[1..].iter().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    let node = ["node.started", "node.completed"];
    let expected =
        [&["run.started"][..], &node[..], &node[..], &node[..], &["run.completed"][..]].concat();
    assert_eq!(words, expected);

    let failed = run(&["conformance-failure", "--json"]);
    assert_eq!(failed.status.code(), Some(7), "{}", text(&failed.stderr));
    let first = text(&failed.stdout).lines().next().unwrap();
    let created: Value = serde_json::from_str(first).unwrap();
    assert_eq!(
        (&created["replayed"], &created["workflowId"]),
        (&json!(false), &json!("conformance-failure"))
    );
    let events = told(text(&failed.stdout));
    assert_eq!(events.last().unwrap(), &(3, "run.failed".to_owned()));
    assert!(!text(&failed.stdout).contains(&bench.acme) && failed.stderr.is_empty());
}

/// The same key is the same run; what is none is said, and nothing is created.
#[test]
fn a_run_is_created_once_for_a_key_and_refusals_have_their_exit_codes() {
    let bench = Bench::new();
    let serving = bench.serve();
    let url = serving.url();
    let run = |words: &[&str]| {
        bench.json(
            &[
                &[
                    "run",
                    "conformance-delay",
                    "--url",
                    &url,
                    "--detach",
                    "--idempotency-key",
                    "k-1",
                ],
                words,
            ]
            .concat(),
        )
    };
    let input = ["--input", "delayMs=20"];
    let (one, two) = (run(&input), run(&["--input-json", r#"{"delayMs": 20.0}"#]));
    assert_eq!((&one["runId"], &one["replayed"]), (&two["runId"], &json!(false)));
    assert_eq!((&two["replayed"], &two["idempotencyKey"]), (&json!(true), &json!("k-1")));
    let table: [(&[&str], i32, &str); 7] = [
        (&["conformance-delay", "--idempotency-key", "k-1"], 4, "idempotency_key_mismatch"),
        (&["no-such-workflow"], 3, "workflow_not_found"),
        (&["conformance-delay", "--input", "delayMs=soon"], 2, "delayMs"),
        (&["conformance-delay", "--input", "delayMs"], 2, "name=value"),
        (&["conformance-delay", "--input-json", "[]"], 2, "no JSON object"),
        (&["conformance-delay", "--key", "wrong"], 1, "unauthenticated"),
        (&["conformance-delay", "--url", "ftp://h"], 2, "--url"),
    ];
    for (words, code, why) in table {
        let place: &[&str] = if words.contains(&"--url") { &[] } else { &["--url", &url] };
        refused(&bench, &[&["run"], words, place].concat(), code, why);
    }
    let page = bench.json(&["runs", "list"]);
    assert_eq!(page["runs"].as_array().unwrap().len(), 1, "{page}");
}

/// A line between caller and host that loses the answer of the first creation, and cuts the first
/// stream once the run waits.
fn bad_line(host: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut posts, mut streams) = (0, 0);
        for caller in listener.incoming() {
            let mut caller = caller.unwrap();
            let request = request(&caller);
            let mut behind = TcpStream::connect(host).unwrap();
            behind.write_all(request.as_bytes()).unwrap();
            let is_post = request.starts_with("POST");
            let count = if is_post { &mut posts } else { &mut streams };
            *count += 1;
            let is_first = *count == 1;
            let mut answer = BufReader::new(behind);
            if is_post && is_first {
                // It was created; nobody hears of it.
                let mut lost = String::new();
                answer.read_to_string(&mut lost).unwrap();
                assert!(lost.starts_with("HTTP/1.1 201"), "{lost}");
                continue;
            }
            loop {
                let mut line = Vec::new();
                if answer.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                    break;
                }
                caller.write_all(&line).unwrap();
                if is_first && text(&line).contains("\"type\":\"approval.requested\"") {
                    break;
                }
            }
        }
    });
    address
}

/// One request, which asks for an end of the connection behind it.
fn request(caller: &TcpStream) -> String {
    let mut reader = BufReader::new(caller.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0);
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    head + text(&body)
}

/// Whatever the line does, one run is created, and every event is heard once.
#[test]
fn a_bad_line_makes_one_run_and_loses_no_event() {
    let bench = Bench::new();
    let serving = bench.serve();
    let url = format!("http://{}", bad_line(serving.address));
    let mut command = bench.command(&["run", APPROVAL, "--url", &url, "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let created: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(created["replayed"], true, "the first answer was lost");
    let mut heard = String::new();
    while !heard.contains("approval.requested") {
        assert_ne!(stdout.read_line(&mut heard).unwrap(), 0, "{heard}");
    }
    serving.accept(created["runId"].as_str().unwrap(), &bench.acme);
    stdout.read_to_string(&mut heard).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{heard}");
    let events = told(&heard);
    let places: Vec<_> = events.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, (0..10).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap().1, "run.completed");
    let page = bench.json(&["runs", "list"]);
    assert_eq!(page["runs"].as_array().unwrap().len(), 1, "{page}");
}

/// Whoever follows a run that waits is told what to type; leaving it leaves it alone.
#[test]
fn a_run_that_waits_says_how_to_answer_and_goes_on_without_its_watcher() {
    let bench = Bench::new();
    let serving = bench.serve();
    let url = serving.url();
    let words = ["run", APPROVAL, "--url", url.as_str(), "--idempotency-key", "k-1"];
    let (mut child, mut stdout, mut stderr) = bench.following(&words);
    signal(&child, "INT");
    let last = until(&mut stderr, "onetake runs tail run-");
    assert_eq!(child.wait().unwrap().code(), Some(9));
    let line = until(&mut stdout, "created, under the key k-1");
    let run = line.split(' ').nth(1).unwrap();
    assert!(last.trim_end().ends_with(run), "{last}");

    // The same words again: the same run, from its first event on.
    let (mut child, mut stdout, _stderr) = bench.following(&words);
    until(&mut stdout, &format!("{run} created before"));
    serving.accept(run, &bench.acme);
    until(&mut stdout, "run.completed");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// X3: of a call that nobody knows the end of, people are told whom to ask and for what; what they
/// can type suggests no answer, because the wrong one can be to pay twice.
#[test]
fn x3_a_call_that_nobody_knows_the_end_of_names_whom_to_ask() {
    let bench = Bench::with("embedded:data", EXAMPLES);
    let serving = bench.serve();
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let payments = format!("paymentsUrl=http://{}/refunds", provider.local_addr().unwrap());
    // Takes the request, and hangs up instead of answering.
    let provider = thread::spawn(move || {
        let (stream, _) = provider.accept().unwrap();
        until(&mut BufReader::new(stream), "idempotency-key: ").trim_end().to_owned()
    });
    let url = serving.url();
    let words = ["run", "refund", "--input", "order=\"77\"", "--input", "amount=5", "--input"];
    let mut command = bench.command(&[&words[..], &[&payments, "--url", &url]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut stdout, mut stderr) = (BufReader::new(stdout), BufReader::new(stderr));
    until(&mut stderr, "pay waits for outcome_unknown");
    let sent = provider.join().unwrap();
    let key = sent.split_once(": ").unwrap().1;
    let first = until(&mut stderr, "first find out");
    assert!(first.contains(&format!("(payments, Idempotency-Key {key})")), "{first}");
    let line = until(&mut stderr, "curl -X POST");
    assert!(line.contains(r#""action":…"#) && line.contains("Idempotency-Key: "), "{line}");
    let line = until(&mut stdout, "created, under the key");
    let run = line.split(' ').nth(1).unwrap();
    let shown = bench.typed(&["runs", "show", run]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("outcome_unknown at pay: retry, complete, fail"), "{shown}");
    assert!(shown.contains(&format!("payments, Idempotency-Key {key}")), "{shown}");
    let found = r#"{"resumeValue":{"action":"complete","result":{"status":201}}}"#;
    serving.answer(run, "pay", &bench.acme, found);
    until(&mut stdout, "run.completed");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The same commands, through the process that holds the store and on its files.
#[test]
fn operators_look_at_runs_and_end_them_with_a_host_and_without() {
    for held in [true, false] {
        let bench = Bench::new();
        let serving = bench.serve();
        let url = serving.url();
        let done = bench.typed(&["run", "conformance-noop", "--url", &url, "--json"]);
        let done: Value = serde_json::from_str(text(&done.stdout).lines().next().unwrap()).unwrap();
        let done = done["runId"].as_str().unwrap();
        let open = bench.waiting(&url);
        let serving = if held {
            Some(serving)
        } else {
            serving.stop();
            None
        };

        let page = bench.json(&["runs", "list", "--status", "completed"]);
        assert_eq!(
            (&page["runs"][0]["run"], page["runs"].as_array().unwrap().len()),
            (&json!(done), 1)
        );
        let shown = bench.json(&["runs", "show", done]);
        assert_eq!(
            (&shown["tenant"], &shown["nodes"][0]["status"]),
            (&json!("acme"), &json!("completed"))
        );
        refused(&bench, &["runs", "show", &open, "--tenant", "zoo"], 3, "`--tenant acme`");
        refused(&bench, &["runs", "show", "run-0"], 3, "there is no such run");
        refused(&bench, &["runs", "cancel", "run-0", "--tenant", "acme"], 3, "record_missing");
        refused(&bench, &["runs", "cancel", done], 4, "it is completed");

        let ended = bench.json(&["runs", "cancel", &open, "--reason", "a mistake"]);
        assert_eq!((&ended["status"], &ended["repeated"]), (&json!("cancelled"), &json!(false)));
        let again = bench.json(&["runs", "cancel", &open, "--reason", "another one"]);
        assert_eq!(again["repeated"], true);
        let shown = bench.json(&["runs", "show", &open, "--tenant", "acme"]);
        assert_eq!((&shown["reason"], &shown["waits"]), (&json!("a mistake"), &Value::Null));
        let tail = bench.typed(&["runs", "tail", &open, "--from", "5"]);
        assert_eq!(tail.status.code(), Some(8), "{}", text(&tail.stderr));
        let lines: Vec<_> = text(&tail.stdout).lines().collect();
        assert!(lines[0].contains("node.cancelled") && lines[1].contains("by operator: a mistake"));
        assert_eq!(lines.len(), 2);
        let audit = bench.json(&["keys", "audit"]);
        let entry = &audit["entries"][0];
        assert_eq!((&entry["act"], &entry["by"]), (&json!("run_cancelled"), &json!("ann")));
        assert_eq!((&entry["run"], &entry["tenant"]), (&json!(open), &json!("acme")));
        assert_eq!(audit["entries"].as_array().unwrap().len(), 1, "what was done once is one act");
        drop(serving);
    }
}

/// A tail hears what comes until the run ends; without a host nothing can come, and that is said.
#[test]
fn a_tail_follows_a_run_to_its_end_or_says_that_nobody_drives_it() {
    let bench = Bench::new();
    let serving = bench.serve();
    let (one, two) = (bench.waiting(&serving.url()), bench.waiting(&serving.url()));
    let mut tail = bench.command(&["runs", "tail", &one, "--json"]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(tail.stdout.take().unwrap());
    let mut heard = until(&mut stdout, "approval.requested");
    serving.accept(&one, &bench.acme);
    stdout.read_to_string(&mut heard).unwrap();
    assert_eq!(tail.wait().unwrap().code(), Some(0), "{heard}");
    assert_eq!(told(&heard).last().unwrap().1, "run.completed");

    serving.stop();
    let open = bench.typed(&["runs", "tail", &two]);
    assert_eq!(open.status.code(), Some(9), "{}", text(&open.stderr));
    assert!(text(&open.stderr).contains("no process drives it"), "{}", text(&open.stderr));
    assert!(text(&open.stdout).contains("run.started"));
    // Looking drove nothing: a host goes on where the run stood.
    let serving = bench.serve();
    serving.accept(&two, &bench.acme);
    let tail = bench.typed(&["runs", "tail", &two]);
    assert_eq!(tail.status.code(), Some(0), "{}", text(&tail.stderr));
}

/// On a store that several processes share, an operator goes past the one that drives the run, and
/// those who follow it there hear of it.
#[test]
fn a_run_is_followed_and_ended_beside_the_process_that_drives_it() {
    let server = Server::start(&[]);
    let bench = Bench::on(&server.url());
    let serving = bench.serve();
    let url = serving.url();
    let one = bench.waiting(&url);
    let mut tail = bench.command(&["runs", "tail", &one]);
    let mut tail = tail.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(tail.stdout.take().unwrap());
    until(&mut stdout, "approval.requested");
    serving.accept(&one, &bench.acme);
    until(&mut stdout, "run.completed");
    assert_eq!(tail.wait().unwrap().code(), Some(0));

    let (mut watcher, mut stdout, _stderr) = bench.following(&["run", APPROVAL, "--url", &url]);
    let line = until(&mut stdout, "created, under the key");
    let two = line.split(' ').nth(1).unwrap();
    let ended = bench.json(&["runs", "cancel", two]);
    assert_eq!((&ended["status"], &ended["repeated"]), (&json!("cancelled"), &json!(false)));
    until(&mut stdout, "run.cancelled");
    assert_eq!(watcher.wait().unwrap().code(), Some(8));
    assert_eq!(bench.json(&["keys", "audit"])["entries"][0]["run"], json!(two));
}

/// Lists are bounded, begin with the newest, go on where they ended, and are those of one tenant
/// where that is asked.
#[test]
fn runs_are_listed_page_by_page_by_tenant_and_by_status() {
    let bench = Bench::new();
    let serving = bench.serve();
    let url = serving.url();
    let mut made: Vec<_> = (0..3).map(|_| bench.detached(&url, APPROVAL)).collect();
    let created = bench.json(&["run", APPROVAL, "--url", &url, "--detach", "--key", &bench.zoo]);
    let zoo = created["runId"].as_str().unwrap();
    let names = |page: &Value| -> Vec<String> {
        let rows = page["runs"].as_array().unwrap().iter();
        rows.map(|row| row["run"].as_str().unwrap().to_owned()).collect()
    };
    let list = |words: &[&str]| bench.json(&[&["runs", "list"], words].concat());
    // The newest first.
    made.sort();
    made.reverse();
    assert_eq!(names(&list(&["--tenant", "acme"])), made);
    assert_eq!(names(&list(&["--tenant", "zoo"])), [zoo]);
    assert_eq!(names(&list(&["--limit", "1", "--all"])).len(), 4);
    assert_eq!(names(&list(&["--status", "cancelled"])), [""; 0]);
    let page = list(&["--tenant", "acme", "--limit", "2"]);
    assert_eq!(names(&page), made[..2]);
    let next = page["next"].as_str().unwrap();
    assert_eq!(names(&list(&["--tenant", "acme", "--after", next])), made[2..]);
    refused(&bench, &["runs", "list", "--status", "done"], 2, "waiting-approval");
    refused(&bench, &["runs", "list", "--after", "x"], 2, "after");
    let table = bench.typed(&["runs", "list", "--limit", "1"]);
    let head = "TENANT  RUN";
    assert!(text(&table.stdout).starts_with(head), "{}", text(&table.stdout));
    assert!(text(&table.stderr).starts_with("There is more: --after zoo/run-"));
}

/// Without `[openwop]` there is no host to run anything, and no run to look at.
#[test]
fn a_process_without_a_host_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let config = "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
                  [store]\nurl = \"embedded:data\"\n[auth]\nmode = \"anonymous\"\n\
                  [[route]]\nmatch = \"POST /orders\"\nupstream = \"http://127.0.0.1:9\"\n";
    fs::write(folder.path().join("onetake.toml"), config).unwrap();
    let bench = Bench { folder, acme: String::new(), zoo: String::new() };
    let mut child = bench.command(&["serve"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let line = until(&mut said, "the gateway is at http://");
    let address = line.trim().split("http://").nth(1).unwrap().parse().unwrap();
    let serving = Serving { child, address, said };
    let run = ["run", "orders", "--url", &serving.url()];
    refused(&bench, &run, 3, "there is no workflow host at http://127.0.0.1:");
    assert_eq!(bench.json(&["runs", "list"])["runs"], json!([]));
    refused(&bench, &["runs", "tail", "run-1"], 3, "there is no such run");
    serving.stop();
    assert_eq!(bench.json(&["runs", "list"])["runs"], json!([]));
}
