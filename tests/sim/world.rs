//! The world: pages, locations and Hubs, the messages between them, and what goes wrong.

use crate::disk::{Disk, Image};
use crate::judge::{Judge, Verdict};
use crate::mix::Mix;
use crate::random::Random;
use poptally::counter::{Net, Total};
use poptally::error::{Kind, Result as Outcome};
use poptally::hub::{self, Hub};
use poptally::key::{Key, Location, Place, jittered_shard};
use poptally::limit::SESSION_MS;
use poptally::policy::{Policies, Policy};
use poptally::pop::{self, Pop};
use poptally::session::{Call, Notice, Session};
use poptally::wire::{
    Ask, Counted, Open, Opened, Outcome as Seen, Reading, Sync, Synced, Ticket, Told, decode,
    encode,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PUSH_MS: u64 = 1_000;
const STEPS: u64 = 500;
const LOCATIONS: [&str; 3] = ["LHR", "SFO", "NRT"];
const KEYS: [&str; 3] = ["likes/a", "likes/b", "views/home"];
/// Whatever is due later than this is an end that comes once: a session's or an answer's.
const FAR_MS: u64 = 60_000;

/// A message on its way, or a moment that comes.
enum Event {
    Request { page: usize, flight: u64, from: Location, call: Call, body: Vec<u8> },
    Response { page: usize, flight: u64, status: u16, body: Vec<u8> },
    GiveUp { page: usize, flight: u64 },
    Ask { from: Place, partition: u16, asks: Vec<Ask>, asked_ms: u64 },
    Told { to: Place, told: Vec<Told>, asked_ms: u64 },
    Nudge { to: Place, keys: Vec<Key> },
    PopAlarm(Place),
    HubAlarm(u16),
}

/// A durable object: its core, its disk, its clock, its alarm.
struct Object<T> {
    core: T,
    disk: Disk,
    skew_ms: u64,
    alarm_ms: Option<u64>,
    old: Option<Image>,
}

/// A tab: a session, and the last that it showed of each key.
struct Page {
    device: usize,
    session: Session,
    flight: u64,
    location: Location,
    shown: BTreeMap<Key, i128>,
    open: bool,
}

/// An idempotent write that is sent until it is answered.
struct Retry {
    key: Key,
    by: i64,
    once: String,
}

pub struct World<'a> {
    mix: &'a Mix,
    random: Random,
    now_ms: u64,
    shards: u16,
    faulty: bool,
    pops: BTreeMap<Place, Object<Pop<Disk>>>,
    hubs: BTreeMap<u16, Object<Hub<Disk>>>,
    cut: Vec<Location>,
    pages: Vec<Page>,
    /// What each device stores: records by page.
    devices: Vec<BTreeMap<(usize, u64), Vec<u8>>>,
    queue: BTreeMap<(u64, u64), Event>,
    sent: u64,
    retries: Vec<Retry>,
    judge: Judge,
    /// Idempotent writes that were counted.
    answered: BTreeSet<String>,
    violation: Option<String>,
    trace: VecDeque<String>,
    print: bool,
}

/// Runs one seed; returns the number of steps, or what was violated with the last steps.
pub fn run(seed: u64, mix: &Mix, print: bool) -> Result<u64, String> {
    let mut world = World::new(seed, mix, print);
    let verdict = world.live().and_then(|()| world.rest());
    let tail: Vec<String> = world.trace.drain(..).collect();
    verdict.map(|()| world.sent + STEPS).map_err(|violation| {
        format!("seed {seed}: {violation}\nthe last steps:\n  {}", tail.join("\n  "))
    })
}

fn policies() -> Policies {
    let declared = [("likes".into(), Policy::count()), ("views".into(), Policy::growing())];
    Policies::new(declared).unwrap()
}

fn keys() -> Vec<Key> {
    KEYS.iter().map(|key| Key::parse(key).unwrap()).collect()
}

