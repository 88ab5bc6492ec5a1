//! Callers who were verified by a proxy in front, and callers whom nobody verifies.
//!
//! A header counts only when it comes from a peer within the configured networks. From anybody
//! else it is no identity at all, however it reads.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use onetake_core::{Principal, Tenant};

use super::{Identity, Reach, Refused};

/// Identity from headers that a proxy in front sets.
#[derive(Debug, Clone)]
pub struct TrustedHeader {
    networks: Vec<IpNet>,
    tenant: HeaderName,
    principal: Option<HeaderName>,
    reach: Reach,
    reserved: Vec<HeaderName>,
}

impl TrustedHeader {
    pub(super) fn new(
        networks: Vec<IpNet>,
        tenant: HeaderName,
        principal: Option<HeaderName>,
        reach: Reach,
    ) -> Self {
        let mut reserved = vec![super::TENANT_HEADER, super::PRINCIPAL_HEADER];
        for name in std::iter::once(&tenant).chain(&principal) {
            if !reserved.contains(name) {
                reserved.push(name.clone());
            }
        }
        Self { networks, tenant, principal, reach, reserved }
    }

    pub(super) fn reserved(&self) -> &[HeaderName] {
        &self.reserved
    }

    pub(super) fn admit(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Identity, Refused> {
        // A listener on both families sees an IPv4 peer as a mapped IPv6 address.
        let peer = peer.to_canonical();
        if !self.networks.iter().any(|network| network.contains(&peer)) {
            return Err(Refused::Missing("the peer is not within the trusted networks"));
        }
        let tenant = only(headers, &self.tenant)?;
        let tenant = tenant.ok_or(Refused::Missing("the proxy named no tenant"))?;
        let principal = match &self.principal {
            Some(name) => {
                Some(only(headers, name)?.ok_or(Refused::Missing("the proxy named no principal"))?)
            }
            None => None,
        };
        let wrong = |_| Refused::Invalid("the proxy sent a name that is none");
        let tenant = Tenant::new(tenant).map_err(wrong)?;
        let principal = principal.map(Principal::new).transpose().map_err(wrong)?;
        Ok(Identity::verified(tenant, principal, self.reach))
    }
}

/// The value of a header that comes on one line and says one thing.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refused> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(Refused::Invalid("an identity header came on more than one line"));
    }
    let text = std::str::from_utf8(line.as_bytes())
        .map_err(|_| Refused::Invalid("an identity header is not UTF-8"))?;
    // A proxy that adds its value to the caller's own gives a list, and the first is the caller's.
    if text.contains(',') || text.trim() != text {
        return Err(Refused::Invalid("an identity header holds a list or blanks at its ends"));
    }
    Ok(Some(text))
}

/// Everybody is one tenant.
#[derive(Debug, Clone)]
pub struct Anonymous(Identity);

impl Anonymous {
    pub(super) const fn new(tenant: Tenant) -> Self {
        Self(Identity::verified(tenant, None, Reach::Tenant))
    }

    pub(super) fn identity(&self) -> Identity {
        self.0.clone()
    }
}
