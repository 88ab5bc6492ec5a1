//! The test kit of Onetake.
pub mod clock;
pub mod faulty;
pub mod sim;
