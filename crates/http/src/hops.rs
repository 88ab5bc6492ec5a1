//! Headers that belong to one connection (RFC 9110 §7.6.1): never kept, never passed on.

use std::collections::HashSet;

use http::header::{self, HeaderMap, HeaderName};

/// Those that always do, beside what `Connection` names.
pub(crate) static OF_ONE_CONNECTION: [HeaderName; 11] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("http2-settings"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The members of a list header, over all its lines.
pub(crate) fn members<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
}

/// The headers that `Connection` names: a set, for whoever sends it may name very many.
pub(crate) fn named(headers: &HeaderMap) -> HashSet<HeaderName> {
    members(headers, &header::CONNECTION)
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect()
}
