//! The second tier: one of the durable objects of a location. It folds its sessions into its own
//! slot of every counter, and joins what the Hub tells of all others.
//!
//! An object's turn: events in, rows changed in memory, one commit, answers out. No answer exists
//! before the commit; when it fails every event of the turn fails, and nothing was changed.

use crate::counter::{Epoch, Net, Slot, SlotId};
use crate::error::{Error, Kind, Result};
use crate::key::{Key, Place};
use crate::limit::{
    EXPIRE_MAX, HEARD_MAX, PUSH_MAX, RETRY_MS_MAX, SEGMENTS_MAX, SWEEP_MS, retry_ms,
};
use crate::merge::Merge;
use crate::policy::Policies;
use crate::store::{Store, Table, Write};
use crate::wire::{Ask, Counted, Others, Reading, Ticket, Told, decode, encode};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What may happen to a Pop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A session wants to make this its home.
    Open,
    /// A session's cumulative counts arrive, and it reads some keys besides.
    Sync {
        /// Who sends, as checked by the edge.
        ticket: Ticket,
        /// All that it ever counted, per key.
        counts: Vec<(Key, Net)>,
        /// Keys to read besides.
        read: Vec<Key>,
    },
    /// One step without a session; each call counts.
    Add {
        /// The counter.
        key: Key,
        /// The step; negative is down.
        by: i64,
    },
    /// Somebody reads.
    Read {
        /// The counters.
        keys: Vec<Key>,
    },
    /// The Hub tells how keys stand, asked or not.
    Tell {
        /// One entry a key.
        told: Vec<Told>,
        /// When the Hub was asked, in ms by this Pop's clock.
        asked_ms: u64,
    },
    /// Time passed: sessions beyond their horizon go.
    Expire,
    /// Storage was lost or restored from an old copy: count in a new slot from now on.
    Reincarnate,
}

/// What came of an [`Event`], in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The incarnation to which the session is bound.
    Opened(u64),
    /// What was folded, and the readings.
    Synced(Vec<Counted>, Vec<Result<Reading>>),
    /// The counter with the step.
    Added(Reading),
    /// The readings, in the order of the keys.
    Read(Vec<Result<Reading>>),
    /// What a new epoch dropped: counted here before a reset, and not yet pushed when it came.
    Told(Vec<Dropped>),
    /// Done, with nothing to say.
    Done,
}

/// Counts that a reset took: the report that the design owes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The counter.
    pub key: Key,
    /// The epoch that began.
    pub epoch: Epoch,
    /// What was dropped.
    pub net: Net,
}

/// One object of a location.
pub struct Pop<S> {
    store: S,
    policies: Policies,
    place: Place,
    /// As on disk; none until read, and after a failed commit.
    meta: Option<Meta>,
    /// What the Hub told since this object woke: newer than the rows, and never more than a hint
    /// that is asked for again.
    heard: BTreeMap<Key, (Epoch, Others)>,
    failures: u32,
}

/// What a Pop knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Meta {
    incarnation: u64,
    /// The latest end among the sessions whose rows were deleted.
    floor_ms: u64,
    /// How many keys each namespace has here.
    keys: BTreeMap<String, u64>,
    #[serde(skip)]
    saved: bool,
}

/// What a Pop stores of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    incarnation: u64,
    slot: Slot,
    /// What the Hub durably holds of the slot, in its epoch.
    acked: Option<Net>,
    /// The slot came here from an older epoch, and the Hub does not know yet.
    moved: bool,
    /// When the amounts beyond `acked` were counted, oldest first.
    segments: Vec<Segment>,
    others: Option<Others>,
    /// Slots of earlier incarnations that the Hub has not acknowledged.
    frozen: Vec<(SlotId, Slot)>,
}

/// An amount that the Hub does not have, and when counting it began, by this Pop's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Segment {
    began_ms: u64,
    net: Net,
}

/// A row in the hands of a turn.
struct Loaded {
    row: Row,
    stored: bool,
    was_dirty: bool,
    changed: bool,
}

/// The rows that one turn reads and changes.
struct Turn {
    now_ms: u64,
    meta: Meta,
    meta_changed: bool,
    rows: BTreeMap<Key, Loaded>,
    sessions: BTreeMap<Vec<u8>, Net>,
    writes: Vec<Write>,
}

