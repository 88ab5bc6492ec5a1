//! The books of runs, on a store in memory on which no host runs.

use bytes::Bytes;
use onetake_engine::operate::ActName;
use onetake_engine::{Memory, Position, Write};

use super::*;
use crate::create::{self, NewRun};
use crate::machine::Progress;
use crate::run::{Owner, Parent, Status};

struct Bench {
    records: Records<Memory>,
    definition: Definition,
}

impl Bench {
    fn new() -> Self {
        let written = json!({
            "id": "orders", "name": "Orders", "version": "1",
            "nodes": [{"id": "gate", "typeId": "core.approvalGate"}],
            "variables": [
                {"name": "order", "type": "string"},
                {"name": "card", "type": "string", "sensitive": true},
            ],
        });
        let definition = Definition::of(written).unwrap();
        Self { records: Records::at_rest(Engine::new(Memory::new())), definition }
    }

    /// Writes a run as the door does; its definition only where it is to be `kept`.
    async fn create(&self, tenant: &str, id: &str, kept: bool, change: impl Fn(&mut NewRun)) {
        let owner = Owner { tenant: tenant.to_owned(), principal: None };
        let inputs = json!({"order": "o-1", "card": "4242"}).as_object().unwrap().clone();
        let mut new = NewRun::of(id.to_owned(), owner, inputs);
        change(&mut new);
        let key = RunKey::new(&self::tenant(tenant), id);
        let doc = key.doc();
        let created = self.records.engine.update(&doc, Vec::new(), |view| {
            let begun = create::run(new.clone(), &self.definition, Bounds::default(), view.now());
            let progress = Progress::alone(begun.unwrap());
            let hooks = books::read_hooks(view, &key.tenant)?;
            let at = Moment { now: view.now(), host: "test", lease_ms: 30_000 };
            let written = books::written(&key.tenant, progress, false, &hooks, at);
            let digest = self.definition.digest.as_str();
            let text = books::encode(&self.definition.written);
            let keep = Write::Put(books::definition_doc(digest), text);
            let update = Update::to(books::encode(&written.run), ()).writes(written.writes);
            Ok(if kept { update.write(keep) } else { update })
        });
        created.await.unwrap();
    }

