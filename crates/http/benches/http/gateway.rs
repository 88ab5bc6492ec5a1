//! The gateway in front of a service, beside a plain reverse proxy in front of the same one.

use crate::layer::{Turns, beside};
use crate::load::{Load, replays, warm};
use crate::peer::Peer;
use crate::report::{Bar, Case};
use crate::{Plan, folder, say};

pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    let (folders, load) = ([folder(), folder()], Load::new());
    let [path, bottom] = folders.each_ref().map(|it| it.path().to_str().expect("text"));
    let upstream = Peer::start(&["plain"]);
    let address = upstream.address.to_string();
    let proxy = Peer::start(&["proxy", &address]);
    let gateway = Peer::start(&["gateway", &address, path]);
    let in_memory = Peer::start(&["gateway-in-memory", &address]);
    let durable = Peer::start(&["durable-proxy", &address, bottom]);
    // Nobody's first requests count.
    for peer in [&proxy, &gateway, &in_memory, &durable] {
        load.new_keys(peer.address, plan.span);
    }
    let [mut bare, mut replay, mut fresh, mut quick, mut floor] =
        [(); 5].map(|()| Turns::default());
    for round in 0..plan.rounds {
        bare.take(&proxy, || load.new_keys(proxy.address, plan.span));
        warm(gateway.address);
        replay.take(&gateway, || replays(gateway.address, plan.span));
        fresh.take(&gateway, || load.new_keys(gateway.address, plan.span));
        quick.take(&in_memory, || load.new_keys(in_memory.address, plan.span));
        floor.take(&durable, || load.new_keys(durable.address, plan.span));
        say(&format!(
            "round {round}: plain proxy {:.0}/s, gateway: replay {:.0}/s, new keys {:.0}/s, \
             in memory {:.0}/s; two durable writes and nothing else {:.0}/s",
            bare.last(),
            replay.last(),
            fresh.last(),
            quick.last(),
            floor.last(),
        ));
    }
    let rate = |name: &str, ours: &[f64], bar| beside(name, "/s", ours, &bare.rates, bar);
    let ms = |name: &str, ours: &[f64], base: &[f64]| beside(name, "ms", ours, base, Bar::None);
    let us = |name: &str, ours: &Turns| {
        beside(name, "us", &ours.processor_us, &bare.processor_us, Bar::None)
    };
    vec![
        rate("gateway: replay; beside a plain proxy", &replay.rates, Bar::Ratio(1.6)),
        rate("gateway: new keys; beside a plain proxy", &fresh.rates, Bar::Ratio(0.5)),
        ms("gateway: p99 of a replay; beside a plain proxy", &replay.p99_ms, &bare.p99_ms),
        ms("gateway: p50 of a new key; beside a plain proxy", &fresh.p50_ms, &bare.p50_ms),
        ms("gateway: p99 of a new key; beside a plain proxy", &fresh.p99_ms, &bare.p99_ms),
        rate("gateway: new keys, store in memory; beside a plain proxy", &quick.rates, Bar::None),
        rate("proxy with two durable writes; beside a plain proxy", &floor.rates, Bar::None),
        us("gateway: processor time of a replay; beside a plain proxy", &replay),
        us("gateway: processor time of a new key; beside a plain proxy", &fresh),
        us("gateway: the same, store in memory; beside a plain proxy", &quick),
        us("proxy with two durable writes: processor time; beside a plain proxy", &floor),
    ]
}
