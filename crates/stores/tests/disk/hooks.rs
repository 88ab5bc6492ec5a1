//! The functions of the C library that this test binary replaces.
//!
//! Each finds the disk that its file lies on, asks it, and passes on to the kernel by number. Never
//! calls itself: what the disk does to answer goes straight through. Never allocates before it is
//! known that the file lies on a disk of ours.

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use libc::{iovec, off_t, size_t, ssize_t};

use super::state::{self, Shared, State, Verdict};

thread_local! {
    /// Whether this thread is already inside one of these functions.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `act` as this module's own work: whatever it calls is passed on.
pub(super) fn aside<T>(act: impl FnOnce() -> T) -> T {
    let before = IS_INSIDE.replace(true);
    let answer = act();
    IS_INSIDE.set(before);
    answer
}

fn is_watched() -> bool {
    state::is_anything_registered() && !IS_INSIDE.get()
}

/// The disk an open file lies on. `/proc` knows the name of everything that is open.
fn disk_of_fd(fd: c_int) -> Option<(Arc<Shared>, PathBuf)> {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    write_number(&mut link[14..25], u32::try_from(fd).ok()?);
    let mut name = [0_u8; 4096];
    // SAFETY: both are arrays of ours, the first one ends with a zero, the length is that of the
    // second one.
    let len = unsafe {
        let (link, name) = (link.as_ptr(), name.as_mut_ptr());
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, name, 4096)
    };
    let name = name.get(..usize::try_from(len).ok()?)?;
    let path = Path::new(OsStr::from_bytes(name));
    Some((state::disk_of(path)?, path.to_path_buf()))
}

fn write_number(place: &mut [u8], number: u32) {
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    let mut rest = number;
    for digit in place[..digits].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
}

/// The disk that a name lies on. Only names from the root are known.
fn disk_of_name(name: *const c_char) -> Option<(Arc<Shared>, PathBuf)> {
    // SAFETY: the caller of a C function gives a string that ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some((state::disk_of(path)?, path.to_path_buf()))
}

/// Asks the disk and does what it says, both under its lock: nobody syncs or loses power between.
/// Once the kernel has done it, `after` has the last word; the power may fail before that.
fn through(
    find: impl FnOnce() -> Option<(Arc<Shared>, PathBuf)>,
    ask: impl FnOnce(&mut State, &Path) -> Verdict,
    go: impl FnOnce(Verdict) -> c_long,
    after: impl FnOnce(&mut State, &Path, c_long) -> Verdict,
) -> c_long {
    if !is_watched() {
        return go(Verdict::Pass);
    }
    let Some((disk, path)) = aside(find) else {
        return go(Verdict::Pass);
    };
    // SAFETY: the address belongs to this thread.
    let errno = || unsafe { libc::__errno_location() };
    let (answer, number, is_done) = disk.with(|state| match ask(state, &path) {
        Verdict::Fail(number) => (-1, number, false),
        Verdict::Done => (0, 0, false),
        // What comes after must not change the number that the kernel has left.
        // SAFETY: see above.
        passed @ (Verdict::Pass | Verdict::Short(_)) => (go(passed), unsafe { *errno() }, true),
    });
    let last = match answer {
        0.. if is_done => disk.with(|state| after(state, &path, answer)),
        _ => Verdict::Pass,
    };
    let (answer, number) = match last {
        Verdict::Fail(number) => (-1, number),
        Verdict::Pass | Verdict::Short(_) | Verdict::Done => (answer, number),
    };
    if answer < 0 {
        // SAFETY: see above.
        unsafe { *errno() = number };
    }
    answer
}

/// For operations after which there is nothing left to say.
fn leave(_: &mut State, _: &Path, _: c_long) -> Verdict {
    Verdict::Pass
}

/// Passes a write on, or what the disk makes of it. `go` writes at most so many bytes. Through a
/// file that was opened for it, what is written is synced as well.
fn write_through(
    fd: c_int,
    count: size_t,
    at: Option<off_t>,
    go: impl FnOnce(size_t) -> c_long,
) -> ssize_t {
    let begins = Cell::new(0);
    let ask = |state: &mut State, path: &Path| {
        begins.set(state.place(fd, at));
        state.before_write(fd, path, count, begins.get())
    };
    let answer = through(
        || disk_of_fd(fd),
        ask,
        |verdict| match verdict {
            Verdict::Short(bytes) => go(bytes.min(count)),
            Verdict::Pass | Verdict::Done | Verdict::Fail(_) => go(count),
        },
        |state, path, written| {
            if state::syncs_itself(fd) {
                state.sync_part(fd, path, begins.get(), written.unsigned_abs())
            } else {
                Verdict::Pass
            }
        },
    );
    ssize_t::try_from(answer).unwrap_or(-1)
}

