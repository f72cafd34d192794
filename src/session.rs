//! The first tier: what one page or process has counted, and what it may show.
//!
//! A page grows one [`Ledger`] and resends those that earlier pages left. Every message carries a
//! ledger's whole count, so any message may be lost or repeated. What a ledger has sent is stored
//! before it is sent: after a crash the amounts that may or may not be counted are known.

use crate::counter::Net;
use crate::error::{Error, Kind, Result};
use crate::key::{Key, Location};
use crate::keyed::Keyed;
use crate::limit::{BATCH_MAX, GATHER_MS, RETRY_MS_MAX, SESSION_ROLL_MS, retry_ms};
use crate::merge::Merge;
use crate::wire::{Open, Opened, Outcome, Seen, Sync, Synced, decode, encode};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What one page has counted, under one session of the server. It is a record on the client's
/// disk. Only the page that made it grows it; later pages only send it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ledger {
    /// The record's name on the client's disk, drawn at random.
    id: u64,
    token: Option<String>,
    home: Option<Location>,
    opened_ms: u64,
    entries: Keyed<Entry>,
    #[serde(skip)]
    attempts: u32,
    #[serde(skip)]
    retry_ms: u64,
    #[serde(skip)]
    unsaved: bool,
}

/// One key of a ledger. `acked <= sent <= local`, part by part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    local: Net,
    sent: Net,
    acked: Net,
    /// The counter without this ledger's counts, as the page showed it.
    base: Option<Seen>,
    /// The counter at a version that contains all of `local`, once it is known.
    settled: Option<Seen>,
}

/// What a counter shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Everybody's count with each of one's own in it exactly once.
    pub value: i128,
    /// One's own counts that are not acknowledged yet, up minus down.
    pub pending: i128,
    /// How many units are not acknowledged yet, up plus down.
    pub waiting: u128,
    /// Whether the others' part was ever read; otherwise `value` is one's own part only.
    pub known: bool,
}

/// What a message asks of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `POST /v1/session`
    Open,
    /// `POST /v1/sync`
    Sync,
}

/// A message to send, once [`Session::unsaved`] is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where to.
    pub call: Call,
    /// The body.
    pub body: Vec<u8>,
}

/// What the application should hear about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// These counts may or may not have been counted; they are never sent again.
    Indeterminate(Key, Net),
    /// These counts were refused and are taken back.
    Refused(Key, Net, Error),
}

/// All that a page holds.
#[derive(Debug)]
pub struct Session {
    current: Ledger,
    older: Vec<Ledger>,
    /// What everybody else counted: readings without the own counts that they contain.
    bases: Keyed<Seen>,
    watched: Keyed<u64>,
    poll_ms: u64,
    due_ms: u64,
    flight: Option<Flight>,
    last_token: Option<String>,
    gone: Vec<u64>,
    notices: Vec<Notice>,
}

/// The message that is on its way. One at a time keeps the order of readings.
#[derive(Debug)]
struct Flight {
    ledger: u64,
    call: Call,
    counts: Vec<Key>,
    read: Vec<Key>,
}

