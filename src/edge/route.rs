//! The routes of the HTTP API: reads a request, asks the objects, shows the answer.

use super::calls::{self, PopCall, PopReply, unexpected};
use super::config::{Config, config};
use super::desk::{now_ms, random};
use super::dev::{Op, ops};
use super::{show, token};
use crate::counter::Net;
use crate::error::{Error, Kind, Result};
use crate::hub::{Answer as HubAnswer, Event as HubEvent, List, Listed};
use crate::key::{Key, Location, Place, jittered_shard};
use crate::limit::{
    ANSWER_MS, BATCH_MAX, BODY_BYTES_MAX, IDEMPOTENCY_BYTES_MAX, LIST_MAX, PARTITIONS, SESSION_MS,
    SHARDS_MAX,
};
use crate::wire::{Open, Opened, Outcome, Reading, Sync, Synced, Ticket, decode, encode};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use wasm_bindgen::JsValue;
use worker::js_sys::{Reflect, decode_uri_component};
use worker::{Cache, Env, Headers, Method, Request, Response};

/// What every handler needs.
struct Call {
    env: Env,
    config: Rc<Config>,
    request: Request,
    location: Location,
    query: HashMap<String, String>,
}

/// What a handler makes: an answer, or an error that becomes a problem document.
type Answer = Result<worker::Result<Response>>;

/// Answers one request, whatever it is.
pub async fn serve(request: Request, env: Env) -> worker::Result<Response> {
    Op::Request.count(1);
    let started = now_ms();
    let answer = match (request.method(), config(&env)) {
        (Method::Options, _) => Ok(Response::empty().map(|empty| empty.with_status(204))),
        (_, Err(error)) => Err(error),
        (_, Ok(config)) => dispatch(request, env, config).await,
    };
    let response = match answer {
        Ok(response) => response?,
        Err(error) => show::refusal(&error)?,
    };
    let headers = response.headers().clone();
    for (name, value) in EVERY_ANSWER {
        headers.set(name, value)?;
    }
    headers.set("server-timing", &format!("total;dur={}", now_ms().saturating_sub(started)))?;
    Ok(response.with_headers(headers))
}

async fn dispatch(request: Request, env: Env, config: Rc<Config>) -> Answer {
    let url = request.url().map_err(|_| bad_request("the address is not understood"))?;
    let segments: Vec<&str> = url.path().split('/').skip(1).collect();
    let segments: Vec<String> = segments.into_iter().map(unescape).collect::<Result<_>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let location = location(&config, &request)?;
    let query = url.query_pairs().into_owned().collect();
    let method = request.method();
    let call = Call { env, config, request, location, query };
    match (segments.as_slice(), method) {
        (["healthz"], Method::Get | Method::Head) => call.health().await,
        (["v1", "session"], Method::Post) => call.open().await,
        (["v1", "sync"], Method::Post) => call.sync().await,
        (["v1", "read"], Method::Post) => call.read_many().await,
        (["dev", "ops"], Method::Get) if call.config.development => Ok(show::json(ops())),
        (["dev", "cut"], Method::Post) if call.config.development => call.cut(true).await,
        (["dev", "heal"], Method::Post) if call.config.development => call.cut(false).await,
        (["v1", "session" | "sync" | "read"], _) => Err(bad_method()),
        (["v1", namespace], Method::Get | Method::Head) => {
            // Any name will do: what is checked is the namespace.
            call.list(Key::new(namespace, "x")?.namespace()).await
        }
        (["v1", namespace, name], method) => {
            let key = Key::new(namespace, name)?;
            call.config.policies.of(key.namespace())?;
            match method {
                Method::Get | Method::Head => call.read(&key).await,
                Method::Post => call.add(&key).await,
                Method::Put => call.set(&key, false).await,
                Method::Delete => call.set(&key, true).await,
                _ => Err(bad_method()),
            }
        }
        (["healthz"] | ["v1", _], _) => Err(bad_method()),
        (["dev", "cut" | "heal" | "ops"], _) if call.config.development => Err(bad_method()),
        _ => {
            let detail = "see the README for the routes; a name is one segment, so write / as %2F";
            Err(Error::new(Kind::NoRoute, detail))
        }
    }
}

