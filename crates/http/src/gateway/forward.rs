//! Which headers pass between a caller and an upstream, and which are set on the way.
