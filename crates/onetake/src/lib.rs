//! onetake
