//! The URL of a probe: a text with names in braces, and the path that one request makes of it.
//!
//! Whatever a caller chose stays inside the segment or the query value that it was put into: every
//! byte that could mean something else is escaped, and a segment that would climb out of its place
//! makes no URL at all. The host is never a caller's to choose.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The longest URL of a probe, before it is filled in.
pub const PROBE_URL_BYTES_MAX: usize = 2_048;
/// The caller's key.
const KEY: &str = "key";
/// The name of the tenant.
const TENANT: &str = "tenant";

/// Everything but letters, digits and the four marks that mean nothing anywhere in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same for what is escaped already.
const ESCAPED_AGAIN: &AsciiSet = &ESCAPED.remove(b'%');

/// A text that is no URL of a probe. Never quotes it: it could hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeUrlError {
    /// It is neither a URL nor a path.
    #[error(
        "the URL of a probe is `http://…` or `https://…`, or a path of the upstream that begins \
         with `/`"
    )]
    NotUrl,
    /// It is too long.
    #[error("the URL of a probe has at most {PROBE_URL_BYTES_MAX} bytes")]
    TooLong,
    /// It has a name or a password in it.
    #[error("the URL of a probe has no user name and no password: they would show in logs")]
    Credentials,
    /// A name in braces stands in the host.
    #[error("names in braces belong into the path or the query of a probe, never into its host")]
    NameInHost,
    /// A brace has no partner, or nothing is in between.
    #[error("a name in the URL of a probe stands in braces, such as `{{key}}`")]
    Braces,
    /// It does not say which operation it asks about.
    #[error("the URL of a probe needs {{key}} in its path or query")]
    NoKey,
    /// Its path has a segment that climbs.
    #[error("the path of a probe has no `.` and no `..` in it")]
    Climbs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    Tenant,
    Param(Arc<str>),
}

/// The URL of a probe, with names in braces: `{key}`, `{tenant}`, and those of a route's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeUrl {
    base: Option<Uri>,
    pieces: Vec<Piece>,
}

impl ProbeUrl {
    /// Reads `text`: `http://…`, `https://…`, or a path.
    ///
    /// # Errors
    /// A [`ProbeUrlError`] that says what to write instead.
    pub fn parse(text: &str) -> Result<Self, ProbeUrlError> {
        if text.len() > PROBE_URL_BYTES_MAX {
            return Err(ProbeUrlError::TooLong);
        }
        let (base, path) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (authority, path) = rest.split_at(end);
                (Some(base(scheme, authority)?), path)
            }
            // `//` would begin a host to whoever resolves it.
            _ if text.starts_with('/') && !text.starts_with("//") => (None, text),
            _ => return Err(ProbeUrlError::NotUrl),
        };
        let mut pieces = pieces(path)?;
        if !path.starts_with('/') {
            pieces.insert(0, Piece::Text("/".to_owned()));
        }
        if !pieces.contains(&Piece::Key) {
            return Err(ProbeUrlError::NoKey);
        }
        let url = Self { base, pieces };
        let sample: String = url.pieces.iter().map(|piece| piece.text().unwrap_or("x")).collect();
        if climbs(&sample) {
            return Err(ProbeUrlError::Climbs);
        }
        match PathAndQuery::try_from(&*sample) {
            Ok(_) if !sample.contains('#') => Ok(url),
            Ok(_) | Err(_) => Err(ProbeUrlError::NotUrl),
        }
    }

    /// Scheme and host; `None` when it is a path of the route's own upstream.
    #[must_use]
    pub const fn base(&self) -> Option<&Uri> {
        self.base.as_ref()
    }

    /// The names in it that must be those of a route's path.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Param(name) => Some(&**name),
            Piece::Text(_) | Piece::Key | Piece::Tenant => None,
        })
    }

    /// Path and query for one request; `None` when they would climb, be too long, or lack a name.
    /// `params` are in the one spelling of a path, escapes and all.
    pub(super) fn fill(
        &self,
        key: &str,
        tenant: &str,
        params: &[(Arc<str>, String)],
    ) -> Option<Uri> {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Key => filled.extend(utf8_percent_encode(key, ESCAPED)),
                Piece::Tenant => filled.extend(utf8_percent_encode(tenant, ESCAPED)),
                Piece::Param(wanted) => {
                    let (_, value) = params.iter().find(|(name, _)| name == wanted)?;
                    filled.extend(utf8_percent_encode(value, ESCAPED_AGAIN));
                }
            }
        }
        if climbs(&filled) {
            return None;
        }
        filled.parse().ok()
    }
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Key | Self::Tenant | Self::Param(_) => None,
        }
    }
}