impl Session {
    /// Begins a page's own ledger. `id` is drawn at random, `poll_ms` is how old a watched
    /// counter's reading may become.
    pub fn new(id: u64, poll_ms: u64) -> Self {
        Self {
            current: Ledger { id, ..Ledger::default() },
            older: Vec::new(),
            bases: Keyed::default(),
            watched: Keyed::default(),
            poll_ms,
            due_ms: u64::MAX,
            flight: None,
            last_token: None,
            gone: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Takes over the record of a page that is certainly closed. What it never sent under any
    /// session moves into the own ledger; the rest is sent again until it is acknowledged.
    pub fn adopt(&mut self, record: &[u8], now_ms: u64) -> Result<()> {
        let ledger: Ledger = decode(record)?;
        if ledger.id == self.current.id || self.older.iter().any(|old| old.id == ledger.id) {
            return Ok(());
        }
        for (key, entry) in ledger.entries.iter() {
            // Whether what is known contains this ledger's counts, or another's record did, cannot
            // be told: then the counter is unknown until it is read anew.
            let known = self.bases.contains_key(key) || self.older_have(key);
            match entry.base.filter(|_| !known) {
                Some(base) => self.bases.insert(key, base),
                None => self.bases.remove(key),
            }
        }
        if ledger.token.is_none() {
            self.gone.push(ledger.id);
            for (key, entry) in ledger.entries {
                self.grow(&key, entry.local)?;
            }
        } else {
            self.last_token = ledger.token.clone();
            self.older.push(ledger);
        }
        self.due_ms = self.due_ms.min(now_ms);
        Ok(())
    }

    /// Counts one step, at once. Fails with [`Kind::BadStep`] for 0 and [`Kind::Overflow`].
    pub fn add(&mut self, key: &Key, by: i64, now_ms: u64) -> Result<()> {
        if by == 0 {
            return Err(Error::new(Kind::BadStep, "a step is a whole number and not 0"));
        }
        self.grow(key, Net::step(by))?;
        self.due_ms = self.due_ms.min(now_ms.saturating_add(GATHER_MS));
        Ok(())
    }

    fn grow(&mut self, key: &Key, net: Net) -> Result<()> {
        let base = self.bases.get(key).copied();
        let entry = self.current.entries.or_default(key);
        entry.local = entry.local.plus(net)?;
        entry.settled = None;
        entry.base = base;
        self.current.unsaved = true;
        Ok(())
    }

    /// Keeps a counter's reading fresh from now on.
    pub fn watch(&mut self, key: &Key, now_ms: u64) {
        self.watched.insert(key, now_ms);
        self.due_ms = self.due_ms.min(now_ms);
    }

    /// No longer does.
    pub fn unwatch(&mut self, key: &Key) {
        self.watched.remove(key);
    }

    /// Sends what there is without waiting for more.
    pub fn hurry(&mut self, now_ms: u64) {
        self.due_ms = now_ms;
        for ledger in self.older.iter_mut().chain([&mut self.current]) {
            ledger.retry_ms = 0;
        }
    }

    /// What a counter shows now.
    pub fn view(&self, key: &Key) -> View {
        let base = self.bases.get(key);
        let start = base.map_or(0, |base| base.p.saturating_sub(base.n));
        let mut view = View { value: start, pending: 0, waiting: 0, known: base.is_some() };
        for entry in self.ledgers().filter_map(|ledger| ledger.entries.get(key)) {
            let open = entry.local.beyond(entry.acked);
            view.value = view.value.saturating_add(entry.local.value());
            view.pending = view.pending.saturating_add(open.value());
            let units = u128::from(open.p).saturating_add(u128::from(open.n));
            view.waiting = view.waiting.saturating_add(units);
        }
        view
    }

    /// When to call [`Session::outgoing`] next, in ms; none while nothing is to be done.
    pub fn wake_ms(&self) -> Option<u64> {
        if self.flight.is_some() {
            return None;
        }
        let older = self.older.iter().filter(|old| old.unsettled()).map(|old| old.retry_ms);
        let open = self.current.wants_sync().then_some(self.due_ms);
        let polls = self.watched.iter().map(|(_, at)| *at).min();
        let own = open.into_iter().chain(polls).min();
        older.chain(own.map(|at| at.max(self.current.retry_ms))).min()
    }

    /// The next message, if one is due. Store [`Session::unsaved`] before sending it.
    pub fn outgoing(&mut self, now_ms: u64, random: u64) -> Option<Outgoing> {
        if self.flight.is_some() {
            return None;
        }
        self.roll(now_ms, random);
        let older = self.older.iter().position(|old| old.unsettled() && old.retry_ms <= now_ms);
        if let Some(old) = older.and_then(|at| self.older.get_mut(at)) {
            let (sync, flight) = old.sync(old.open_keys(true), Vec::new(), true);
            self.flight = Some(flight);
            return encode(&sync).ok().map(|body| Outgoing { call: Call::Sync, body });
        }
        let polls: Vec<Key> = self
            .watched
            .iter()
            .filter(|(_, at)| **at <= now_ms)
            .map(|(key, _)| key.clone())
            .collect();
        let sends = self.current.wants_sync() && self.due_ms <= now_ms;
        if self.current.retry_ms > now_ms || (!sends && polls.is_empty()) {
            return None;
        }
        if self.current.token.is_none() {
            let (ledger, call) = (self.current.id, Call::Open);
            self.flight = Some(Flight { ledger, call, counts: Vec::new(), read: Vec::new() });
            let open = Open { last: self.last_token.clone() };
            return encode(&open).ok().map(|body| Outgoing { call, body });
        }
        let mut counts = self.current.open_keys(false);
        let mut foreign = Vec::new();
        for key in polls {
            if !self.current.entries.contains_key(&key) {
                foreign.push(key);
            } else if !counts.contains(&key) {
                counts.push(key);
            }
        }
        let (sync, flight) = self.current.sync(counts, foreign, false);
        self.flight = Some(flight);
        encode(&sync).ok().map(|body| Outgoing { call: Call::Sync, body })
    }

    /// The server answered the message that is on its way.
    pub fn answered(&mut self, status: u16, body: &[u8], now_ms: u64, random: u64) {
        let Some(flight) = self.flight.take() else { return };
        let done = match (status, flight.call) {
            (200, Call::Open) => self.opened(body, now_ms),
            (200, Call::Sync) => self.synced(&flight, body, now_ms, random),
            // The token is void: what it sent and nobody acknowledged can't be known any more.
            (401 | 410, Call::Sync) => {
                self.void(flight.ledger, now_ms, random);
                Ok(())
            }
            _ => Err(Error::new(Kind::Unreachable, "the server did not do it")),
        };
        match done {
            Ok(()) => self.retry(flight.ledger, 0, 0),
            Err(_) => self.postpone(flight.ledger, now_ms, random),
        }
    }

    /// No answer came to the message that is on its way.
    pub fn failed(&mut self, now_ms: u64, random: u64) {
        if let Some(flight) = self.flight.take() {
            self.postpone(flight.ledger, now_ms, random);
        }
    }

    /// Whether a message is on its way.
    pub fn in_flight(&self) -> bool {
        self.flight.is_some()
    }

    /// Whether the last attempt of the own ledger failed.
    pub fn failing(&self) -> bool {
        self.current.attempts > 0
    }

    /// The records to store, or to delete where there are no bytes; each is returned once.
    pub fn unsaved(&mut self) -> Vec<(u64, Option<Vec<u8>>)> {
        let mut records: Vec<(u64, Option<Vec<u8>>)> =
            self.gone.drain(..).map(|id| (id, None)).collect();
        for ledger in self.older.iter_mut().chain([&mut self.current]) {
            if core::mem::take(&mut ledger.unsaved) {
                records.push((ledger.id, encode(ledger).ok()));
            }
        }
        records
    }

    /// The records were not stored after all: return them again.
    pub fn save_again(&mut self) {
        for ledger in self.older.iter_mut().chain([&mut self.current]) {
            ledger.unsaved = true;
        }
    }

    /// The name of the own ledger's record.
    pub fn id(&self) -> u64 {
        self.current.id
    }

    /// What the application should hear; each is returned once.
    pub fn notices(&mut self) -> Vec<Notice> {
        core::mem::take(&mut self.notices)
    }

    fn ledgers(&self) -> impl Iterator<Item = &Ledger> {
        self.older.iter().chain([&self.current])
    }

    fn opened(&mut self, body: &[u8], now_ms: u64) -> Result<()> {
        let opened: Opened = decode(body)?;
        self.last_token = Some(opened.token.clone());
        self.current.token = Some(opened.token);
        self.current.home = Some(opened.home);
        self.current.opened_ms = now_ms;
        self.current.unsaved = true;
        self.due_ms = now_ms;
        Ok(())
    }

    fn synced(&mut self, flight: &Flight, body: &[u8], now_ms: u64, random: u64) -> Result<()> {
        let synced: Synced = decode(body)?;
        if synced.outcomes.len() != flight.counts.len().saturating_add(flight.read.len()) {
            return Err(Error::new(Kind::BadMessage, "the answer does not fit the question"));
        }
        let own = flight.ledger == self.current.id;
        let mut expired = false;
        let (counts, read) = synced.outcomes.split_at(flight.counts.len());
        for (key, outcome) in flight.counts.iter().zip(counts) {
            expired |= outcome.refused.as_ref().is_some_and(|e| e.kind == Kind::SessionExpired);
            self.acknowledge(flight.ledger, key, outcome);
            if own {
                self.learn(key, outcome, now_ms);
            }
        }
        for (key, outcome) in flight.read.iter().zip(read) {
            // What was counted meanwhile was not applied when this was read.
            self.learn(key, outcome, now_ms);
            if let Some(error) = &outcome.refused {
                self.notices.push(Notice::Refused(key.clone(), Net::ZERO, error.clone()));
            }
        }
        if expired {
            self.void(flight.ledger, now_ms, random);
        } else if own && self.current.home != Some(synced.near) {
            self.travelled(now_ms, random);
        }
        if own && self.current.wants_sync() {
            self.due_ms = self.due_ms.min(now_ms.saturating_add(GATHER_MS));
        }
        Ok(())
    }

    /// Notes how far the home has folded a ledger's key.
    fn acknowledge(&mut self, ledger: u64, key: &Key, outcome: &Outcome) {
        let mut notice = None;
        if let Some(ledger) = self.ledger(ledger)
            && let Some(entry) = ledger.entries.get_mut(key)
        {
            entry.acked.merge(&outcome.applied);
            entry.local.merge(&entry.acked);
            match &outcome.refused {
                Some(error) if !error.kind.retryable() && error.kind != Kind::SessionExpired => {
                    notice = Some((entry.local.beyond(entry.acked), error.clone()));
                    entry.local = entry.acked;
                    entry.sent = entry.acked;
                }
                _ => {}
            }
            if let Some(seen) = outcome.seen.filter(|seen| seen.synced)
                && entry.acked == entry.local
            {
                entry.settled = Some(seen);
            }
            ledger.unsaved = true;
        }
        if let Some((net, error)) = notice {
            self.notices.push(Notice::Refused(key.clone(), net, error));
        }
        // An older ledger's counts are shown until a reading contains them: get one soon.
        if let Some(at) = self.watched.get_mut(key).filter(|_| ledger != self.current.id) {
            *at = 0;
        }
        self.forget_empty();
    }

    /// Takes in a reading, of which the applied counts are this ledger's own.
    fn learn(&mut self, key: &Key, outcome: &Outcome, now_ms: u64) {
        self.poll_later(key, now_ms);
        let Some(seen) = outcome.seen else { return };
        if !self.contains_older(key, &seen) {
            return;
        }
        let known = self.bases.get(key).copied();
        if known.is_some_and(|known| known.epoch > seen.epoch) {
            return;
        }
        let mut base = seen;
        base.p = base.p.saturating_sub(i128::from(outcome.applied.p));
        base.n = base.n.saturating_sub(i128::from(outcome.applied.n));
        let met = self.meet(key);
        if let Some(known) = known.filter(|k| k.epoch == seen.epoch && k.lineage == seen.lineage) {
            // Both are true and neither need contain the other: another home may know more.
            base.p = base.p.max(known.p.saturating_add(met.p));
            base.n = base.n.max(known.n.saturating_add(met.n));
        }
        self.bases.insert(key, base);
    }

    /// Whether a reading surely contains all that older ledgers counted of a key. One that may
    /// contain it or not is of no use: with their counts added it could show them twice.
    fn contains_older(&mut self, key: &Key, seen: &Seen) -> bool {
        let mut all = true;
        for old in &mut self.older {
            let Some(entry) = old.entries.get_mut(key) else { continue };
            let settled = entry.settled.unwrap_or_default();
            let same = seen.lineage == settled.lineage;
            let contained = seen.epoch > settled.epoch || (same && seen.version >= settled.version);
            if entry.settled.is_some() && !contained && !same {
                // Versions of two lineages can't be compared: settle again.
                entry.settled = None;
                old.unsaved = true;
            }
            all &= entry.settled.is_some() && contained;
        }
        all
    }

    /// Forgets what older ledgers counted of a key, now that a reading contains it; returns it.
    fn meet(&mut self, key: &Key) -> Seen {
        let mut met = Seen::default();
        for old in &mut self.older {
            let Some(entry) = old.entries.get(key) else { continue };
            met.p = met.p.saturating_add(i128::from(entry.local.p));
            met.n = met.n.saturating_add(i128::from(entry.local.n));
            old.entries.remove(key);
            old.unsaved = true;
        }
        self.forget_empty();
        met
    }

    fn older_have(&self, key: &Key) -> bool {
        self.older.iter().any(|old| old.entries.contains_key(key))
    }

    /// Ends a ledger whose token is void. What was never sent goes on in the own ledger.
    fn void(&mut self, id: u64, now_ms: u64, random: u64) {
        let own = self.current.id == id;
        let ledger = if own {
            let next = Ledger { id: next_id(id, random), ..Ledger::default() };
            Some(core::mem::replace(&mut self.current, next))
        } else {
            let at = self.older.iter().position(|old| old.id == id);
            at.map(|at| self.older.remove(at))
        };
        let Some(ledger) = ledger else { return };
        self.gone.push(id);
        self.last_token = None;
        for (key, entry) in ledger.entries {
            let lost = entry.sent.beyond(entry.acked);
            if !lost.is_zero() {
                self.notices.push(Notice::Indeterminate(key.clone(), lost));
            }
            if let Some(base) = self.bases.get_mut(&key) {
                // What was acknowledged is counted, and from now on somebody else's.
                base.p = base.p.saturating_add(i128::from(entry.acked.p));
                base.n = base.n.saturating_add(i128::from(entry.acked.n));
            }
            let unsent = entry.local.beyond(entry.sent);
            if !unsent.is_zero() && self.grow(&key, unsent).is_err() {
                self.notices.push(Notice::Indeterminate(key, unsent));
            }
        }
        self.current.unsaved = true;
        self.due_ms = now_ms.saturating_add(GATHER_MS);
    }

    /// Opens a new ledger once a day, so that the old one can run out.
    fn roll(&mut self, now_ms: u64, random: u64) {
        let age = now_ms.saturating_sub(self.current.opened_ms);
        if self.current.token.is_some() && age >= SESSION_ROLL_MS {
            self.begin_next(random);
        }
    }

    /// The nearest location is no longer the home: open a session there, but not again and again.
    fn travelled(&mut self, now_ms: u64, random: u64) {
        let age = now_ms.saturating_sub(self.current.opened_ms);
        if age >= TRAVEL_MS {
            self.last_token = None;
            self.begin_next(random);
        }
    }

    fn begin_next(&mut self, random: u64) {
        let next =
            Ledger { id: next_id(self.current.id, random), unsaved: true, ..Ledger::default() };
        let mut old = core::mem::replace(&mut self.current, next);
        old.entries.retain(|_, entry| !entry.local.is_zero());
        for (key, entry) in old.entries.iter_mut() {
            entry.settled = None;
            entry.base = self.bases.get(key).copied();
        }
        if old.entries.is_empty() {
            self.gone.push(old.id);
        } else {
            old.unsaved = true;
            self.older.push(old);
        }
    }

    fn forget_empty(&mut self) {
        let empty = self.older.iter().filter(|old| old.entries.is_empty()).map(|old| old.id);
        self.gone.extend(empty);
        self.older.retain(|old| !old.entries.is_empty());
    }

    fn ledger(&mut self, id: u64) -> Option<&mut Ledger> {
        self.older.iter_mut().chain([&mut self.current]).find(|ledger| ledger.id == id)
    }

    fn postpone(&mut self, id: u64, now_ms: u64, random: u64) {
        let attempts = self.ledger(id).map_or(0, |ledger| ledger.attempts);
        let at = now_ms.saturating_add(retry_ms(attempts, random, RETRY_MS_MAX));
        self.retry(id, attempts.saturating_add(1), at);
    }

    fn retry(&mut self, id: u64, attempts: u32, retry_ms: u64) {
        if let Some(ledger) = self.ledger(id) {
            ledger.attempts = attempts;
            ledger.retry_ms = retry_ms;
        }
    }

    fn poll_later(&mut self, key: &Key, now_ms: u64) {
        if let Some(at) = self.watched.get_mut(key) {
            *at = now_ms.saturating_add(self.poll_ms);
        }
    }
}

impl Ledger {
    /// Whether something has to be sent.
    fn wants_sync(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.acked != entry.local)
    }

    /// Whether the Hub's version that contains everything is not known for some key.
    fn unsettled(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.settled.is_none())
    }