    async fn kinds(&self, tenant: &str, id: &str) -> Vec<String> {
        let told = self.records.events(&self::tenant(tenant), id, 0, Duration::ZERO).await;
        let told = told.unwrap().unwrap();
        let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
        told.events.iter().map(kind).collect()
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant::new(name).unwrap()
}

fn ann() -> Actor {
    Actor::new("ann").unwrap()
}

#[tokio::test]
async fn a_run_is_found_without_its_tenant_and_by_each_that_has_one() {
    let bench = Bench::new();
    for (tenant, id) in [("a", "run-1"), ("acme", "run-2"), ("acme", "run-1"), ("zoo", "run-3")] {
        bench.create(tenant, id, true, |_| {}).await;
    }
    for (id, owners) in
        [("run-1", &["a", "acme"][..]), ("run-2", &["acme"]), ("run-3", &["zoo"]), ("run", &[])]
    {
        let found = bench.records.named(id).await.unwrap();
        let whose: Vec<_> = found.runs.iter().map(|run| run.owner.tenant.as_str()).collect();
        assert_eq!((whose.as_slice(), found.is_all), (owners, true), "{id}");
    }
}

#[tokio::test]
async fn a_list_goes_on_where_it_ended_and_stays_with_its_tenant() {
    let bench = Bench::new();
    let made: Vec<String> = (0..4).map(|_| create::new_id()).collect();
    for (tenant, id) in ["acme", "acme", "acme", "zoo"].into_iter().zip(&made) {
        bench.create(tenant, id, true, |_| {}).await;
    }
    let (acme, mut seen, mut after) = (tenant("acme"), Vec::new(), None::<(Tenant, String)>);
    loop {
        let behind = after.as_ref().map(|(tenant, id)| (tenant, id.as_str()));
        let page = bench.records.list(Some(&acme), behind, 2).await.unwrap();
        seen.extend(page.runs.iter().map(|run| run.id.clone()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    // The newest first.
    assert_eq!(seen.iter().rev().collect::<Vec<_>>(), made.iter().take(3).collect::<Vec<_>>());
    let all = bench.records.list(None, None, 10).await.unwrap();
    assert_eq!((all.runs.len(), all.next), (4, None));
}

#[test]
fn a_run_is_known_by_its_key_and_only_its_own_spelling_is_its_name() {
    let id = "run-01890a5d-ac96-774b-bcce-b302099a8057";
    let spelled = [id.to_owned(), id.to_uppercase(), id.replace("ac96-", "ac96"), "run-1".into()];
    let keys: std::collections::HashSet<_> = spelled
        .iter()
        .map(|id| {
            let key = RunKey::new(&tenant("acme"), id);
            assert_eq!(books::run_of(&key.doc().key), Some(key.clone()));
            key.doc().key
        })
        .collect();
    assert_eq!(keys.len(), spelled.len());
}

#[tokio::test]
async fn what_is_sensitive_is_shown_to_nobody_and_without_a_definition_nothing_is() {
    let bench = Bench::new();
    bench.create("acme", "run-1", false, |_| {}).await;
    let bare = bench.records.get(&tenant("acme"), "run-1").await.unwrap().unwrap();
    assert!(bare.inputs.is_empty() && bare.variables.is_empty());
    bench.create("acme", "run-2", true, |_| {}).await;
    let shown = bench.records.get(&tenant("acme"), "run-2").await.unwrap().unwrap();
    assert_eq!((&shown.inputs["order"], &shown.inputs["card"]), (&json!("o-1"), &json!("***")));
    assert!(bench.records.get(&tenant("acme"), "run-3").await.unwrap().is_none());
    assert!(bench.records.get(&tenant("zoo"), "run-2").await.unwrap().is_none());
}

#[tokio::test]
async fn an_operator_ends_a_run_once_with_all_that_are_part_of_it_and_it_is_audited() {
    let bench = Bench::new();
    // Nobody keeps the definition of a run that another one began, and it ends all the same.
    bench.create("acme", "run-1", false, |_| {}).await;
    let parent = Parent { run: "run-1".into(), node: "gate".into(), depth: 1 };
    bench.create("acme", "run-2", false, |new| new.parent = Some(parent.clone())).await;
    let key = RunKey::new(&tenant("acme"), "run-1");
    let doc = key.doc();
    let adopted = bench.records.engine.update(&doc, Vec::new(), |view| {
        let mut run = books::read_run(view, &key.tenant, &key.id)?.unwrap();
        run.children.push("run-2".to_owned());
        Ok(Update::to(Bytes::from(serde_json::to_vec(&run).unwrap()), ()))
    });
    adopted.await.unwrap();
    for is_new in [true, false] {
        let ended = bench.records.cancel(&key.tenant, "run-1", &ann(), Some("a mistake")).await;
        let ended = ended.unwrap().unwrap();
        assert_eq!((ended.run.status, ended.is_new), (Status::Cancelled, is_new));
        assert_eq!(ended.run.reason.as_deref(), Some("a mistake"));
    }
    assert_eq!(bench.kinds("acme", "run-1").await, ["run.started", "run.cancelled"]);
    assert_eq!(bench.kinds("acme", "run-2").await, ["run.started", "run.cancelled"]);
    let none = bench.records.cancel(&tenant("zoo"), "run-1", &ann(), None).await.unwrap();
    assert!(none.is_none());

    let audit = bench.records.engine.audit(Position(0), 10).await.unwrap().items;
    assert_eq!(audit.len(), 1, "what had ended before is nobody's act");
    let entry = &audit[0].audit;
    assert_eq!((entry.act, &*entry.by, &*entry.tenant), (ActName::RunCancelled, "ann", "acme"));
    assert_eq!(entry.run.as_deref(), Some("run-1"));
}

#[tokio::test(start_paused = true)]
async fn events_are_waited_for_and_the_last_is_known() {
    let bench = Bench::new();
    let acme = tenant("acme");
    bench.create("acme", "run-1", true, |_| {}).await;
    let first = bench.records.events(&acme, "run-1", 0, Duration::ZERO).await.unwrap().unwrap();
    assert_eq!((first.events.len(), first.next, first.is_over), (1, 1, false));
    let quiet = bench.records.events(&acme, "run-1", 1, Duration::from_secs(3)).await;
    let quiet = quiet.unwrap().unwrap();
    assert_eq!((quiet.events.len(), quiet.next, quiet.is_over), (0, 1, false));
    let within = Duration::from_secs(60 * 60);
    let ending = async {
        tokio::task::yield_now().await;
        bench.records.cancel(&acme, "run-1", &ann(), None).await.unwrap()
    };
    let (last, _) = tokio::join!(bench.records.events(&acme, "run-1", 1, within), ending);
    let last = last.unwrap().unwrap();
    assert_eq!(last.events[0]["payload"]["cancelledBy"], "operator");
    assert_eq!(last.next, 2);
    let over = bench.records.events(&acme, "run-1", 2, within).await.unwrap().unwrap();
    assert!(over.events.is_empty() && over.is_over);
    assert!(bench.records.events(&acme, "run-9", 0, within).await.unwrap().is_none());
}

/// Whoever reads events goes on past one that cannot be read, and knows that one is missing.
#[tokio::test]
async fn an_event_that_cannot_be_read_is_passed_by_and_not_forgotten() {
    let bench = Bench::new();
    bench.create("acme", "run-1", true, |_| {}).await;
    let (engine, key) = (&bench.records.engine, RunKey::new(&tenant("acme"), "run-1"));
    let unreadable = Write::Append(key.lane(), Bytes::from_static(b"{"));
    let doc = books::only_doc("test");
    let append = engine.update(&doc, Vec::new(), |view| {
        view.doc(&doc)?;
        Ok(Update::to("written", ()).write(unreadable.clone()))
    });
    append.await.unwrap();
    let page = EventPage::read(engine, &key, 0, 0, 10).await.unwrap();
    assert_eq!((page.events.len(), page.next, page.is_whole, page.more), (1, 2, false, false));
    let behind = EventPage::read(engine, &key, 0, 1, 10).await.unwrap();
    assert_eq!((behind.events.len(), behind.next, behind.is_whole), (0, 2, false));
    let told = bench.records.events(&tenant("acme"), "run-1", 1, Duration::from_secs(600)).await;
    assert_eq!(told.unwrap().unwrap().next, 2, "nobody waits for it");
}
