//! What the values of options look like: durations, sizes, choices, statuses.
//!
//! Each reads one text and says what is allowed instead. Bounds that belong to one option are
//! checked where that option is. Nothing here opens a file or asks a clock.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime};

use hyper::header::{HeaderName, HeaderValue};
use onetake::core::{NAME_BYTES_MAX, Pointer};
use onetake::{OnInFlight, Operation, Tenant};
use onetake_http::gateway::probe::ProbeUrl;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::problem::{Problems, nearest, quoted};
use super::read::{FromText, Read, other_kind};
use super::tree::{Node, Value};

/// The longest URL, pattern or path, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 2_048;

/// A span of time: a number and a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl FromText for Span {
    const EXPECTED: &'static str = "a duration such as \"10ms\", \"30s\" or \"24h\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let read = humantime::parse_duration(text).ok();
        // The library takes a month as well, but nobody agrees on how long that is.
        let read =
            read.filter(|_| text.len() <= 64 && !text.contains("month") && !text.contains('M'));
        read.map(Self).ok_or_else(|| format!("{} is not {}", quoted(text), Self::EXPECTED))
    }

    fn refine(schema: &mut Json) {
        schema["examples"] = json!(["10ms", "30s", "24h", "1h 30m"]);
    }
}

/// A number of bytes as configurations say it.
pub(crate) fn size_text(bytes: usize) -> String {
    Size::text(bytes as u64)
}

/// A span for people, exact: whole days as days, because months have no length.
pub(crate) fn span_text(span: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let (days, is_whole) = (span.as_secs() / DAY, span.as_secs().is_multiple_of(DAY));
    match days {
        1 if is_whole && span.subsec_nanos() == 0 => "24h".to_owned(),
        2.. if is_whole && span.subsec_nanos() == 0 => format!("{days}days"),
        _ => humantime::format_duration(span).to_string(),
    }
}

/// A number of bytes: plain, or with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

/// The units of sizes, the longer names first.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Size {
    const EXPECTED: &'static str = "a size such as \"10MiB\", \"64kB\" or a number of bytes";

    fn from_text(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find(|(name, _)| text.ends_with(name));
        let (number, factor) = match unit {
            Some((name, factor)) => (text[..text.len() - name.len()].trim_end(), *factor),
            None => (text, 1),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse::<u64>().ok().filter(|_| is_number);
        let bytes = number.and_then(|number| number.checked_mul(factor));
        bytes.map(Self).ok_or_else(|| format!("{} is not {}", quoted(text), Self::EXPECTED))
    }

    /// The size for people, exact.
    pub(super) fn text(bytes: u64) -> String {
        let fits = |&&(_, factor): &&(&str, u64)| bytes > 0 && bytes.is_multiple_of(factor);
        let unit = UNITS[..4].iter().rev().find(fits);
        unit.map_or_else(|| bytes.to_string(), |(name, factor)| format!("{}{name}", bytes / factor))
    }
}

impl Read for Size {
    fn expected() -> String {
        Self::EXPECTED.to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let read = match &node.value {
            Value::Text(text) | Value::Word(text) => Self::from_text(text),
            Value::Integer(number) => number
                .and_then(|number| u64::try_from(number).ok())
                .map(Self)
                .ok_or_else(|| format!("expected {}", Self::EXPECTED)),
            Value::Float | Value::Bool(_) | Value::Date(_) | Value::List(_) | Value::Table(_) => {
                return other_kind(node, option, problems);
            }
        };
        read.map_err(|what| problems.value(&node.spot, option, what)).ok()
    }

    fn schema() -> Json {
        json!({
            "type": ["string", "integer"],
            "minimum": 0,
            "pattern": "^[0-9]+ *([kMGT]B|[KMGT]iB|B)?$",
        })
    }
}

/// Text that is not empty and holds no control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Plain(pub(super) String);

/// Shows only its length: the URL of a store may hold a password.
impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain({} bytes)", self.0.len())
    }
}

impl FromText for Plain {
    const EXPECTED: &'static str = "text";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
            let max = TEXT_BYTES_MAX;
            return Err(format!("expected 1 to {max} bytes of text without control characters"));
        }
        Ok(Self(text.to_owned()))
    }

    fn refine(schema: &mut Json) {
        (schema["minLength"], schema["maxLength"]) = (json!(1), json!(TEXT_BYTES_MAX));
    }
}

/// One word of visible ASCII, such as the name of a scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct Word(pub(crate) String);

impl FromText for Word {
    const EXPECTED: &'static str = "a word of visible ASCII";

    fn from_text(text: &str) -> Result<Self, String> {
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("expected 1 to {NAME_BYTES_MAX} visible ASCII characters"));
        }
        Ok(Self(text.to_owned()))
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = "^[!-~]{1,255}$".into();
    }
}

