//! Which URLs a webhook may have, and which addresses may be called for it.
//!
//! Pure: never resolves a name and never opens a connection. A name that passes here proves
//! nothing about where it leads; every address that it resolves to must be
//! [permitted](Guard::permits) before a connection is made to that very address.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::HeaderValue;
use http::uri::PathAndQuery;
use ipnet::IpNet;
use rustls::pki_types::ServerName;
use url::{Host, Position, SyntaxViolation, Url};

use super::address::{led_to, special};

/// The longest URL of a webhook, in bytes.
pub(crate) const URL_BYTES_MAX: usize = 2_048;
/// Names that lead into a machine or its own network, with everything below them.
const OWN_NAMES: [&str; 3] = ["localhost", "local", "internal"];

/// Why a webhook may not be called.
///
/// Tells nothing of what a name resolves to but the kind of it: whoever registers a webhook must
/// not learn the addresses of a network that they cannot see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Rejected {
    /// More bytes than a URL may have.
    #[error("the URL of a webhook has at most {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Not a whole URL, or one that programs read in different ways.
    #[error("this is not a valid URL; write one such as `https://example.com/hook`")]
    NotAUrl,
    /// A name or a password in front of the host.
    #[error("the URL has a name or a password in it; remove them and verify the signature")]
    Userinfo,
    /// Something behind `#`, which is never sent.
    #[error("the URL has a fragment, which is never sent; remove `#` and what follows")]
    Fragment,
    /// Port 0.
    #[error("the port of a webhook is a number from 1 to 65535")]
    Port,
    /// Another scheme than the allowed ones.
    #[error("a webhook is called over TLS only; use a URL that begins with https://")]
    Scheme,
    /// A name of this machine or its network.
    #[error("the host is a name of this machine or its own network; use a public one")]
    Name,
    /// The host is an address that is not public.
    #[error("the host is {0}; use a public one")]
    Address(&'static str),
    /// The name of the host leads to an address that is not public.
    #[error("the name of the host leads to {0}; let it lead to public addresses only")]
    Resolved(&'static str),
}

impl Rejected {
    /// Whether the text itself is at fault (`validation_error`), and not where it leads to
    /// (`webhook_url_rejected`).
    #[must_use]
    pub(crate) const fn is_malformed(self) -> bool {
        match self {
            Self::TooLong | Self::NotAUrl | Self::Userinfo | Self::Fragment | Self::Port => true,
            Self::Scheme | Self::Name | Self::Address(_) | Self::Resolved(_) => false,
        }
    }
}

/// An exception that the operator makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// Addresses of this network may be called, whatever is special about them.
    Network(IpNet),
    /// This very name may be registered. The addresses that it leads to need a network of their
    /// own: who answers for the name must not decide what is behind it.
    Name(Box<str>),
}

/// An exception that is neither a network, nor an address, nor a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write a network such as `10.1.0.0/16`, an address, or the name of a host")]
pub(crate) struct NotAllowable;

impl FromStr for Allowed {
    type Err = NotAllowable;

    fn from_str(text: &str) -> Result<Self, NotAllowable> {
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Network(ip.into()));
        }
        // Read as the host of a URL is, so that both are spelled the same.
        match Host::parse(text).map_err(|_| NotAllowable)? {
            Host::Ipv4(ip) => Ok(Self::Network(IpAddr::V4(ip).into())),
            Host::Ipv6(ip) => Ok(Self::Network(IpAddr::V6(ip).into())),
            Host::Domain(name) if is_name(&name) => Ok(Self::Name(without_dot(&name).into())),
            Host::Domain(_) => Err(NotAllowable),
        }
    }
}

/// Whom webhooks may call. By default public addresses over TLS, and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guard {
    /// Whether every address and plain HTTP will do: for tests and for networks where everybody
    /// is trusted.
    pub(crate) allow_private: bool,
    /// What is let through besides. The scheme stays `https`.
    pub(crate) allowed: Vec<Allowed>,
}

impl Guard {
    /// The target behind the URL of a webhook, if it may be registered.
    ///
    /// Looks at the text alone. The host may be spelled in any way that leads to an address, such
    /// as `0x7f.1`: it is judged by what it leads to.
    ///
    /// # Errors
    /// A [`Rejected`] that says what to change.
    pub(crate) fn registrable(&self, url: &str) -> Result<Target, Rejected> {
        let target = Target::parse(url)?;
        self.check(&target)?;
        Ok(target)
    }