impl Call {
    async fn health(self) -> Answer {
        Ok(show::json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION") })))
    }

    /// `GET /v1/{ns}/{name}`
    async fn read(self, key: &Key) -> Answer {
        let fresh = self.query.contains_key("fresh");
        if self.query.contains_key("detail") {
            let call = PopCall::Detail { key: key.clone(), fresh };
            let PopReply::Detail(detail) = self.pop_of(key, &call).await? else {
                return Err(unexpected());
            };
            let mut shown = show::detail(key, &detail, self.location);
            if fresh {
                shown.insert("missing".into(), detail.missing.as_deref().map(names).into());
            }
            return Ok(show::json(shown));
        }
        let seconds = self.config.policies.of(key.namespace())?.cache;
        let cached = (seconds > 0 && !fresh).then(|| self.cache_key());
        if let Some(hit) = self.cached(cached.as_deref()).await {
            return Ok(self.if_changed(hit));
        }
        let call = PopCall::Read { keys: vec![key.clone()], fresh };
        let PopReply::Read { readings, missing, now_ms } = self.pop_of(key, &call).await? else {
            return Err(unexpected());
        };
        let reading = readings.into_iter().next().ok_or_else(unexpected)??;
        if reading.others.is_none() {
            let detail = "this location never heard of the others' counts and cannot reach the Hub; \
                          ?detail tells its own part";
            return Err(Error::new(Kind::Unknown, detail));
        }
        let mut shown = show::reading(key, &reading, self.location, now_ms);
        if fresh {
            shown.insert("missing".into(), names(&missing));
        }
        let response = readable(shown, &reading, if fresh { 0 } else { seconds });
        match (cached, response) {
            (Some(cached), Ok(response)) => Ok(self.keep(&cached, response).await),
            (_, response) => Ok(response.and_then(|response| self.if_changed(response))),
        }
    }

    /// `POST /v1/{ns}/{name}`
    async fn add(mut self, key: &Key) -> Answer {
        let body = self.json_body().await?;
        let by = step(&body)?;
        let once = self.header("idempotency-key");
        if let Some(once) = once {
            let event = HubEvent::Add { key: key.clone(), by, once: idempotency_key(&once)? };
            return self.write(key, event, Some(by)).await;
        }
        let call = PopCall::Add { key: key.clone(), by };
        let PopReply::Read { readings, now_ms, .. } = self.pop_of(key, &call).await? else {
            return Err(unexpected());
        };
        let reading = readings.into_iter().next().ok_or_else(unexpected)??;
        let mut shown = show::reading(key, &reading, self.location, now_ms);
        shown.insert("applied".into(), by.to_string().into());
        Ok(show::json(shown))
    }

    /// `PUT` and `DELETE /v1/{ns}/{name}`
    async fn set(mut self, key: &Key, clear: bool) -> Answer {
        token::check_admin(&self.config, self.header("authorization").as_deref())?;
        let net = if clear { Net::ZERO } else { value(&self.json_body().await?)? };
        self.write(key, HubEvent::Set { key: key.clone(), net, clear }, None).await
    }

    /// A write that the key's Hub makes.
    async fn write(&self, key: &Key, event: HubEvent, applied: Option<i64>) -> Answer {
        let reply = self.pop_of(key, &PopCall::Write(event)).await?;
        let PopReply::Hub(calls::HubReply::Folded(HubAnswer::Written { reading, replayed })) =
            reply
        else {
            return Err(unexpected());
        };
        // What is read is the answer of the moment when it was written, also in a replay.
        let as_of_ms = reading.others.map_or(0, |others| others.as_of_ms);
        let mut shown = show::reading(key, &reading, self.location, as_of_ms);
        if let Some(by) = applied {
            shown.insert("applied".into(), by.to_string().into());
        }
        let response = show::json(shown);
        if replayed {
            return Ok(response.and_then(|response| with(response, "idempotency-replayed", "true")));
        }
        Ok(response)
    }

    /// `GET /v1/{ns}?prefix=&order=&limit=&cursor=`
    async fn list(self, namespace: &str) -> Answer {
        self.config.policies.of(namespace)?;
        let by_value = match self.query.get("order").map(String::as_str) {
            None | Some("name") => false,
            Some("value") => true,
            Some(_) => return Err(bad_request("order is name or value")),
        };
        let limit = match self.query.get("limit").map(|limit| limit.parse::<u32>()) {
            None => 100,
            Some(Ok(limit)) if (1..=LIST_MAX as u32).contains(&limit) => limit,
            Some(_) => return Err(bad_request("limit is a whole number from 1 to 1000")),
        };
        let after =
            self.query.get("cursor").map(|cursor| parse_cursor(namespace, cursor)).transpose()?;
        let prefix = self.query.get("prefix").cloned().unwrap_or_default();
        let list = List { namespace: namespace.into(), prefix, by_value, after, limit };
        let event = HubEvent::List(list.clone());
        let asked =
            (0..PARTITIONS).map(|partition| calls::fold(&self.env, partition, event.clone()));
        let mut found: Vec<Listed> = Vec::new();
        for answer in join_all(asked).await {
            match answer? {
                HubAnswer::List(more) => found.extend(more),
                _ => return Err(unexpected()),
            }
        }
        found.sort_by(|a, b| list.order(a, b));
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let cursor = found.last().filter(|_| more).map(cursor);
        let item = |listed: &Listed| {
            let mut shown = Map::new();
            shown.insert("key".into(), listed.key.as_str().into());
            shown.insert("name".into(), listed.key.name().into());
            show::put_value(&mut shown, Some(listed.value));
            Value::from(shown)
        };
        let items: Vec<Value> = found.iter().map(item).collect();
        Ok(show::json(json!({ "items": items, "cursor": cursor })))
    }

    /// `POST /v1/read`
    async fn read_many(mut self) -> Answer {
        let body = self.json_body().await?;
        let asked = body.get("keys").and_then(Value::as_array);
        let asked = asked.ok_or_else(|| bad_json("the body is {\"keys\": [\"likes/a\", …]}"))?;
        if asked.len() > BATCH_MAX {
            return Err(Error::new(Kind::TooLarge, "at most 100 keys in one call"));
        }
        let check = |asked: &Value| {
            let key = Key::parse(asked.as_str().unwrap_or_default())?;
            self.config.policies.of(key.namespace())?;
            Ok(key)
        };
        let keys: Vec<Result<Key>> = asked.iter().map(check).collect();
        let mut shards: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
        for key in keys.iter().flatten() {
            shards.entry(key.shard(self.config.shards)).or_default().push(key.clone());
        }
        let mut found: BTreeMap<Key, Value> = BTreeMap::new();
        let call = &self;
        let reads = shards.into_iter().map(|(shard, keys)| async move {
            let place = Place { location: call.location, shard };
            let read = PopCall::Read { keys: keys.clone(), fresh: false };
            (keys, calls::pop(&call.env, place, &read).await)
        });
        for (keys, reply) in join_all(reads).await {
            let PopReply::Read { readings, now_ms, .. } = reply? else { return Err(unexpected()) };
            for (key, reading) in keys.into_iter().zip(readings) {
                let shown = self.shown(&key, &reading, now_ms);
                found.insert(key, shown);
            }
        }
        let item = |(asked, key): (&Value, &Result<Key>)| match key {
            Ok(key) => found.get(key).cloned().unwrap_or(Value::Null),
            Err(error) => json!({ "key": asked, "problem": show::problem(error) }),
        };
        let items: Vec<Value> = asked.iter().zip(&keys).map(item).collect();
        Ok(show::json(json!({ "items": items })))
    }

    /// `POST /v1/session`
    async fn open(mut self) -> Answer {
        let body = self.body().await?;
        let text = body.first().is_none_or(|first| *first == b'{');
        let open: Open = match (body.is_empty(), text) {
            (true, _) => Open::default(),
            (_, true) => {
                serde_json::from_slice(&body).map_err(|error| bad_json(&error.to_string()))?
            }
            (_, false) => decode(&body)?,
        };
        // A client prefers its last home, if that is here and still exists.
        let last = open.last.and_then(|last| token::check(&self.config, &last).ok());
        let last = last
            .map(|ticket| ticket.home)
            .filter(|home| home.location == self.location && home.shard < self.config.shards);
        let shard = jittered_shard(self.config.shards, now_ms(), random());
        let home = last.unwrap_or(Place { location: self.location, shard });
        let PopReply::Opened { incarnation, now_ms } =
            calls::pop(&self.env, home, &PopCall::Open).await?
        else {
            return Err(unexpected());
        };
        let mut sid = [0; 16];
        let (high, low) = sid.split_at_mut(8);
        high.copy_from_slice(&random().to_be_bytes());
        low.copy_from_slice(&random().to_be_bytes());
        let expires_ms = now_ms.saturating_add(SESSION_MS);
        let ticket = Ticket { sid, home, incarnation, expires_ms };
        let token = token::mint(&self.config, &ticket)?;
        let opened = Opened { token, expires_ms, home: home.location };
        if !text {
            return Ok(binary(encode(&opened)?));
        }
        Ok(show::json(json!({
            "token": opened.token,
            "expires": opened.expires_ms,
            "location": opened.home.as_str(),
        })))
    }

    /// `POST /v1/sync`, in binary or in JSON: the answer has the form of the question.
    async fn sync(mut self) -> Answer {
        let body = self.body().await?;
        let text = body.first().is_none_or(|first| *first == b'{');
        let JsonSync { sync, wrong, unreadable } = if text {
            sync_from_json(&parse(&body)?)?
        } else {
            JsonSync { sync: decode(&body)?, wrong: Vec::new(), unreadable: Vec::new() }
        };
        if sync.counts.len().saturating_add(sync.read.len()) > BATCH_MAX {
            return Err(Error::new(
                Kind::TooLarge,
                "at most 100 keys in one call; send the rest next",
            ));
        }
        let ticket = token::check(&self.config, &sync.token)?;
        let home = ticket.home;
        let keys: Vec<Key> = sync.counts.iter().map(|(key, _)| key.clone()).collect();
        let (read, settle) = (sync.read.clone(), sync.settle);
        let call = PopCall::Sync { ticket, counts: sync.counts, read: sync.read, settle };
        let reply = calls::pop(&self.env, home, &call).await?;
        let PopReply::Synced { counts, read: readings, now_ms } = reply else {
            return Err(unexpected());
        };
        if !text {
            let counts = counts.into_iter().map(Outcome::from);
            let outcomes = counts.chain(readings.into_iter().map(Outcome::from)).collect();
            return Ok(binary(encode(&Synced { outcomes, near: self.location })?));
        }
        let mut shown: Map<String, Value> = keys
            .iter()
            .zip(&counts)
            .map(|(key, counted)| {
                let shown = show::counted(key, counted, home.location, now_ms);
                (key.to_string(), shown.into())
            })
            .collect();
        for (key, error) in wrong {
            shown.insert(key, json!({ "problem": show::problem(&error) }));
        }
        let mut read: Map<String, Value> = read
            .iter()
            .zip(&readings)
            .map(|(key, reading)| (key.to_string(), self.shown(key, reading, now_ms)))
            .collect();
        for (key, error) in unreadable {
            read.insert(key, json!({ "problem": show::problem(&error) }));
        }
        Ok(show::json(json!({ "counts": shown, "read": read })))
    }

    /// `POST /dev/cut?pop=LHR` and `/dev/heal?pop=LHR`
    async fn cut(self, cut: bool) -> Answer {
        let pop = self.query.get("pop").ok_or_else(|| bad_request("name a location: ?pop=LHR"))?;
        let location = Location::new(pop)?;
        // A shard that the configuration has no more may still be cut off.
        let shards = if cut { self.config.shards } else { SHARDS_MAX };
        let call = PopCall::Cut(cut);
        let calls =
            (0..shards).map(|shard| calls::pop(&self.env, Place { location, shard }, &call));
        join_all(calls).await.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(show::json(json!({ "pop": pop, "cut": cut })))
    }

    async fn pop_of(&self, key: &Key, call: &PopCall) -> Result<PopReply> {
        let place = Place { location: self.location, shard: key.shard(self.config.shards) };
        calls::pop(&self.env, place, call).await
    }

    fn shown(&self, key: &Key, reading: &Result<Reading>, now_ms: u64) -> Value {
        match reading {
            Ok(reading) => show::reading(key, reading, self.location, now_ms).into(),
            Err(error) => json!({ "key": key.as_str(), "problem": show::problem(error) }),
        }
    }

    fn header(&self, name: &str) -> Option<String> {
        self.request.headers().get(name).ok().flatten()
    }

    /// The body, refused as soon as it is longer than the limit.
    async fn body(&mut self) -> Result<Vec<u8>> {
        let too_large = || {
            Error::new(
                Kind::TooLarge,
                format!("a body has at most {BODY_BYTES_MAX} bytes; send less at once"),
            )
        };
        let declared = self.header("content-length").and_then(|length| length.parse::<u64>().ok());
        match declared {
            Some(length) if length > BODY_BYTES_MAX as u64 => return Err(too_large()),
            Some(_) => {
                let body = calls::read(self.request.inner()).await;
                return body.map_err(|_| bad_request("the body broke off"));
            }
            None => {}
        }
        // Of unknown length: piece by piece, which costs more.
        let mut body = Vec::new();
        let Ok(mut stream) = self.request.stream() else { return Ok(body) };
        while let Some(chunk) = stream.next().await {
            body.extend(chunk.map_err(|_| bad_request("the body broke off"))?);
            if body.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
        }
        Ok(body)
    }

    async fn json_body(&mut self) -> Result<Map<String, Value>> {
        parse(&self.body().await?)
    }

    /// What the edge cache knows an answer by: in development several locations share one cache.
    fn cache_key(&self) -> String {
        let mut url = self.request.url().map(|url| url.to_string()).unwrap_or_default();
        url.push_str(if url.contains('?') { "&" } else { "?" });
        url.push_str("location=");
        url.push_str(self.location.as_str());
        url
    }

    async fn cached(&self, key: Option<&str>) -> Option<Response> {
        // Where there is no cache, a reading is simply not served from it.
        Cache::default().get(key?, false).await.ok().flatten()
    }

    async fn keep(&self, key: &str, mut response: Response) -> worker::Result<Response> {
        if let Ok(copy) = response.cloned() {
            let _ = Cache::default().put(key, copy).await;
        }
        self.if_changed(response)
    }

    /// Answers 304 where the caller has the same already (RFC 9110, section 13).
    fn if_changed(&self, response: Response) -> worker::Result<Response> {
        let etag = response.headers().get("etag")?.unwrap_or_default();
        let known = self.header("if-none-match").unwrap_or_default();
        let same = known.split(',').any(|known| {
            let known = known.trim();
            known == "*" || known.trim_start_matches("W/") == etag
        });
        if !same || etag.is_empty() {
            return Ok(response);
        }
        let headers = Headers::new();
        for name in ["etag", "cache-control"] {
            if let Some(value) = response.headers().get(name)? {
                headers.set(name, &value)?;
            }
        }
        Ok(Response::empty()?.with_status(304).with_headers(headers))
    }
}

fn readable(
    shown: Map<String, Value>,
    reading: &Reading,
    seconds: u32,
) -> worker::Result<Response> {
    let response = show::json(shown)?;
    let headers = response.headers().clone();
    headers.set("etag", &show::etag(reading))?;
    let cache = if seconds > 0 { format!("public, max-age={seconds}") } else { "no-cache".into() };
    headers.set("cache-control", &cache)?;
    Ok(response.with_headers(headers))
}

fn binary(bytes: Vec<u8>) -> worker::Result<Response> {
    let response = Response::from_bytes(bytes)?;
    with(response, "cache-control", "no-store")
}

fn with(response: Response, name: &str, value: &str) -> worker::Result<Response> {
    let headers = response.headers().clone();
    headers.set(name, value)?;
    Ok(response.with_headers(headers))
}

/// The location that serves a request: where it arrived, or in development what it says.
fn location(config: &Config, request: &Request) -> Result<Location> {
    if config.development
        && let Ok(Some(named)) = request.headers().get("x-poptally-pop")
    {
        return Location::new(&named);
    }
    let cf = Reflect::get(request.inner(), &JsValue::from_str("cf"));
    let colo = cf.and_then(|cf| Reflect::get(&cf, &JsValue::from_str("colo")));
    match colo.ok().and_then(|colo| colo.as_string()) {
        Some(colo) => Location::new(&colo),
        None => Location::new("LOCAL"),
    }
}

fn unescape(segment: &str) -> Result<String> {
    let text = decode_uri_component(segment).map(String::from);
    text.map_err(|_| Error::new(Kind::BadName, "a name is UTF-8, percent-encoded"))
}

fn parse(body: &[u8]) -> Result<Map<String, Value>> {
    if body.is_empty() {
        return Err(bad_json("the body is empty; this call needs a JSON object"));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad_json("the body is JSON but not an object")),
        Err(error) => Err(bad_json(&format!("the body does not parse: {error}"))),
    }
}