impl FromText for Tenant {
    const EXPECTED: &'static str = "the name of a tenant";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| error.to_string())
    }
}

impl FromText for Operation {
    const EXPECTED: &'static str = "the name of an operation, such as \"orders.create\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::new(text).map_err(|error| error.to_string())
    }
}

impl FromText for Pointer {
    const EXPECTED: &'static str = "a JSON pointer such as \"/client_time\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|error| format!("{}: {error}", quoted(text)))
    }

    fn refine(schema: &mut Json) {
        schema["format"] = "json-pointer".into();
    }
}

impl FromText for HeaderName {
    const EXPECTED: &'static str = "the name of a header";

    fn from_text(text: &str) -> Result<Self, String> {
        let read = Self::from_bytes(text.as_bytes());
        read.map_err(|_| format!("{} cannot be the name of a header", quoted(text)))
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$".into();
    }
}

impl FromText for HeaderValue {
    const EXPECTED: &'static str = "the value of a header";

    fn from_text(text: &str) -> Result<Self, String> {
        let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        let read = Self::from_str(text).ok().filter(|_| is_visible && !text.trim().is_empty());
        read.ok_or_else(|| format!("{} cannot be the value of a header", quoted(text)))
    }
}

/// What a duplicate gets while the first is still executing.
impl FromText for OnInFlight {
    const EXPECTED: &'static str = "\"refuse\", or \"wait\" with a duration, such as \"wait 10s\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wait = |rest: &str| Span::from_text(rest.trim()).map(|Span(span)| Self::Wait(span));
        match text.split_once(' ') {
            Some(("wait", rest)) => wait(rest),
            _ if text == "refuse" => Ok(Self::Refuse),
            _ => Err(format!("{} is not {}", quoted(text), <Self as FromText>::EXPECTED)),
        }
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = "^(refuse|wait .+)$".into();
    }
}

/// What to do when nobody can say whether the effect happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Hold the key until it is settled.
    Hold,
    /// Let a further attempt execute, told that it is a recovery.
    Retry,
    /// Ask this URL what happened.
    Probe(ProbeUrl),
}

impl FromText for Unknown {
    const EXPECTED: &'static str = "\"hold\", \"retry\", or \"probe GET URL\" with {key} somewhere \
         in the URL, which may be a path of the upstream";

    fn from_text(text: &str) -> Result<Self, String> {
        let probe = match text {
            "hold" => return Ok(Self::Hold),
            "retry" => return Ok(Self::Retry),
            _ => text.strip_prefix("probe ").map(str::trim_start),
        };
        let words = probe.and_then(|probe| probe.split_once(' '));
        match words {
            Some(("GET", url)) => {
                ProbeUrl::parse(url.trim()).map(Self::Probe).map_err(|error| error.to_string())
            }
            // A method that could change something must not be used to look.
            Some((method, _)) if method.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                Err(format!("a probe only looks, so it is a GET and never {}", quoted(method)))
            }
            Some(_) | None => Err(format!("expected {}", Self::EXPECTED)),
        }
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = r"^(hold|retry|probe GET (https?:/)?/.*\{key\}.*)$".into();
    }
}

/// Statuses: one such as `409`, a class such as `"5xx"`, or a span such as `"500-504"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Statuses(pub(super) RangeInclusive<u16>);

impl Statuses {
    const EXPECTED: &'static str = "a status such as 409, \"5xx\" or \"500-504\"";

    fn parse(text: &str) -> Option<Self> {
        let code = |text: &str| {
            let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|code| is_code && (100..=599).contains(code))
        };
        let span = if let Some(class) = text.strip_suffix("xx") {
            let first = code(&format!("{class}00"))?;
            first..=first + 99
        } else if let Some((first, last)) = text.split_once('-') {
            code(first.trim())?..=code(last.trim())?
        } else {
            code(text)?..=code(text)?
        };
        (span.start() <= span.end()).then_some(Self(span))
    }
}

impl Read for Statuses {
    fn expected() -> String {
        Self::EXPECTED.to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let text = match &node.value {
            Value::Text(text) | Value::Word(text) => text.clone(),
            Value::Integer(Some(number)) => number.to_string(),
            Value::Integer(None)
            | Value::Float
            | Value::Bool(_)
            | Value::Date(_)
            | Value::List(_)
            | Value::Table(_) => return other_kind(node, option, problems),
        };
        let read = Self::parse(&text);
        if read.is_none() {
            let what = format!("{} is not {}", quoted(&text), Self::EXPECTED);
            problems.value(&node.spot, option, what);
        }
        read
    }