impl<'a> World<'a> {
    fn new(seed: u64, mix: &'a Mix, print: bool) -> Self {
        let mut world = World {
            mix,
            random: Random::new(seed),
            now_ms: 1_700_000_000_000,
            shards: 2,
            faulty: true,
            pops: BTreeMap::new(),
            hubs: BTreeMap::new(),
            cut: Vec::new(),
            pages: Vec::new(),
            devices: vec![BTreeMap::new(), BTreeMap::new(), BTreeMap::new()],
            queue: BTreeMap::new(),
            sent: 0,
            retries: Vec::new(),
            judge: Judge::default(),
            answered: BTreeSet::new(),
            violation: None,
            trace: VecDeque::new(),
            print,
        };
        for device in 0..world.devices.len() {
            world.open_page(device);
        }
        world
    }

    /// The part of the run in which things happen and go wrong.
    fn live(&mut self) -> Verdict {
        for _ in 0..STEPS {
            // Slow enough that a cut-off location tells a reset's moment exactly.
            self.now_ms += 1 + self.random.below(150);
            self.deliver()?;
            self.act()?;
            self.check_pages()?;
        }
        Ok(())
    }

    /// The part in which nothing goes wrong any more: all must end, agree, and be right.
    fn rest(&mut self) -> Verdict {
        self.note("faults cease".into());
        self.faulty = false;
        self.cut.clear();
        self.pops.values().for_each(|object| object.disk.work());
        self.hubs.values().for_each(|object| object.disk.work());
        for page in 0..self.pages.len() {
            if self.pages[page].open && self.random.chance(300) {
                let device = self.pages[page].device;
                self.close_page(page);
                self.open_page(device);
            }
        }
        let mut quiet = 0;
        for _ in 0..4_000 {
            self.now_ms += 50;
            self.deliver()?;
            self.check_pages()?;
            self.tick_pages();
            self.retry_all();
            let waits = self.pages.iter().any(|page| page.open && self.waiting(page) > 0);
            let near = |(at, event): (&(u64, u64), &Event)| {
                at.0 < self.now_ms + FAR_MS && !matches!(event, Event::GiveUp { .. })
            };
            let alarms = self.queue.iter().any(near);
            quiet = if waits || alarms || !self.retries.is_empty() { 0 } else { quiet + 1 };
            if quiet == 20 {
                // Everybody reads: an old copy may learn only now that it is one.
                self.ask_everything();
                self.poll_everything()?;
            }
            if quiet > 40 {
                return self.check_end();
            }
        }
        let waiting: Vec<u128> = self.pages.iter().map(|page| self.waiting(page)).collect();
        let near: Vec<u64> = self
            .queue
            .keys()
            .filter(|(at, _)| *at < self.now_ms + FAR_MS)
            .map(|(at, _)| *at)
            .collect();
        Err(format!(
            "idle is free: it never comes to rest; pages wait for {waiting:?}, due {near:?}"
        ))
    }

    fn ask_everything(&mut self) {
        for place in self.pops.keys().copied().collect::<Vec<_>>() {
            keys().iter().for_each(|key| self.ask_now(place, key));
        }
    }

    /// Every open page reads every key, until older sessions have met what contains them.
    fn poll_everything(&mut self) -> Verdict {
        for _ in 0..8 {
            for page in 0..self.pages.len() {
                if self.pages[page].open {
                    let (now_ms, random) = (self.now_ms, self.random.bits());
                    let session = &mut self.pages[page].session;
                    // What was on its way when the faults ceased may never come.
                    session.failed(now_ms, random);
                    session.hurry(now_ms);
                    keys().iter().for_each(|key| session.watch(key, now_ms));
                    self.tick(page);
                }
            }
            for _ in 0..4 {
                self.now_ms += 30;
                self.deliver()?;
            }
        }
        Ok(())
    }

    fn check_end(&mut self) -> Verdict {
        self.judge.check_sessions()?;
        let written = self.written();
        for key in keys() {
            let mut totals: Vec<(String, Total)> = Vec::new();
            for place in self.pops.keys().copied().collect::<Vec<_>>() {
                self.ask_now(place, &key);
                let reading = self.read(place, &key)?;
                if !reading.unsynced.is_zero() {
                    return Err(format!(
                        "{place} still has {:?} of {key} to push",
                        reading.unsynced
                    ));
                }
                totals.push((place.to_string(), reading.total));
            }
            for (place, total) in &totals {
                self.judge
                    .check_final(&key, *total)
                    .map_err(|violation| format!("{violation} at {place}: {totals:?}"))?;
            }
            for (at, page) in self.pages.iter().enumerate().filter(|(_, page)| page.open) {
                let view = page.session.view(&key);
                if view.pending != 0 || view.waiting != 0 {
                    return Err(format!("page {at} still waits for {view:?}"));
                }
                let all = totals.first().map_or(0, |(_, total)| total.value());
                // A page may have read what a lost storage had not pushed yet; it does not go back.
                if !self.mix.storage && (!view.known || view.value != all) {
                    return Err(format!(
                        "read your writes: page {at} ends at {view:?}, {key} is {all}"
                    ));
                }
            }
        }
        if written != self.written() {
            return Err("idle is free: reading wrote rows".into());
        }
        Ok(())
    }