/// A whole number, as a JSON number or as decimal digits.
fn integer(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => number.as_i128(),
        Value::String(digits) => digits.parse().ok(),
        _ => None,
    }
}

fn step(body: &Map<String, Value>) -> Result<i64> {
    let by = body.get("by").and_then(integer).and_then(|by| i64::try_from(by).ok());
    by.filter(|by| *by != 0).ok_or_else(|| {
        let detail = "`by` is a whole number and not 0, such as {\"by\": 1}";
        Error::new(Kind::BadStep, detail)
    })
}

fn value(body: &Map<String, Value>) -> Result<Net> {
    let wrong = || {
        let detail = "`value` is a whole number from -18446744073709551615 to 18446744073709551615";
        Error::new(Kind::BadStep, detail)
    };
    let value = body.get("value").and_then(integer).ok_or_else(wrong)?;
    let size = u64::try_from(value.unsigned_abs()).map_err(|_| wrong())?;
    Ok(if value < 0 { Net { p: 0, n: size } } else { Net { p: size, n: 0 } })
}

/// A sync as it came in JSON, and by name what of it is wrong by itself.
struct JsonSync {
    sync: Sync,
    wrong: Vec<(String, Error)>,
    unreadable: Vec<(String, Error)>,
}

/// A session's counts in JSON; entries that are wrong by themselves come back beside the good.
fn sync_from_json(body: &Map<String, Value>) -> Result<JsonSync> {
    let token = body.get("token").and_then(Value::as_str).unwrap_or_default().to_owned();
    let empty = Map::new();
    let counts = match body.get("counts") {
        None => &empty,
        Some(counts) => counts
            .as_object()
            .ok_or_else(|| bad_json("`counts` is {\"likes/a\": {\"p\": 3, \"n\": 0}, …}"))?,
    };
    let mut sync =
        Sync { token, settle: body.get("settle") == Some(&Value::Bool(true)), ..Sync::default() };
    let mut wrong = Vec::new();
    for (name, count) in counts {
        let part = |part: &str| match count.get(part) {
            None => Some(0),
            Some(part) => integer(part).and_then(|part| u64::try_from(part).ok()),
        };
        let net = match (part("p"), part("n"), count.is_object()) {
            (Some(p), Some(n), true) => Ok(Net { p, n }),
            _ => {
                let detail = "a count is {\"p\": …, \"n\": …}: all that the session ever counted up \
                              and down, as whole numbers from 0 to 18446744073709551615";
                Err(Error::new(Kind::BadStep, detail))
            }
        };
        match Key::parse(name).and_then(|key| Ok((key, net?))) {
            Ok(count) => sync.counts.push(count),
            Err(error) => wrong.push((name.clone(), error)),
        }
    }
    let read = match body.get("read") {
        None => &Vec::new(),
        Some(read) => read.as_array().ok_or_else(|| bad_json("`read` is [\"likes/a\", …]"))?,
    };
    let mut unreadable = Vec::new();
    for name in read {
        match Key::parse(name.as_str().unwrap_or_default()) {
            Ok(key) => sync.read.push(key),
            Err(error) => {
                let asked = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
                unreadable.push((asked, error));
            }
        }
    }
    Ok(JsonSync { sync, wrong, unreadable })
}

