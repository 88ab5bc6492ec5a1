//! The onetake binary.
fn main() {}
