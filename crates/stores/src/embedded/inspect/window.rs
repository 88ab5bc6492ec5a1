//! A file, seen through one chunk of it.
//!
//! Reads ahead and never keeps more than the chunk. Never fails because a file is shorter than
//! somebody hoped: what is not there is simply not in the answer.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// How much is read at once, and the most that can be asked for at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// What one look costs beyond the bytes that it loads.
const LOOK_COST: u64 = 16;

/// Zeros are compared by the block, which costs next to nothing.
const ZEROS: [u8; 4096] = [0; 4096];

pub(super) struct Window {
    file: File,
    len: u64,
    /// Where in the file the chunk begins.
    start: u64,
    chunk: Vec<u8>,
    work: u64,
}

impl Window {
    pub(super) fn over(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, len, start: 0, chunk: Vec::new(), work: 0 })
    }

    /// How long the file was when it was opened.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// How much was done so far, in bytes read and bytes shown.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// What lies at `at`: as much as is at hand, and at least `want` bytes unless the file ends.
    pub(super) fn bytes(&mut self, at: u64, want: usize) -> io::Result<&[u8]> {
        debug_assert!(want <= CHUNK_BYTES, "a window shows at most one chunk");
        self.work += LOOK_COST;
        let end = self.start + self.chunk.len() as u64;
        let is_at_hand = at >= self.start && at.saturating_add(want as u64) <= end;
        if !is_at_hand {
            self.load(at)?;
        }
        let skip = usize::try_from(at - self.start).expect("invariant: at lies in the chunk");
        Ok(self.chunk.get(skip..).unwrap_or_default())
    }

    /// The first `N` bytes at `at`, or nothing when the file ends before.
    pub(super) fn array<const N: usize>(&mut self, at: u64) -> io::Result<Option<[u8; N]>> {
        Ok(self.bytes(at, N)?.first_chunk().copied())
    }

    /// Shows the bytes from `from` up to `to`, piece by piece; fewer when the file ends before.
    pub(super) fn each(
        &mut self,
        from: u64,
        to: u64,
        mut see: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let bytes = self.bytes(at, 1)?;
            if bytes.is_empty() {
                break;
            }
            let left = usize::try_from(to - at).unwrap_or(usize::MAX);
            let piece = &bytes[..bytes.len().min(left)];
            see(piece);
            let seen = piece.len() as u64;
            self.work += seen;
            at += seen;
        }
        Ok(())
    }

    /// Where the last byte that is not zero ends; `from` when there is none behind it.
    pub(super) fn last_byte_from(&mut self, from: u64) -> io::Result<u64> {
        let (mut at, mut last) = (from, from);
        self.each(from, u64::MAX, |piece| {
            for block in piece.chunks(ZEROS.len()) {
                if block != &ZEROS[..block.len()] {
                    let found = block.iter().rposition(|byte| *byte != 0);
                    last = at + found.map_or(0, |place| place as u64 + 1);
                }
                at += block.len() as u64;
            }
        })?;
        Ok(last)
    }

    fn load(&mut self, at: u64) -> io::Result<()> {
        self.chunk.clear();
        self.start = at;
        self.file.seek(SeekFrom::Start(at))?;
        Read::by_ref(&mut self.file).take(CHUNK_BYTES as u64).read_to_end(&mut self.chunk)?;
        self.work += self.chunk.len() as u64;
        Ok(())
    }
}