impl<S: Store> Pop<S> {
    /// Wakes a Pop on its storage.
    pub fn new(store: S, policies: Policies, place: Place) -> Self {
        Self { store, policies, place, meta: None, heard: BTreeMap::new(), failures: 0 }
    }

    /// Takes one turn at `now_ms`. `random` is 64 fresh random bits. One result for each event.
    pub fn turn(&mut self, now_ms: u64, random: u64, events: &[Event]) -> Vec<Result<Answer>> {
        let fail = |error: Error| events.iter().map(|_| Err(error.clone())).collect();
        let mut turn = match self.begin(now_ms, random) {
            Ok(turn) => turn,
            Err(error) => return fail(error),
        };
        let answers = events.iter().map(|event| self.fold(&mut turn, random, event)).collect();
        match self.commit(turn) {
            Ok(()) => answers,
            Err(error) => {
                // Memory may be ahead of the disk now: begin again from the disk.
                self.meta = None;
                self.heard.clear();
                fail(error)
            }
        }
    }

    /// What the Hubs have to hear, by partition, from committed rows; `PUSH_MAX` keys each.
    pub fn due(&mut self, random: u64) -> Result<BTreeMap<u16, Vec<Ask>>> {
        let mut due: BTreeMap<u16, Vec<Ask>> = BTreeMap::new();
        for (id, _) in self.store.scan(Table::Dirty, &[], &[], PUSH_MAX.saturating_mul(4))? {
            let key = key_of(&id)?;
            let asks = due.entry(key.partition()).or_default();
            if asks.len() < PUSH_MAX {
                asks.push(self.ask(random, &key)?);
            }
        }
        Ok(due)
    }

    /// What to send to a key's Hub in order to hear how it stands.
    pub fn ask(&mut self, random: u64, key: &Key) -> Result<Ask> {
        let incarnation = self.meta(random)?.incarnation;
        let row = self.row(incarnation, key)?.row;
        let id = SlotId { place: self.place, incarnation };
        let speaks = row.acked.is_some() || row.moved || !row.slot.net.is_zero();
        Ok(Ask { key: key.clone(), id, mine: speaks.then_some(row.slot), frozen: row.frozen })
    }

    /// Notes whether the Hubs could be reached, for the back-off.
    pub fn reached(&mut self, all: bool) {
        self.failures = if all { 0 } else { self.failures.saturating_add(1) };
    }

    /// Whether the last push did not get through: then a reading does not wait for the Hub.
    pub fn cut_off(&self) -> bool {
        self.failures > 0
    }

    /// When the alarm has to ring, in ms: soon when something is dirty, at the earliest session's
    /// end when nothing is, never when there is neither.
    pub fn wake_ms(&self, now_ms: u64, push_ms: u64, random: u64) -> Result<Option<u64>> {
        if !self.store.scan(Table::Dirty, &[], &[], 1)?.is_empty() {
            let wait = match self.failures.checked_sub(1) {
                None => push_ms,
                Some(attempt) => retry_ms(attempt, random, RETRY_MS_MAX),
            };
            return Ok(Some(now_ms.saturating_add(wait)));
        }
        let first = self.store.scan(Table::Sessions, &[], &[], 1)?;
        // Not at once, even if it is past: a sweep that fails must not become a loop.
        let soonest = now_ms.saturating_add(SWEEP_MS);
        Ok(first.first().map(|(id, _)| expires_of(id).saturating_add(1).max(soonest)))
    }

    /// The name of the slot in which this Pop counts now.
    pub fn slot_id(&mut self, random: u64) -> Result<SlotId> {
        Ok(SlotId { place: self.place, incarnation: self.meta(random)?.incarnation })
    }

    /// The storage, for whoever lent it.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The storage, for whoever lent it.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The policies in force.
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    fn begin(&mut self, now_ms: u64, random: u64) -> Result<Turn> {
        Ok(Turn {
            now_ms,
            meta: self.meta(random)?.clone(),
            meta_changed: false,
            rows: BTreeMap::new(),
            sessions: BTreeMap::new(),
            writes: Vec::new(),
        })
    }

