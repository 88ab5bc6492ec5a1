//! The types of nodes: those that are built in, and how others are added.
//!
//! A built-in node stays inside the store, but for `core.http`. Whoever needs another kind
//! implements [`Executor`]; what that does to the world goes through its [`Calls`], so that it is
//! done once.

mod executor;

pub(crate) use executor::{BoxedExecutor, node_end};
pub use executor::{Calls, Executor, Executors, NodeContext, NodeEnd};

/// The type of a node that computes.
pub(crate) const TRANSFORM: &str = "core.transform";
/// The type of a node that calls over HTTP.
pub(crate) const HTTP: &str = "core.http";

/// What nodes may require of this host.
pub(crate) const PROVIDED: &[&str] = &["host.http", "core.http", "interrupts", "subWorkflow"];

/// A node that is built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    Noop,
    Identity,
    Delay,
    Fail,
    Approval,
    Clarification,
    Interrupt,
    SubWorkflow,
    Transform,
    ChannelWrite,
    Http,
    /// Does nothing, and counts as an effect: it shows what becomes of one in a replay.
    Effect,
}

impl BuiltIn {
    /// The built-in node of that type, by any of its names.
    pub(crate) fn of(type_id: &str) -> Option<Self> {
        Some(match type_id {
            "core.noop" | "core.start" | "core.end" => Self::Noop,
            "core.identity" => Self::Identity,
            "core.delay" | "core.conformance.hold" => Self::Delay,
            "core.conformance.side-effect" => Self::Effect,
            "core.fail" => Self::Fail,
            "core.approvalGate" | "core.chat.approvalGate" => Self::Approval,
            "core.clarificationGate" | "core.chat.clarificationGate" => Self::Clarification,
            "core.interrupt" => Self::Interrupt,
            "core.subWorkflow" | "core.control.subWorkflow" => Self::SubWorkflow,
            TRANSFORM => Self::Transform,
            "core.channelWrite" => Self::ChannelWrite,
            HTTP => Self::Http,
            _ => return None,
        })
    }

    /// Whether a run that repeats another one must not do it again.
    pub(crate) const fn has_effects(self) -> bool {
        match self {
            Self::Noop
            | Self::Identity
            | Self::Delay
            | Self::Fail
            | Self::Transform
            | Self::ChannelWrite => false,
            Self::Effect
            | Self::Approval
            | Self::Clarification
            | Self::Interrupt
            | Self::SubWorkflow
            | Self::Http => true,
        }
    }
}