    fn written(&self) -> u64 {
        let pops = self.pops.values().map(|object| object.disk.written());
        pops.chain(self.hubs.values().map(|object| object.disk.written())).sum()
    }

    // ---- what people and faults do

    fn act(&mut self) -> Verdict {
        let key = self.random.pick(&keys()).clone();
        match self.random.below(100) {
            0..32 => {
                let page = self.some_page();
                self.count(page, &key)?;
            }
            32..58 => {
                let page = self.some_page();
                self.tick(page);
            }
            58..66 => self.add_once(&key),
            66..71 => self.begin_retry(&key),
            71..76 => self.retry_all(),
            76..80 => {
                let page = self.some_page();
                self.pages[page].session.watch(&key, self.now_ms);
            }
            80..84 => self.read_somewhere(&key)?,
            84..87 => self.cut_or_heal(),
            87..90 => self.reload(),
            90..92 => {
                let page = self.some_page();
                self.pages[page].location = self.location();
                self.note(format!("page {page} travels"));
            }
            92..93 => {
                self.shards = 1 + self.random.below(3) as u16;
                self.note(format!("{} shards", self.shards));
            }
            93..96 if self.mix.resets => self.reset(&key),
            96..97 if self.mix.storage => self.lose_storage(),
            97..98 if self.mix.days => {
                let days = self.random.below(5) * 24 * 3_600_000 + self.random.below(3_600_000);
                self.now_ms += days;
                // Nobody may rely on an answer that is a day old.
                self.retries.clear();
                self.note(format!("{} hours pass", days / 3_600_000));
            }
            98..99 if self.mix.kill > 0 => self.restart_something(),
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, page: usize, key: &Key) -> Verdict {
        let grows = key.namespace() == "views";
        let by = match self.random.below(4) {
            0 if !grows => -1 - self.random.below(3) as i64,
            _ => 1 + self.random.below(3) as i64,
        };
        let before = self.pages[page].session.view(key).value;
        self.pages[page].session.add(key, by, self.now_ms).unwrap();
        let after = self.pages[page].session.view(key).value;
        self.judge.issued(key, Net::step(by));
        self.note(format!("page {page} counts {by} on {key}: {before} -> {after}"));
        self.save(page);
        if after != before + i128::from(by) {
            return Err(format!(
                "read your writes: page {page} shows {after} after {before} and {by}"
            ));
        }
        Ok(())
    }

    fn add_once(&mut self, key: &Key) {
        let place = Place { location: self.location(), shard: key.shard(self.shards) };
        let by = 1 + self.random.below(3) as i64;
        self.note(format!("one-shot {by} on {key} at {place}"));
        self.turn(place, pop::Event::Add { key: key.clone(), by });
    }

    fn begin_retry(&mut self, key: &Key) {
        let once = format!("once-{}", self.random.bits());
        self.retries.push(Retry { key: key.clone(), by: 1 + self.random.below(3) as i64, once });
    }

    /// Sends every unanswered idempotent write again, twice where it comes so.
    fn retry_all(&mut self) {
        for retry in std::mem::take(&mut self.retries) {
            let event =
                hub::Event::Add { key: retry.key.clone(), by: retry.by, once: retry.once.clone() };
            let partition = retry.key.partition();
            if self.lost() {
                self.retries.push(retry);
                continue;
            }
            let answer = self.hub_turn(partition, event);
            match answer {
                Ok(_) if !self.lost() => {}
                _ => self.retries.push(retry),
            }
        }
    }

    fn reset(&mut self, key: &Key) {
        let clear = self.random.chance(500);
        let net = if clear { Net::ZERO } else { Net::step(self.random.below(50) as i64) };
        let event = hub::Event::Set { key: key.clone(), net, clear };
        if self.hub_turn(key.partition(), event).is_ok() {
            self.note(format!("{key} is set to {net:?}"));
        }
        // The edge answers when its clock has passed the epoch's millisecond.
        self.now_ms += 2;
    }

    fn cut_or_heal(&mut self) {
        let location = self.location();
        if let Some(at) = self.cut.iter().position(|cut| *cut == location) {
            self.cut.remove(at);
            self.note(format!("{location} is reconnected"));
        } else if self.cut.len() < LOCATIONS.len() - 1 {
            self.cut.push(location);
            self.note(format!("{location} is cut off"));
        }
    }

    fn reload(&mut self) {
        let page = self.some_page();
        let device = self.pages[page].device;
        if self.random.chance(700) {
            self.close_page(page);
        }
        self.open_page(device);
    }

    fn restart_something(&mut self) {
        let places: Vec<Place> = self.pops.keys().copied().collect();
        if !places.is_empty() {
            let place = *self.random.pick(&places);
            self.restart(place);
        }
        let partitions: Vec<u16> = self.hubs.keys().copied().collect();
        if !partitions.is_empty() {
            let partition = *self.random.pick(&partitions);
            self.restart_hub(partition);
        }
    }

    /// A Pop loses its storage, or comes back with an old copy of it.
    fn lose_storage(&mut self) {
        let places: Vec<Place> = self.pops.keys().copied().collect();
        if places.is_empty() {
            return;
        }
        let place = *self.random.pick(&places);
        let object = self.pops.get_mut(&place).unwrap();
        if object.old.is_none() || self.random.chance(300) {
            object.old = Some(object.disk.copy());
            self.note(format!("a copy of {place} is kept"));
            return;
        }
        let restored = self.random.chance(500);
        let image = if restored { object.old.clone().unwrap() } else { Image::new() };
        object.disk = Disk::holding(image);
        object.core = Pop::new(object.disk.clone(), policies(), place);
        for key in keys() {
            // What its Hub had is there for ever. How much that is nobody here needs to know.
            self.judge.lost(&key, Net { p: 1 << 40, n: 1 << 40 });
        }
        self.note(format!(
            "{place} {}",
            if restored { "is restored from a copy" } else { "is lost" }
        ));
        let local = self.local(place);
        self.set_pop_alarm(place, local + PUSH_MS);
    }

    // ---- pages

    fn open_page(&mut self, device: usize) {
        let at = self.pages.len();
        let mut session = Session::new(self.random.bits(), 2_000);
        let records: Vec<((usize, u64), Vec<u8>)> =
            self.devices[device].iter().map(|(id, record)| (*id, record.clone())).collect();
        for ((owner, id), record) in records {
            // A page's lock is free when it is closed; who takes a record over owns it.
            if !self.pages[owner].open {
                session.adopt(&record, self.now_ms).unwrap();
                self.devices[device].remove(&(owner, id));
                self.devices[device].insert((at, id), record);
            }
        }
        let location = self.location();
        let shown = BTreeMap::new();
        self.pages.push(Page { device, session, flight: 0, location, shown, open: true });
        self.note(format!("page {at} opens on device {device}"));
        self.save(at);
        // Its messages are lost with it, and so is what was not stored: nothing is, here.
        for key in keys() {
            if self.random.chance(600) {
                self.pages[at].session.watch(&key, self.now_ms);
            }
        }
    }

    fn close_page(&mut self, page: usize) {
        self.pages[page].open = false;
        self.note(format!("page {page} closes"));
    }

    fn save(&mut self, page: usize) {
        let device = self.pages[page].device;
        for (id, record) in self.pages[page].session.unsaved() {
            match record {
                Some(record) => self.devices[device].insert((page, id), record),
                None => self.devices[device].remove(&(page, id)),
            };
        }
    }

    fn tick(&mut self, page: usize) {
        let random = self.random.bits();
        let outgoing = self.pages[page].session.outgoing(self.now_ms, random);
        self.save(page);
        let Some(outgoing) = outgoing else { return };
        self.pages[page].flight += 1;
        let (flight, from) = (self.pages[page].flight, self.pages[page].location);
        self.note(format!("page {page} sends {:?}", outgoing.call));
        let (call, body) = (outgoing.call, outgoing.body);
        self.post(|_| Event::Request { page, flight, from, call, body: body.clone() });
        self.later(10_000, Event::GiveUp { page, flight });
        if self.faulty && self.random.chance(20) {
            // It leaves in the middle of a flush.
            let device = self.pages[page].device;
            self.close_page(page);
            self.open_page(device);
        }
    }

    fn tick_pages(&mut self) {
        for page in 0..self.pages.len() {
            let due = self.pages[page].session.wake_ms().is_some_and(|at| at <= self.now_ms);
            if self.pages[page].open && due && self.waiting(&self.pages[page]) > 0 {
                self.tick(page);
            }
        }
    }

    fn waiting(&self, page: &Page) -> u128 {
        keys().iter().map(|key| page.session.view(key).waiting).sum()
    }

    /// A page's values hold all of its own, and of a grow-only key never go down.
    fn check_pages(&mut self) -> Verdict {
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        for at in 0..self.pages.len() {
            if !self.pages[at].open {
                continue;
            }
            let steady = !self.mix.resets && !self.mix.storage;
            for key in keys().into_iter().filter(|key| key.namespace() == "views") {
                let page = &mut self.pages[at];
                let view = page.session.view(&key);
                // Before a page has read the others, its value is its own part and no reading.
                let read = view.known.then_some(view.value);
                let before = page.shown.remove(&key).unwrap_or(i128::MIN);
                page.shown.extend(read.map(|value| (key.clone(), value)));
                if steady && view.value > self.judge.most(&key) {
                    return Err(format!(
                        "exactly once: page {at} shows {view:?} of {key}, more than was counted"
                    ));
                }
                if steady && view.value < before {
                    return Err(format!(
                        "monotonic reads: page {at} shows {} after {before}",
                        view.value
                    ));
                }
            }
        }
        Ok(())
    }

    /// Takes down what a page reports after an answer.
    fn hear_notices(&mut self, at: usize) -> Verdict {
        for notice in self.pages[at].session.notices() {
            match notice {
                Notice::Indeterminate(key, net) => {
                    self.note(format!("page {at}: {key} {net:?} is indeterminate"));
                    self.judge.indeterminate(&key, net);
                    // They are taken back from what it shows.
                    self.pages[at].shown.remove(&key);
                }
                Notice::Refused(key, net, error) => {
                    return Err(format!("page {at}: {key} {net:?} was refused: {error}"));
                }
            }
        }
        Ok(())
    }

    // ---- the edge

    fn serve(&mut self, from: Location, call: Call, body: &[u8]) -> (u16, Vec<u8>) {
        match call {
            Call::Open => self.serve_open(from, &decode::<Open>(body).unwrap()),
            Call::Sync => self.serve_sync(from, decode::<Sync>(body).unwrap()),
        }
    }

    fn serve_open(&mut self, from: Location, open: &Open) -> (u16, Vec<u8>) {
        let last = open.last.as_ref().map(|token| ticket(token).home);
        let last = last.filter(|home| home.location == from && home.shard < self.shards);
        let shard = jittered_shard(self.shards, self.now_ms, self.random.bits());
        let home = last.unwrap_or(Place { location: from, shard });
        let Some(Ok(pop::Answer::Opened(incarnation))) = self.turn(home, pop::Event::Open) else {
            return (503, Vec::new());
        };
        let sid = std::array::from_fn(|_| self.random.bits() as u8);
        let expires_ms = self.local(home) + SESSION_MS;
        let token = token(&Ticket { sid, home, incarnation, expires_ms });
        (200, encode(&Opened { token, expires_ms, home: home.location }).unwrap())
    }

    fn serve_sync(&mut self, from: Location, sync: Sync) -> (u16, Vec<u8>) {
        let ticket = ticket(&sync.token);
        let home = ticket.home;
        let keys: Vec<Key> = sync.counts.iter().map(|(key, _)| key.clone()).collect();
        let (counts, read) = (sync.counts, sync.read.clone());
        let event = pop::Event::Sync { ticket: ticket.clone(), counts, read };
        let Some(first) = self.turn(home, event.clone()) else { return (503, Vec::new()) };
        if first.is_err() {
            return refusal(first);
        }
        let again = if sync.settle { [keys, sync.read].concat() } else { sync.read };
        if !again.is_empty() {
            again.iter().for_each(|key| self.ask_now(home, key));
        }
        let Some(answer) = self.turn(home, event) else { return (503, Vec::new()) };
        match answer {
            Ok(pop::Answer::Synced(counts, read)) => {
                let outcomes = counts.into_iter().map(Seen::from);
                let outcomes = outcomes.chain(read.into_iter().map(Seen::from)).collect();
                (200, encode(&Synced { outcomes, near: from }).unwrap())
            }
            other => refusal(other),
        }
    }

    /// A Pop asks a Hub about one key and waits for the answer, which may fail both ways.
    fn ask_now(&mut self, place: Place, key: &Key) {
        if self.cut.contains(&place.location) || self.lost() {
            return;
        }
        let asked_ms = self.local(place);
        let random = self.random.bits();
        let ask = self.pop(place).core.ask(random, key).unwrap();
        let answer = self.hub_turn(key.partition(), hub::Event::Ask(vec![ask]));
        if let (Ok(hub::Answer::Told(told)), false) = (answer, self.lost()) {
            let told = told.into_iter().filter_map(Result::ok).collect();
            self.turn(place, pop::Event::Tell { told, asked_ms });
        }
    }

    fn read_somewhere(&mut self, key: &Key) -> Verdict {
        let place = Place { location: self.location(), shard: key.shard(self.shards) };
        self.ask_now(place, key);
        let reading = self.read(place, key)?;
        self.judge.check_reading(key, reading.total)
    }

    fn read(&mut self, place: Place, key: &Key) -> Result<Reading, String> {
        let answer = self.turn(place, pop::Event::Read { keys: vec![key.clone()] });
        match answer {
            Some(Ok(pop::Answer::Read(mut readings))) => {
                readings.remove(0).map_err(|e| e.to_string())
            }
            // It was killed, or its disk failed: read again.
            _ => self.read(place, key),
        }
    }

    // ---- objects

    /// One turn of a Pop. None when it was killed before it could answer.
    fn turn(&mut self, place: Place, event: pop::Event) -> Option<Outcome<pop::Answer>> {
        if self.faulty && self.random.chance(self.mix.disk_fails) {
            self.pop(place).disk.fail_next();
        }
        let (local, random) = (self.local(place), self.random.bits());
        let answer =
            self.pop(place).core.turn(local, random, std::slice::from_ref(&event)).remove(0);
        self.witness(&event, &answer);
        // The rows and their alarm are one write.
        let random = self.random.bits();
        if let Some(at) = self.pop(place).core.wake_ms(local, PUSH_MS, random).unwrap() {
            self.set_pop_alarm(place, at);
        }
        if self.faulty && self.random.chance(self.mix.kill) {
            self.note(format!("{place} is killed between its write and its answer"));
            self.restart(place);
            return None;
        }
        Some(answer)
    }

    /// Tells the judge what an object did.
    fn witness(&mut self, event: &pop::Event, answer: &Outcome<pop::Answer>) {
        match (event, answer) {
            (pop::Event::Sync { ticket, counts, .. }, Ok(pop::Answer::Synced(counted, _))) => {
                for ((key, _), Counted { applied, .. }) in counts.iter().zip(counted) {
                    self.judge.applied(ticket.sid, key, *applied);
                }
            }
            (pop::Event::Add { key, by }, Ok(_)) => self.judge.folded(key, Net::step(*by)),
            (_, Ok(pop::Answer::Told(dropped))) => {
                for dropped in dropped {
                    self.note(format!("{} drops {:?}", dropped.key, dropped.net));
                }
            }
            _ => {}
        }
    }

    fn hub_turn(&mut self, partition: u16, event: hub::Event) -> Outcome<hub::Answer> {
        let (now_ms, random) = (self.now_ms, self.random.bits());
        if self.faulty && self.random.chance(self.mix.disk_fails) {
            self.hub(partition).disk.fail_next();
        }
        let object = self.hub(partition);
        let local = now_ms + object.skew_ms;
        let answer = object.core.turn(local, random, std::slice::from_ref(&event)).remove(0);
        match (&event, &answer) {
            (
                hub::Event::Add { key, by, once },
                Ok(hub::Answer::Written { replayed: false, .. }),
            ) => {
                self.judge.folded(key, Net::step(*by));
                if !self.answered.insert(once.clone()) {
                    self.violation =
                        Some(format!("exactly once: {once} was counted a second time"));
                }
            }
            (hub::Event::Set { key, net, .. }, Ok(_)) => self.judge.reset(key, *net),
            _ => {}
        }
        let random = self.random.bits();
        if let Some(at) = self.hub(partition).core.wake_ms(local, PUSH_MS, random).unwrap() {
            self.set_hub_alarm(partition, at);
        }
        if self.faulty && self.random.chance(self.mix.kill) {
            self.note(format!("hub/{partition} is killed between its write and its answer"));
            self.restart_hub(partition);
            return Err(poptally::error::Error::new(Kind::Unreachable, "killed"));
        }
        answer
    }

    fn pop(&mut self, place: Place) -> &mut Object<Pop<Disk>> {
        let skew_ms = self.random.clone().below(self.mix.skew_ms + 1);
        self.pops.entry(place).or_insert_with(|| {
            let disk = Disk::default();
            let core = Pop::new(disk.clone(), policies(), place);
            Object { core, disk, skew_ms, alarm_ms: None, old: None }
        })
    }

    fn hub(&mut self, partition: u16) -> &mut Object<Hub<Disk>> {
        let skew_ms = self.random.clone().below(self.mix.skew_ms + 1);
        self.hubs.entry(partition).or_insert_with(|| {
            let disk = Disk::default();
            let core = Hub::new(disk.clone(), policies(), partition);
            Object { core, disk, skew_ms, alarm_ms: None, old: None }
        })
    }

    /// An object loses its memory and keeps its disk.
    fn restart(&mut self, place: Place) {
        let object = self.pop(place);
        object.core = Pop::new(object.disk.clone(), policies(), place);
    }

    fn restart_hub(&mut self, partition: u16) {
        let object = self.hub(partition);
        object.core = Hub::new(object.disk.clone(), policies(), partition);
    }

    fn local(&mut self, place: Place) -> u64 {
        self.now_ms + self.pop(place).skew_ms
    }

    /// Arms an object's alarm, by its own clock, where it would ring too late.
    fn set_pop_alarm(&mut self, place: Place, local_ms: u64) {
        let at = (local_ms - self.pop(place).skew_ms).max(self.now_ms + 1);
        let object = self.pop(place);
        if object.alarm_ms.is_none_or(|armed| at < armed) {
            object.alarm_ms = Some(at);
            self.later(at - self.now_ms, Event::PopAlarm(place));
        }
    }

    fn set_hub_alarm(&mut self, partition: u16, local_ms: u64) {
        let at = (local_ms - self.hub(partition).skew_ms).max(self.now_ms + 1);
        let object = self.hub(partition);
        if object.alarm_ms.is_none_or(|armed| at < armed) {
            object.alarm_ms = Some(at);
            self.later(at - self.now_ms, Event::HubAlarm(partition));
        }
    }

    // ---- the network

    fn lost(&mut self) -> bool {
        self.faulty && self.random.chance(self.mix.lose)
    }

    /// Sends a message: it may be lost, repeated and late.
    fn post(&mut self, event: impl Fn(&mut Self) -> Event) {
        let twice = self.faulty && self.random.chance(self.mix.repeat);
        for _ in 0..=u8::from(twice) {
            if !self.lost() {
                let longest = if self.faulty { self.mix.delay_ms } else { 20 };
                let delay = 1 + self.random.below(longest);
                let event = event(self);
                self.later(delay, event);
            }
        }
    }

    fn later(&mut self, delay_ms: u64, event: Event) {
        self.sent += 1;
        self.queue.insert((self.now_ms + delay_ms, self.sent), event);
    }

    fn deliver(&mut self) -> Verdict {
        let end_ms = self.now_ms;
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end_ms) {
            let ((at, _), event) = entry.remove_entry();
            // Time jumps for the world at once: what was due meanwhile comes late.
            self.now_ms = self.now_ms.max(at);
            self.take(event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Verdict {
        match event {
            Event::Request { page, flight, from, call, body } => {
                let (status, body) = self.serve(from, call, &body);
                self.note(format!("page {page}'s {call:?} is answered {status}"));
                self.post(|_| Event::Response { page, flight, status, body: body.clone() });
            }
            Event::Response { page, flight, status, body } => {
                let (now_ms, random) = (self.now_ms, self.random.bits());
                let there = &mut self.pages[page];
                if there.open && there.flight == flight && there.session.in_flight() {
                    there.session.answered(status, &body, now_ms, random);
                    self.save(page);
                    self.hear_notices(page)?;
                }
            }
            Event::GiveUp { page, flight } => {
                let (now_ms, random) = (self.now_ms, self.random.bits());
                let there = &mut self.pages[page];
                if there.open && there.flight == flight && there.session.in_flight() {
                    there.session.failed(now_ms, random);
                }
            }
            Event::Ask { from, partition, asks, asked_ms } => {
                if self.cut.contains(&from.location) {
                    return Ok(());
                }
                if let Ok(hub::Answer::Told(told)) = self.hub_turn(partition, hub::Event::Ask(asks))
                {
                    let told: Vec<Told> = told.into_iter().filter_map(Result::ok).collect();
                    self.post(|_| Event::Told { to: from, told: told.clone(), asked_ms });
                }
            }
            Event::Told { to, told, asked_ms } => {
                if !self.cut.contains(&to.location) {
                    self.turn(to, pop::Event::Tell { told, asked_ms });
                    self.pop(to).core.reached(true);
                }
            }
            Event::Nudge { to, keys } => {
                if !self.cut.contains(&to.location) {
                    keys.iter().for_each(|key| self.ask_now(to, key));
                    self.push(to);
                }
            }
            Event::PopAlarm(place) => self.pop_alarm(place),
            Event::HubAlarm(partition) => self.hub_alarm(partition),
        }
        Ok(())
    }

    fn pop_alarm(&mut self, place: Place) {
        let now_ms = self.now_ms;
        let object = self.pop(place);
        if object.alarm_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        object.alarm_ms = None;
        self.turn(place, pop::Event::Expire);
        self.push(place);
        let (local, random) = (self.local(place), self.random.bits());
        if let Some(at) = self.pop(place).core.wake_ms(local, PUSH_MS, random).unwrap() {
            self.set_pop_alarm(place, at);
        }
    }

    fn push(&mut self, place: Place) {
        let (asked_ms, random) = (self.local(place), self.random.bits());
        let due = self.pop(place).core.due(random).unwrap();
        for (partition, asks) in due {
            self.post(|_| Event::Ask { from: place, partition, asks: asks.clone(), asked_ms });
        }
    }

    fn hub_alarm(&mut self, partition: u16) {
        let now_ms = self.now_ms;
        let object = self.hub(partition);
        if object.alarm_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        object.alarm_ms = None;
        let _ = self.hub_turn(partition, hub::Event::Expire);
        for (to, keys) in self.hub(partition).core.due().unwrap() {
            self.post(|_| Event::Nudge { to, keys: keys.clone() });
        }
        let (local, random) = (self.now_ms + self.hub(partition).skew_ms, self.random.bits());
        if let Some(at) = self.hub(partition).core.wake_ms(local, PUSH_MS, random).unwrap() {
            self.set_hub_alarm(partition, at);
        }
    }

    // ---- small things

    fn some_page(&mut self) -> usize {
        let open: Vec<usize> = (0..self.pages.len()).filter(|at| self.pages[*at].open).collect();
        *self.random.pick(&open)
    }

    fn location(&mut self) -> Location {
        let code: &&str = self.random.pick(&LOCATIONS);
        Location::new(code).unwrap()
    }

    fn note(&mut self, line: String) {
        let line = format!("{} {line}", self.now_ms);
        if self.print {
            println!("{line}");
        }
        if self.trace.len() >= 60 {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }
}

fn refusal(answer: Outcome<pop::Answer>) -> (u16, Vec<u8>) {
    (answer.err().map_or(500, |error| error.kind.status()), Vec::new())
}

/// A token without a signature: the world has no forgers.
fn token(ticket: &Ticket) -> String {
    encode(ticket).unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ticket(token: &str) -> Ticket {
    let bytes: Vec<u8> = (0..token.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&token[at..at + 2], 16).unwrap())
        .collect();
    decode(&bytes).unwrap()
}