    fn fold(&mut self, turn: &mut Turn, random: u64, event: &Event) -> Result<Answer> {
        match event {
            Event::Open => {
                turn.meta_changed |= !turn.meta.saved;
                Ok(Answer::Opened(turn.meta.incarnation))
            }
            Event::Sync { ticket, counts, read } => {
                if ticket.incarnation != turn.meta.incarnation {
                    let detail = "its home lost or restored its storage: what was acknowledged is \
                                  counted, what was sent and not acknowledged is indeterminate";
                    return Err(Error::new(Kind::SessionGone, detail));
                }
                let mut counted = Vec::with_capacity(counts.len());
                for (key, sent) in counts {
                    counted.push(self.sync(turn, ticket, key, *sent)?);
                }
                Ok(Answer::Synced(counted, self.read(turn, read)))
            }
            Event::Add { key, by } => {
                self.policies.of(key.namespace())?.check_step(*by)?;
                self.grow(turn, key, Net::step(*by))?;
                Ok(Answer::Added(self.reading(turn, key)?))
            }
            Event::Read { keys } => Ok(Answer::Read(self.read(turn, keys))),
            Event::Tell { told, asked_ms } => {
                let mut dropped = Vec::new();
                for told in told {
                    self.hear(turn, random, told, *asked_ms, &mut dropped)?;
                }
                Ok(Answer::Told(dropped))
            }
            Event::Expire => self.expire(turn).map(|()| Answer::Done),
            Event::Reincarnate => {
                self.reincarnate(turn, random)?;
                Ok(Answer::Done)
            }
        }
    }

    /// Folds what a session has beyond what was applied of it, up to the namespace's largest step.
    fn sync(&mut self, turn: &mut Turn, ticket: &Ticket, key: &Key, sent: Net) -> Result<Counted> {
        let id = session_id(ticket, key);
        let known = match turn.sessions.get(&id) {
            Some(applied) => Some(*applied),
            None => self.store.get(Table::Sessions, &id)?.map(|row| decode(&row)).transpose()?,
        };
        let applied = known.unwrap_or_default();
        let folded = if known.is_none() && ticket.expires_ms <= turn.meta.floor_ms.max(turn.now_ms)
        {
            // Its row may have been deleted: folding could count it a second time.
            let detail = "the session is past its 8 days: what was sent and not acknowledged is \
                          indeterminate; open a new session for what was never sent";
            Err(Error::new(Kind::SessionExpired, detail))
        } else {
            self.fold_session(turn, key, sent.beyond(applied))
        };
        let (applied, refused) = match folded {
            Ok(delta) => (applied.plus(delta)?, None),
            Err(error) => (applied, Some(error)),
        };
        if known != Some(applied) && !applied.is_zero() {
            turn.sessions.insert(id, applied);
        }
        let reading = self.reading(turn, key).ok();
        Ok(Counted { applied, reading, refused })
    }

    fn fold_session(&mut self, turn: &mut Turn, key: &Key, delta: Net) -> Result<Net> {
        let policy = self.policies.of(key.namespace())?;
        policy.check_down(delta.n > 0)?;
        let delta = delta.capped(policy.max_step);
        if !delta.is_zero() {
            self.grow(turn, key, delta)?;
        }
        Ok(delta)
    }

    /// Adds to this Pop's own slot.
    fn grow(&mut self, turn: &mut Turn, key: &Key, delta: Net) -> Result<()> {
        let now_ms = turn.now_ms;
        let max_keys = self.policies.of(key.namespace())?.max_keys;
        let keys = turn.meta.keys.get(key.namespace()).copied().unwrap_or(0);
        let loaded = self.load(turn, key)?;
        let fresh = !loaded.stored && !loaded.changed;
        if fresh && keys >= max_keys {
            let detail = "no more names fit this namespace here (max_keys); existing ones go on";
            return Err(Error::new(Kind::TooManyKeys, detail));
        }
        let row = &mut loaded.row;
        row.slot.net = row.slot.net.plus(delta)?;
        let began_ms = row.segments.last().map_or(now_ms, |last| last.began_ms.max(now_ms));
        push_segment(&mut row.segments, Segment { began_ms, net: delta });
        loaded.changed = true;
        if fresh {
            turn.meta.keys.insert(key.namespace().to_string(), keys.saturating_add(1));
            turn.meta_changed = true;
        }
        Ok(())
    }

