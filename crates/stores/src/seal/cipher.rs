//! The three things asked of cryptography: seal, open, and a keyed hash.
//!
//! The only file that calls a cipher. It never stores a key and never says why something did not
//! open: whoever could tell would have the key.

use chacha20poly1305::aead::rand_core::RngCore;
use chacha20poly1305::aead::{AeadInPlace, KeyInit, OsRng};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::codec::{CodecError, Reader};

pub(super) const NONCE_BYTES: usize = 24;
pub(super) const TAG_BYTES: usize = 16;

/// 32 secret bytes, overwritten when they are dropped.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// A new key, which nobody can guess. It is made where it stays, so that no copy is left behind.
pub(super) fn secret() -> Secret {
    let mut key = Zeroizing::new([0; 32]);
    OsRng.fill_bytes(key.as_mut_slice());
    key
}

/// A number used once: 192 random bits do not repeat within the life of a key.
pub(super) fn nonce() -> [u8; NONCE_BYTES] {
    random()
}

/// Bytes that nobody can guess.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsRng.fill_bytes(&mut bytes);
    bytes
}

/// Seals `out[start..]` in place and appends the tag. The nonce stands right before `start`; what
/// is before the nonce is bound to the seal together with `place`.
pub(super) fn seal(key: &Secret, out: &mut Vec<u8>, start: usize, place: &[u8]) {
    let (head, body) = out.split_at_mut(start);
    let (clear, nonce) = head.split_at(start - NONCE_BYTES);
    let bound = [clear, place].concat();
    let tag = XChaCha20Poly1305::new(key.as_slice().into())
        .encrypt_in_place_detached(XNonce::from_slice(nonce), &bound, body)
        .expect("invariant: no value has the 256 GiB that are too many");
    out.extend_from_slice(&tag);
}

/// Opens nonce, body and tag, which are all that is left in `sealed`.
pub(super) fn open(
    key: &Secret,
    clear: &[&[u8]],
    mut sealed: Reader<'_>,
) -> Result<Vec<u8>, CodecError> {
    let nonce = sealed.take(NONCE_BYTES)?;
    let (body, tag) = sealed.rest().split_last_chunk::<TAG_BYTES>().ok_or(CodecError::Cut)?;
    let mut body = body.to_vec();
    XChaCha20Poly1305::new(key.as_slice().into())
        .decrypt_in_place_detached(
            XNonce::from_slice(nonce),
            &clear.concat(),
            &mut body,
            tag.into(),
        )
        .map_err(|_| CodecError::Forged)?;
    Ok(body)
}

/// HMAC with SHA-256 (RFC 2104), for keys of at most one block.
pub(super) fn keyed_hash(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK_BYTES: usize = 64;
    let mut padded = Zeroizing::new([0; BLOCK_BYTES]);
    padded[..key.len()].copy_from_slice(key);
    let hash = |pad: u8, message: &[u8]| -> [u8; 32] {
        let block = Zeroizing::new(padded.map(|byte| byte ^ pad));
        let mut hash = Sha256::new();
        hash.update(block.as_slice());
        hash.update(message);
        hash.finalize().into()
    };
    hash(0x5c, &hash(0x36, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// The first two test cases of RFC 4231.
    #[test]
    fn the_keyed_hash_is_hmac_sha_256() {
        assert_eq!(
            hex(&keyed_hash(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(&keyed_hash(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_seal_binds_what_stands_before_it_and_the_place() {
        let key = secret();
        let mut out = [b"head".as_slice(), &nonce(), b"body"].concat();
        seal(&key, &mut out, 4 + NONCE_BYTES, b"place");
        assert_eq!(out.len(), 4 + NONCE_BYTES + 4 + TAG_BYTES);
        assert!(!out.windows(4).any(|window| window == b"body"));
        let open = |clear: &[&[u8]]| open(&key, clear, Reader::new(&out[4..]));
        assert_eq!(open(&[b"head", b"place"]), Ok(b"body".to_vec()));
        assert_eq!(open(&[b"haed", b"place"]), Err(CodecError::Forged));
        assert_eq!(open(&[b"head", b"plaice"]), Err(CodecError::Forged));
        let other = super::open(&secret(), &[b"head", b"place"], Reader::new(&out[4..]));
        assert_eq!(other, Err(CodecError::Forged));
        let short = super::open(&key, &[], Reader::new(&[0; NONCE_BYTES + TAG_BYTES - 1]));
        assert_eq!(short, Err(CodecError::Cut));
    }

    #[test]
    fn no_nonce_and_no_key_comes_twice() {
        assert_ne!(nonce(), nonce());
        assert_ne!(*secret(), *secret());
    }
}
