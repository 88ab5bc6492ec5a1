//! What a route matches: methods, and a path with named parts.
