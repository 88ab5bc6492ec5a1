//! The gateway in front of a service, beside a plain reverse proxy in front of the same one.

use crate::layer::{Turns, beside};
use crate::load::{Load, replays, warm};
use crate::peer::Peer;
use crate::report::{Bar, Case};
use crate::{Plan, folder, say};

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let (folder, load) = (folder(), Load::new());
    let path = folder.path().to_str().expect("a path that is text");
    let upstream = Peer::start(&["plain"]);
    let address = upstream.address.to_string();
    let proxy = Peer::start(&["proxy", &address]);
    let gateway = Peer::start(&["gateway", &address, path]);
    // Nobody's first requests count.
    for peer in [&proxy, &gateway] {
        load.new_keys(peer.address, plan.span);
    }
    let [mut bare, mut replay, mut fresh] = [(); 3].map(|()| Turns::default());
    for round in 0..plan.rounds {
        bare.take(&proxy, || load.new_keys(proxy.address, plan.span));
        warm(gateway.address);
        replay.take(&gateway, || replays(gateway.address, plan.span));
        fresh.take(&gateway, || load.new_keys(gateway.address, plan.span));
        say(&format!(
            "round {round}: plain proxy {:.0}/s, gateway: replay {:.0}/s, new keys {:.0}/s",
            bare.last(),
            replay.last(),
            fresh.last(),
        ));
    }
    let rate = |name: &str, ours: &Turns, bar| beside(name, "/s", &ours.rates, &bare.rates, bar);
    let ms = |name: &str, ours: &[f64], base: &[f64]| beside(name, "ms", ours, base, Bar::None);
    let us = |name: &str, ours: &Turns| {
        beside(name, "us", &ours.processor_us, &bare.processor_us, Bar::None)
    };
    vec![
        rate("gateway: replay; beside a plain proxy", &replay, Bar::Ratio(1.6)),
        rate("gateway: new keys; beside a plain proxy", &fresh, Bar::Ratio(0.5)),
        ms("gateway: p99 of a replay; beside a plain proxy", &replay.p99_ms, &bare.p99_ms),
        ms("gateway: p50 of a new key; beside a plain proxy", &fresh.p50_ms, &bare.p50_ms),
        ms("gateway: p99 of a new key; beside a plain proxy", &fresh.p99_ms, &bare.p99_ms),
        us("gateway: processor time of a replay; beside a plain proxy", &replay),
        us("gateway: processor time of a new key; beside a plain proxy", &fresh),
    ]
}