    fn read(&mut self, turn: &mut Turn, keys: &[Key]) -> Vec<Result<Reading>> {
        keys.iter()
            .map(|key| {
                self.policies.of(key.namespace())?;
                self.reading(turn, key)
            })
            .collect()
    }

    fn reading(&mut self, turn: &mut Turn, key: &Key) -> Result<Reading> {
        let row = &self.load(turn, key)?.row;
        let frozen = row.frozen.iter().filter(|(_, slot)| slot.epoch == row.slot.epoch);
        let own = frozen
            .fold(row.others.map(|o| o.total).unwrap_or_default(), |total, (_, slot)| {
                total.plus(&slot.net)
            });
        Ok(Reading {
            epoch: row.slot.epoch,
            total: own.plus(&row.slot.net),
            own: row.slot.net,
            unsynced: row.slot.net.beyond(row.acked.unwrap_or_default()),
            others: row.others,
        })
    }

    /// Joins what a Hub tells of one key.
    fn hear(
        &mut self,
        turn: &mut Turn,
        random: u64,
        told: &Told,
        asked_ms: u64,
        dropped: &mut Vec<Dropped>,
    ) -> Result<()> {
        if told.id != (SlotId { place: self.place, incarnation: turn.meta.incarnation }) {
            // Meant for an earlier incarnation: its numbers do not fit this slot.
            return Ok(());
        }
        let loaded = self.load(turn, &told.key)?;
        let row = &mut loaded.row;
        if told.epoch < row.slot.epoch {
            return Ok(());
        }
        let before = row.durable_part();
        if told.epoch > row.slot.epoch {
            let net = row.enter(told.epoch)?;
            if !net.is_zero() {
                dropped.push(Dropped { key: told.key.clone(), epoch: told.epoch, net });
            }
        }
        let mine = told.mine.unwrap_or_default();
        if mine.exceeds(row.slot.net) {
            // The Hub holds more of this slot than the slot's owner: the storage is an old copy.
            // What either side has of it is set aside; from now on a new slot counts.
            row.slot.net.merge(&mine);
            let others = others_of(told, asked_ms);
            row.others = Some(others);
            self.heard.insert(told.key.clone(), (told.epoch, others));
            return self.reincarnate(turn, random);
        }
        let lineage_changed = row.others.is_some_and(|others| others.lineage != told.lineage);
        let others = others_of(told, asked_ms);
        match &mut row.others {
            Some(known) if known.lineage == told.lineage => {
                known.total.merge(&others.total);
                known.version = known.version.max(others.version);
                known.as_of_ms = known.as_of_ms.max(others.as_of_ms);
            }
            replaced => *replaced = Some(others),
        }
        row.frozen.retain(|(id, _)| !told.frozen.contains(id));
        match (told.mine, row.acked) {
            // A new lineage starts from what it holds; within one, acknowledgements only grow.
            (mine, Some(_)) if lineage_changed => row.acked = mine,
            (Some(mine), Some(acked)) => {
                row.acked = Some(Net { p: mine.p.max(acked.p), n: mine.n.max(acked.n) })
            }
            (Some(mine), None) => row.acked = Some(mine),
            (None, _) => {}
        }
        if told.mine.is_some() {
            row.moved = false;
        }
        trim_segments(&mut row.segments, row.slot.net.beyond(row.acked.unwrap_or_default()));
        loaded.changed |= row.durable_part() != before;
        let (epoch, known) = (row.slot.epoch, row.others);
        if let Some(others) = known {
            if self.heard.len() >= HEARD_MAX && !self.heard.contains_key(&told.key) {
                self.heard.clear();
            }
            self.heard.insert(told.key.clone(), (epoch, others));
        }
        if lineage_changed {
            self.push_again(turn, told)?;
        }
        Ok(())
    }