    /// Whether a target that was registered once may still be called, as far as its text tells.
    ///
    /// # Errors
    /// A [`Rejected`] that says what is in the way.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Rejected> {
        if self.allow_private {
            return Ok(());
        }
        if !target.is_secure {
            return Err(Rejected::Scheme);
        }
        match &target.host {
            TargetHost::Address(ip) => match self.refusal(*ip) {
                Some(what) => Err(Rejected::Address(what)),
                None => Ok(()),
            },
            TargetHost::Name(name) if is_own(name) && !self.names(name) => Err(Rejected::Name),
            TargetHost::Name(_) => Ok(()),
        }
    }

    /// Whether a connection may be made to an address.
    #[cfg(test)]
    pub(crate) fn permits(&self, ip: IpAddr) -> bool {
        self.refusal(ip).is_none()
    }

    /// What is wrong with an address, if no connection may be made to it.
    pub(super) fn refusal(&self, ip: IpAddr) -> Option<&'static str> {
        let is_excepted = || {
            self.allowed.iter().any(|allowed| match allowed {
                Allowed::Network(network) => network.contains(&ip) || network.contains(&led_to(ip)),
                Allowed::Name(_) => false,
            })
        };
        special(ip).filter(|_| !self.allow_private && !is_excepted())
    }

    /// Whether the operator has excepted this name.
    fn names(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| match allowed {
            Allowed::Network(_) => false,
            Allowed::Name(allowed) => **allowed == *name,
        })
    }
}

/// The host of a target, as it is looked up and as its certificate must name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TargetHost {
    /// In lower case, in ASCII, without a dot at the end.
    Name(Box<str>),
    /// However it was spelled.
    Address(IpAddr),
}

/// Where a webhook goes: a URL that was read and taken apart once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
    host: TargetHost,
    port: u16,
    is_secure: bool,
    authority: HeaderValue,
    path: PathAndQuery,
}

impl Target {
    /// Reads a URL, without a look at where it leads.
    fn parse(text: &str) -> Result<Self, Rejected> {
        if text.len() > URL_BYTES_MAX {
            return Err(Rejected::TooLong);
        }
        let url = parse_strictly(text)?;
        let is_secure = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Rejected::Scheme),
        };
        if url.fragment().is_some() {
            return Err(Rejected::Fragment);
        }
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(Rejected::Port)?;
        let host = match url.host().ok_or(Rejected::NotAUrl)? {
            Host::Ipv4(ip) => TargetHost::Address(ip.into()),
            Host::Ipv6(ip) => TargetHost::Address(ip.into()),
            Host::Domain(name) if is_name(name) => TargetHost::Name(without_dot(name).into()),
            Host::Domain(_) => return Err(Rejected::NotAUrl),
        };
        let authority = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
        let authority = authority.map_err(|_| Rejected::NotAUrl)?;
        let path = url[Position::BeforePath..Position::AfterQuery].parse();
        let path = path.map_err(|_| Rejected::NotAUrl)?;
        // What was written in other letters may have grown when it was put into ASCII.
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(Rejected::TooLong);
        }
        Ok(Self { url, host, port, is_secure, authority, path })
    }

    /// The URL as it is kept and shown: read again, it gives the same target.
    #[must_use]
    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Whom to look up, and whom the certificate must name.
    pub(super) const fn host(&self) -> &TargetHost {
        &self.host
    }

    /// Where it listens; never 0.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is called over TLS.
    pub(super) const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// For the header `Host`.
    pub(super) const fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// What the request asks for.
    pub(super) const fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

/// Without path and query: receivers put passwords there.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&&self.url[..Position::BeforePath]).finish()
    }
}

/// Reads a URL and does not mend it: what another program could read in another way is refused.
fn parse_strictly(text: &str) -> Result<Url, Rejected> {
    let fault = Cell::new(None);
    let note = |violation| {
        let is_userinfo = matches!(
            violation,
            SyntaxViolation::EmbeddedCredentials | SyntaxViolation::UnencodedAtSign
        );
        let now = if is_userinfo { Rejected::Userinfo } else { Rejected::NotAUrl };
        fault.set(Some(fault.get().unwrap_or(now)));
    };
    let url = Url::options().syntax_violation_callback(Some(&note)).parse(text);
    let url = url.map_err(|_| Rejected::NotAUrl)?;
    fault.get().map_or(Ok(url), Err)
}

/// Whether a name could be that of a host, and of a certificate.
fn is_name(name: &str) -> bool {
    ServerName::try_from(without_dot(name)).is_ok()
}