fn sync_through(fd: c_int, number: c_long) -> c_int {
    // SAFETY: a number and nothing else.
    let go = |_| unsafe { libc::syscall(number, fd) };
    narrow(through(|| disk_of_fd(fd), |state, path| state.sync(fd, path), go, leave))
}

/// Asks the disk about an operation on a name, which only ever fails on a disk that is read-only.
fn name_through(name: *const c_char, truncates: bool, go: impl FnOnce() -> c_long) -> c_int {
    let ask = |state: &mut State, path: &Path| state.before_change(path, truncates);
    narrow(through(|| disk_of_name(name), ask, |_| go(), leave))
}

fn open_through(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the arguments are those of the caller, for the same system call.
    let go = || unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name, flags, mode) };
    let changes = libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY | libc::O_RDWR;
    if flags & changes == 0 {
        return narrow(go());
    }
    name_through(name, flags & libc::O_TRUNC != 0, go)
}

fn narrow(answer: c_long) -> c_int {
    c_int::try_from(answer).unwrap_or(-1)
}

/// Writes the C functions down. Each hands its arguments to the system call of the same meaning.
macro_rules! in_place_of {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> $answer $body
    )*};
}

in_place_of! {
    write(fd: c_int, bytes: *const c_void, count: size_t) -> ssize_t {
        // SAFETY: the arguments are those of the caller, and never more bytes than he has.
        write_through(fd, count, None, |count| unsafe {
            libc::syscall(libc::SYS_write, fd, bytes, count)
        })
    }

    pwrite64(fd: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t {
        // SAFETY: as in `write`.
        write_through(fd, count, Some(at), |count| unsafe {
            libc::syscall(libc::SYS_pwrite64, fd, bytes, count, at)
        })
    }

    pwrite(fd: c_int, bytes: *const c_void, count: size_t, at: off_t) -> ssize_t {
        // SAFETY: as in `write`.
        unsafe { pwrite64(fd, bytes, count, at) }
    }

    writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the caller gives so many pieces.
        let all = unsafe { slice::from_raw_parts(pieces, usize::try_from(count).unwrap_or(0)) };
        let bytes = all.iter().map(|piece| piece.iov_len).sum();
        write_through(fd, bytes, None, |allowed| match all.first() {
            // A short write of the first piece is a short write of them all.
            // SAFETY: the first piece has at least so many bytes.
            Some(first) if allowed < bytes => unsafe {
                libc::syscall(libc::SYS_write, fd, first.iov_base, allowed.min(first.iov_len))
            },
            // SAFETY: the arguments are those of the caller.
            Some(_) | None => unsafe { libc::syscall(libc::SYS_writev, fd, pieces, count) },
        })
    }

    fsync(fd: c_int) -> c_int { sync_through(fd, libc::SYS_fsync) }

    fdatasync(fd: c_int) -> c_int { sync_through(fd, libc::SYS_fdatasync) }

    ftruncate64(fd: c_int, len: off_t) -> c_int {
        let ask = |state: &mut State, path: &Path| state.before_truncate(fd, path, len);
        // SAFETY: two numbers and nothing else.
        let go = |_| unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) };
        narrow(through(|| disk_of_fd(fd), ask, go, leave))
    }

    ftruncate(fd: c_int, len: off_t) -> c_int {
        // SAFETY: two numbers and nothing else.
        unsafe { ftruncate64(fd, len) }
    }

    // In C these two take any number of arguments; in registers that is the same as taking three.
    open64(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_through(name, flags, mode)
    }

    open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        open_through(name, flags, mode)
    }

    unlink(name: *const c_char) -> c_int {
        // SAFETY: the argument is that of the caller.
        name_through(name, false, || unsafe {
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, name, 0)
        })
    }

    rename(old: *const c_char, new: *const c_char) -> c_int {
        let here = libc::AT_FDCWD;
        // SAFETY: the arguments are those of the caller.
        name_through(new, false, || unsafe {
            libc::syscall(libc::SYS_renameat2, here, old, here, new, 0)
        })
    }

    mkdir(name: *const c_char, mode: c_uint) -> c_int {
        // SAFETY: the arguments are those of the caller.
        name_through(name, false, || unsafe {
            libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, name, mode)
        })
    }
}