    /// Under a new lineage the Hub may have lost what it acknowledged: tell it all again.
    fn push_again(&mut self, turn: &mut Turn, told: &Told) -> Result<()> {
        let partition = told.key.partition();
        for (id, _) in self.store.scan(Table::Keys, &[], &[], usize::MAX)? {
            let key = key_of(&id)?;
            if key.partition() != partition || key == told.key {
                continue;
            }
            let loaded = self.load(turn, &key)?;
            let other = loaded.row.others.is_some_and(|others| others.lineage != told.lineage);
            if other && loaded.row.acked.is_some() {
                loaded.row.acked = None;
                loaded.changed = true;
            }
        }
        Ok(())
    }

    fn reincarnate(&mut self, turn: &mut Turn, random: u64) -> Result<()> {
        // Never the same again, whatever the random bits are.
        turn.meta.incarnation = if random == turn.meta.incarnation { !random } else { random };
        turn.meta_changed = true;
        turn.meta.saved = false;
        let incarnation = turn.meta.incarnation;
        for loaded in turn.rows.values_mut() {
            loaded.row.freeze(self.place, incarnation);
            loaded.changed = loaded.stored || loaded.changed;
        }
        // Every key has to be told to its Hub under the old name once more.
        for (id, _) in self.store.scan(Table::Keys, &[], &[], usize::MAX)? {
            let key = key_of(&id)?;
            self.load(turn, &key)?.changed = true;
        }
        Ok(())
    }

    /// Deletes the rows of sessions past their horizon, and remembers the latest end among them.
    fn expire(&mut self, turn: &mut Turn) -> Result<()> {
        let to = turn.now_ms.to_be_bytes();
        for (id, _) in self.store.scan(Table::Sessions, &[], &to, EXPIRE_MAX)? {
            turn.meta.floor_ms = turn.meta.floor_ms.max(expires_of(&id));
            turn.meta_changed = true;
            turn.writes.push(Write { table: Table::Sessions, id, value: None });
        }
        Ok(())
    }

    fn meta(&mut self, random: u64) -> Result<&Meta> {
        if self.meta.is_none() {
            let stored = self.store.get(Table::Meta, META)?;
            let meta = match stored {
                Some(row) => Meta { saved: true, ..decode(&row)? },
                None => {
                    Meta { incarnation: random, floor_ms: 0, keys: BTreeMap::new(), saved: false }
                }
            };
            self.meta = Some(meta);
        }
        self.meta.as_ref().ok_or_else(|| Error::new(Kind::Storage, "the object cannot read itself"))
    }

