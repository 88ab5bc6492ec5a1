//! `[[dialect]]`, checked: a contract of the user's own, as what differs from a built-in one.
//!
//! What the built-in dialects say on the wire is not here; what they say of statuses is in `core`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use onetake::Finality;
use onetake::core::{KeyGrammar, Policy, PolicyBuilder, StatusRules};
use serde::{Serialize, Serializer};

use super::bounds;
use super::problem::{Place, Problems, nearest, quoted};
use super::raw::{Dialect, StatusTable};
use super::read::{FromText, Given};
use super::shown;
use super::value::{Statuses, Word, choice};

/// What a refusal may be: an error of the caller, or one that says to come again.
const STATUSES: RangeInclusive<u64> = 400..=599;

choice! {
    /// A dialect that is built in.
    BuiltIn {
        /// The draft of the IETF.
        "ietf" => Ietf,
        /// As Stripe does it.
        "stripe" => Stripe,
        /// The contract of `OpenWOP` hosts.
        "openwop" => Openwop,
        /// The contract of `dAvePi`.
        "davepi" => Davepi,
        /// The contract of Cnerium.
        "cnerium" => Cnerium,
    }
}

impl BuiltIn {
    /// Its word in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ietf => "ietf",
            Self::Stripe => "stripe",
            Self::Openwop => "openwop",
            Self::Davepi => "davepi",
            Self::Cnerium => "cnerium",
        }
    }

    /// What it says of statuses.
    pub(super) const fn statuses(self) -> StatusRules {
        match self {
            Self::Ietf => StatusRules::ietf(),
            Self::Stripe => StatusRules::stripe(),
            Self::Openwop => StatusRules::openwop(),
            Self::Davepi => StatusRules::davepi(),
            Self::Cnerium => StatusRules::cnerium(),
        }
    }

    /// Where a policy of this dialect begins.
    pub(super) const fn policy(self) -> PolicyBuilder {
        match self {
            Self::Openwop => Policy::openwop(),
            Self::Ietf | Self::Stripe | Self::Davepi | Self::Cnerium => {
                Policy::builder().statuses(self.statuses())
            }
        }
    }
}

choice! {
    /// What a request without a key gets.
    NoKey {
        /// It is refused.
        "refuse" => Refuse,
        /// It passes unprotected.
        "pass" => Pass,
    }
}

choice! {
    /// The shape of refusals.
    BodyShape {
        /// `application/problem+json`.
        "problem" => Problem,
        /// `{"error": code, "message": …}`.
        "flat" => Flat,
        /// `{"error": {"code": …, "message": …}}`.
        "nested" => Nested,
        /// `{"error": message}`.
        "message" => Message,
    }
}

choice! {
    /// What a key may look like.
    Grammar {
        /// Visible ASCII.
        "visible-ascii" => VisibleAscii,
        /// Letters, digits, `-`, `.`, `_` and `~`.
        "url-safe" => UrlSafe,
    }
}

/// A contract of the user's own: what is none is as the base says.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DialectConfig {
    /// What routes call it.
    pub(crate) name: String,
    /// What holds where nothing is given.
    pub(crate) base: BuiltIn,
    /// The header with the key.
    #[serde(serialize_with = "shown::display_if")]
    pub(crate) key_header: Option<HeaderName>,
    /// The header that marks a replay.
    #[serde(serialize_with = "shown::display_if")]
    pub(crate) replay_header: Option<HeaderName>,
    /// Its value.
    #[serde(serialize_with = "shown::header")]
    pub(crate) replay_value: Option<HeaderValue>,
    /// What a request without a key gets.
    pub(crate) no_key: Option<NoKey>,
    /// The status for another body under the same key.
    pub(crate) mismatch_status: Option<u16>,
    /// The status while the first is executing.
    pub(crate) in_flight_status: Option<u16>,
    /// The shape of refusals.
    pub(crate) body: Option<BodyShape>,
    /// What becomes of a response, by status.
    #[serde(serialize_with = "shown::statuses")]
    pub(crate) statuses: StatusRules,
    /// What a key may look like.
    #[serde(serialize_with = "shown::grammar")]
    pub(crate) grammar: Option<KeyGrammar>,
    /// Where it was given.
    pub(crate) place: Place,
}

/// The dialect of a route.
#[derive(Debug, Clone)]
pub(crate) enum DialectName {
    /// A built-in one.
    BuiltIn(BuiltIn),
    /// One of the user's own.
    Custom(Arc<DialectConfig>),
}

impl DialectName {
    /// What the configuration calls it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::BuiltIn(dialect) => dialect.name(),
            Self::Custom(dialect) => &dialect.name,
        }
    }

    /// The built-in one, or the one that it builds upon.
    pub(crate) fn base(&self) -> BuiltIn {
        match self {
            Self::BuiltIn(dialect) => *dialect,
            Self::Custom(dialect) => dialect.base,
        }
    }

    /// What it says of statuses.
    pub(crate) fn statuses(&self) -> StatusRules {
        match self {
            Self::BuiltIn(dialect) => dialect.statuses(),
            Self::Custom(dialect) => dialect.statuses,
        }
    }
}

