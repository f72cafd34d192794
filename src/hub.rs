//! The third tier: a durable object for each partition of the keys. It joins the slots of all
//! Pops, hands back to each the sum of the others, and begins epochs.

use crate::counter::{Counter, Epoch, Net, Slot, SlotId};
use crate::error::{Error, Kind, Result};
use crate::key::{Key, Location, Place, hash};
use crate::limit::{EXPIRE_MAX, LIST_MAX, PUSH_MAX, SWEEP_MS, TELL_MS_MAX, retry_ms};
use crate::policy::Policies;
use crate::store::{Store, Table, Write};
use crate::wire::{Ask, Others, Reading, Told, decode, encode};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What may happen to a Hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A Pop says what it holds and asks how things stand.
    Ask(Vec<Ask>),
    /// One step with an idempotency key.
    Add {
        /// The counter.
        key: Key,
        /// The step; negative is down.
        by: i64,
        /// The caller's `Idempotency-Key`.
        once: String,
    },
    /// The counter becomes this value; what was counted before counts no more.
    Set {
        /// The counter.
        key: Key,
        /// The value as p or n.
        net: Net,
        /// It is deleted: lists leave it out until it is counted again.
        clear: bool,
    },
    /// Every location's part of one counter.
    Detail(Key),
    /// The counters of a namespace.
    List(List),
    /// Time passed: answers that nobody asks for any more go.
    Expire,
}

/// Which counters to list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// The namespace.
    pub namespace: String,
    /// How the names begin.
    pub prefix: String,
    /// The largest value first; otherwise by name.
    pub by_value: bool,
    /// Continue after this entry.
    pub after: Option<Listed>,
    /// How many at most.
    pub limit: u32,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The counter.
    pub key: Key,
    /// Its value at the Hub.
    pub value: i128,
}

impl List {
    /// Orders two entries as this list does.
    pub fn order(&self, a: &Listed, b: &Listed) -> core::cmp::Ordering {
        let by_name = a.key.cmp(&b.key);
        if self.by_value { b.value.cmp(&a.value).then(by_name) } else { by_name }
    }
}

/// One location's part of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The slot.
    pub id: SlotId,
    /// What it counts in the present epoch.
    pub net: Net,
    /// How long ago it last changed here, in ms.
    pub age_ms: u64,
}

/// What came of an [`Event`], in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// How the keys stand, in the order of the asks.
    Told(Vec<Result<Told>>),
    /// The counter after a write.
    Written {
        /// The counter.
        reading: Reading,
        /// The same request was answered before; nothing was done now.
        replayed: bool,
    },
    /// Every part.
    Detail(Vec<Part>),
    /// The entries.
    List(Vec<Listed>),
    /// Done, with nothing to say.
    Done,
}

/// One partition of the keys.
pub struct Hub<S> {
    store: S,
    policies: Policies,
    partition: u16,
    meta: Option<Meta>,
    failures: u32,
}

/// What a Hub knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    lineage: u64,
    #[serde(skip)]
    saved: bool,
}

/// What a Hub stores of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    version: u64,
    cleared: bool,
    counter: Counter,
    /// When each slot last changed here, in ms.
    heard_ms: BTreeMap<SlotId, u64>,
}

/// The answer to an idempotent write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Remembered {
    /// Of the request that was answered.
    fingerprint: u64,
    answer: Result<Reading>,
}

struct Loaded {
    row: Row,
    was_dirty: bool,
    changed: bool,
}

struct Turn {
    now_ms: u64,
    meta: Meta,
    rows: BTreeMap<Key, Loaded>,
    answers: BTreeMap<Vec<u8>, Remembered>,
    writes: Vec<Write>,
}

impl<S: Store> Hub<S> {
    /// Wakes a Hub on its storage.
    pub fn new(store: S, policies: Policies, partition: u16) -> Self {
        Self { store, policies, partition, meta: None, failures: 0 }
    }

    /// Takes one turn at `now_ms`. `random` is 64 fresh random bits. One result for each event.
    pub fn turn(&mut self, now_ms: u64, random: u64, events: &[Event]) -> Vec<Result<Answer>> {
        let fail = |error: Error| events.iter().map(|_| Err(error.clone())).collect();
        let meta = match self.meta(random) {
            Ok(meta) => meta.clone(),
            Err(error) => return fail(error),
        };
        let mut turn = Turn {
            now_ms,
            meta,
            rows: BTreeMap::new(),
            answers: BTreeMap::new(),
            writes: Vec::new(),
        };
        let answers = events.iter().map(|event| self.fold(&mut turn, event)).collect();
        match self.commit(turn) {
            Ok(()) => answers,
            Err(error) => {
                self.meta = None;
                fail(error)
            }
        }
    }

