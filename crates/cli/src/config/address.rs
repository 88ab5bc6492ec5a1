//! Addresses, networks and URLs as values of options.
//!
//! Each says what was probably meant where that is plain: a port alone, a host without its scheme.
//! A URL is never quoted where it could hold a password. Resolves no name and connects to nothing.

use std::net::{IpAddr, SocketAddr};

use hyper::Uri;
use ipnet::IpNet;
use serde_json::Value as Json;

use super::problem::quoted;
use super::read::FromText;
use super::value::TEXT_BYTES_MAX;

/// The longest URL that is said again in a suggestion, in bytes.
const SHOWN_BYTES_MAX: usize = 60;

impl FromText for SocketAddr {
    const EXPECTED: &'static str = "an address and a port, such as \"127.0.0.1:8080\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let read = text.parse();
        read.map_err(|_| {
            let what = format!("{} is not {}", quoted(text), <Self as FromText>::EXPECTED);
            match address_meant(text) {
                Some(meant) => format!("{what}; did you mean `{meant}`?"),
                None => what,
            }
        })
    }
}

/// The address on this machine that `text` was probably meant to be: a port alone, or one of
/// `localhost`.
fn address_meant(text: &str) -> Option<SocketAddr> {
    let port = text.strip_prefix("localhost").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port).parse().ok()?;
    Some(SocketAddr::new([127, 0, 0, 1].into(), port))
}

impl FromText for IpNet {
    const EXPECTED: &'static str = "a network such as \"10.0.0.0/8\", or one address";

    fn from_text(text: &str) -> Result<Self, String> {
        let alone = || text.parse::<IpAddr>().map(Self::from);
        let read: Result<Self, _> = text.parse().or_else(|_| alone());
        let net =
            read.map_err(|_| format!("{} is not {}", quoted(text), <Self as FromText>::EXPECTED))?;
        if net.addr() != net.network() {
            return Err(format!("{} names a host; the network is `{}`", quoted(text), net.trunc()));
        }
        Ok(net)
    }
}

/// A URL that requests are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url(pub(super) Uri);

impl Url {
    /// A URL with a scheme and a host. Never quoted: it could hold a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let expected = || match Self::meant(text) {
            Some(meant) => format!("expected {}; did you mean `{meant}`?", Self::EXPECTED),
            None => format!("expected {}", Self::EXPECTED),
        };
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|_| is_http && text.len() <= TEXT_BYTES_MAX);
        let authority = authority.ok_or_else(expected)?;
        if authority.as_str().contains('@') {
            return Err("a URL with a user name or password would show it in logs; \
                        remove it"
                .to_owned());
        }
        if authority.host().is_empty() || text.contains('#') {
            return Err(expected());
        }
        Ok(Self(uri))
    }

    /// What a host without a scheme was probably meant to be. What could hold a password is not
    /// said again.
    fn meant(text: &str) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".:-[]_/".contains(&byte);
        let is_short = text.len() <= SHOWN_BYTES_MAX && !text.starts_with('/');
        if !is_short || text.contains("//") || !text.bytes().all(is_plain) {
            return None;
        }
        let host = text.split('/').next().unwrap_or_default();
        let is_host = host.contains([':', '.']) || host == "localhost";
        let url = format!("http://{text}");
        (is_host && !host.ends_with(':') && Self::parse(&url).is_ok()).then_some(url)
    }
}

impl FromText for Url {
    const EXPECTED: &'static str = "a URL such as \"http://127.0.0.1:9000\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let url = Self::parse(text)?;
        match url.0.query() {
            Some(_) => Err("the URL of an upstream has no query: that is the caller's".to_owned()),
            None => Ok(url),
        }
    }

    fn refine(schema: &mut Json) {
        schema["pattern"] = "^https?://".into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why<T: FromText + std::fmt::Debug>(text: &str) -> String {
        T::from_text(text).unwrap_err()
    }

    #[test]
    fn an_address_has_a_port_and_a_port_alone_is_recognised() {
        assert!(SocketAddr::from_text("[::1]:80").is_ok());
        for bad in ["8080", ":8080", "localhost:8080"] {
            let told = why::<SocketAddr>(bad);
            assert!(told.ends_with("; did you mean `127.0.0.1:8080`?"), "{told}");
        }
        for bad in ["127.0.0.1", "here:80", "99999", ""] {
            assert!(!why::<SocketAddr>(bad).contains("did you mean"), "{bad}");
        }
    }

    #[test]
    fn a_network_is_written_without_a_host_in_it() {
        assert_eq!(IpNet::from_text("10.0.0.0/8").unwrap().to_string(), "10.0.0.0/8");
        assert_eq!(IpNet::from_text("::1").unwrap().to_string(), "::1/128");
        assert!(why::<IpNet>("10.0.0.1/8").ends_with("the network is `10.0.0.0/8`"));
        assert!(why::<IpNet>("ten").contains("is not a network"));
    }

    #[test]
    fn an_upstream_is_a_url_without_secrets_and_is_never_quoted() {
        assert!(Url::from_text("http://127.0.0.1:9000/base").is_ok());
        assert!(Url::from_text("https://api.example").is_ok());
        for bad in ["ftp://x", "127.0.0.1:9000", "/path", "http://", "http://x/?q=1", "http://x#f"]
        {
            assert!(Url::from_text(bad).is_err(), "{bad}");
        }
        for (bad, meant) in [
            ("127.0.0.1:9000", Some("http://127.0.0.1:9000")),
            ("localhost:80/base", Some("http://localhost:80/base")),
            ("api.example", Some("http://api.example")),
            ("user:hunter2@api.example", None),
            ("http:/127.0.0.1", None),
            ("orders", None),
        ] {
            let told = why::<Url>(bad);
            let said = told.split_once("; did you mean `").map(|(_, said)| said);
            assert_eq!(said, meant.map(|url| format!("{url}`?")).as_deref(), "{bad}");
        }
        let told = why::<Url>("http://user:hunter2@x");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(!why::<Url>("postgres://user:hunter2@x").contains("hunter2"));
    }
}
