//! Webhooks: registered and taken back.

use http::{Response, StatusCode};
use onetake_engine::{Journal, Update, Write};
use onetake_http::WholeRequest;
use serde_json::json;
use uuid::Uuid;

use super::{Caller, Door};
use crate::ask::{self, RegisterWebhook};
use crate::books::{self, ENDPOINTS, HOOKS, Told};
use crate::clock::rfc3339;
use crate::reply::{Reply, ReplyBody};
use crate::webhook::{HOOKS_MAX, Hook, Secret};

/// The longest type of events, and the longest tag.
const WORD_BYTES_MAX: usize = 256;
/// The most types of events that one subscription names.
const TYPES_MAX: usize = 100;

impl<S: Journal> Door<S> {
    pub(super) async fn register(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
    ) -> Result<Response<ReplyBody>, Reply> {
        let asked: RegisterWebhook = ask::body(request.body()).map_err(Reply::invalid)?;
        caller.may_name(asked.tenant_id.as_deref())?;
        if asked.events.is_empty() || asked.events.len() > TYPES_MAX {
            return Err(Reply::invalid(format!("events must name 1 to {TYPES_MAX} types")));
        }
        let tags = asked.tags.as_deref().unwrap_or_default();
        let is_long = |word: &String| word.is_empty() || word.len() > WORD_BYTES_MAX;
        if tags.len() > TYPES_MAX || tags.iter().chain(&asked.events).any(is_long) {
            let text = format!("types and tags have 1 to {WORD_BYTES_MAX} bytes");
            return Err(Reply::invalid(text));
        }
        let target = self.host.0.guard.registrable(&asked.url).map_err(|rejected| {
            let code =
                if rejected.is_malformed() { "validation_error" } else { "webhook_url_rejected" };
            Reply::error(StatusCode::BAD_REQUEST, code, rejected.to_string())
        })?;
        let secret = match asked.secret {
            Some(own) => Secret::new(own).map_err(|error| Reply::invalid(error.to_string())),
            None => Secret::generate().map_err(|error| {
                tracing::error!(%error, "no secret can be made");
                Reply::error(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "come back later")
            }),
        }?;
        let hook = Hook {
            id: format!("wh-{}", Uuid::now_v7()),
            url: target.url().to_owned(),
            events: asked.events,
            tags: asked.tags.unwrap_or_default(),
            secret: secret.expose().to_owned(),
            created: 0,
        };
        let anchor = books::tenant_doc(HOOKS, &caller.tenant);
        Ok(self
            .commit(request, &anchor, Vec::new(), |view| {
                let mut hooks = books::read_hooks(view, &caller.tenant)?;
                // There already where the reply to its commit was lost.
                hooks.hooks.retain(|there| there.id != hook.id);
                if hooks.hooks.len() >= HOOKS_MAX {
                    let text = format!("a tenant has at most {HOOKS_MAX} webhooks");
                    let full = Reply::conflict("webhook_limit_reached", text);
                    return Ok(Update::nothing((full, Told::default())));
                }
                let created = view.now().as_millis();
                hooks.hooks.push(Hook { created, ..hook.clone() });
                let body = json!({
                    "webhookId": hook.id, "subscriptionId": hook.id, "url": hook.url,
                    "events": hook.events, "eventTypes": hook.events, "secret": hook.secret,
                    "secretFingerprint": secret.fingerprint(), "createdAt": rfc3339(created),
                });
                let reply = Reply::new(StatusCode::CREATED, body);
                Ok(Update::to(books::encode(&hooks), (reply, Told::default())))
            })
            .await)
    }

    /// The subscriptions of a tenant, without their secrets.
    pub(super) async fn webhooks(&self, caller: &Caller) -> Result<Reply, Reply> {
        let anchor = books::tenant_doc(HOOKS, &caller.tenant);
        let read = self.host.engine().update(&anchor, Vec::new(), |view| {
            Ok(Update::nothing(books::read_hooks(view, &caller.tenant)?))
        });
        let hooks = read.await.map_err(|error| Reply::failed(&error))?;
        let shown = hooks.hooks.iter().map(|hook| {
            json!({
                "webhookId": hook.id, "url": hook.url, "events": hook.events, "tags": hook.tags,
                "createdAt": rfc3339(hook.created),
            })
        });
        Ok(Reply::ok(json!({"webhooks": shown.collect::<Vec<_>>()})))
    }

    pub(super) async fn unregister(
        &self,
        request: &WholeRequest<'_>,
        caller: &Caller,
        id: &str,
    ) -> Result<Response<ReplyBody>, Reply> {
        caller.may_name(ask::query(request.parts(), "tenantId").as_deref())?;
        let anchor = books::tenant_doc(HOOKS, &caller.tenant);
        Ok(self
            .commit(request, &anchor, Vec::new(), |view| {
                let mut hooks = books::read_hooks(view, &caller.tenant)?;
                let before = hooks.hooks.len();
                hooks.hooks.retain(|hook| hook.id != id);
                if hooks.hooks.len() == before {
                    let text = "there is no such webhook";
                    let missing = Reply::not_found("subscription_not_found", text);
                    return Ok(Update::nothing((missing, Told::default())));
                }
                let gone = Reply::empty(StatusCode::NO_CONTENT);
                // How it fared goes with it.
                let fared = Write::Delete(books::thing_doc(ENDPOINTS, &caller.tenant, id));
                Ok(Update::to(books::encode(&hooks), (gone, Told::default())).write(fared))
            })
            .await)
    }
}
