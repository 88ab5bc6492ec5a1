//! Processes that transfer money and are ended: at every point that has a name, and at any moment.
//! Whoever asked asks again with the same key until it is answered.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::sync::OnceLock;

use onetake_core::Key;
use onetake_stores::crash_point;

use crate::common::part::{Part, say};
use crate::place::{connect, key};
use crate::servers::Server;
use crate::transfer::{Bank, Order, Receipt};

/// The signal of a process that aborts.
const ABORTED: i32 = 6;
/// Every point between two of which something can be lost: those of the caller, which the example
/// names, and those inside the call.
const POINTS: [&str; 7] = [
    "client-begun",
    "inside-claimed",
    "client-withdrawn",
    "inside-executed",
    "inside-recorded",
    "client-taken",
    "client-committed",
];
/// Transfers of one run of a process that is ended at a point.
const FEW: u32 = 3;
/// Transfers that processes share which are killed at any moment.
const MANY: u32 = 60;
/// Connections of such a process.
const TELLERS: u32 = 4;
const KILLS: u32 = 12;

fn wait_for<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

/// A database of a test's own.
fn database(name: &str) -> String {
    // As in production: what is acknowledged is synced.
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| Server::start(&[]));
    let create = format!("CREATE DATABASE {name}");
    wait_for(async { connect(&server.url()).await.batch_execute(&create).await.unwrap() });
    format!("{}/{name}", server.url().trim_end_matches("/postgres"))
}

/// What the process that is ended does: `few URL PREFIX` or `many URL ROUND`.
pub(crate) fn play(asked: &str) {
    let words: Vec<_> = asked.split(' ').collect();
    match words.as_slice() {
        ["few", url, prefix] => wait_for(few(url, prefix)),
        ["many", url, round] => wait_for(many(url, round.parse().unwrap())),
        _ => panic!("{asked} is no part"),
    }
}

/// One transfer, and its answer said aloud.
async fn answer(bank: &mut Bank, name: &Key, order: &Order) {
    let step = |step: &str| crash_point(&format!("client-{step}"));
    loop {
        match bank.transfer(name, order, &step).await {
            Ok(take) => {
                let receipt = serde_json::to_string(&take.value).unwrap();
                return say(&format!("{} {receipt}", name.as_str()));
            }
            // The connection of a process that was ended may live a little longer than it.
            Err(error) => assert!(error.retry_after().is_some() || error.is_clash(), "{error:?}"),
        }
    }
}

fn order(number: u32) -> Order {
    let (from, to) = if number.is_multiple_of(3) { ("bob", "ann") } else { ("ann", "bob") };
    Order { from: from.into(), to: to.into(), amount: i64::from(number) + 1 }
}

async fn few(url: &str, prefix: &str) {
    let mut bank = Bank::open(url).await.unwrap();
    for number in 0..FEW {
        answer(&mut bank, &key(&format!("{prefix}-{number}")), &order(number)).await;
    }
}

/// Several connections ask for all transfers, each beginning somewhere else.
async fn many(url: &str, round: u32) {
    let tellers = (0..TELLERS).map(|teller| {
        let url = url.to_owned();
        tokio::spawn(async move {
            let mut bank = Bank::open(&url).await.unwrap();
            for number in 0..MANY {
                let number = (number + round * 17 + teller) % MANY;
                answer(&mut bank, &key(&format!("many-{number}")), &order(number)).await;
            }
        })
    });
    for teller in tellers.collect::<Vec<_>>() {
        teller.await.unwrap();
    }
}

/// What was answered, by key. Whoever is answered twice is answered the same.
#[derive(Default)]
struct Answers(BTreeMap<String, Receipt>);

impl Answers {
    fn hear_all(&mut self, lines: &[String]) {
        for line in lines {
            self.hear(line);
        }
    }

    fn hear(&mut self, line: &str) {
        // What the test harness says besides is no answer.
        let Some((name, receipt)) = line.split_once(' ') else { return };
        let Ok(receipt) = serde_json::from_str::<Receipt>(receipt) else { return };
        if let Some(before) = self.0.insert(name.to_owned(), receipt.clone()) {
            assert_eq!(before, receipt, "{name} was answered in two ways");
        }
    }

