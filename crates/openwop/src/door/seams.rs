//! Seams for tests of conformance, off unless configured: what they show is the real thing.

use bytes::Bytes;
use http::Response;
use onetake_activity::{Failure as CallFailure, InvocationId, Site};
use onetake_engine::Journal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Caller, Door};
use crate::ask;
use crate::create;
use crate::reply::{Reply, ReplyBody};

/// The most executors of one call.
const EXECUTORS_MAX: usize = 100;

#[derive(Deserialize)]
struct ConcurrentClaim {
    #[serde(default = "two")]
    executors: usize,
}

const fn two() -> usize {
    2
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Partition {
    claims: Vec<Claim>,
}

#[derive(Deserialize, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    run_id: String,
    tenant_id: String,
    endpoint: String,
    key: String,
    region: String,
}

impl<S: Journal> Door<S> {
    /// Lets several executors make one logical call at once, through the real invocation log.
    pub(super) async fn concurrent_claim(
        &self,
        body: &Bytes,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: ConcurrentClaim = ask::body(body).map_err(Reply::invalid)?;
        if !(2..=EXECUTORS_MAX).contains(&asked.executors) {
            return Err(Reply::invalid(format!("executors must be 2 to {EXECUTORS_MAX}")));
        }
        let run = create::new_id();
        let delivered = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Barrier::new(asked.executors));
        let mut executors: JoinSet<Result<String, String>> = JoinSet::new();
        for _ in 0..asked.executors {
            let site = Site {
                tenant: caller.tenant.clone(),
                run: run.clone(),
                node: "effect".to_owned(),
                attempt: 0,
            };
            let mut calls = self.host.0.activities.enter(site);
            let (delivered, gate) = (Arc::clone(&delivered), Arc::clone(&gate));
            executors.spawn(async move {
                gate.wait().await;
                let request = json!({"n": 1});
                let made = calls.call("seam", &request, move |calling| async move {
                    delivered.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, CallFailure>(id_of(&calling.id))
                });
                made.await.map(|take| take.value).map_err(|error| error.to_string())
            });
        }
        let mut minted = Vec::new();
        while let Some(joined) = executors.join_next().await {
            match joined {
                Ok(Ok(id)) => minted.push(id),
                Ok(Err(why)) => return Err(Reply::conflict("claim_failed", why)),
                Err(_) => return Err(Reply::conflict("claim_failed", "an executor was lost")),
            }
        }
        Ok(Reply::ok(json!({
            "logicalInvocationId": minted.first(),
            "mintedIds": minted,
            "attempted": asked.executors,
            "delivered": delivered.load(Ordering::SeqCst),
        }))
        .into_response())
    }

    /// Who survives when several regions have created a run under one key: a pure function.
    pub(super) fn simulate_partition(body: &Bytes) -> Result<Response<ReplyBody>, Reply> {
        let Partition { mut claims } = ask::body(body).map_err(Reply::invalid)?;
        let place =
            |claim: &Claim| (claim.tenant_id.clone(), claim.endpoint.clone(), claim.key.clone());
        let is_one = claims.windows(2).all(|pair| place(&pair[0]) == place(&pair[1]));
        if claims.len() < 2 || !is_one {
            return Err(Reply::invalid(
                "claims must be two or more, of one tenant, endpoint and key",
            ));
        }
        claims.sort_by(|a, b| (&a.run_id, &a.region).cmp(&(&b.run_id, &b.region)));
        let winner = claims[0].clone();
        let redirects: Vec<Value> = claims
            .iter()
            .map(|claim| {
                json!({
                    "region": claim.region,
                    "cacheKey": format!("{}:{}", claim.endpoint, claim.key),
                    "redirectToRunId": winner.run_id,
                })
            })
            .collect();
        Ok(Reply::ok(json!({
            "winner": winner, "losers": &claims[1..], "cacheRedirects": redirects,
            "loserCancelReason": "cross_region_dedup_loss",
        }))
        .into_response())
    }
}

fn id_of(id: &InvocationId) -> String {
    id.as_str().to_owned()
}
