//! activity