    fn open_keys(&self, settle: bool) -> Vec<Key> {
        let open = |entry: &Entry| {
            if settle { entry.settled.is_none() } else { entry.acked != entry.local }
        };
        self.entries.iter().filter(|(_, entry)| open(entry)).map(|(key, _)| key.clone()).collect()
    }

    fn sync(&mut self, mut counts: Vec<Key>, mut read: Vec<Key>, settle: bool) -> (Sync, Flight) {
        counts.truncate(BATCH_MAX);
        read.truncate(BATCH_MAX.saturating_sub(counts.len()));
        let mut sent = Vec::with_capacity(counts.len());
        for key in &counts {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            self.unsaved |= entry.sent != entry.local;
            entry.sent = entry.local;
            sent.push((key.clone(), entry.local));
        }
        let token = self.token.clone().unwrap_or_default();
        let flight = Flight { ledger: self.id, call: Call::Sync, counts, read: read.clone() };
        (Sync { token, counts: sent, read, settle }, flight)
    }
}

/// Another record's name; differs from `id` whatever `random` is.
fn next_id(id: u64, random: u64) -> u64 {
    if random == id { id.wrapping_add(1) } else { random }
}

/// A traveller opens a new session at most this often, in ms: routes flap.
const TRAVEL_MS: u64 = 3_600_000;
