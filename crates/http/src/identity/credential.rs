//! Finds the one credential of a request.
//!
//! Says where it is and never whether it is good. What comes twice is refused: two parties that
//! read a request differently would otherwise see two callers.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Refused;

/// The credential in one of the headers `names`, of at most `bytes_max` bytes of visible ASCII.
pub(super) fn credential<'h>(
    headers: &'h HeaderMap,
    names: &[HeaderName],
    bytes_max: usize,
) -> Result<&'h [u8], Refused> {
    let lines = |name| headers.get_all(name).iter().map(move |line| (name, line));
    let mut found = names.iter().flat_map(lines);
    let Some((name, line)) = found.next() else {
        return Err(Refused::Missing("no credential was sent"));
    };
    if found.next().is_some() {
        return Err(Refused::Invalid("more than one credential was sent"));
    }
    let text = if name == AUTHORIZATION { bearer(line)? } else { line.as_bytes() };
    if text.is_empty() {
        return Err(Refused::Invalid("the credential is empty"));
    }
    if text.len() > bytes_max {
        return Err(Refused::Invalid("the credential is longer than any that is taken"));
    }
    if !text.iter().all(u8::is_ascii_graphic) {
        return Err(Refused::Invalid("the credential holds a character that none has"));
    }
    Ok(text)
}

/// What follows the scheme `Bearer`.
fn bearer(line: &HeaderValue) -> Result<&[u8], Refused> {
    const SCHEME: &[u8] = b"bearer";
    let bytes = line.as_bytes().trim_ascii();
    let (scheme, rest) = bytes.split_at_checked(SCHEME.len()).unwrap_or((bytes, b""));
    let is_apart = rest.first().is_none_or(|byte| *byte == b' ');
    if scheme.eq_ignore_ascii_case(SCHEME) && is_apart {
        Ok(rest.trim_ascii_start())
    } else {
        Err(Refused::Invalid("the scheme of the credential is not Bearer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

    /// What is found in these headers, or what a caller hears and the log says.
    fn found(lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        match credential(&headers, &[AUTHORIZATION, API_KEY], 20) {
            Ok(text) => String::from_utf8_lossy(text).into_owned(),
            Err(refused) => format!("{}: {}", refused.code_name(), refused.reason()),
        }
    }

    #[test]
    fn where_a_credential_is_found_is_this_table() {
        let twice = "identity_invalid: more than one credential was sent";
        let scheme = "identity_invalid: the scheme of the credential is not Bearer";
        let empty = "identity_invalid: the credential is empty";
        let long = "identity_invalid: the credential is longer than any that is taken";
        let letter = "identity_invalid: the credential holds a character that none has";
        let (right, other) = (("authorization", "Bearer k-1"), ("x-api-key", "k-2"));
        let table: &[(&[(&'static str, &str)], &str)] = &[
            (&[right], "k-1"),
            (&[("authorization", "bEARER   k-1")], "k-1"),
            (&[other], "k-2"),
            (&[("authorization", "Bearer 12345678901234567890")], "12345678901234567890"),
            (&[], "identity_missing: no credential was sent"),
            (&[("cookie", "k-1")], "identity_missing: no credential was sent"),
            (&[right, right], twice),
            (&[right, other], twice),
            (&[other, other], twice),
            (&[("authorization", "Basic azE=")], scheme),
            (&[("authorization", "k-1")], scheme),
            (&[("authorization", "BearerX k-1")], scheme),
            (&[("authorization", "Bearer\tk-1")], scheme),
            (&[("authorization", "")], scheme),
            (&[("authorization", "Bearer")], empty),
            (&[("authorization", "Bearer  ")], empty),
            (&[("x-api-key", "")], empty),
            (&[("authorization", "Bearer 123456789012345678901")], long),
            (&[("authorization", "Bearer k 1")], letter),
            (&[("authorization", "Bearer k,Bearer l")], letter),
            (&[("x-api-key", "clé")], letter),
        ];
        for (lines, expected) in table {
            assert_eq!(found(lines), *expected, "{lines:?}");
        }
    }
}
