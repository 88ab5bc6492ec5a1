//! The layer, in tower's grammar.

use std::sync::Arc;

use tower_layer::Layer;

use crate::idempotency::Idempotency;
use crate::service::IdempotencyService;

/// Makes every service it is put around answer retries from memory. Made by
/// [`Idempotency::layer`].
#[derive(Debug, Clone)]
pub struct IdempotencyLayer(pub(crate) Arc<Idempotency>);

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.0))
    }
}
