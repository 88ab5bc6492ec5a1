//! Words that runs wait for: said by the name of a node, or with a token.

use http::{Response, StatusCode};
use onetake_core::Tenant;
use onetake_engine::Journal;
use onetake_http::WholeRequest;
use serde_json::{Value, json};

use super::{Caller, Door};
use crate::ask;
use crate::books::RunKey;
use crate::interrupt::Unheard;
use crate::machine::NotHeard;
use crate::reply::{Reply, ReplyBody};
use crate::run::{NodeStatus, Run};
use crate::token::{BadToken, Claims, Intent};

impl<S: Journal> Door<S> {
    /// Hears a word for a node, from somebody with a credential.
    pub(super) async fn resolve(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
        node: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        let value = ask::resume_value(request.body()).map_err(Reply::invalid)?;
        Ok(self.heard(request, caller, run, (node, None), &value).await)
    }

    /// Hears a word from whoever holds a token.
    pub(super) async fn resolve_by_token(
        &self,
        request: &WholeRequest<'_>,
        claims: Claims,
    ) -> Result<Response<ReplyBody>, Reply> {
        if claims.intent == Intent::Inspect {
            return Err(Reply::forbidden("this token is to look, not to answer"));
        }
        let value = ask::resume_value(request.body()).map_err(Reply::invalid)?;
        let tenant = request.scope().tenant().clone();
        let caller = Caller { tenant, name: None, may_answer: true };
        let which = (claims.node_id.as_str(), Some(claims.interrupt_id.as_str()));
        Ok(self.heard(request, &caller, &claims.run_id, which, &value).await)
    }

    async fn heard(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        run: &str,
        (node, which): (&str, Option<&str>),
        value: &Value,
    ) -> Response<ReplyBody> {
        let by = caller.name.as_deref();
        let act = |machine: &mut super::StoreMachine<'_, S>| {
            Ok(machine.hear(node, which, value, by)?.map_err(|why| unheard(&why)))
        };
        let reply = |(): &(), run: &Run| {
            Reply::ok(json!({"runId": run.id, "nodeId": node, "status": run.status.as_str()}))
        };
        self.act(request, caller, run, act, reply).await
    }

    /// Whose run a token is about, and which question.
    pub(super) async fn claims(&self, token: &str) -> Result<(Tenant, Claims), Reply> {
        // Its signature first: whoever made it up does not reach the store.
        let claims = self.host.0.tokens.read(token).map_err(bad_token)?;
        if claims.expires_at <= self.now_ms().await? {
            return Err(bad_token(BadToken::Expired));
        }
        let tenant = claims.tenant().ok_or_else(|| bad_token(BadToken::Malformed))?;
        Ok((tenant, claims))
    }

    /// What a token asks for.
    pub(super) async fn inspect(&self, token: &str) -> Result<Reply, Reply> {
        let (tenant, claims) = self.claims(token).await?;
        let key = RunKey::new(&tenant, &claims.run_id);
        let found = self.host.run(&key).await.map_err(|error| Reply::failed(&error))?;
        let node = found.as_ref().and_then(|run| run.node(&claims.node_id));
        let waited = node.filter(|state| state.status == NodeStatus::Suspended);
        let waited = waited.and_then(|state| state.interrupt.as_ref());
        let waited = waited.filter(|waited| waited.id == claims.interrupt_id);
        let waited = waited.ok_or_else(|| {
            Reply::not_found("interrupt_not_found", "nothing waits for this any more")
        })?;
        let mut seen = json!({
            "kind": waited.kind.as_str(), "key": waited.key, "data": waited.data,
        });
        if let Some(span) = waited.timeout_ms {
            seen["timeoutMs"] = json!(span);
        }
        if !waited.actions.is_empty() {
            seen["resumeSchema"] = json!({
                "type": "object", "required": ["action"],
                "properties": {"action": {"type": "string", "enum": waited.actions}},
            });
        }
        Ok(Reply::ok(seen))
    }

    /// The store's time.
    async fn now_ms(&self) -> Result<u64, Reply> {
        let anchor = crate::books::only_doc("token-key");
        let told = self.host.engine().update(&anchor, Vec::new(), |view| {
            Ok(onetake_engine::Update::nothing(view.now().as_millis()))
        });
        told.await.map_err(|error| Reply::failed(&error))
    }
}

fn unheard(why: &NotHeard) -> Reply {
    match why {
        NotHeard::NotFound | NotHeard::Stale => {
            Reply::not_found("interrupt_not_found", "nothing of that name waits for a word")
        }
        NotHeard::Expired => {
            Reply::error(StatusCode::GONE, "interrupt_expired", "its time has passed")
        }
        NotHeard::AlreadyResolved => Reply::conflict(
            "interrupt_already_resolved",
            "this was answered before, and the first answer counts",
        ),
        NotHeard::Ended(status) => {
            let text = "the run ended without it";
            Reply::conflict("interrupt_cancelled", text).with("runStatus", status.as_str())
        }
        NotHeard::Unheard(Unheard::Invalid(text)) => Reply::invalid(text.clone()),
        NotHeard::Unheard(Unheard::Uncorrelated(text)) => {
            Reply::error(StatusCode::UNPROCESSABLE_ENTITY, "correlation_mismatch", text.clone())
        }
        NotHeard::Unheard(Unheard::NotAllowed(text)) => Reply::forbidden(text.clone()),
    }
}

fn bad_token(bad: BadToken) -> Reply {
    match bad {
        BadToken::Malformed | BadToken::Unknown => {
            Reply::not_found("interrupt_not_found", "there is no such token")
        }
        BadToken::Expired => {
            Reply::error(StatusCode::GONE, "interrupt_expired", "the time of this token has passed")
        }
    }
}
