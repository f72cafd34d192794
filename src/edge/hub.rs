//! The durable object of a partition of the keys: a [`crate::hub::Hub`] on SQLite.

use super::calls::{self, HubCall, HubReply, PopCall};
use super::config::config;
use super::desk::{Desk, Machine, now_ms};
use super::sql::Sql;
use crate::error::{Error, Kind, Result};
use crate::hub::{Answer, Event};
use crate::key::{Key, Location, Place};
use futures_util::future::{FutureExt, LocalBoxFuture, Shared, join_all};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wasm_bindgen_futures::spawn_local;
use worker::{Delay, DurableObject, Env, Request, Response, State, durable_object};

/// The core with what its alarm needs to know.
struct Core {
    hub: crate::hub::Hub<Sql>,
    push_ms: u64,
}

impl Machine for Core {
    type Event = Event;
    type Answer = Answer;

    fn turn(&mut self, now_ms: u64, random: u64, events: &[Event]) -> Vec<Result<Answer>> {
        self.hub.turn(now_ms, random, events)
    }

    fn wake_ms(&self, now_ms: u64, random: u64) -> Result<Option<u64>> {
        self.hub.wake_ms(now_ms, self.push_ms, random)
    }
}

/// A question to all locations that several readers may wait for, and when it was put.
type Round = (u64, Shared<LocalBoxFuture<'static, Vec<Location>>>);

/// What all requests of the object share.
struct Inner {
    env: Env,
    desk: Rc<Desk<Core>>,
    rounds: RefCell<BTreeMap<Key, Round>>,
}

/// A partition of the keys.
#[durable_object(alarm)]
pub struct Hub {
    inner: Result<Rc<Inner>>,
}

impl DurableObject for Hub {
    fn new(state: State, env: Env) -> Self {
        Self { inner: Inner::new(&state, env).map(Rc::new) }
    }

    async fn fetch(&self, mut request: Request) -> worker::Result<Response> {
        let reply = match (&self.inner, calls::question(&mut request).await) {
            (Ok(inner), Ok(call)) => inner.serve(call).await,
            (Err(error), _) => Err(error.clone()),
            (_, Err(error)) => Err(error),
        };
        calls::answer(&reply)
    }

    async fn alarm(&self) -> worker::Result<Response> {
        if let Ok(inner) = &self.inner {
            inner.desk.rang().await;
            let _ = inner.desk.fold(Event::Expire).await;
            inner.nudge().await;
        }
        Response::empty()
    }
}

impl Inner {
    fn new(state: &State, env: Env) -> Result<Self> {
        let config = config(&env)?;
        let name = state.id().name().unwrap_or_default();
        let partition = name.strip_prefix("hub/").and_then(|number| number.parse().ok());
        let partition = partition.ok_or_else(|| {
            Error::new(Kind::BadRequest, "a Hub's name is hub/PARTITION, such as hub/17")
        })?;
        let hub = crate::hub::Hub::new(Sql::new(state), config.policies.clone(), partition);
        let core = Core { hub, push_ms: config.push_ms };
        Ok(Self { env, desk: Desk::new(core, state.storage()), rounds: RefCell::default() })
    }

    async fn serve(self: &Rc<Self>, call: HubCall) -> Result<HubReply> {
        let _guest = self.desk.guest();
        match call {
            HubCall::Fold(event) => {
                let resets = matches!(event, Event::Set { .. });
                let answer = self.desk.fold(event).await?;
                if resets {
                    let inner = self.clone();
                    spawn_local(async move { inner.nudge().await });
                    // Whatever is counted after this answer is counted in a later millisecond,
                    // and so in the new epoch.
                    Delay::from(Duration::from_millis(2)).await;
                }
                Ok(HubReply::Folded(answer))
            }
            HubCall::Fresh(key) => Ok(HubReply::Fresh(self.fresh(key).await)),
        }
    }

    /// Lets every Pop that holds a part of a key push it. One round at a time and a second.
    async fn fresh(self: &Rc<Self>, key: Key) -> Vec<Location> {
        let now_ms = now_ms();
        let round = {
            let mut rounds = self.rounds.borrow_mut();
            rounds.retain(|_, (at, _)| now_ms < at.saturating_add(FRESH_MS));
            let inner = self.clone();
            let name = key.clone();
            let start =
                || (now_ms, async move { inner.ask_all(name).await }.boxed_local().shared());
            rounds.entry(key).or_insert_with(start).1.clone()
        };
        round.await
    }

    async fn ask_all(&self, key: Key) -> Vec<Location> {
        let places = self.desk.with(|core| core.hub.places(&key)).unwrap_or_default();
        let asked = places.into_iter().map(|place| self.nudge_one(place, vec![key.clone()]));
        join_all(asked).await.into_iter().filter_map(std::result::Result::err).collect()
    }

    /// Tells the Pops that have not heard of a new epoch to ask about it.
    async fn nudge(&self) {
        let due = self.desk.with(|core| core.hub.due()).unwrap_or_default();
        let nudges = due.into_iter().map(|(place, keys)| self.nudge_one(place, keys));
        let all = join_all(nudges).await.iter().all(std::result::Result::is_ok);
        self.desk.with(|core| core.hub.reached(all));
        self.desk.settle().await;
    }

    async fn nudge_one(&self, place: Place, keys: Vec<Key>) -> std::result::Result<(), Location> {
        let nudged = calls::pop(&self.env, place, &PopCall::Nudge { keys }).await;
        nudged.map(|_| ()).map_err(|_| place.location)
    }
}

/// How long a round to all locations serves others who ask, in ms: it wakes everyone.
const FRESH_MS: u64 = 1_000;
