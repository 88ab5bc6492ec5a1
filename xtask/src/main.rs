//! The verbs.
fn main() {}
