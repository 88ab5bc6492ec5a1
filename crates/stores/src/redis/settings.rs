//! Whether a server keeps what it acknowledges, by its own settings.
//!
//! It reads and judges. It never changes a setting of the server.

use std::collections::HashMap;

use redis::FromRedisValue;

use super::link::Link;

/// Why a server may lose records that it acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// A setting allows it.
    #[error(
        "redis may lose acknowledged records: `{setting}` is `{value}`; set it to `{instead}`, \
         or accept the loss with `accept_loss = true`"
    )]
    Setting {
        /// The name of the setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What to set instead.
        instead: &'static str,
    },
    /// The settings cannot be read, so nobody can tell.
    #[error(
        "redis does not show its setting `{setting}` ({why}), so it may lose acknowledged records; \
         allow `CONFIG GET`, or make sure of `appendonly yes` and `maxmemory-policy noeviction` \
         and accept the loss with `accept_loss = true`"
    )]
    Hidden {
        /// The name of the setting.
        setting: &'static str,
        /// What the server said.
        why: String,
    },
}

/// Why it is not known what a server keeps, or known that it is too little.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    #[error(transparent)]
    Loss(#[from] LossError),
    #[error("redis did not reply: {0}")]
    Silent(String),
}

/// What a server says of itself.
#[derive(Debug, Default)]
struct Settings {
    append_only: String,
    append_fsync: String,
    memory_max: String,
    policy: String,
}

/// How much a server that may be used can lose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nothing that was acknowledged.
    All,
    /// After a power loss, about the last second.
    AllButASecond,
}

/// Looks at every master that `link` leads to.
pub(super) async fn check(link: &Link) -> Result<Kept, Unfit> {
    // One by one, for servers before 7.0 show no more at once; together, in one round trip.
    let (append_only, append_fsync, memory_max, policy) = tokio::join!(
        values(link, "appendonly"),
        values(link, "appendfsync"),
        values(link, "maxmemory"),
        values(link, "maxmemory-policy"),
    );
    let mut kept = Kept::All;
    let all = append_only?.into_iter().zip(append_fsync?).zip(memory_max?).zip(policy?);
    for (((append_only, append_fsync), memory_max), policy) in all {
        let settings = Settings { append_only, append_fsync, memory_max, policy };
        if settings.judge()? == Kept::AllButASecond {
            kept = Kept::AllButASecond;
        }
    }
    Ok(kept)
}

/// The value of one setting on every master.
async fn values(link: &Link, setting: &'static str) -> Result<Vec<String>, Unfit> {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg(setting);
    let hidden = |why: &str| LossError::Hidden { setting, why: why.into() };
    let replies = link.send_all(&command).await.map_err(|error| match error.code() {
        Some(code) => Unfit::Loss(hidden(code)),
        None => Unfit::Silent(error.category().to_owned()),
    })?;
    let value = |reply| {
        let shown = HashMap::<String, String>::from_redis_value(reply).unwrap_or_default();
        shown.into_values().next().ok_or_else(|| hidden("it gave no value").into())
    };
    replies.into_iter().map(value).collect()
}

impl Settings {
    fn judge(&self) -> Result<Kept, LossError> {
        let Self { append_only, append_fsync, memory_max, policy } = self;
        let refused = |setting, value: &String, instead| {
            Err(LossError::Setting { setting, value: value.clone(), instead })
        };
        if append_only != "yes" {
            return refused("appendonly", append_only, "yes");
        }
        // Any policy that evicts takes a finished record before its time, and its key is free.
        if memory_max != "0" && policy != "noeviction" {
            return refused("maxmemory-policy", policy, "noeviction");
        }
        match append_fsync.as_str() {
            "always" => Ok(Kept::All),
            "everysec" => Ok(Kept::AllButASecond),
            _ => refused("appendfsync", append_fsync, "always"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(settings: [&str; 4]) -> Result<Kept, String> {
        let [append_only, append_fsync, memory_max, policy] = settings.map(str::to_owned);
        let settings = Settings { append_only, append_fsync, memory_max, policy };
        settings.judge().map_err(|error| error.to_string())
    }

    #[test]
    fn a_server_that_may_lose_records_is_told_what_to_set() {
        assert_eq!(judged(["yes", "always", "0", "allkeys-lru"]), Ok(Kept::All));
        assert_eq!(judged(["yes", "always", "9", "noeviction"]), Ok(Kept::All));
        assert_eq!(judged(["yes", "everysec", "0", "noeviction"]), Ok(Kept::AllButASecond));
        let why = |settings| judged(settings).unwrap_err();
        let none = why(["no", "always", "0", "noeviction"]);
        assert!(none.contains("`appendonly` is `no`; set it to `yes`"), "{none}");
        let lazy = why(["yes", "no", "0", "noeviction"]);
        assert!(lazy.contains("`appendfsync` is `no`; set it to `always`"), "{lazy}");
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-random"] {
            let full = why(["yes", "always", "9", policy]);
            assert!(full.contains(&format!("`maxmemory-policy` is `{policy}`")), "{full}");
        }
    }
}
