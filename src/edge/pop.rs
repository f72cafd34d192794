//! The durable object of a location: a [`crate::pop::Pop`] on SQLite, with its way to the Hubs.

use super::calls::{self, Detail, HubCall, HubReply, PopCall, PopReply, unexpected};
use super::config::config;
use super::desk::{Desk, Machine, now_ms, random};
use super::sql::Sql;
use crate::error::{Error, Kind, Result};
use crate::hub;
use crate::key::{Key, Location, Place};
use crate::limit::{RETRY_MS_MAX, retry_ms};
use crate::pop::{Answer, Event};
use crate::store::{Store, Table, Write};
use crate::wire::{Ask, Counted, Reading};
use futures_util::future::{FutureExt, LocalBoxFuture, Shared, join_all};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wasm_bindgen_futures::spawn_local;
use worker::{DurableObject, Env, Request, Response, State, durable_object};

/// The core with what its alarm needs to know.
struct Core {
    pop: crate::pop::Pop<Sql>,
    push_ms: u64,
}

impl Machine for Core {
    type Event = Event;
    type Answer = Answer;

    fn turn(&mut self, now_ms: u64, random: u64, events: &[Event]) -> Vec<Result<Answer>> {
        self.pop.turn(now_ms, random, events)
    }

    fn wake_ms(&self, now_ms: u64, random: u64) -> Result<Option<u64>> {
        self.pop.wake_ms(now_ms, self.push_ms, random)
    }
}

/// A round to one Hub that several requests may wait for.
type Round = Shared<LocalBoxFuture<'static, bool>>;

/// What all requests of the object share.
struct Inner {
    env: Env,
    desk: Rc<Desk<Core>>,
    /// Rounds under way, by key.
    rounds: RefCell<BTreeMap<Key, Round>>,
    /// After a round that failed, none is tried before this time.
    patience_ms: Cell<u64>,
    failures: Cell<u32>,
}

/// One of the durable objects of a location.
#[durable_object(alarm)]
pub struct Pop {
    inner: Result<Rc<Inner>>,
}

impl DurableObject for Pop {
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
            inner.alarm().await;
        }
        Response::empty()
    }
}

impl Inner {
    fn new(state: &State, env: Env) -> Result<Self> {
        let config = config(&env)?;
        let place = Place::parse(&state.id().name().unwrap_or_default())?;
        let pop = crate::pop::Pop::new(Sql::new(state), config.policies.clone(), place);
        let core = Core { pop, push_ms: config.push_ms };
        Ok(Self {
            env,
            desk: Desk::new(core, state.storage()),
            rounds: RefCell::default(),
            patience_ms: Cell::new(0),
            failures: Cell::new(0),
        })
    }

    async fn serve(self: &Rc<Self>, call: PopCall) -> Result<PopReply> {
        let _guest = self.desk.guest();
        match call {
            PopCall::Open => match self.desk.fold(Event::Open).await? {
                Answer::Opened(incarnation) => {
                    Ok(PopReply::Opened { incarnation, now_ms: now_ms() })
                }
                _ => Err(unexpected()),
            },
            PopCall::Sync { ticket, counts, read, settle } => {
                let keys: Vec<Key> = counts.iter().map(|(key, _)| key.clone()).collect();
                let event = Event::Sync { ticket: ticket.clone(), counts, read: read.clone() };
                let (counts, readings) = self.sync(event).await?;
                // What is counted is on disk now. The rest is about how fresh the answer is.
                let mut again = self.stale(&read).await;
                again.extend(keys.iter().zip(&counts).filter_map(|(key, counted)| {
                    // What was never heard of has no value yet; what is old is refreshed later.
                    let unknown = counted.reading.as_ref().is_some_and(|r| r.others.is_none());
                    (settle || unknown).then(|| key.clone())
                }));
                let (counts, read) = if again.is_empty() {
                    (counts, readings)
                } else {
                    self.hear(again, settle).await;
                    // What is applied once more changes nothing, and reads what was heard.
                    let applied = counts.iter().map(|counted| counted.applied);
                    let applied = keys.iter().cloned().zip(applied).collect();
                    let again = self.sync(Event::Sync { ticket, counts: applied, read }).await?;
                    (with_refusals(again.0, counts), again.1)
                };
                self.refresh_later(&keys, &counts);
                Ok(PopReply::Synced { counts, read, now_ms: now_ms() })
            }
            PopCall::Add { key, by } => {
                let Answer::Added(reading) =
                    self.desk.fold(Event::Add { key: key.clone(), by }).await?
                else {
                    return Err(unexpected());
                };
                let reading = if self.is_stale(&key, &reading) {
                    self.hear(vec![key.clone()], false).await;
                    self.read_one(&key).await?
                } else {
                    reading
                };
                Ok(PopReply::Read {
                    readings: vec![Ok(reading)],
                    missing: vec![],
                    now_ms: now_ms(),
                })
            }
            PopCall::Read { keys, fresh } => {
                let missing = self.freshen(&keys, fresh).await?;
                let readings = self.read(&keys).await?;
                Ok(PopReply::Read { readings, missing, now_ms: now_ms() })
            }
            PopCall::Detail { key, fresh } => self.detail(key, fresh).await,
            PopCall::Write(event) => {
                let key = match &event {
                    hub::Event::Add { key, .. } | hub::Event::Set { key, .. } => key.clone(),
                    _ => return Err(unexpected()),
                };
                let reply = self.hub(key.partition(), HubCall::Fold(event)).await?;
                if let HubReply::Folded(hub::Answer::Written { reading, .. }) = &reply {
                    self.catch_up(&key, reading).await;
                }
                Ok(PopReply::Hub(reply))
            }
            PopCall::Nudge { keys } => {
                self.reachable()?;
                self.hear(keys, true).await;
                self.push().await;
                Ok(PopReply::Done)
            }
            PopCall::Cut(cut) => {
                // An object that was never cut off has nothing to write.
                if self.set_cut(cut)? {
                    self.push().await;
                }
                Ok(PopReply::Done)
            }
        }
    }