    /// The Pops that have to hear of a new epoch: each is to ask about these keys.
    pub fn due(&self) -> Result<BTreeMap<Place, Vec<Key>>> {
        let mut due: BTreeMap<Place, Vec<Key>> = BTreeMap::new();
        for (id, _) in self.store.scan(Table::Dirty, &[], &[], PUSH_MAX)? {
            let key = key_of(&id)?;
            for slot in self.row(&key)?.row.behind() {
                let keys = due.entry(slot.place).or_default();
                if keys.last() != Some(&key) {
                    keys.push(key.clone());
                }
            }
        }
        Ok(due)
    }

    /// Notes whether the Pops could be reached, for the back-off.
    pub fn reached(&mut self, all: bool) {
        self.failures = if all { 0 } else { self.failures.saturating_add(1) };
    }

    /// When the alarm has to ring, in ms: soon while a Pop has to hear of an epoch, at the end of
    /// the oldest answer's day when there are answers, never otherwise.
    pub fn wake_ms(&self, now_ms: u64, push_ms: u64, random: u64) -> Result<Option<u64>> {
        if !self.store.scan(Table::Dirty, &[], &[], 1)?.is_empty() {
            let wait = match self.failures.checked_sub(1) {
                None => push_ms,
                Some(attempt) => retry_ms(attempt, random, TELL_MS_MAX),
            };
            return Ok(Some(now_ms.saturating_add(wait)));
        }
        let first = self.store.scan(Table::Answers, &[], &[], 1)?;
        // Not at once, even if it is past: a sweep that fails must not become a loop.
        let soonest = now_ms.saturating_add(SWEEP_MS);
        let end = |id| day_of(id).saturating_add(2).saturating_mul(DAY_MS).max(soonest);
        Ok(first.first().map(|(id, _)| end(id)))
    }

    /// The places that hold a part of a key.
    pub fn places(&self, key: &Key) -> Result<Vec<Place>> {
        let row = self.row(key)?.row;
        let mut places: Vec<Place> = row.counter.slots().map(|(id, _)| id.place).collect();
        places.retain(|place| place.location != Location::HUB);
        places.dedup();
        Ok(places)
    }

