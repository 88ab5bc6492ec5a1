//! Processes that tests start, stop and end: each is this very test binary, playing another part.
//!
//! A test binary that is asked for a part runs one of its tests, which finds out here which part
//! that is; without being asked the test is over at once. Only processes that were started here are
//! ever signalled, each by its own handle, and none outlives its handle.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, setrlimit, waitpid,
};

/// The test of every such binary that plays the part it is asked for.
pub(crate) const STAGE: &str = "a_process_that_is_asked_to_plays_its_part";
const PART: &str = "ONETAKE_TEST_PART";
/// Said once the part begins, so that what the test harness prints before it can be told apart.
const BEGIN: &str = "the part begins";
/// A part that takes longer hangs, and ends itself, so that whoever waits for it goes on.
const PART_MAX: Duration = Duration::from_secs(120);

/// The part that this process was asked to play, if any.
pub(crate) fn asked() -> Option<String> {
    let part = std::env::var(PART).ok()?;
    // A process that is ended on purpose need not leave an image of itself.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).unwrap();
    let (hold, over) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _hold = hold;
        let _ = over.recv_timeout(PART_MAX);
        std::process::abort();
    });
    say(BEGIN);
    Some(part)
}

/// Says a line to whoever started this process.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.write_all(b"\n").unwrap();
    out.flush().unwrap();
}

/// A process that plays a part. Ended when this is dropped.
pub(crate) struct Part {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    ear: Option<ChildStdin>,
}

impl Part {
    /// Starts a process that plays `part`, with these variables in its environment.
    pub(crate) fn start(part: &str, variables: &[(&str, &OsStr)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", STAGE, "--nocapture", "--quiet", "--test-threads=1"])
            .env(PART, part)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ear = child.stdin.take();
        let mut part = Self { child, said, ear };
        while part.hear().expect("the part begins") != BEGIN {}
        part
    }

    /// The next line that it says; `None` once it has ended.
    pub(crate) fn hear(&mut self) -> Option<String> {
        self.said.next().map(Result::unwrap)
    }

    /// Tells it a line. One that has ended does not hear it.
    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(ear) = &mut self.ear {
            drop(ear.write_all(format!("{line}\n").as_bytes()));
        }
    }

    /// Tells it that nothing more will be told.
    pub(crate) fn hang_up(&mut self) {
        self.ear = None;
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it without warning, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Stops it where it is, until it is told to go on.
    pub(crate) fn freeze(&self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::STOP).unwrap();
        waitpid(Some(id), WaitOptions::UNTRACED).unwrap();
    }

    pub(crate) fn thaw(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    /// Waits until it has ended; gives how, and what it still said.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        self.ear = None;
        let rest = self.said.by_ref().map_while(Result::ok).collect();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended already, which is as well.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
