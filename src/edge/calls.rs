//! Requests between the Worker and its objects: binary, bounded in time, by the bindings only.

use super::dev::Op;
use crate::error::{Error, Kind, Result};
use crate::hub;
use crate::key::{Key, Location, Place};
use crate::limit::{ASK_MS, CALL_MS, NUDGE_MS};
use crate::wire::{Counted, Reading, Ticket, decode, encode};
use futures_util::future::{Either, select};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::Duration;
use wasm_bindgen::prelude::{JsCast, JsValue, wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use worker::js_sys::{Object, Promise, Reflect, Uint8Array};
use worker::{Delay, Env, Request, Response};

/// What a Pop is asked.
#[derive(Serialize, Deserialize)]
pub enum PopCall {
    /// A session opens.
    Open,
    /// A session's counts.
    Sync { ticket: Ticket, counts: Vec<(Key, crate::counter::Net)>, read: Vec<Key>, settle: bool },
    /// A step without a session.
    Add { key: Key, by: i64 },
    /// Readings; `fresh` asks every location first.
    Read { keys: Vec<Key>, fresh: bool },
    /// One reading and every location's part of it.
    Detail { key: Key, fresh: bool },
    /// A write that the key's Hub makes. It goes through the Pop, so that the location's next
    /// reading contains it, and a location that is cut off refuses it.
    Write(hub::Event),
    /// A Hub says: ask me about these keys.
    Nudge { keys: Vec<Key> },
    /// Development: cut the Pop off from its Hubs, or connect it again.
    Cut(bool),
}

/// What a Pop answers.
#[derive(Serialize, Deserialize)]
pub enum PopReply {
    Opened { incarnation: u64, now_ms: u64 },
    Synced { counts: Vec<Counted>, read: Vec<Result<Reading>>, now_ms: u64 },
    Read { readings: Vec<Result<Reading>>, missing: Vec<Location>, now_ms: u64 },
    Detail(Box<Detail>),
    Hub(HubReply),
    Done,
}

/// A reading with its parts.
#[derive(Serialize, Deserialize)]
pub struct Detail {
    pub reading: Reading,
    pub slot: String,
    pub now_ms: u64,
    pub cut: bool,
    /// The Hub's view; none when it cannot be reached.
    pub parts: Option<Vec<hub::Part>>,
    /// The locations that did not answer; none when the Hub could not be asked to ask them.
    pub missing: Option<Vec<Location>>,
}

/// What a Hub is asked.
#[derive(Serialize, Deserialize)]
pub enum HubCall {
    /// An event for the core.
    Fold(hub::Event),
    /// Ask every location for its part of a key, once at a time.
    Fresh(Key),
}

/// What a Hub answers.
#[derive(Serialize, Deserialize)]
pub enum HubReply {
    Folded(hub::Answer),
    /// The locations that did not answer.
    Fresh(Vec<Location>),
}

/// Asks a Pop.
pub async fn pop(env: &Env, place: Place, call: &PopCall) -> Result<PopReply> {
    Op::PopCall.count(1);
    let wait_ms = if matches!(call, PopCall::Nudge { .. }) { NUDGE_MS } else { CALL_MS };
    within(wait_ms, ask(env, "POP", &place.to_string(), call)).await
}

/// Asks a Hub.
pub async fn hub(env: &Env, partition: u16, call: &HubCall) -> Result<HubReply> {
    Op::HubCall.count(1);
    within(ASK_MS, ask(env, "HUB", &format!("hub/{partition}"), call)).await
}

/// Asks a Hub for the core's answer to one event.
pub async fn fold(env: &Env, partition: u16, event: hub::Event) -> Result<hub::Answer> {
    match hub(env, partition, &HubCall::Fold(event)).await? {
        HubReply::Folded(answer) => Ok(answer),
        HubReply::Fresh(_) => Err(unexpected()),
    }
}

/// An answer of another kind than the question's: two builds that do not fit.
pub fn unexpected() -> Error {
    Error::new(Kind::Unreachable, "two versions do not understand each other; try again shortly")
}

async fn ask<Q: Serialize, A: DeserializeOwned>(
    env: &Env,
    binding: &str,
    name: &str,
    question: &Q,
) -> Result<A> {
    let body = Uint8Array::from(encode(question)?.as_slice());
    let sent = async {
        let stub: RawStub = env.durable_object(binding)?.get_by_name(name)?.into_rpc();
        let init = Object::new();
        Reflect::set(&init, &"method".into(), &"POST".into())?;
        Reflect::set(&init, &"body".into(), &body)?;
        let response = JsFuture::from(stub.fetch("https://object/", &init)?).await?;
        read(&response).await
    };
    let bytes = sent.await.map_err(|error: worker::Error| {
        worker::console_error!("{name}: {error}");
        Error::new(Kind::Unreachable, "a part of the system does not answer; try again shortly")
    })?;
    decode::<Result<A>>(&bytes)?
}

#[wasm_bindgen]
extern "C" {
    /// An object's stub. Called by itself, since the crate's own way reads bodies as streams, which
    /// costs as much as all the rest of a call.
    type RawStub;

    #[wasm_bindgen(method, catch)]
    fn fetch(this: &RawStub, url: &str, init: &Object) -> core::result::Result<Promise, JsValue>;

    /// A request or a response.
    type RawBody;

    #[wasm_bindgen(method, catch, js_name = arrayBuffer)]
    fn array_buffer(this: &RawBody) -> core::result::Result<Promise, JsValue>;
}

/// Reads the whole body of a request or a response at once.
pub async fn read(message: &JsValue) -> worker::Result<Vec<u8>> {
    let body: &RawBody = message.unchecked_ref();
    let buffer = JsFuture::from(body.array_buffer()?).await?;
    Ok(Uint8Array::new(&buffer).to_vec())
}

/// Gives up after `wait_ms`: an object that hangs must not hang its caller.
async fn within<T>(wait_ms: u64, call: impl Future<Output = Result<T>>) -> Result<T> {
    match select(Box::pin(call), Delay::from(Duration::from_millis(wait_ms))).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let detail = "a part of the system did not answer in time; try again shortly";
            Err(Error::new(Kind::Unreachable, detail))
        }
    }
}

/// An object's side: reads the question.
pub async fn question<Q: DeserializeOwned>(request: &mut Request) -> Result<Q> {
    let bytes = read(request.inner()).await;
    decode(&bytes.map_err(|_| Error::new(Kind::BadMessage, "the call has no body"))?)
}

/// An object's side: writes the answer.
pub fn answer<A: Serialize>(answer: &Result<A>) -> worker::Result<Response> {
    match encode(answer) {
        Ok(bytes) => Response::from_bytes(bytes),
        Err(error) => Response::error(error.to_string(), 500),
    }
}