    fn schema() -> Json {
        json!({
            "type": ["string", "integer"],
            "minimum": 100,
            "maximum": 599,
            "pattern": "^[1-5]([0-9]{2}(-[1-5][0-9]{2})?|xx)$",
        })
    }
}

/// The moment that a person typed: a span from `now` on, a date, or a date with its time in UTC.
pub(crate) fn moment(text: &str, now: SystemTime) -> Option<SystemTime> {
    if let Ok(Span(span)) = Span::from_text(text) {
        return now.checked_add(span);
    }
    let whole = || humantime::parse_rfc3339(&format!("{text}T00:00:00Z"));
    humantime::parse_rfc3339(text).or_else(|_| whole()).ok()
}

/// A moment, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(pub(super) SystemTime);

impl Read for Moment {
    fn expected() -> String {
        "a moment in UTC, such as 2030-01-31T00:00:00Z".to_owned()
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        let (Value::Text(text) | Value::Date(text) | Value::Word(text)) = &node.value else {
            return other_kind(node, option, problems);
        };
        let read = humantime::parse_rfc3339(text).ok().map(Self);
        if read.is_none() {
            let what = format!("{} is not {}", quoted(text), Self::expected());
            problems.value(&node.spot, option, what);
        }
        read
    }

    fn schema() -> Json {
        json!({ "type": "string", "format": "date-time" })
    }
}

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OneOrMore<T>(pub(super) Vec<T>);

impl<T: Read> Read for OneOrMore<T> {
    fn expected() -> String {
        format!("{}, or a list", T::expected())
    }

    fn read(node: &Node, option: &str, problems: &mut Problems) -> Option<Self> {
        match &node.value {
            Value::List(_) | Value::Word(_) => Vec::read(node, option, problems).map(Self),
            Value::Text(_)
            | Value::Integer(_)
            | Value::Float
            | Value::Bool(_)
            | Value::Date(_)
            | Value::Table(_) => T::read(node, option, problems).map(|value| Self(vec![value])),
        }
    }

    fn schema() -> Json {
        json!({ "anyOf": [T::schema(), Vec::<T>::schema()] })
    }
}

/// The choice that `text` names, by its word in the configuration.
pub(super) fn choose<T: Copy>(text: &str, choices: &[(&'static str, T)]) -> Result<T, String> {
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*choice);
    }
    let words = choices.iter().map(|(word, _)| *word);
    let all: Vec<_> = words.clone().map(|word| format!("\"{word}\"")).collect();
    let meant = nearest(text, words).map(|word| format!("; did you mean `{word}`?"));
    let meant = meant.unwrap_or_default();
    Err(format!("{} is none of {}{meant}", quoted(text), all.join(", ")))
}

