//! The connection to what is behind the gateway, and what is known when it fails.
