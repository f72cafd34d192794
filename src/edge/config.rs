//! The deployment's configuration, read once per isolate.

use crate::error::{Error, Kind, Result};
use crate::limit::SHARDS_MAX;
use crate::policy::{Policies, Policy};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use worker::Env;

/// What the variables and secrets of `wrangler.toml` say.
pub struct Config {
    /// The namespaces.
    pub policies: Policies,
    /// How many Pops a location has.
    pub shards: u16,
    /// How long a Pop gathers before it pushes to the Hubs, in ms.
    pub push_ms: u64,
    /// Keys that sign session tokens: the first signs, all verify.
    pub secrets: Vec<String>,
    /// The administrator's token; none closes the administrator's calls.
    pub admin: Option<String>,
    /// Whether requests may name their location, and cut locations off.
    pub development: bool,
}

thread_local! {
    static CONFIG: OnceCell<Result<Rc<Config>>> = const { OnceCell::new() };
}

/// The configuration. Fails with [`Kind::Misconfigured`] and names what is wrong.
pub fn config(env: &Env) -> Result<Rc<Config>> {
    CONFIG.with(|cell| cell.get_or_init(|| read(env).map(Rc::new)).clone())
}

fn read(env: &Env) -> Result<Config> {
    let declared = env.object_var::<BTreeMap<String, Policy>>("NAMESPACES").map_err(|error| {
        wrong(&format!("NAMESPACES in wrangler.toml is missing or has a wrong option: {error}"))
    })?;
    let secrets: Vec<String> = text(env, "SECRET")
        .unwrap_or_default()
        .split(',')
        .map(|secret| secret.trim().to_owned())
        .filter(|secret| !secret.is_empty())
        .collect();
    if secrets.is_empty() || secrets.iter().any(|secret| secret.len() < SECRET_BYTES_MIN) {
        return Err(wrong("set a secret of 32 characters or more: npx wrangler secret put SECRET"));
    }
    Ok(Config {
        policies: Policies::new(declared)?,
        shards: number(env, "SHARDS", 1, 1, u64::from(SHARDS_MAX))? as u16,
        push_ms: number(env, "PUSH_MS", 1_000, 10, 3_600_000)?,
        secrets,
        admin: text(env, "ADMIN_TOKEN").filter(|token| !token.is_empty()),
        development: text(env, "MODE").as_deref() == Some("development"),
    })
}

fn text(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string())
}

fn number(env: &Env, name: &str, default: u64, min: u64, max: u64) -> Result<u64> {
    let Some(text) = text(env, name) else { return Ok(default) };
    let number = text.parse().ok().filter(|number| (min..=max).contains(number));
    number
        .ok_or_else(|| wrong(&format!("{name} is a whole number from {min} to {max}, not {text}")))
}

fn wrong(detail: &str) -> Error {
    Error::new(Kind::Misconfigured, detail)
}

/// What HMAC-SHA256 needs for its full strength (RFC 2104).
const SECRET_BYTES_MIN: usize = 32;
