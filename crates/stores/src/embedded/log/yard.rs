//! Where files of the log wait: the next one to write, and those whose frames are to be taken over
//! into the tables before they are used again.
//!
//! The writer stops only when it has filled a file and the one before that is still being taken
//! over. So the log has three files at the most, but for frames that are larger than a file.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};

use super::mark::From;
use super::segment::Blank;

/// A file that was filled.
#[derive(Debug)]
pub(in crate::embedded) struct Filled {
    pub(in crate::embedded) blank: Blank,
    /// What is behind it.
    pub(in crate::embedded) next: From,
}

/// What there is to do beside writing.
#[derive(Debug)]
pub(in crate::embedded) enum Work {
    /// Make a file of so many bytes.
    Make(usize),
    /// Take over what was written, so that these files can be used again. There may be none: then
    /// somebody asked, and hears by this number that it was done.
    TakeOver(Vec<Filled>, u64),
    /// There will be no more.
    Stop,
}

#[derive(Debug, Default)]
struct State {
    spare: Option<Blank>,
    /// How large the next one must be, if one is wanted.
    wanted: Option<usize>,
    filled: Vec<Filled>,
    /// How often somebody asked that all be taken over, and how many of those were heard.
    asked: u64,
    heard: u64,
    /// Whether filled files are being taken over.
    busy: bool,
    /// Why there will be no more files, if there will not.
    broken: Option<String>,
    stopped: bool,
}

/// The files of a log that nobody writes at the moment.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Yard {
    state: Mutex<State>,
    /// For the writer and whoever asked.
    ready: Condvar,
    /// For whoever does the work.
    work: Condvar,
}

impl Yard {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("invariant: no panic under the lock")
    }

    /// Says that a file of so many bytes will be needed soon.
    pub(super) fn want(&self, bytes: usize) {
        let mut state = self.state();
        if state.spare.is_none() && state.wanted.is_none() {
            state.wanted = Some(bytes);
            self.work.notify_one();
        }
    }

    /// The next file to write, once there is one.
    pub(super) fn take(&self, bytes: usize) -> io::Result<Blank> {
        self.want(bytes);
        let mut state = self.state();
        loop {
            if let Some(why) = &state.broken {
                return Err(io::Error::other(why.clone()));
            }
            if let Some(spare) = state.spare.take() {
                return Ok(spare);
            }
            state = self.ready.wait(state).expect("invariant: no panic under the lock");
        }
    }

    /// Waits until no filled file is left to be taken over.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        let mut state = self.state();
        while !state.filled.is_empty() || state.busy {
            if let Some(why) = &state.broken {
                return Err(io::Error::other(why.clone()));
            }
            state = self.ready.wait(state).expect("invariant: no panic under the lock");
        }
        Ok(())
    }

    /// Puts a file here that may be written anew; gives it back when there is one already.
    pub(in crate::embedded) fn put(&self, blank: Blank) -> Option<Blank> {
        let mut state = self.state();
        if state.spare.is_some() {
            return Some(blank);
        }
        state.spare = Some(blank);
        state.wanted = None;
        self.ready.notify_all();
        None
    }

    /// Says that a file is filled and everything in it can be seen in memory.
    pub(super) fn fill(&self, filled: Filled) {
        self.state().filled.push(filled);
        self.work.notify_one();
    }

    /// Waits for something to do.
    pub(in crate::embedded) fn work(&self) -> Work {
        let mut state = self.state();
        loop {
            let is_wanted = state.spare.is_none() && !state.stopped;
            if let Some(bytes) = state.wanted.filter(|_| is_wanted) {
                return Work::Make(bytes);
            }
            if !state.filled.is_empty() || state.asked > state.heard {
                state.busy = true;
                return Work::TakeOver(std::mem::take(&mut state.filled), state.asked);
            }
            if state.stopped {
                return Work::Stop;
            }
            state = self.work.wait(state).expect("invariant: no panic under the lock");
        }
    }

    /// Says that everything was taken over that was there when `asked` was read.
    pub(in crate::embedded) fn done(&self, asked: u64) {
        let mut state = self.state();
        (state.heard, state.busy) = (asked, false);
        self.ready.notify_all();
    }

    /// Says that there will be no more files.
    pub(in crate::embedded) fn give_up(&self, why: &str) {
        let mut state = self.state();
        state.broken = Some(why.to_owned());
        state.heard = u64::MAX;
        self.ready.notify_all();
    }

    /// Waits until everything that was written before is in the tables; `false`: it will not be.
    pub(in crate::embedded) fn take_over_now(&self) -> bool {
        let mut state = self.state();
        state.asked += 1;
        let asked = state.asked;
        self.work.notify_one();
        while state.heard < asked && !state.stopped {
            state = self.ready.wait(state).expect("invariant: no panic under the lock");
        }
        state.broken.is_none() && state.heard >= asked
    }

    /// Ends the work once all that is wanted is done.
    pub(in crate::embedded) fn stop(&self) {
        self.state().stopped = true;
        self.work.notify_all();
        self.ready.notify_all();
    }
}