    /// The row of a key as this turn has it so far.
    fn load<'t>(&mut self, turn: &'t mut Turn, key: &Key) -> Result<&'t mut Loaded> {
        if !turn.rows.contains_key(key) {
            let loaded = self.row(turn.meta.incarnation, key)?;
            turn.rows.insert(key.clone(), loaded);
        }
        turn.rows.get_mut(key).ok_or_else(|| Error::new(Kind::Storage, "a row went missing"))
    }

    /// The row of a key as on disk, with what was heard since.
    fn row(&self, incarnation: u64, key: &Key) -> Result<Loaded> {
        let stored = self.store.get(Table::Keys, key.as_str().as_bytes())?;
        let stored: Option<Row> = stored.map(|bytes| decode(&bytes)).transpose()?;
        let was_dirty = stored.as_ref().is_some_and(Row::dirty);
        let is_stored = stored.is_some();
        let mut row = stored.unwrap_or_else(|| Row { incarnation, ..Row::default() });
        row.freeze(self.place, incarnation);
        match self.heard.get(key) {
            // Where there was something to move into a newer epoch, the row was written with it.
            Some((epoch, others)) if *epoch >= row.slot.epoch => {
                row.slot.epoch = *epoch;
                row.others = Some(*others);
            }
            _ => {}
        }
        Ok(Loaded { row, stored: is_stored, was_dirty, changed: false })
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
        for (id, applied) in &turn.sessions {
            let value = Some(encode(applied)?);
            turn.writes.push(Write { table: Table::Sessions, id: id.clone(), value });
        }
        if turn.meta_changed || (!turn.writes.is_empty() && !turn.meta.saved) {
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

impl Row {
    /// Whether the Hub has to hear of it.
    fn dirty(&self) -> bool {
        let behind = self.acked != Some(self.slot.net) && (self.moved || !self.slot.net.is_zero());
        behind || !self.frozen.is_empty()
    }

    /// Enters a newer epoch with what was counted after it began; returns what is dropped.
    fn enter(&mut self, epoch: Epoch) -> Result<Net> {
        let unsynced =
            self.segments.iter().try_fold(Net::ZERO, |sum, segment| sum.plus(segment.net))?;
        self.segments.retain(|segment| segment.began_ms > epoch.began_ms());
        let kept =
            self.segments.iter().try_fold(Net::ZERO, |sum, segment| sum.plus(segment.net))?;
        self.moved |= self.acked.is_some() || !self.slot.net.is_zero();
        self.slot = Slot { epoch, net: kept };
        self.acked = None;
        self.others = None;
        let mut dropped = unsynced.beyond(kept);
        for (_, old) in self.frozen.iter().filter(|(_, slot)| slot.epoch < epoch) {
            dropped = dropped.plus(old.net)?;
        }
        self.frozen.retain(|(_, slot)| slot.epoch >= epoch);
        Ok(dropped)
    }

    /// Sets the slot of an earlier incarnation aside, to be told to the Hub as it was.
    fn freeze(&mut self, place: Place, incarnation: u64) {
        if self.incarnation == incarnation {
            return;
        }
        if !self.slot.net.is_zero() {
            let old = SlotId { place, incarnation: self.incarnation };
            self.frozen.push((old, self.slot));
        }
        self.incarnation = incarnation;
        self.slot.net = Net::ZERO;
        self.acked = None;
        self.segments.clear();
    }

    /// All but what the Hub tells again whenever it is asked.
    fn durable_part(&self) -> (Slot, Option<Net>, bool, usize, Option<u64>) {
        let counts = self.acked.is_some() || self.moved || !self.slot.net.is_zero();
        let lineage = self.others.map(|others| others.lineage).filter(|_| counts);
        let slot = if counts { self.slot } else { Slot::default() };
        (slot, self.acked, self.moved, self.frozen.len(), lineage)
    }
}

/// Adds an amount at its time; when they are many, neighbours become one with the earlier time.
fn push_segment(segments: &mut Vec<Segment>, next: Segment) {
    let joined = segments.last_mut().filter(|last| last.began_ms == next.began_ms);
    if let Some(last) = joined
        && let Ok(net) = last.net.plus(next.net)
    {
        last.net = net;
        return;
    }
    segments.push(next);
    if segments.len() > SEGMENTS_MAX {
        let mut halved: Vec<Segment> = Vec::with_capacity(SEGMENTS_MAX);
        for pair in segments.chunks(2) {
            let began_ms = pair.first().map_or(0, |first| first.began_ms);
            let net = pair.iter().try_fold(Net::ZERO, |sum, segment| sum.plus(segment.net));
            // The slot holds the sum, so it fits.
            halved.push(Segment { began_ms, net: net.unwrap_or_default() });
        }
        *segments = halved;
    }
}

/// Forgets the oldest amounts until `left` remains: the Hub acknowledged the rest.
fn trim_segments(segments: &mut Vec<Segment>, left: Net) {
    let mut wanted = left;
    for segment in segments.iter_mut().rev() {
        segment.net = Net { p: segment.net.p.min(wanted.p), n: segment.net.n.min(wanted.n) };
        wanted = wanted.beyond(segment.net);
    }
    segments.retain(|segment| !segment.net.is_zero());
}

fn others_of(told: &Told, asked_ms: u64) -> Others {
    Others { lineage: told.lineage, version: told.version, as_of_ms: asked_ms, total: told.others }
}

fn key_of(id: &[u8]) -> Result<Key> {
    let text = core::str::from_utf8(id).unwrap_or("");
    Key::parse(text).map_err(|_| Error::new(Kind::Storage, "a stored key does not read back"))
}

/// A session's row: its end first, so that what has ended lies together.
fn session_id(ticket: &Ticket, key: &Key) -> Vec<u8> {
    let mut id = ticket.expires_ms.to_be_bytes().to_vec();
    id.extend(ticket.sid);
    id.extend(key.as_str().as_bytes());
    id
}

fn expires_of(id: &[u8]) -> u64 {
    id.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

const META: &[u8] = b"pop";
