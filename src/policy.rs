//! A namespace's kind and options, parsed once from the deployment's configuration.

use crate::error::{Error, Kind, Result};
use crate::key::Key;
use crate::limit::NAMESPACE_BYTES_MAX;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use serde::Deserialize;

/// What a namespace counts and how. One table `[vars.NAMESPACES.name]` of `wrangler.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What it counts.
    pub kind: Counts,
    /// Refuse steps down (a G-Counter).
    #[serde(default)]
    pub grow_only: bool,
    /// The largest step in one call, in units; also how far one sync of a session goes.
    #[serde(default = "max_step")]
    pub max_step: u64,
    /// The most counters that one Pop keeps of the namespace; new names beyond it are refused.
    #[serde(default = "max_keys")]
    pub max_keys: u64,
    /// How old the other locations' part of a reading may be, in ms, before the Hub is asked.
    #[serde(default = "max_stale_ms")]
    pub max_stale_ms: u64,
    /// How long a public reading may be served from the edge cache, in seconds; 0 is never.
    #[serde(default)]
    pub cache: u32,
}

/// The kinds of counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Counts {
    /// Views, likes, votes: a PN-Counter that every location counts on its own.
    Count,
}

/// The configuration passes through JavaScript numbers, which are exact up to here.
const MAX_STEP_MAX: u64 = (1 << 53) - 1;

fn max_step() -> u64 {
    1_000_000
}

fn max_keys() -> u64 {
    1_000_000
}

fn max_stale_ms() -> u64 {
    1_000
}

impl Policy {
    /// The policy of a namespace that sets no option.
    pub fn count() -> Policy {
        Policy {
            kind: Counts::Count,
            grow_only: false,
            max_step: max_step(),
            max_keys: max_keys(),
            max_stale_ms: max_stale_ms(),
            cache: 0,
        }
    }

    /// The same, growing only.
    pub fn growing() -> Policy {
        Policy { grow_only: true, ..Policy::count() }
    }

    /// Checks one step. Fails with [`Kind::BadStep`] or [`Kind::GrowOnly`].
    pub fn check_step(&self, by: i64) -> Result<()> {
        if by == 0 || by.unsigned_abs() > self.max_step {
            let detail = format!(
                "`by` is a whole number from -{max} to {max}, and not 0",
                max = self.max_step
            );
            return Err(Error::new(Kind::BadStep, detail));
        }
        self.check_down(by < 0)
    }

    /// Refuses a step down where the namespace only grows.
    pub fn check_down(&self, down: bool) -> Result<()> {
        if down && self.grow_only {
            let detail = "this namespace only grows (grow_only); send a positive step";
            return Err(Error::new(Kind::GrowOnly, detail));
        }
        Ok(())
    }
}

/// The policies of all declared namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies(BTreeMap<String, Policy>);

impl Policies {
    /// Checks a whole configuration. Fails with [`Kind::Misconfigured`] and names the option.
    pub fn new(declared: impl IntoIterator<Item = (String, Policy)>) -> Result<Self> {
        let mut policies = BTreeMap::new();
        for (name, policy) in declared {
            let wrong = |what: &str| {
                Err(Error::new(Kind::Misconfigured, format!("NAMESPACES.{name}: {what}")))
            };
            if name.len() > NAMESPACE_BYTES_MAX || Key::new(&name, "x").is_err() {
                return wrong(
                    "a namespace has 1 to 32 characters of a-z, 0-9 and -, and is no word of the API",
                );
            }
            if policy.max_step == 0 || policy.max_step > MAX_STEP_MAX {
                return wrong("max_step is from 1 to 9007199254740991");
            }
            policies.insert(name, policy);
        }
        Ok(Self(policies))
    }

    /// The policy of a key's namespace. Fails with [`Kind::UnknownNamespace`].
    pub fn of(&self, namespace: &str) -> Result<&Policy> {
        self.0.get(namespace).ok_or_else(|| {
            let detail =
                format!("declare `{namespace}` in wrangler.toml: [vars.NAMESPACES.{namespace}]");
            Error::new(Kind::UnknownNamespace, detail)
        })
    }
}
