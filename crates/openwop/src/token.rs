//! Signed tokens: whoever holds one may answer one question of one run, without a credential.
//!
//! A token names the run, the node, the question and when it ends, and is signed with a key that
//! only the store has; every process that shares the store takes it. Nothing is kept of a token:
//! whether its question is still open is what the run says.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use onetake_core::Tenant;
use onetake_engine::{Engine, Journal, RunError, Update};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::books;
use crate::interrupt::Interrupt;

/// How long a token is good for at most.
const GOOD_FOR_MS: u64 = 30 * 60 * 1_000;
/// The longest token that is looked at.
const TOKEN_BYTES_MAX: usize = 4 * 1024;
const KEY_BYTES: usize = 32;

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Intent {
    /// To look and to answer.
    Resolve,
    /// To look.
    Inspect,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Claims {
    tenant: String,
    pub(crate) run_id: String,
    pub(crate) node_id: String,
    pub(crate) interrupt_id: String,
    /// In milliseconds.
    pub(crate) expires_at: u64,
    pub(crate) intent: Intent,
}

impl Claims {
    /// Whose run it is.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        Tenant::new(&self.tenant).ok()
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadToken {
    /// It is none.
    Malformed,
    /// It is none of ours.
    Unknown,
    /// Its time has passed.
    Expired,
}

/// Makes tokens and reads them.
pub(crate) struct Tokens(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(…)")
    }
}

impl Tokens {
    /// With the key of this store, which is made where there is none.
    pub(crate) async fn of<S: Journal>(engine: &Engine<S>) -> Result<Self, RunError> {
        let mut fresh = Zeroizing::new(vec![0; KEY_BYTES]);
        getrandom::fill(&mut fresh).map_err(|_| RunError::Busy("no random numbers"))?;
        let doc = books::only_doc("token-key");
        let key = engine.update(&doc, Vec::new(), |view| {
            Ok(match view.doc(&doc)? {
                Some(there) if there.value.len() == KEY_BYTES => {
                    Update::nothing(there.value.to_vec())
                }
                Some(_) | None => Update::to(Bytes::copy_from_slice(&fresh), fresh.to_vec()),
            })
        });
        Ok(Self(Zeroizing::new(key.await?)))
    }

    /// A token for one question of one run.
    pub(crate) fn issue(
        &self,
        tenant: &str,
        run: &str,
        node: &str,
        interrupt: &Interrupt,
        now_ms: u64,
    ) -> String {
        let good = now_ms.saturating_add(GOOD_FOR_MS);
        let claims = Claims {
            tenant: tenant.to_owned(),
            run_id: run.to_owned(),
            node_id: node.to_owned(),
            interrupt_id: interrupt.id.clone(),
            expires_at: interrupt.ends().map_or(good, |ends| ends.min(good)),
            // A question that needs a credential may be looked at by whoever was sent the token.
            intent: if interrupt.auth_required { Intent::Inspect } else { Intent::Resolve },
        };
        let json = serde_json::to_vec(&claims).expect("invariant: it is JSON");
        let text = URL_SAFE_NO_PAD.encode(json);
        let signature = URL_SAFE_NO_PAD.encode(self.mac(&text).finalize().into_bytes());
        format!("{text}.{signature}")
    }

    /// What `token` says, if it is one of ours. Whether its time has passed is asked elsewhere.
    pub(crate) fn read(&self, token: &str) -> Result<Claims, BadToken> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(BadToken::Malformed);
        }
        let (text, signature) = token.split_once('.').ok_or(BadToken::Malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| BadToken::Malformed)?;
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Malformed)?;
        // In constant time.
        self.mac(text).verify_slice(&signature).map_err(|_| BadToken::Unknown)?;
        serde_json::from_slice(&json).map_err(|_| BadToken::Malformed)
    }

    fn mac(&self, text: &str) -> Hmac<Sha256> {
        let mac = Hmac::<Sha256>::new_from_slice(&self.0);
        mac.expect("invariant: every length is a key").chain_update(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use onetake_engine::Memory;
    use serde_json::{Map, Value};

    use super::*;
    use crate::interrupt::InterruptKind;

    fn question(timeout_ms: Option<u64>, auth_required: bool) -> Interrupt {
        Interrupt {
            id: "int-1".into(),
            kind: InterruptKind::ExternalEvent,
            key: "k".into(),
            data: Value::Null,
            requested: 1_000,
            timeout_ms,
            actions: Vec::new(),
            quorum: None,
            questions: Vec::new(),
            correlation: Map::new(),
            unknown: None,
            auth_required,
        }
    }

    #[tokio::test]
    async fn a_token_says_what_was_signed_and_nothing_else_is_taken() {
        let engine = Engine::new(Memory::new());
        let (one, two) = (Tokens::of(&engine).await.unwrap(), Tokens::of(&engine).await.unwrap());
        let token = one.issue("acme", "run-1", "wait", &question(None, false), 5_000);
        let claims = two.read(&token).unwrap();
        assert_eq!((claims.run_id.as_str(), claims.intent), ("run-1", Intent::Resolve));
        assert_eq!(claims.tenant().unwrap().as_str(), "acme");
        assert_eq!(claims.expires_at, 5_000 + GOOD_FOR_MS);
        let stranger = Tokens::of(&Engine::new(Memory::new())).await.unwrap();
        assert_eq!(stranger.read(&token), Err(BadToken::Unknown));
        for bad in ["", ".", "a.b!", "no-dot", &"x".repeat(5_000)] {
            assert!(one.read(bad).is_err(), "{bad:?}");
        }
        let (text, signature) = token.split_once('.').unwrap();
        let forged = URL_SAFE_NO_PAD.encode(
            String::from_utf8(URL_SAFE_NO_PAD.decode(text).unwrap())
                .unwrap()
                .replace("run-1", "run-2"),
        );
        assert_eq!(one.read(&format!("{forged}.{signature}")), Err(BadToken::Unknown));
    }

    #[tokio::test]
    async fn a_token_never_outlives_its_question_and_may_only_look_where_more_is_needed() {
        let tokens = Tokens::of(&Engine::new(Memory::new())).await.unwrap();
        let token = tokens.issue("acme", "run-1", "wait", &question(Some(500), true), 1_200);
        let claims = tokens.read(&token).unwrap();
        assert_eq!((claims.expires_at, claims.intent), (1_500, Intent::Inspect));
    }
}
