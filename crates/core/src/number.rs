//! Decimal numbers of JSON, written so that equal values have equal text.
//!
//! The layout is ECMAScript's (so ordinary numbers look as in RFC 8785), applied to the exact
//! decimal digits. No number ever becomes a binary float, so none is rounded.

use std::borrow::Cow;

use crate::canonical::CanonicalError;

/// Exponents beyond this are refused: nothing real needs them, and sums of them must not overflow.
const EXPONENT_MAX: i64 = 1_000_000_000_000;

/// Whole numbers with more digits are written with an exponent, as ECMAScript does.
const PLAIN_DIGITS_MAX: usize = 21;

/// The canonical text of a number that RFC 8259 allows.
pub(crate) fn canonical_number(text: Cow<'_, str>) -> Result<Cow<'_, str>, CanonicalError> {
    if is_plain(&text) { Ok(text) } else { from_parts(&text).map(Cow::Owned) }
}

/// Whether this is a whole number written as it will be: most are.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_zero = digits == "0" && digits.len() == text.len();
    let begins = digits.bytes().next().is_some_and(|first| (b'1'..=b'9').contains(&first));
    let is_whole = begins && digits.len() <= PLAIN_DIGITS_MAX;
    is_zero || (is_whole && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn from_parts(text: &str) -> Result<String, CanonicalError> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        return Ok("0".to_owned());
    }
    // The value is 0.DIGITS times ten to the `point`.
    let leading_zeros = all.len() - all.trim_start_matches('0').len();
    let point = exponent + signed(whole.len()) - signed(leading_zeros);
    let sign = if negative { "-" } else { "" };
    Ok(format!("{sign}{}", layout(digits, point)))
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).expect("invariant: a number is shorter than its document")
}

fn parse_exponent(text: &str) -> Result<i64, CanonicalError> {
    let exponent = text.parse::<i64>().map_err(|_| CanonicalError::Exponent)?;
    if exponent.unsigned_abs() > EXPONENT_MAX.unsigned_abs() {
        Err(CanonicalError::Exponent)
    } else {
        Ok(exponent)
    }
}

/// Lays out 0.DIGITS × 10^point as ECMAScript's `Number::toString` would.
fn layout(digits: &str, point: i64) -> String {
    let count = signed(digits.len());
    let zeros = |n: i64| "0".repeat(usize::try_from(n).expect("invariant: at most 21 zeros"));
    match point {
        _ if (count..=21).contains(&point) => format!("{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, fraction) =
                digits.split_at(usize::try_from(point).expect("invariant: 1 to 21"));
            format!("{whole}.{fraction}")
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{:+}", point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(text: &str) -> String {
        canonical_number(text.into()).unwrap().into_owned()
    }

    #[test]
    fn equal_decimal_values_have_one_text() {
        for same in ["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000", "100E-2", "0.001e+3"] {
            assert_eq!(canon(same), "1", "{same}");
        }
        for zero in ["0", "-0", "0.0", "0e5", "-0.00e-7"] {
            assert_eq!(canon(zero), "0", "{zero}");
        }
    }

    #[test]
    fn what_is_taken_as_it_is_would_come_out_the_same() {
        let longest = "9".repeat(PLAIN_DIGITS_MAX);
        for plain in ["0", "7", "-7", "120", "-9007199254740993", longest.as_str()] {
            assert!(is_plain(plain), "{plain}");
            assert_eq!(from_parts(plain).unwrap(), plain);
        }
        for other in ["-0", "1.0", "1e0", "0.5", "9999999999999999999999"] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn different_values_stay_different_past_2_to_the_53() {
        assert_eq!(canon("9007199254740992"), "9007199254740992");
        assert_eq!(canon("9007199254740993"), "9007199254740993");
        assert_ne!(canon("0.1"), canon("0.1000000000000000055511151231257827"));
        assert_ne!(canon("1e400"), canon("1e401"));
    }

    #[test]
    fn the_layout_is_that_of_rfc_8785() {
        let table = [
            ("333333333.33333329", "333333333.33333329"),
            ("1E30", "1e+30"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("0.000000000000000000000000001", "1e-27"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("123456789012345678901", "123456789012345678901"),
            ("1234567890123456789012", "1.234567890123456789012e+21"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("-1.5e-7", "-1.5e-7"),
            ("120", "120"),
            ("12.34e1", "123.4"),
        ];
        for (text, expected) in table {
            assert_eq!(canon(text), expected, "{text}");
        }
    }

    #[test]
    fn an_exponent_beyond_use_is_refused_and_one_within_is_exact() {
        let least = "0.01e-9223372036854775808";
        for far in ["1e1000000000001", "1e-1000000000001", "1e99999999999999999999", least] {
            assert_eq!(canonical_number(far.into()), Err(CanonicalError::Exponent), "{far}");
        }
        assert_eq!(canon("1e1000000000000"), "1e+1000000000000");
        assert_eq!(canon("0.01e-1000000000000"), "1e-1000000000002");
    }
}