/// Checks an `Idempotency-Key`; takes the quoted form of the IETF draft too.
fn idempotency_key(header: &str) -> Result<String> {
    let key = header.trim();
    let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
    let visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    if key.is_empty() || key.len() > IDEMPOTENCY_BYTES_MAX || !visible {
        let detail = "an Idempotency-Key is 1 to 128 visible ASCII characters, such as a UUID";
        return Err(Error::new(Kind::BadIdempotencyKey, detail));
    }
    if uuid7_ms(key).is_some_and(|made| now_ms().saturating_sub(made) > ANSWER_MS) {
        let detail = "this UUIDv7 is older than the 24 hours for which answers are kept; whether the \
                      request was counted cannot be told any more";
        return Err(Error::new(Kind::IdempotencyExpired, detail));
    }
    Ok(key.to_owned())
}

/// When a UUIDv7 was made, in ms since 1970 (RFC 9562, section 5.7).
fn uuid7_ms(key: &str) -> Option<u64> {
    let groups: Vec<&str> = key.split('-').collect();
    match groups.as_slice() {
        [a, b, c, d, e]
            if (a.len(), b.len(), c.len(), d.len(), e.len()) == (8, 4, 4, 4, 12)
                && c.starts_with('7') =>
        {
            u64::from_str_radix(&format!("{a}{b}"), 16).ok()
        }
        _ => None,
    }
}