/// Declares a choice: an enum with one word for each variant.
macro_rules! choice {
    ($(#[doc = $about:literal])+ $choice:ident {
        $($(#[doc = $doc:literal])+ $word:literal => $variant:ident,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
        pub(crate) enum $choice {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+
        }

        impl $choice {
            /// Its word.
            #[allow(dead_code, reason = "not every choice is shown to people")]
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::config::read::FromText for $choice {
            const EXPECTED: &'static str = choice!(@listed $($word)+);

            fn from_text(text: &str) -> Result<Self, String> {
                $crate::config::value::choose(text, &[$(($word, Self::$variant)),+])
            }

            fn refine(schema: &mut serde_json::Value) {
                schema["enum"] = serde_json::json!([$($word),+]);
            }
        }
    };
    (@listed $first:literal $($word:literal)*) => {
        concat!("one of \"", $first, "\"" $(, ", \"", $word, "\"")*)
    };
}
pub(super) use choice;

#[cfg(test)]
mod tests {
    use super::*;

    fn why<T: FromText + std::fmt::Debug>(text: &str) -> String {
        T::from_text(text).unwrap_err()
    }

    #[test]
    fn a_duration_has_a_number_and_a_unit() {
        let of = |text: &str| Span::from_text(text).map(|Span(span)| span.as_millis());
        assert_eq!(of("10ms"), Ok(10));
        assert_eq!(of("24h"), Ok(86_400_000));
        assert_eq!(of("1h 30m"), Ok(5_400_000));
        assert_eq!(of("0s"), Ok(0), "whether zero is allowed, its option knows");
        for bad in ["", "30", "3x", "-1s", "1month", "1M", "s", &"1s ".repeat(1_000)] {
            assert!(of(bad).is_err(), "{bad}");
        }
        for (ms, text) in [(90_000, "1m 30s"), (86_400_000, "24h"), (315_360_000_000, "3650days")] {
            assert_eq!(span_text(Duration::from_millis(ms)), text);
            assert_eq!(of(text), Ok(ms.into()), "what is shown can be written");
        }
        assert!(why::<Span>("3x").starts_with("`3x` is not a duration such as"));
    }

    #[test]
    fn a_size_is_bytes_with_or_without_a_unit() {
        let of = |text: &str| Size::from_text(text).map(|Size(bytes)| bytes).ok();
        assert_eq!(of("10MiB"), Some(10 << 20));
        assert_eq!(of("64kB"), Some(64_000));
        assert_eq!(of("512"), Some(512));
        assert_eq!(of("7 B"), Some(7));
        for bad in ["", "MiB", "1.5MiB", "-1", "+1", "10mib", "10M", "99999999999TiB", "²"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        for (bytes, text) in [(10 << 20, "10MiB"), (0, "0"), (1_000, "1000"), (1 << 40, "1TiB")] {
            assert_eq!(Size::text(bytes), text);
        }
    }

    #[test]
    fn a_duplicate_waits_or_is_refused() {
        let ten = OnInFlight::Wait(Duration::from_secs(10));
        assert_eq!(OnInFlight::from_text("wait 10s"), Ok(ten));
        assert_eq!(OnInFlight::from_text("refuse"), Ok(OnInFlight::Refuse));
        for bad in ["wait", "wait ", "wait ten", "refuse 10s", "10s", ""] {
            assert!(OnInFlight::from_text(bad).is_err(), "{bad}");
        }
    }

    /// X3: an outcome that is unknown is held, tried again, or asked for at a URL.
    #[test]
    fn x3_unknown_is_hold_retry_or_a_probe_that_names_the_key() {
        assert_eq!(Unknown::from_text("hold"), Ok(Unknown::Hold));
        for url in ["http://x/orders?key={key}", "https://x/{tenant}/{key}/{id}", "/status/{key}"] {
            let probe = Unknown::Probe(ProbeUrl::parse(url).unwrap());
            assert_eq!(Unknown::from_text(&format!("probe GET {url}")), Ok(probe));
        }
        let told = |text: &str| Unknown::from_text(text).unwrap_err();
        for bad in ["probe", "probe GET", "probe http://x/{key}", "give up"] {
            assert!(told(bad).starts_with("expected \"hold\""), "{bad}: {}", told(bad));
        }
        for (bad, why) in [
            ("probe POST /{key}", "a probe only looks, so it is a GET and never `POST`"),
            ("probe GET http://x/status", "needs {key}"),
            ("probe GET http://{key}.example/", "never into its host"),
            ("probe GET http://u:secret@x/{key}", "no password"),
            ("probe GET ftp://x/{key}", "is `http://…` or `https://…`, or a path"),
            ("probe GET /{key}/{", "stands in braces"),
        ] {
            assert!(told(bad).contains(why), "{bad}: {}", told(bad));
            assert!(!told(bad).contains("secret"));
        }
    }

    #[test]
    fn a_moment_is_typed_as_a_span_a_date_or_a_time() {
        let start = SystemTime::UNIX_EPOCH;
        let of = |text: &str| moment(text, start).map(|at| at.duration_since(start).unwrap());
        let day = Duration::from_secs(86_400);
        assert_eq!(of("90d"), Some(day * 90));
        assert_eq!(of("1970-01-03"), Some(day * 2));
        assert_eq!(of("1970-01-03T00:00:01Z"), Some(day * 2 + Duration::from_secs(1)));
        for bad in ["", "90", "soon", "1970-13-01", "1970-01-03T00:00:01"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn statuses_are_single_classes_or_spans() {
        let of = |text: &str| Statuses::parse(text).map(|Statuses(span)| span);
        assert_eq!(of("409"), Some(409..=409));
        assert_eq!(of("5xx"), Some(500..=599));
        assert_eq!(of("500-504"), Some(500..=504));
        for bad in ["", "99", "600", "6xx", "xx", "504-500", "500-", "4XX", "+40", "1000"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_header_has_a_name_and_a_value_without_surprises() {
        assert!(HeaderName::from_text("X-Key").is_ok());
        assert!(HeaderName::from_text("X Key").is_err());
        assert!(HeaderName::from_text("").is_err());
        assert!(HeaderValue::from_text("true").is_ok());
        assert!(HeaderValue::from_text("a\r\nb: c").is_err());
        assert!(HeaderValue::from_text(" ").is_err());
    }

    #[test]
    fn a_choice_that_is_none_is_told_all_of_them_and_the_nearest() {
        let told = choose("refues", &[("refuse", 1), ("pass", 2)]).unwrap_err();
        let expected = "`refues` is none of \"refuse\", \"pass\"; did you mean `refuse`?";
        assert_eq!(told, expected);
    }
}
