//! How answers look: readings as JSON, errors as problem documents (RFC 9457).

use super::calls::Detail;
use crate::counter::Epoch;
use crate::error::{Error, Kind};
use crate::key::{Key, Location, hash};
use crate::wire::{Counted, Reading};
use serde_json::{Map, Number, Value, json};
use worker::{Headers, Response};

/// A reading as an object of JSON.
pub fn reading(
    key: &Key,
    reading: &Reading,
    location: Location,
    now_ms: u64,
) -> Map<String, Value> {
    let mut shown = Map::new();
    shown.insert("key".into(), key.as_str().into());
    put_value(&mut shown, reading.value());
    let others = reading.others;
    shown.insert("as_of".into(), others.map(|others| others.as_of_ms).into());
    let stale_ms = others.map(|others| now_ms.saturating_sub(others.as_of_ms));
    shown.insert("stale_ms".into(), stale_ms.into());
    shown.insert("version".into(), others.map(|others| others.version).into());
    shown.insert("location".into(), location.as_str().into());
    shown
}

/// A reading and every location's part of it.
pub fn detail(key: &Key, detail: &Detail, location: Location) -> Map<String, Value> {
    let mut shown = reading(key, &detail.reading, location, detail.now_ms);
    let own = &detail.reading.own;
    shown.insert("slot".into(), detail.slot.clone().into());
    shown.insert("own".into(), amount(own.value()));
    let others = detail.reading.value().map(|total| amount(total.saturating_sub(own.value())));
    shown.insert("others".into(), others.into());
    shown.insert("unsynced".into(), amount(detail.reading.unsynced.value()));
    shown.insert("cut".into(), detail.cut.into());
    let hub = if detail.parts.is_some() { "ok" } else { "unreachable" };
    shown.insert("hub".into(), hub.into());
    let part = |part: &crate::hub::Part| {
        let mut shown = Map::new();
        shown.insert("slot".into(), part.id.to_string().into());
        shown.insert("location".into(), part.id.place.location.as_str().into());
        put_value(&mut shown, Some(part.net.value()));
        shown.insert("age_ms".into(), part.age_ms.into());
        Value::from(shown)
    };
    let parts: Vec<Value> = detail.parts.iter().flatten().map(part).collect();
    shown.insert("parts".into(), parts.into());
    shown
}

/// What became of one count of a session.
pub fn counted(
    key: &Key,
    counted: &Counted,
    location: Location,
    now_ms: u64,
) -> Map<String, Value> {
    let mut shown = match &counted.reading {
        Some(read) => reading(key, read, location, now_ms),
        None => Map::new(),
    };
    shown.insert("p".into(), counted.applied.p.to_string().into());
    shown.insert("n".into(), counted.applied.n.to_string().into());
    if let Some(error) = &counted.refused {
        shown.insert("problem".into(), problem(error));
    }
    shown
}

/// An amount as a number and as exact digits.
pub fn amount(value: i128) -> Value {
    let mut shown = Map::new();
    put_value(&mut shown, Some(value));
    shown.into()
}

/// The two forms of a value: a JSON number, which JavaScript rounds above 2^53, and its digits.
pub fn put_value(shown: &mut Map<String, Value>, value: Option<i128>) {
    let number = |value| Number::from_i128(value).or_else(|| Number::from_f64(value as f64));
    shown.insert("value".into(), value.and_then(number).map_or(Value::Null, Value::Number));
    shown.insert("exact".into(), value.map(|value| value.to_string()).into());
}

/// A strong validator of what a reading says: the same whichever shard answers.
pub fn etag(reading: &Reading) -> String {
    let Epoch(epoch) = reading.epoch;
    let mut bytes = epoch.to_be_bytes().to_vec();
    bytes.extend(reading.total.p.to_be_bytes());
    bytes.extend(reading.total.n.to_be_bytes());
    format!("\"{:016x}\"", hash(&bytes))
}

/// An error as a problem document.
pub fn problem(error: &Error) -> Value {
    json!({
        "type": format!("urn:poptally:problem:{}", error.kind.slug()),
        "title": error.kind.title(),
        "status": error.kind.status(),
        "detail": error.detail,
        "retryable": error.kind.retryable(),
    })
}

/// An error as an answer.
pub fn refusal(error: &Error) -> worker::Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", "application/problem+json")?;
    headers.set("cache-control", "no-store")?;
    match error.kind {
        Kind::Unauthorized => headers.set("www-authenticate", "Bearer")?,
        kind if kind.retryable() || kind == Kind::TooManyKeys => headers.set("retry-after", "1")?,
        _ => {}
    }
    let body = problem(error).to_string();
    Ok(Response::ok(body)?.with_headers(headers).with_status(error.kind.status()))
}

/// A JSON answer that nobody keeps.
pub fn json(body: impl Into<Value>) -> worker::Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", "application/json")?;
    headers.set("cache-control", "no-store")?;
    Ok(Response::ok(body.into().to_string())?.with_headers(headers))
}