    /// The storage, for whoever lent it.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The storage, for whoever lent it.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    fn fold(&mut self, turn: &mut Turn, event: &Event) -> Result<Answer> {
        match event {
            Event::Ask(asks) => {
                Ok(Answer::Told(asks.iter().map(|ask| self.join(turn, ask)).collect()))
            }
            Event::Add { key, by, once } => self.add(turn, key, *by, once),
            Event::Set { key, net, clear } => {
                self.policies.of(key.namespace())?.check_down(net.n > 0)?;
                self.set(turn, key, *net, *clear)?;
                Ok(Answer::Written { reading: self.reading(turn, key)?, replayed: false })
            }
            Event::Detail(key) => self.detail(turn, key).map(Answer::Detail),
            Event::List(list) => self.list(list).map(Answer::List),
            Event::Expire => self.expire(turn).map(|()| Answer::Done),
        }
    }

    /// Joins what a Pop holds of a key, and tells it how the key stands.
    fn join(&mut self, turn: &mut Turn, ask: &Ask) -> Result<Told> {
        self.policies.of(ask.key.namespace())?;
        let (now_ms, lineage) = (turn.now_ms, turn.meta.lineage);
        let loaded = self.load(turn, &ask.key)?;
        for (id, slot) in
            ask.frozen.iter().chain(ask.mine.as_ref().map(|slot| (ask.id, *slot)).as_slice())
        {
            // An older epoch's slot is neither stored nor acknowledged.
            if slot.epoch >= loaded.row.counter.epoch() {
                loaded.join(*id, slot, now_ms);
            }
        }
        let epoch = loaded.row.counter.epoch();
        if ask.mine.is_some_and(|slot| slot.epoch == epoch) {
            // The place has heard of the epoch, so its earlier incarnations count nothing in it.
            let behind: Vec<SlotId> = loaded.row.counter.behind().copied().collect();
            for id in behind.into_iter().filter(|id| id.place == ask.id.place && *id != ask.id) {
                loaded.join(id, &Slot { epoch, net: Net::ZERO }, now_ms);
            }
        }
        let mut told = told(lineage, &ask.key, &loaded.row, ask.id);
        // An older epoch's frozen slot is settled too: it counts for nothing.
        told.frozen = ask.frozen.iter().map(|(id, _)| *id).collect();
        Ok(told)
    }

    fn add(&mut self, turn: &mut Turn, key: &Key, by: i64, once: &str) -> Result<Answer> {
        let fingerprint = hash(&by.to_be_bytes());
        let today = turn.now_ms / DAY_MS;
        for day in [today, today.saturating_sub(1)] {
            let id = answer_id(day, key, once);
            let known = match turn.answers.get(&id) {
                Some(known) => Some(known.clone()),
                None => self.store.get(Table::Answers, &id)?.map(|row| decode(&row)).transpose()?,
            };
            if let Some(Remembered { fingerprint: known, answer }) = known {
                if known != fingerprint {
                    let detail = "this Idempotency-Key was used with another body; \
                                  draw a new key for a new request";
                    return Err(Error::new(Kind::IdempotencyMismatch, detail));
                }
                return answer.map(|reading| Answer::Written { reading, replayed: true });
            }
        }
        self.policies.of(key.namespace())?.check_step(by)?;
        let id = self.own_id(turn);
        let now_ms = turn.now_ms;
        let loaded = self.load(turn, key)?;
        let own = loaded.row.counter.slot(&id).copied().unwrap_or_default();
        let net = own.net.plus(Net::step(by))?;
        let epoch = loaded.row.counter.epoch();
        loaded.join(id, &Slot { epoch, net }, now_ms);
        let reading = self.reading(turn, key)?;
        let answer = Remembered { fingerprint, answer: Ok(reading.clone()) };
        turn.answers.insert(answer_id(today, key, once), answer);
        Ok(Answer::Written { reading, replayed: false })
    }

    fn set(&mut self, turn: &mut Turn, key: &Key, net: Net, clear: bool) -> Result<()> {
        let id = self.own_id(turn);
        let now_ms = turn.now_ms;
        let loaded = self.load(turn, key)?;
        let epoch: Epoch = loaded.row.counter.epoch().next(now_ms);
        loaded.row.counter.reset(epoch);
        loaded.join(id, &Slot { epoch, net }, now_ms);
        loaded.row.cleared = clear;
        Ok(())
    }

    fn reading(&mut self, turn: &mut Turn, key: &Key) -> Result<Reading> {
        let id = self.own_id(turn);
        let (now_ms, lineage) = (turn.now_ms, turn.meta.lineage);
        let row = &self.load(turn, key)?.row;
        let own = row.counter.slot(&id).copied().unwrap_or_default().net;
        let total = row.counter.total();
        let others =
            Others { lineage, version: row.version, as_of_ms: now_ms, total: total.minus(&own) };
        Ok(Reading {
            epoch: row.counter.epoch(),
            total,
            own,
            unsynced: Net::ZERO,
            others: Some(others),
        })
    }

    fn detail(&mut self, turn: &mut Turn, key: &Key) -> Result<Vec<Part>> {
        let now_ms = turn.now_ms;
        let row = &self.load(turn, key)?.row;
        let counted = row.counter.slots().filter(|(_, slot)| slot.epoch == row.counter.epoch());
        let part = |(id, slot): (&SlotId, &Slot)| Part {
            id: *id,
            net: slot.net,
            age_ms: now_ms.saturating_sub(row.heard_ms.get(id).copied().unwrap_or(0)),
        };
        Ok(counted.map(part).collect())
    }

    /// The first entries in the list's order. By value it reads all names that begin with the
    /// prefix, so a long namespace costs.
    fn list(&self, list: &List) -> Result<Vec<Listed>> {
        let mut from = list.namespace.clone().into_bytes();
        from.push(b'/');
        from.extend(list.prefix.bytes());
        // 0xff is in no UTF-8 text.
        let mut to = from.clone();
        to.push(0xff);
        if let Some(after) = list.after.as_ref().filter(|_| !list.by_value) {
            from = after.key.as_str().as_bytes().to_vec();
            from.push(0);
        }
        let limit = usize::try_from(list.limit).unwrap_or(LIST_MAX).min(LIST_MAX);
        let mut found: Vec<Listed> = Vec::new();
        loop {
            let rows = self.store.scan(Table::Keys, &from, &to, LIST_MAX)?;
            let more = rows.len() == LIST_MAX;
            for (id, bytes) in rows {
                let row: Row = decode(&bytes)?;
                from.clone_from(&id);
                from.push(0);
                let entry = Listed { key: key_of(&id)?, value: row.counter.total().value() };
                let passed =
                    list.after.as_ref().is_some_and(|after| list.order(&entry, after).is_le());
                if !row.cleared && !passed {
                    found.push(entry);
                }
            }
            if list.by_value {
                found.sort_by(|a, b| list.order(a, b));
                found.truncate(limit);
            }
            if !more || (!list.by_value && found.len() >= limit) {
                found.truncate(limit);
                return Ok(found);
            }
        }
    }

    fn expire(&mut self, turn: &mut Turn) -> Result<()> {
        let to = (turn.now_ms / DAY_MS).saturating_sub(1).to_be_bytes();
        for (id, _) in self.store.scan(Table::Answers, &[], &to, EXPIRE_MAX)? {
            turn.writes.push(Write { table: Table::Answers, id, value: None });
        }
        Ok(())
    }

    /// The Hub's own slot, named by its lineage: both are new when the storage is.
    fn own_id(&self, turn: &Turn) -> SlotId {
        let place = Place { location: Location::HUB, shard: self.partition };
        SlotId { place, incarnation: turn.meta.lineage }
    }

    fn meta(&mut self, random: u64) -> Result<&Meta> {
        if self.meta.is_none() {
            let meta = match self.store.get(Table::Meta, META)? {
                Some(row) => Meta { saved: true, ..decode(&row)? },
                None => Meta { lineage: random, saved: false },
            };
            self.meta = Some(meta);
        }
        self.meta.as_ref().ok_or_else(|| Error::new(Kind::Storage, "the object cannot read itself"))
    }

    fn load<'t>(&mut self, turn: &'t mut Turn, key: &Key) -> Result<&'t mut Loaded> {
        if !turn.rows.contains_key(key) {
            let loaded = self.row(key)?;
            turn.rows.insert(key.clone(), loaded);
        }
        turn.rows.get_mut(key).ok_or_else(|| Error::new(Kind::Storage, "a row went missing"))
    }

    fn row(&self, key: &Key) -> Result<Loaded> {
        let row: Row = match self.store.get(Table::Keys, key.as_str().as_bytes())? {
            Some(bytes) => decode(&bytes)?,
            None => Row::default(),
        };
        let was_dirty = row.dirty();
        Ok(Loaded { row, was_dirty, changed: false })
    }

    fn commit(&mut self, mut turn: Turn) -> Result<()> {
        for (key, loaded) in turn.rows.iter().filter(|(_, loaded)| loaded.changed) {
            let id = key.as_str().as_bytes().to_vec();
            let dirty = loaded.row.dirty();
            // A mark stands beside exactly the stored rows that are dirty.
            if dirty != loaded.was_dirty {
                let value = dirty.then(Vec::new);
                turn.writes.push(Write { table: Table::Dirty, id: id.clone(), value });
            }
            turn.writes.push(Write { table: Table::Keys, id, value: Some(encode(&loaded.row)?) });
        }
        for (id, answer) in &turn.answers {
            let value = Some(encode(answer)?);
            turn.writes.push(Write { table: Table::Answers, id: id.clone(), value });
        }
        if !turn.writes.is_empty() && !turn.meta.saved {
            let value = Some(encode(&turn.meta)?);
            turn.writes.push(Write { table: Table::Meta, id: META.to_vec(), value });
            turn.meta.saved = true;
        }
        if !turn.writes.is_empty() {
            self.store.commit(&turn.writes)?;
            self.meta = Some(turn.meta);
        }
        Ok(())
    }
}

