//! Single fields, read one after the other from bytes that may be anything.
//!
//! No length is believed before that many bytes are there, so what is allocated is bounded by what
//! was given. A reader never goes back and never skips a byte unasked.

use super::CodecError;

/// The bit of a field's tag that forbids a reader to pass over it.
const CRITICAL: u8 = 0x80;

/// What is still to be read.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Cut)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CodecError::Cut)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, CodecError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, CodecError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, CodecError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, CodecError> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, CodecError> {
        self.array().map(u128::from_be_bytes)
    }

    /// A count in seven bits a byte, the lowest first. A count that could be written shorter is
    /// refused, so that there is one way to write each.
    pub(crate) fn count(&mut self) -> Result<usize, CodecError> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(CodecError::Malformed("a length is not written as lengths are"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).map_err(|_| CodecError::Cut);
            }
        }
        Err(CodecError::Malformed("a length is not written as lengths are"))
    }

    /// Bytes preceded by their count.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], CodecError> {
        let count = self.count()?;
        self.take(count)
    }

    /// Text preceded by the count of its bytes.
    pub(crate) fn text(&mut self) -> Result<&'a str, CodecError> {
        self.bytes().and_then(as_text)
    }

    /// A name: text preceded by its length in one byte.
    pub(crate) fn name(&mut self) -> Result<&'a str, CodecError> {
        let length = self.u8()?;
        self.take(usize::from(length)).and_then(as_text)
    }

    /// What has not been read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads to the end what later formats may have added, and passes over what is optional.
    pub(crate) fn extensions(mut self) -> Result<(), CodecError> {
        let mut last = None;
        while !self.rest.is_empty() {
            let tag = self.u8()?;
            let field = tag & !CRITICAL;
            if last.is_some_and(|last| field <= last) {
                return Err(CodecError::Malformed("its added fields are out of order"));
            }
            last = Some(field);
            self.bytes()?;
            if tag & CRITICAL != 0 {
                return Err(CodecError::Critical { tag });
            }
        }
        Ok(())
    }
}

fn as_text(bytes: &[u8]) -> Result<&str, CodecError> {
    std::str::from_utf8(bytes).map_err(|_| CodecError::Malformed("a text is not UTF-8"))
}

/// A count as [`Reader::count`] reads it.
pub(crate) fn put_count(out: &mut Vec<u8>, count: usize) {
    let mut rest = count;
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(count: usize) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(&mut out, count);
        out
    }

    #[test]
    fn a_count_takes_seven_bits_a_byte_and_comes_back() {
        assert_eq!(written(0), [0]);
        assert_eq!(written(127), [127]);
        assert_eq!(written(128), [0x80, 1]);
        assert_eq!(written(300), [0xac, 2]);
        for count in [0, 1, 127, 128, 16_383, 16_384, 1 << 20, 1 << 40, usize::MAX] {
            let bytes = written(count);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.count(), Ok(count));
            assert!(reader.rest().is_empty());
        }
    }

    #[test]
    fn a_count_is_written_in_one_way_only() {
        let refused = |bytes: &[u8]| Reader::new(bytes).count().unwrap_err();
        let odd = CodecError::Malformed("a length is not written as lengths are");
        assert_eq!(refused(&[0x80, 0]), odd, "zero in two bytes");
        assert_eq!(refused(&[0xff; 11]), odd, "more than 64 bits");
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(refused(&beyond), odd, "the 65th bit");
        assert_eq!(refused(&[0x80]), CodecError::Cut);
    }

    #[test]
    fn no_length_is_believed_before_the_bytes_are_there() {
        let mut bytes = written(usize::MAX);
        bytes.extend_from_slice(b"short");
        assert_eq!(Reader::new(&bytes).bytes(), Err(CodecError::Cut));
        assert_eq!(Reader::new(&[9, b'a']).name(), Err(CodecError::Cut));
        assert_eq!(Reader::new(&[0; 3]).u32(), Err(CodecError::Cut));
    }

    #[test]
    fn what_is_not_utf_8_is_no_text() {
        assert_eq!(Reader::new(b"\x02ok").text(), Ok("ok"));
        let odd = CodecError::Malformed("a text is not UTF-8");
        assert_eq!(Reader::new(b"\x02\xff\xfe").text(), Err(odd.clone()));
        assert_eq!(Reader::new(b"\x01\x80").name(), Err(odd));
    }

    #[test]
    fn an_optional_field_is_passed_over_and_a_critical_one_refused() {
        let read = |bytes: &[u8]| Reader::new(bytes).extensions();
        assert_eq!(read(b""), Ok(()));
        assert_eq!(read(b"\x01\x02ab\x07\x00"), Ok(()));
        assert_eq!(read(b"\x01\x02ab\x87\x00"), Err(CodecError::Critical { tag: 0x87 }));
        assert_eq!(read(b"\x01\x02a"), Err(CodecError::Cut));
        assert_eq!(read(b"\x01"), Err(CodecError::Cut));
        let twice = CodecError::Malformed("its added fields are out of order");
        assert_eq!(read(b"\x01\x00\x01\x00"), Err(twice.clone()));
        assert_eq!(read(b"\x02\x00\x81\x00"), Err(twice));
    }
}