impl fmt::Display for ProbeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((scheme, host)) =
            self.base.as_ref().and_then(|base| base.scheme_str().zip(base.authority()))
        {
            write!(f, "{scheme}://{host}")?;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Key => write!(f, "{{{KEY}}}")?,
                Piece::Tenant => write!(f, "{{{TENANT}}}")?,
                Piece::Param(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

fn base(scheme: &str, authority: &str) -> Result<Uri, ProbeUrlError> {
    if authority.contains('@') {
        return Err(ProbeUrlError::Credentials);
    }
    if authority.contains(['{', '}']) {
        return Err(ProbeUrlError::NameInHost);
    }
    let base: Uri =
        format!("{scheme}://{authority}/").parse().map_err(|_| ProbeUrlError::NotUrl)?;
    let has_host = base.host().is_some_and(|host| !host.is_empty());
    if has_host { Ok(base) } else { Err(ProbeUrlError::NotUrl) }
}

fn pieces(mut text: &str) -> Result<Vec<Piece>, ProbeUrlError> {
    let mut pieces = Vec::new();
    while let Some((before, rest)) = text.split_once('{') {
        let (name, rest) = rest.split_once('}').ok_or(ProbeUrlError::Braces)?;
        if before.contains('}') || name.is_empty() || name.contains('{') {
            return Err(ProbeUrlError::Braces);
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(match name {
            KEY => Piece::Key,
            TENANT => Piece::Tenant,
            name => Piece::Param(name.into()),
        });
        text = rest;
    }
    if text.contains('}') {
        return Err(ProbeUrlError::Braces);
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(pieces)
}

/// Whether a segment of the path means another place than its own, in any spelling.
fn climbs(path_and_query: &str) -> bool {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let plain = path.replace("%2e", ".").replace("%2E", ".");
    plain.split('/').any(|segment| matches!(segment, "." | ".."))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_probe_is_a_url_or_a_path_and_names_the_key() {
        for good in [
            "http://h/{key}",
            "https://h:8443/s/{key}/of/{tenant}?order={id}",
            "/status/{key}",
            "/status?key={key}",
        ] {
            assert_eq!(ProbeUrl::parse(good).map(|url| url.to_string()).as_deref(), Ok(good));
        }
        let url = ProbeUrl::parse("http://h?k={key}&{id}").unwrap();
        assert_eq!(url.to_string(), "http://h/?k={key}&{id}");
        assert_eq!(url.names().collect::<Vec<_>>(), ["id"]);
        assert_eq!(url.base().map(ToString::to_string).as_deref(), Some("http://h/"));
        assert_eq!(ProbeUrl::parse("/{key}").unwrap().base(), None);
        for (bad, why) in [
            ("", ProbeUrlError::NotUrl),
            ("{key}", ProbeUrlError::NotUrl),
            ("//h/{key}", ProbeUrlError::NotUrl),
            ("ftp://h/{key}", ProbeUrlError::NotUrl),
            ("http:///{key}", ProbeUrlError::NotUrl),
            ("http://h/{key}#f", ProbeUrlError::NotUrl),
            ("http://h/a b/{key}", ProbeUrlError::NotUrl),
            ("http://u:p@h/{key}", ProbeUrlError::Credentials),
            ("http://{key}.example/", ProbeUrlError::NameInHost),
            ("http://h/status", ProbeUrlError::NoKey),
            ("/{tenant}", ProbeUrlError::NoKey),
            ("/{key", ProbeUrlError::Braces),
            ("/key}", ProbeUrlError::Braces),
            ("/{}/{key}", ProbeUrlError::Braces),
            ("/{{key}}", ProbeUrlError::Braces),
            ("/a/../{key}", ProbeUrlError::Climbs),
            ("/a/%2E./{key}", ProbeUrlError::Climbs),
        ] {
            assert_eq!(ProbeUrl::parse(bad).unwrap_err(), why, "{bad}");
        }
        let long = format!("/{}/{{key}}", "a".repeat(PROBE_URL_BYTES_MAX));
        assert_eq!(ProbeUrl::parse(&long).unwrap_err(), ProbeUrlError::TooLong);
    }

    fn filled(url: &str, key: &str, params: &[(&str, &str)]) -> Option<String> {
        let params: Vec<_> =
            params.iter().map(|(name, value)| ((*name).into(), (*value).to_owned())).collect();
        let url = ProbeUrl::parse(url).unwrap().fill(key, "Ångström & Co", &params);
        url.map(|url| url.to_string())
    }

    /// W10: a tenant, a key and a path parameter each stay in their own place.
    #[test]
    fn w10_what_a_caller_chose_stays_in_its_place() {
        let all = "/s/{key}/{tenant}?id={id}";
        assert_eq!(
            filled(all, "a/b?c&d=e%2f#\"", &[("id", "x&y=%20z+")]).as_deref(),
            Some(
                "/s/a%2Fb%3Fc%26d%3De%252f%23%22/%C3%85ngstr%C3%B6m%20%26%20Co?id=x%26y%3D%20z%2B"
            )
        );
        assert_eq!(filled("/s/{key}", "..", &[]), None, "it would climb");
        assert_eq!(filled("/s/{key}{key}", ".", &[]), None);
        assert_eq!(filled("/s?k={key}", "..", &[]).as_deref(), Some("/s?k=.."));
        assert_eq!(filled("/s/{key}.json", "..", &[]).as_deref(), Some("/s/...json"));
        assert_eq!(filled("/s/{key}/{id}", "k", &[]), None, "nothing stands for the name");
    }

    proptest! {
        #[test]
        fn no_key_makes_another_path_of_it(key in "[!-~]{1,60}") {
            let url = ProbeUrl::parse("/status/{key}?again={key}").unwrap();
            match url.fill(&key, "acme", &[]) {
                None => prop_assert!([".", ".."].contains(&&*key)),
                Some(uri) => {
                    prop_assert_eq!(uri.path().matches('/').count(), 2);
                    prop_assert_eq!(uri.query().unwrap().matches(['&', '=', '+']).count(), 1);
                }
            }
        }
    }
}