impl Serialize for DialectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Every dialect that the user made, by name.
pub(super) type Dialects = BTreeMap<String, Arc<DialectConfig>>;

/// The dialect called `name`.
pub(super) fn find(
    name: &Given<Word>,
    dialects: &Dialects,
    problems: &mut Problems,
) -> DialectName {
    let Word(word) = &name.value;
    if let Some(dialect) = dialects.get(word) {
        return DialectName::Custom(Arc::clone(dialect));
    }
    if let Ok(dialect) = BuiltIn::from_text(word) {
        return DialectName::BuiltIn(dialect);
    }
    let built_in = ["ietf", "stripe", "openwop", "davepi", "cnerium"];
    let all = built_in.into_iter().chain(dialects.keys().map(String::as_str));
    let meant = nearest(word, all.clone());
    let all: Vec<_> = all.take(20).collect();
    let what = format!(
        "{}: there is no dialect {}; known are {}",
        name.option,
        quoted(word),
        all.join(", ")
    );
    problems.unknown(&name.spot, &name.option, what, meant);
    DialectName::BuiltIn(BuiltIn::Ietf)
}

/// Checks every `[[dialect]]`.
pub(super) fn dialects(raw: Vec<Given<Dialect>>, problems: &mut Problems) -> Dialects {
    let mut all = Dialects::new();
    for given in raw {
        let (Some(name), Some(base)) = (&given.value.name, &given.value.base) else { continue };
        let Word(word) = &name.value;
        if BuiltIn::from_text(word).is_ok() {
            name.refuse(problems, "this name is built in; choose another");
        }
        let place = problems.place(&given.spot);
        let dialect = one(&given.value, word, base.value, place, problems);
        if let Some(first) = all.insert(word.clone(), Arc::new(dialect)) {
            let what = format!("there is a dialect of this name already, at {}", first.place);
            name.refuse(problems, what);
        }
    }
    all
}

fn one(
    raw: &Dialect,
    name: &str,
    base: BuiltIn,
    place: Place,
    problems: &mut Problems,
) -> DialectConfig {
    let mut status = |given: Option<&Given<u64>>| {
        let number = bounds::number(given?, STATUSES, problems);
        u16::try_from(number).ok()
    };
    let (mismatch_status, in_flight_status) =
        (status(raw.mismatch_status.as_ref()), status(raw.in_flight_status.as_ref()));
    let statuses = raw.statuses.as_ref().map(|given| &given.value);
    if let (Some(key), Some(replay)) = (&raw.key_header, &raw.replay_header)
        && key.value == replay.value
    {
        replay.refuse(problems, "the key and the mark of a replay cannot be one header");
    }
    DialectConfig {
        name: name.to_owned(),
        base,
        key_header: raw.key_header.clone().map(|given| given.value),
        replay_header: raw.replay_header.clone().map(|given| given.value),
        replay_value: raw.replay_value.clone().map(|given| given.value),
        no_key: raw.no_key.as_ref().map(|given| given.value),
        mismatch_status,
        in_flight_status,
        body: raw.body.as_ref().map(|given| given.value),
        statuses: overridden(&base.statuses(), statuses, problems),
        grammar: raw.grammar.as_ref().map(|given| match given.value {
            Grammar::VisibleAscii => KeyGrammar::VisibleAscii,
            Grammar::UrlSafe => KeyGrammar::UrlSafe,
        }),
        place,
    }
}

/// `rules`, except for what `table` says. A status that is in two of its lists is refused.
pub(super) fn overridden(
    rules: &StatusRules,
    table: Option<&StatusTable>,
    problems: &mut Problems,
) -> StatusRules {
    let Some(table) = table else { return *rules };
    let lists = [
        (&table.kept, Finality::Final),
        (&table.freed, Finality::Free),
        (&table.unknown, Finality::Unknown),
    ];
    let (mut rules, mut seen) = (*rules, Vec::<(RangeInclusive<u16>, Finality)>::new());
    for (list, finality) in lists {
        for given in list.iter().flat_map(|list| &list.value) {
            let Statuses(span) = &given.value;
            let meets = |(other, of): &&(RangeInclusive<u16>, Finality)| {
                *of != finality && span.start() <= other.end() && other.start() <= span.end()
            };
            if let Some((other, _)) = seen.iter().find(meets) {
                let status = span.start().max(other.start());
                given.refuse(problems, format!("{status} is in another of these lists as well"));
            }
            seen.push((span.clone(), finality));
            rules = rules.span(span.clone(), finality);
        }
    }
    rules
}
