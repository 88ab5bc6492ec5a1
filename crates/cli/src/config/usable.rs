//! Whether anybody could use what a configuration describes.
//!
//! Every value may be right and the whole still serve nobody: no caller has a key, two listeners
//! want one address, a route asks for what nobody may do. Only whoever is about to serve asks this;
//! a file that is being written need not be enough yet. Never judges a single value.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use super::problem::{Problems, Spot, nearest, quoted};
use super::raw::AuthModeChoice;
use super::read::Given;
use super::server::StoreConfig;
use super::tenant::TenantConfig;
use super::value::Word;
use crate::wiring::StoreUrl;

/// The most names that a problem lists.
const LISTED_MAX: usize = 8;

/// Refuses two listeners on one address.
pub(super) fn listeners(
    server: &Given<SocketAddr>,
    admin: &Given<SocketAddr>,
    is_served: bool,
    problems: &mut Problems,
) {
    // Where nobody asks for a gateway, nothing listens for callers.
    let is_meant = is_served || server.spot != Spot::BuiltIn;
    if !is_meant || problems.is_told("server.listen") || problems.is_told("admin.listen") {
        return;
    }
    if meet(server.value, admin.value) {
        let later = if admin.spot == Spot::BuiltIn { server } else { admin };
        let (server, admin) = (server.value, admin.value);
        let what = format!(
            "callers ({server}) and operators ({admin}) cannot have one address; give \
             `server.listen` and `admin.listen` different ports"
        );
        later.refuse(problems, what);
    }
}

/// Whether no two listeners could have these addresses.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    // Every address of the newer protocol holds those of the older one, on most machines.
    let holds = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (a == b || holds(a, b) || holds(b, a))
}

/// Refuses keys as the proof of who asks while nobody has one, and warns when none works any more.
pub(super) fn keys(
    mode: &Given<AuthModeChoice>,
    tenants: &[TenantConfig],
    routes: Option<&Spot>,
    problems: &mut Problems,
) {
    let Some(first_route) = routes else { return };
    // What was said of those sections may be the very reason.
    if mode.value != AuthModeChoice::ApiKey || problems.is_in("auth") || problems.is_in("tenant") {
        return;
    }
    let spot = if mode.spot == Spot::BuiltIn { first_route } else { &mode.spot };
    let (option, all) = ("auth.mode", tenants.iter().flat_map(|tenant| &tenant.keys));
    if all.clone().next().is_none() {
        let what = "callers prove who they are by an API key, and no tenant has one; make one with \
                    `onetake tenant add NAME`, or say mode = \"anonymous\" under [auth] if \
                    everybody may call";
        problems.value(spot, option, what);
        return;
    }
    let now = SystemTime::now();
    if all.clone().all(|key| key.expires.is_some_and(|end| end <= now)) {
        let what = "every API key has expired, so every request is refused; make a new one with \
                    `onetake tenant add NAME`";
        problems.warn(spot, option, what);
    }
}

/// The scopes that callers can have; none when one may do everything, or tokens say what.
pub(super) fn held(
    mode: &Given<AuthModeChoice>,
    tenants: &[TenantConfig],
    problems: &Problems,
) -> Option<BTreeSet<String>> {
    let is_sure = !problems.is_in("auth") && !problems.is_in("tenant");
    if mode.value != AuthModeChoice::ApiKey || !is_sure || tenants.is_empty() {
        return None;
    }
    let mut held = BTreeSet::new();
    for tenant in tenants {
        // One without a key may be given one while the gateway runs.
        let own = tenant.keys.iter().map(|key| key.scopes.as_ref().or(tenant.scopes.as_ref()));
        let alone = tenant.keys.is_empty().then_some(tenant.scopes.as_ref());
        for scopes in own.chain(alone) {
            held.extend(scopes?.iter().map(|Word(scope)| scope.clone()));
        }
    }
    Some(held)
}

/// Refuses to ask for a scope where nobody could say who has it: it would promise a guard that
/// is not there.
pub(super) fn unkept(given: &Given<Word>, problems: &mut Problems) {
    let what = "callers have scopes only with auth.mode = \"api-key\" or \"jwt\", so this would \
                keep nobody out; choose one of them, or take it away";
    problems.value(&given.spot, &given.option, what);
}

/// Refuses a scope that no caller can have.
pub(super) fn required(given: &Given<Word>, held: &BTreeSet<String>, problems: &mut Problems) {
    let Word(scope) = &given.value;
    if held.contains(scope) {
        return;
    }
    let listed: Vec<&str> = held.iter().take(LISTED_MAX).map(String::as_str).collect();
    let all = match (listed.len(), held.len()) {
        (0, _) => "they have none".to_owned(),
        (shown, all) if shown < all => format!("they have {} and more", listed.join(", ")),
        _ => format!("they have {}", listed.join(", ")),
    };
    let what = format!(
        "{}: no tenant and no key has the scope {}, so nobody could call this; {all}",
        given.option,
        quoted(scope)
    );
    let meant = nearest(scope, held.iter().map(String::as_str));
    problems.unknown(&given.spot, &given.option, what, meant);
}

/// Refuses scopes that no route asks for: they would promise what nobody keeps.
pub(super) fn asked_for(tenants: &[TenantConfig], problems: &mut Problems) {
    if let Some(tenant) = tenants.iter().find(|tenant| tenant.has_scopes()) {
        let what = "`scopes` say nothing while no route has `requires`; give one to a route or to \
                    [defaults]";
        problems.later(super::Config::error_at(&tenant.place, what));
    }
}

/// Warns that nothing is served but the admin surface.
pub(super) fn no_route(admin: SocketAddr, problems: &mut Problems) {
    let what = format!(
        "there is no [[route]], so `onetake serve` opens no gateway: only the admin surface, on \
         {admin}; add a [[route]]"
    );
    problems.warn(&Spot::Whole, "route", what);
}

/// Warns that nobody could settle what is held.
pub(super) fn held_for_ever(store: &StoreConfig, problems: &mut Problems) {
    if matches!(store.url, StoreUrl::Redis(_)) {
        let what = "Redis cannot list or settle keys, so an outcome that nobody knows is held for \
                    ever with unknown = \"hold\"; choose \"retry\" or \"probe\", or PostgreSQL";
        problems.warn(&Spot::Whole, "store.url", what.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_listeners_meet_where_one_address_holds_the_other() {
        let of = |one: &str, other: &str| meet(one.parse().unwrap(), other.parse().unwrap());
        for (one, other) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("[::ffff:127.0.0.1]:80", "127.0.0.1:80"),
        ] {
            assert!(of(one, other) && of(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("127.0.0.1:80", "127.0.0.1:81"),
            ("127.0.0.1:80", "127.0.0.2:80"),
            ("0.0.0.0:80", "[::1]:80"),
            ("127.0.0.1:0", "127.0.0.1:0"),
        ] {
            assert!(!of(one, other) && !of(other, one), "{one} {other}");
        }
    }
}