    async fn detail(self: &Rc<Self>, key: Key, fresh: bool) -> Result<PopReply> {
        let missing = self.freshen(std::slice::from_ref(&key), fresh).await.ok();
        let reading = self.read_one(&key).await?;
        let call = HubCall::Fold(hub::Event::Detail(key.clone()));
        let parts = match self.hub(key.partition(), call).await {
            Ok(HubReply::Folded(hub::Answer::Detail(parts))) => Some(parts),
            _ => None,
        };
        let slot = self.desk.with(|core| core.pop.slot_id(random()))?.to_string();
        let cut = self.is_cut();
        let now_ms = now_ms();
        Ok(PopReply::Detail(Box::new(Detail { reading, slot, now_ms, cut, parts, missing })))
    }

    async fn sync(&self, event: Event) -> Result<(Vec<Counted>, Vec<Result<Reading>>)> {
        match self.desk.fold(event).await? {
            Answer::Synced(counts, readings) => Ok((counts, readings)),
            _ => Err(unexpected()),
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Vec<Result<Reading>>> {
        match self.desk.fold(Event::Read { keys: keys.to_vec() }).await? {
            Answer::Read(readings) => Ok(readings),
            _ => Err(unexpected()),
        }
    }

    async fn read_one(&self, key: &Key) -> Result<Reading> {
        let readings = self.read(std::slice::from_ref(key)).await?;
        readings.into_iter().next().unwrap_or_else(|| Err(unexpected()))
    }

    /// Asks the Hubs about those of the keys whose others are too old; with `fresh`, lets them ask
    /// every location first. Returns the locations that did not answer.
    async fn freshen(self: &Rc<Self>, keys: &[Key], fresh: bool) -> Result<Vec<Location>> {
        if !fresh {
            let stale = self.stale(keys).await;
            self.hear(stale, false).await;
            return Ok(Vec::new());
        }
        self.push().await;
        let mut missing = Vec::new();
        for key in keys {
            let call = HubCall::Fresh(key.clone());
            if let HubReply::Fresh(more) = self.hub(key.partition(), call).await? {
                missing.extend(more);
            }
        }
        self.hear(keys.to_vec(), true).await;
        missing.sort();
        missing.dedup();
        Ok(missing)
    }

    async fn stale(&self, keys: &[Key]) -> Vec<Key> {
        if keys.is_empty() {
            return Vec::new();
        }
        let readings = self.read(keys).await.unwrap_or_default();
        let stale = |(key, reading): &(&Key, Result<Reading>)| {
            reading.as_ref().is_ok_and(|reading| self.is_stale(key, reading))
        };
        keys.iter().zip(readings).filter(stale).map(|(key, _)| key.clone()).collect()
    }

    fn is_stale(&self, key: &Key, reading: &Reading) -> bool {
        let max = self.desk.with(|core| {
            core.pop.policies().of(key.namespace()).map_or(0, |policy| policy.max_stale_ms)
        });
        reading.others.is_none_or(|others| now_ms().saturating_sub(others.as_of_ms) > max)
    }

    /// After an answer that was given at once: fetch what the next one should know.
    fn refresh_later(self: &Rc<Self>, keys: &[Key], counts: &[Counted]) {
        let stale = |(key, counted): &(&Key, &Counted)| {
            counted.reading.as_ref().is_some_and(|reading| self.is_stale(key, reading))
        };
        let stale: Vec<Key> =
            keys.iter().zip(counts).filter(stale).map(|(key, _)| key.clone()).collect();
        if !stale.is_empty() {
            let inner = self.clone();
            spawn_local(async move { inner.hear(stale, false).await });
        }
    }

    /// Asks the Hubs how keys stand. While a Hub did not answer lately, only `must` asks.
    async fn hear(self: &Rc<Self>, keys: Vec<Key>, must: bool) {
        if !must && now_ms() < self.patience_ms.get() {
            return;
        }
        join_all(keys.into_iter().map(|key| self.round(key))).await;
    }

    /// The round for a key: the one under way, or a new one.
    fn round(self: &Rc<Self>, key: Key) -> Round {
        let mut rounds = self.rounds.borrow_mut();
        if let Some(round) = rounds.get(&key) {
            return round.clone();
        }
        let inner = self.clone();
        let name = key.clone();
        let round = async move {
            let done = inner.ask_one(&name).await.is_ok();
            inner.rounds.borrow_mut().remove(&name);
            inner.note(done);
            done
        };
        let round = round.boxed_local().shared();
        rounds.insert(key, round.clone());
        // On its own feet: the request that started it may be cut off while others wait.
        spawn_local(round.clone().map(|_| ()));
        round
    }

    /// Hears of a write that the Hub made, so that the next reading here contains it.
    async fn catch_up(self: &Rc<Self>, key: &Key, written: &Reading) {
        let version = written.others.map_or(0, |others| others.version);
        // The round under way may have begun before the write; the next one did not.
        for _ in 0..2 {
            let known = self.read_one(key).await.ok().and_then(|reading| reading.others);
            if known.is_some_and(|others| others.version >= version) {
                return;
            }
            self.hear(vec![key.clone()], true).await;
        }
    }

    async fn ask_one(&self, key: &Key) -> Result<()> {
        let ask = self.desk.with(|core| core.pop.ask(random(), key))?;
        self.ask_hub(key.partition(), vec![ask]).await
    }

    /// Tells a Hub what this Pop holds, and folds what the Hub tells.
    async fn ask_hub(&self, partition: u16, asks: Vec<Ask>) -> Result<()> {
        let asked_ms = now_ms();
        let call = HubCall::Fold(hub::Event::Ask(asks));
        let HubReply::Folded(hub::Answer::Told(told)) = self.hub(partition, call).await? else {
            return Err(unexpected());
        };
        let told = told.into_iter().filter_map(|told| told.ok()).collect();
        if let Answer::Told(dropped) = self.desk.fold(Event::Tell { told, asked_ms }).await? {
            for dropped in dropped {
                worker::console_log!(
                    "reset: {} dropped +{} -{} that were counted here before it",
                    dropped.key,
                    dropped.net.p,
                    dropped.net.n
                );
            }
        }
        Ok(())
    }

    /// Tells the Hubs all that is dirty. Returns whether all of them heard it.
    async fn push(&self) -> bool {
        let due = self.desk.with(|core| core.pop.due(random())).unwrap_or_default();
        let pushes = due.into_iter().map(|(partition, asks)| self.ask_hub(partition, asks));
        let all = join_all(pushes).await.iter().all(Result::is_ok);
        self.desk.with(|core| core.pop.reached(all));
        self.note(all);
        self.desk.settle().await;
        all
    }

    async fn alarm(&self) {
        self.desk.rang().await;
        let _ = self.desk.fold(Event::Expire).await;
        self.push().await;
    }

    /// After a failure, readings do not wait for the Hub again at once.
    fn note(&self, reached: bool) {
        let failures = if reached { 0 } else { self.failures.get().saturating_add(1) };
        self.failures.set(failures);
        let wait = failures.checked_sub(1).map_or(0, |n| retry_ms(n, random(), RETRY_MS_MAX));
        self.patience_ms.set(now_ms().saturating_add(wait));
    }

    async fn hub(&self, partition: u16, call: HubCall) -> Result<HubReply> {
        self.reachable()?;
        calls::hub(&self.env, partition, &call).await
    }

    fn reachable(&self) -> Result<()> {
        if self.is_cut() {
            let detail = "this location is cut off from its Hubs (POST /dev/heal connects it)";
            return Err(Error::new(Kind::Unreachable, detail));
        }
        Ok(())
    }

    fn is_cut(&self) -> bool {
        self.desk.with(|core| core.pop.store().get(Table::Meta, CUT).ok().flatten().is_some())
    }

    /// Cuts off or reconnects; returns whether that changed anything.
    fn set_cut(&self, cut: bool) -> Result<bool> {
        if !config(&self.env)?.development {
            return Err(Error::new(Kind::NoRoute, "only a development server cuts locations off"));
        }
        if cut == self.is_cut() {
            return Ok(false);
        }
        let write = Write { table: Table::Meta, id: CUT.to_vec(), value: cut.then(Vec::new) };
        self.desk.with(|core| core.pop.store_mut().commit(&[write]))?;
        Ok(true)
    }
}

/// The later readings, with what was refused at the first attempt.
fn with_refusals(later: Vec<Counted>, first: Vec<Counted>) -> Vec<Counted> {
    let keep = |(later, first): (Counted, Counted)| Counted { refused: first.refused, ..later };
    later.into_iter().zip(first).map(keep).collect()
}

/// The row that says that this Pop is cut off (development only): a cut outlives the object.
const CUT: &[u8] = b"cut";