    /// All were answered, each moved money once, and no money came or went.
    async fn check(&self, url: &str, orders: &BTreeMap<String, Order>) {
        let bank = Bank::open(url).await.unwrap();
        let mut expected = BTreeMap::from([("ann", 1_000), ("bob", 1_000)]);
        for (name, order) in orders {
            assert!(self.0.contains_key(name), "{name} was never answered");
            assert_eq!(bank.moved(&key(name)).await.unwrap(), 1, "{name}");
            *expected.get_mut(order.from.as_str()).unwrap() -= order.amount;
            *expected.get_mut(order.to.as_str()).unwrap() += order.amount;
        }
        let balances = bank.balances().await.unwrap();
        let balances: BTreeMap<_, _> =
            balances.iter().map(|(name, balance)| (name.as_str(), *balance)).collect();
        assert_eq!(balances, expected);
        assert_eq!(balances.values().sum::<i64>(), 2_000);
    }
}

/// X7, W12: at whatever point a process ends that transfers money, the money moves exactly once.
#[test]
fn x7_w12_money_moves_once_at_whatever_point_the_process_ends() {
    let url = database("killed_at_points");
    let (mut answers, mut orders) = (Answers::default(), BTreeMap::new());
    for point in POINTS {
        for times in 1..=2 {
            let prefix = format!("{point}-{times}");
            orders.extend((0..FEW).map(|number| (format!("{prefix}-{number}"), order(number))));
            let part = format!("few {url} {prefix}");
            let crash = format!("{point}:{times}");
            let ended = Part::start(&part, &[("ONETAKE_CRASH_AT", OsStr::new(&crash))]).end();
            assert_eq!(ended.0.signal(), Some(ABORTED), "{crash} was not met");
            answers.hear_all(&ended.1);
            let (status, said) = Part::start(&part, &[]).end();
            assert!(status.success(), "after {crash}: {said:?}");
            answers.hear_all(&said);
        }
    }
    wait_for(answers.check(&url, &orders));
}

/// X7, W12: whenever a process is killed that transfers money on several connections, the money
/// moves exactly once.
#[test]
fn x7_w12_money_moves_once_whenever_the_process_is_killed() {
    let url = database("killed_at_any_moment");
    let (mut answers, mut round) = (Answers::default(), 0);
    loop {
        let mut part = Part::start(&format!("many {url} {round}"), &[]);
        if round < KILLS {
            for _ in 0..=(round * 5 % 23) {
                answers.hear_all(part.hear().as_slice());
            }
            part.kill();
        }
        let (status, said) = part.end();
        answers.hear_all(&said);
        if round == KILLS {
            assert!(status.success(), "{said:?}");
            break;
        }
        round += 1;
    }
    let orders = (0..MANY).map(|number| (format!("many-{number}"), order(number))).collect();
    wait_for(answers.check(&url, &orders));
}

/// X7: what the example refuses it refuses again, although there is enough by then.
#[test]
fn x7_w14_the_example_moves_money_once_and_remembers_what_it_refused() {
    let url = database("example");
    wait_for(async {
        let mut bank = Bank::open(&url).await.unwrap();
        let order =
            |from: &str, to: &str, amount| Order { from: from.into(), to: to.into(), amount };
        for is_repeat in [false, true] {
            let take =
                bank.transfer(&key("one"), &order("ann", "bob", 100), &|_| ()).await.unwrap();
            assert_eq!((take.value.left, take.is_repeat()), (900, is_repeat));
        }
        let much = order("ann", "bob", 950);
        let refused = bank.transfer(&key("much"), &much, &|_| ()).await.unwrap_err();
        assert_eq!(
            format!("{refused:?}"),
            "Failed { failure: NotEnough { left: 900 }, repeat: false }"
        );
        bank.transfer(&key("back"), &order("bob", "ann", 100), &|_| ()).await.unwrap();
        let refused = bank.transfer(&key("much"), &much, &|_| ()).await.unwrap_err();
        assert_eq!(
            format!("{refused:?}"),
            "Failed { failure: NotEnough { left: 900 }, repeat: true }"
        );
        let nobody = order("ann", "zoe", 1);
        bank.transfer(&key("zoe"), &nobody, &|_| ()).await.unwrap_err();
        let retried = bank.transfer(&key("zoe"), &nobody, &|_| ()).await.unwrap_err();
        assert_eq!(format!("{retried:?}"), "Failed { failure: NoAccount, repeat: false }");
        assert_eq!(bank.balances().await.unwrap(), [("ann".into(), 1_000), ("bob".into(), 1_000)]);
    });
}
