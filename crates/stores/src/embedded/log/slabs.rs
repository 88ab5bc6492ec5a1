//! Memory for frames: a few large pieces that are used again.
//!
//! What a frame holds is in memory until it is in the tables, and then all of it goes at once. An
//! allocator would give so much back to the system, only to ask for it again half a second later,
//! and the system would fill it with zeros each time. There are as many pieces as the frames need
//! that are in memory at a time, and never more than a few files of the log would fill: of those
//! that somebody holds for longer, such as whoever copies the store, it lets go.
//!
//! Every frame begins at a multiple of [`ALIGN`], as writes need that go straight to the disk.

use std::collections::VecDeque;

use bytes::BytesMut;

use super::frame::ALIGN;

/// The bytes of a piece; a larger frame has one of its own, which is not kept.
const SLAB_BYTES: usize = 1 << 20;

/// Pieces of memory, each for several frames.
#[derive(Debug)]
pub(super) struct Slabs {
    /// What is left of the one that is in use.
    current: BytesMut,
    /// The ends of those that were filled, the oldest first.
    filled: VecDeque<BytesMut>,
    /// The most of those.
    filled_max: usize,
}

impl Slabs {
    /// For a log whose files have so many bytes. One is written while one is taken over, and one
    /// may be between them.
    pub(super) fn new(log_bytes: usize) -> Self {
        let filled_max = (3 * log_bytes).div_ceil(SLAB_BYTES);
        Self { current: BytesMut::new(), filled: VecDeque::new(), filled_max }
    }

    /// Room for a frame of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> BytesMut {
        let bytes = bytes.next_multiple_of(ALIGN);
        if bytes > SLAB_BYTES {
            return room(bytes);
        }
        if self.current.capacity() < bytes {
            let next = self.next();
            let filled = std::mem::replace(&mut self.current, next);
            if filled.capacity() > 0 {
                self.filled.push_back(filled);
            }
        }
        let rest = self.current.split_off(bytes);
        std::mem::replace(&mut self.current, rest)
    }

    /// The oldest one that no frame uses any more, or a new one.
    fn next(&mut self) -> BytesMut {
        while let Some(mut oldest) = self.filled.pop_front() {
            if oldest.try_reclaim(SLAB_BYTES + ALIGN) {
                return aligned(oldest);
            }
            if self.filled.len() < self.filled_max {
                self.filled.push_front(oldest);
                break;
            }
            // Whoever holds a part of it frees it.
        }
        room(SLAB_BYTES)
    }
}

/// Room for so many bytes that begins at a multiple of [`ALIGN`].
pub(super) fn room(bytes: usize) -> BytesMut {
    aligned(BytesMut::with_capacity(bytes + ALIGN))
}

/// What is left of empty room from the first multiple of [`ALIGN`] on.
fn aligned(mut room: BytesMut) -> BytesMut {
    room.split_off(room.as_ptr().align_offset(ALIGN))
}

/// Whether these bytes begin at a multiple of [`ALIGN`], and are so many.
pub(super) fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(ALIGN) && bytes.len().is_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_used_again_once_all_its_frames_are_gone() {
        let mut slabs = Slabs::new(8 * SLAB_BYTES);
        let mut frame = |byte: u8| {
            let mut room = slabs.take(SLAB_BYTES / 4 - 1);
            assert!(room.is_empty() && room.capacity() == SLAB_BYTES / 4);
            room.resize(SLAB_BYTES / 4, byte);
            assert!(is_aligned(&room), "it can be written straight to the disk");
            room.freeze()
        };
        let first: Vec<_> = (0..4).map(&mut frame).collect();
        let second: Vec<_> = (4..8).map(&mut frame).collect();
        let at = first[0].as_ptr();
        drop(first);
        let third: Vec<_> = (8..12).map(&mut frame).collect();
        assert_eq!(third[0].as_ptr(), at, "the memory of the first four");
        let fourth = frame(12);
        assert_ne!(fourth.as_ptr(), second[0].as_ptr(), "which is in use");
        for (byte, frame) in (4_u8..).zip(second.iter().chain(&third).chain([&fourth])) {
            assert!(frame.iter().all(|it| *it == byte), "nobody wrote over frame {byte}");
        }
        let mut large = slabs.take(SLAB_BYTES + 1);
        large.resize(SLAB_BYTES + ALIGN, 0);
        assert!(is_aligned(&large), "a large one has its own");
    }

    #[test]
    fn one_that_is_held_for_long_is_let_go() {
        let mut slabs = Slabs::new(SLAB_BYTES);
        let mut frame = |byte: u8| {
            let mut room = slabs.take(SLAB_BYTES - 1);
            room.resize(SLAB_BYTES - 1, byte);
            (room.freeze(), slabs.filled.len())
        };
        let (held, _) = frame(1);
        let most = (0..100).map(|_| frame(2).1).max();
        assert!(most <= Some(4), "{most:?}");
        assert!(held.iter().all(|byte| *byte == 1));
        // And all of what there is then is used again.
        let (first, second) = (frame(3).0.as_ptr(), frame(4).0.as_ptr());
        let again: Vec<_> = (0..4).map(|_| frame(5).0.as_ptr()).collect();
        assert!(again.contains(&first) && again.contains(&second), "{again:?}");
    }
}