/// A list's place, so that the next page begins after it.
fn cursor(last: &Listed) -> String {
    format!("{}:{}", last.value, last.key.name())
}

fn parse_cursor(namespace: &str, cursor: &str) -> Result<Listed> {
    let wrong = || bad_request("cursor is what the page before answered");
    let (value, name) = cursor.split_once(':').ok_or_else(wrong)?;
    let value = value.parse().map_err(|_| wrong())?;
    Ok(Listed { key: Key::new(namespace, name).map_err(|_| wrong())?, value })
}

fn names(locations: &[Location]) -> Value {
    locations.iter().map(|location| Value::from(location.as_str())).collect()
}

fn bad_json(detail: &str) -> Error {
    Error::new(Kind::BadJson, detail)
}

fn bad_request(detail: &str) -> Error {
    Error::new(Kind::BadRequest, detail)
}

fn bad_method() -> Error {
    Error::new(Kind::BadMethod, "this path serves other methods; see the README")
}

/// What every answer says: any page may read it (Fetch standard, CORS), and it is what it says.
const EVERY_ANSWER: [(&str, &str); 6] = [
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", "GET, POST, PUT, DELETE, OPTIONS"),
    (
        "access-control-allow-headers",
        "content-type, authorization, idempotency-key, if-none-match, x-poptally-pop",
    ),
    ("access-control-expose-headers", "etag, retry-after, server-timing, idempotency-replayed"),
    ("access-control-max-age", "86400"),
    ("x-content-type-options", "nosniff"),
];