/// A dot at the end changes how a name is looked up, not whose it is.
fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether a name is one of this machine or its own network.
fn is_own(name: &str) -> bool {
    name.rsplit('.').next().is_some_and(|last| OWN_NAMES.contains(&last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares what becomes of each URL, and whether the text is at fault.
    fn assert_verdicts(guard: &Guard, cases: &[(&str, &str)]) {
        for (url, expected) in cases {
            let verdict = match guard.registrable(url) {
                Ok(target) => format!("ok {}", target.url()),
                Err(why) if why.is_malformed() => format!("malformed {why:?}"),
                Err(Rejected::Address(what)) => format!("refused, {what}"),
                Err(why) => format!("refused {why:?}"),
            };
            assert_eq!(verdict, *expected, "{url:?}");
        }
    }

    #[test]
    fn by_default_a_webhook_is_a_plain_url_of_a_public_host_over_tls() {
        let cases = [
            ("https://example.com", "ok https://example.com/"),
            ("HTTPS://Example.COM:443/a/../b?c=d&e", "ok https://example.com/b?c=d&e"),
            ("https://example.com:8443/hook", "ok https://example.com:8443/hook"),
            ("https://bücher.example/ü", "ok https://xn--bcher-kva.example/%C3%BC"),
            ("https://example.com./hook", "ok https://example.com./hook"),
            ("https://8.8.8.8/", "ok https://8.8.8.8/"),
            ("https://[2606:4700::1111]:8443/", "ok https://[2606:4700::1111]:8443/"),
            ("https://[::ffff:8.8.8.8]/", "ok https://[::ffff:808:808]/"),
            ("https://localhost.example.com/", "ok https://localhost.example.com/"),
            ("https://mylocal/", "ok https://mylocal/"),
            ("http://example.com/", "refused Scheme"),
            ("ftp://example.com/", "refused Scheme"),
            ("file:///etc/passwd", "refused Scheme"),
            ("javascript:alert(1)", "refused Scheme"),
            ("", "malformed NotAUrl"),
            ("hook", "malformed NotAUrl"),
            ("//example.com/hook", "malformed NotAUrl"),
            ("/hook", "malformed NotAUrl"),
            ("https://", "malformed NotAUrl"),
            ("https:///hook", "malformed NotAUrl"),
            ("https:example.com", "malformed NotAUrl"),
            ("https:/example.com/", "malformed NotAUrl"),
            (" https://example.com/", "malformed NotAUrl"),
            ("https://exa\tmple.com/", "malformed NotAUrl"),
            ("https://example.com/\nHost: evil", "malformed NotAUrl"),
            ("https://example.com\\@evil.example/", "malformed NotAUrl"),
            ("https://example.com/%zz", "malformed NotAUrl"),
            ("https://exa mple.com/", "malformed NotAUrl"),
            ("https://.example.com/", "malformed NotAUrl"),
            ("https://example..com/", "malformed NotAUrl"),
            ("https://-.example.com/", "malformed NotAUrl"),
            ("https://ann:hush@example.com/", "malformed Userinfo"),
            ("https://ann@example.com/", "malformed Userinfo"),
            ("https://@example.com/", "malformed Userinfo"),
            ("https://example.com@10.0.0.1/", "malformed Userinfo"),
            ("https://example.com/#top", "malformed Fragment"),
            ("https://example.com/#", "malformed Fragment"),
            ("https://example.com:0/", "malformed Port"),
            ("https://example.com:65536/", "malformed NotAUrl"),
            ("https://example.com:-1/", "malformed NotAUrl"),
        ];
        assert_verdicts(&Guard::default(), &cases);
    }

    #[test]
    fn an_address_is_refused_however_it_is_spelled() {
        let cases = [
            ("https://127.0.0.1/", "refused, a loopback address"),
            ("https://127.0.0.1./", "refused, a loopback address"),
            ("https://127.1/", "refused, a loopback address"),
            ("https://2130706433/", "refused, a loopback address"),
            ("https://0x7f000001/", "refused, a loopback address"),
            ("https://0x7f.1/", "refused, a loopback address"),
            ("https://0177.0.0.1/", "refused, a loopback address"),
            ("https://017700000001/", "refused, a loopback address"),
            ("https://0/", "refused, an unspecified address"),
            ("https://%31%32%37.0.0.1/", "refused, a loopback address"),
            ("https://１２７.０.０.１/", "refused, a loopback address"),
            ("https://127。0。0。1/", "refused, a loopback address"),
            ("https://①②⑦.0.0.1/", "refused, a loopback address"),
            ("https://10.0.0.1/", "refused, a private address"),
            ("https://169.254.169.254/latest/meta-data/", "refused, a link-local address"),
            ("https://2852039166/", "refused, a link-local address"),
            ("https://100.100.100.200/", "refused, an address of a carrier's own network"),
            ("https://168.63.129.16/", "refused, an address of a metadata service"),
            ("https://[::1]/", "refused, a loopback address"),
            ("https://[::]/", "refused, an unspecified address"),
            ("https://[::ffff:127.0.0.1]/", "refused, a loopback address"),
            ("https://[::ffff:7f00:1]/", "refused, a loopback address"),
            ("https://[0:0:0:0:0:ffff:a9fe:a9fe]/", "refused, a link-local address"),
            ("https://[64:ff9b::7f00:1]/", "refused, a loopback address"),
            ("https://[2002:7f00:1::]/", "refused, an address of a tunnel"),
            ("https://[fe80::1]/", "refused, a link-local address"),
            ("https://[fe80::1%25eth0]/", "malformed NotAUrl"),
            ("https://[fe80::1%eth0]/", "malformed NotAUrl"),
            ("https://[fd00:ec2::254]/", "refused, a private address"),
            ("https://256.0.0.1/", "malformed NotAUrl"),
            ("https://1.2.3.4.5/", "malformed NotAUrl"),
            ("https://0x100000000/", "malformed NotAUrl"),
        ];
        assert_verdicts(&Guard::default(), &cases);
    }

    #[test]
    fn a_name_of_the_own_network_is_refused() {
        let urls = [
            "https://localhost/",
            "https://LOCALHOST:8443/",
            "https://localhost./",
            "https://a.localhost/",
            "https://printer.local/",
            "https://metadata.google.internal/",
            "https://ｌocalhost/",
            "https://internal/",
        ];
        for url in urls {
            assert_eq!(Guard::default().registrable(url), Err(Rejected::Name), "{url}");
        }
    }

    #[test]
    fn a_guard_that_allows_private_targets_still_wants_a_whole_url() {
        let guard = Guard { allow_private: true, ..Guard::default() };
        let cases = [
            ("http://127.0.0.1:8080/hook", "ok http://127.0.0.1:8080/hook"),
            ("http://localhost/", "ok http://localhost/"),
            ("https://[::1]/", "ok https://[::1]/"),
            ("http://169.254.169.254/", "ok http://169.254.169.254/"),
            ("ftp://127.0.0.1/", "refused Scheme"),
            ("http://ann@localhost/", "malformed Userinfo"),
            ("http://localhost/#top", "malformed Fragment"),
            ("http://localhost:0/", "malformed Port"),
            ("hook", "malformed NotAUrl"),
        ];
        assert_verdicts(&guard, &cases);
        assert!(guard.permits("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_operator_excepts_networks_for_addresses_and_names_for_names() {
        let allowed = ["10.1.0.0/16", "192.168.7.7", "fd00::7", "Hooks.Corp.Internal."];
        let allowed = allowed.map(|text| text.parse().unwrap()).to_vec();
        let guard = Guard { allowed, ..Guard::default() };
        let cases = [
            ("https://10.1.2.3/", "ok https://10.1.2.3/"),
            ("https://10.2.2.3/", "refused, a private address"),
            ("http://10.1.2.3/", "refused Scheme"),
            ("https://192.168.7.7/", "ok https://192.168.7.7/"),
            ("https://192.168.7.8/", "refused, a private address"),
            ("https://[::ffff:10.1.2.3]/", "ok https://[::ffff:a01:203]/"),
            ("https://[fd00::7]/", "ok https://[fd00::7]/"),
            ("https://[fd00::8]/", "refused, a private address"),
            ("https://hooks.corp.internal/", "ok https://hooks.corp.internal/"),
            ("https://a.hooks.corp.internal/", "refused Name"),
            ("https://corp.internal/", "refused Name"),
        ];
        assert_verdicts(&guard, &cases);
        for (ip, expected) in [("10.1.0.0", true), ("10.0.255.255", false), ("8.8.8.8", true)] {
            assert_eq!(guard.permits(ip.parse().unwrap()), expected, "{ip}");
        }
        for bad in ["", "10.1.0.0/33", "a b", "a..b", "https://example.com"] {
            assert_eq!(bad.parse::<Allowed>(), Err(NotAllowable), "{bad}");
        }
    }

    #[test]
    fn a_url_has_a_longest_length_in_the_form_that_is_kept() {
        let guard = Guard::default();
        let url = |bytes: usize| format!("https://a.example/{}", "x".repeat(bytes - 18));
        assert!(guard.registrable(&url(URL_BYTES_MAX)).is_ok());
        assert_eq!(guard.registrable(&url(URL_BYTES_MAX + 1)), Err(Rejected::TooLong));
        let grows = format!("https://a.example/{}", "ü".repeat(500));
        assert_eq!(guard.registrable(&grows), Err(Rejected::TooLong));
    }

    #[test]
    fn a_target_shows_no_path_and_a_refusal_tells_what_to_do() {
        let target = Guard::default().registrable("https://a.example:8443/hush?k=hush").unwrap();
        assert_eq!(format!("{target:?}"), r#"Target("https://a.example:8443")"#);
        assert_eq!(target.authority(), "a.example:8443");
        assert_eq!(target.path(), "/hush?k=hush");
        assert_eq!(
            Rejected::Address("a loopback address").to_string(),
            "the host is a loopback address; use a public one",
        );
    }
}