impl Loaded {
    fn join(&mut self, id: SlotId, slot: &Slot, now_ms: u64) {
        if self.row.counter.join(id, slot) {
            self.row.version = self.row.version.saturating_add(1);
            self.row.heard_ms.insert(id, now_ms);
            self.row.cleared &= slot.net.is_zero();
            self.changed = true;
        }
    }
}

impl Row {
    /// The slots whose Pops have to hear of the epoch. A Hub's slot has nobody to tell.
    fn behind(&self) -> impl Iterator<Item = &SlotId> {
        self.counter.behind().filter(|id| id.place.location != Location::HUB)
    }

    /// Whether a Pop has to hear of the epoch.
    fn dirty(&self) -> bool {
        self.behind().next().is_some()
    }
}

fn told(lineage: u64, key: &Key, row: &Row, id: SlotId) -> Told {
    let mine = row.counter.slot(&id).map(|slot| slot.net);
    Told {
        key: key.clone(),
        id,
        lineage,
        version: row.version,
        epoch: row.counter.epoch(),
        mine,
        others: row.counter.total().minus(&mine.unwrap_or_default()),
        frozen: Vec::new(),
    }
}

fn key_of(id: &[u8]) -> Result<Key> {
    let text = core::str::from_utf8(id).unwrap_or("");
    Key::parse(text).map_err(|_| Error::new(Kind::Storage, "a stored key does not read back"))
}

/// An answer's row: its day first, so that old ones lie together. Names have no control characters.
fn answer_id(day: u64, key: &Key, once: &str) -> Vec<u8> {
    let mut id = day.to_be_bytes().to_vec();
    id.extend(key.to_string().bytes());
    id.push(0);
    id.extend(once.bytes());
    id
}

fn day_of(id: &[u8]) -> u64 {
    id.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

const META: &[u8] = b"hub";

/// Answers are kept by days: today's and yesterday's, so 24 h at least and 48 h at most.
const DAY_MS: u64 = 24 * 3_600_000;
