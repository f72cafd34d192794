//! The bytes of every message and stored row, as released. What is in `tests/bytes/v1` was, or will
//! be, on somebody's disk: it must read back for ever. A new version gets a folder of its own.
//!
//! `BYTES_WRITE=1 cargo test --test bytes` writes files that are missing; it changes none.

#![cfg(not(target_arch = "wasm32"))]

use poptally::counter::{Epoch, Net, Slot, SlotId, Total};
use poptally::error::{Error, Kind};
use poptally::hub::{self, Hub};
use poptally::key::{Key, Location, Place};
use poptally::policy::{Policies, Policy};
use poptally::pop::{self, Pop};
use poptally::session::Session;
use poptally::store::{Row, Store, Table, Write};
use poptally::wire::{
    self, Ask, Open, Opened, Others, Outcome, Reading, Seen, Sync, Synced, Ticket, Told,
};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;

/// Checks that a value has exactly the bytes on file, and that these read back as the value.
fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, value: &T) {
    let bytes = wire::encode(value).unwrap();
    check(name, &bytes);
    assert_eq!(wire::decode::<T>(&bytes).unwrap(), *value, "{name} reads back");
}

fn check(name: &str, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = format!("tests/bytes/v1/{name}.hex");
    if std::env::var("BYTES_WRITE").is_ok() && !fs::exists(&file).unwrap() {
        fs::create_dir_all("tests/bytes/v1").unwrap();
        fs::write(&file, format!("{hex}\n")).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{file} is missing"));
    assert_eq!(kept.trim(), hex, "{name} has other bytes than were released");
}

fn key() -> Key {
    Key::parse("likes/post 42 ü").unwrap()
}

fn place() -> Place {
    Place::parse("LHR/3").unwrap()
}

fn id() -> SlotId {
    SlotId { place: place(), incarnation: 0x0123_4567_89ab_cdef }
}

fn slot() -> Slot {
    Slot { epoch: Epoch(7 << 16), net: Net { p: u64::MAX, n: 300 } }
}

fn others() -> Others {
    let total = Total { p: u128::from(u64::MAX) * 3, n: 1 };
    Others { lineage: 99, version: 12, as_of_ms: 1_796_133_600_000, total }
}

fn reading() -> Reading {
    Reading {
        epoch: Epoch(7 << 16),
        total: Total { p: 1 << 70, n: 5 },
        own: Net { p: 9, n: 5 },
        unsynced: Net { p: 2, n: 0 },
        others: Some(others()),
    }
}

#[test]
fn messages_between_client_and_edge_keep_their_bytes() {
    golden("open", &Open { last: Some("token".into()) });
    golden("opened", &Opened { token: "t.s".into(), expires_ms: 8, home: place().location });
    let counts = vec![(key(), Net { p: 3, n: 1 })];
    golden("sync", &Sync { token: "t.s".into(), counts, read: vec![key()], settle: true });
    let seen = Seen { epoch: Epoch(1), lineage: 2, version: 3, synced: true, p: 1 << 70, n: -1 };
    let refused = Some(Error::new(Kind::GrowOnly, "no"));
    let outcome = Outcome { applied: Net { p: 3, n: 1 }, seen: Some(seen), refused };
    let near = Location::new("NRT").unwrap();
    golden("synced", &Synced { outcomes: vec![outcome, Outcome::default()], near });
    let ticket = Ticket { sid: [7; 16], home: place(), incarnation: 5, expires_ms: 1 << 41 };
    golden("ticket", &ticket);
}

#[test]
fn messages_between_pop_and_hub_keep_their_bytes() {
    let ask = Ask { key: key(), id: id(), mine: Some(slot()), frozen: vec![(id(), slot())] };
    golden("hub-event-ask", &hub::Event::Ask(vec![ask]));
    golden("hub-event-add", &hub::Event::Add { key: key(), by: -4, once: "k".into() });
    golden("hub-event-set", &hub::Event::Set { key: key(), net: Net { p: 1, n: 0 }, clear: false });
    golden("hub-event-detail", &hub::Event::Detail(key()));
    let told = Told {
        key: key(),
        id: id(),
        lineage: 99,
        version: 12,
        epoch: Epoch(7 << 16),
        mine: Some(Net { p: 1, n: 2 }),
        others: others().total,
        frozen: vec![id()],
    };
    golden(
        "hub-answer-told",
        &hub::Answer::Told(vec![Ok(told.clone()), Err(Error::new(Kind::UnknownNamespace, "x"))]),
    );
    golden("hub-answer-written", &hub::Answer::Written { reading: reading(), replayed: true });
    golden(
        "hub-answer-detail",
        &hub::Answer::Detail(vec![hub::Part { id: id(), net: slot().net, age_ms: 4 }]),
    );
    golden("pop-event-tell", &pop::Event::Tell { told: vec![told], asked_ms: 9 });
    golden("pop-answer-read", &pop::Answer::Read(vec![Ok(reading())]));
}

/// A disk in memory.
#[derive(Default)]
struct Disk(BTreeMap<(Table, Vec<u8>), Vec<u8>>);

impl Store for Disk {
    fn get(&self, table: Table, id: &[u8]) -> poptally::error::Result<Option<Vec<u8>>> {
        Ok(self.0.get(&(table, id.to_vec())).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> poptally::error::Result<Vec<Row>> {
        let rows = self.0.range((table, from.to_vec())..);
        let rows =
            rows.take_while(|((at, id), _)| *at == table && (to.is_empty() || id.as_slice() < to));
        Ok(rows.take(limit).map(|((_, id), row)| (id.clone(), row.clone())).collect())
    }

    fn commit(&mut self, writes: &[Write]) -> poptally::error::Result<()> {
        for write in writes {
            let at = (write.table, write.id.clone());
            match &write.value {
                Some(value) => self.0.insert(at, value.clone()),
                None => self.0.remove(&at),
            };
        }
        Ok(())
    }
}

fn rows(name: &str, disk: &Disk) {
    for (number, ((table, id), row)) in disk.0.iter().enumerate() {
        let both = [id.as_slice(), &[0xff], row].concat();
        check(&format!("{name}-{number}-{}", format!("{table:?}").to_lowercase()), &both);
    }
}

#[test]
fn stored_rows_keep_their_bytes() {
    let policies = Policies::new([("likes".to_owned(), Policy::count())]).unwrap();
    let mut pop = Pop::new(Disk::default(), policies.clone(), place());
    let mut hub = Hub::new(Disk::default(), policies, key().partition());
    let ticket = Ticket { sid: [7; 16], home: place(), incarnation: 11, expires_ms: 1 << 41 };
    let counts = vec![(key(), Net { p: 3, n: 1 })];
    let events = [
        pop::Event::Open,
        pop::Event::Sync { ticket, counts, read: Vec::new() },
        pop::Event::Add { key: Key::parse("likes/b").unwrap(), by: 5 },
    ];
    assert!(pop.turn(1_000, 11, &events).iter().all(Result::is_ok));
    let asks = pop.ask(11, &key()).unwrap();
    let told = match &hub.turn(1_500, 99, &[hub::Event::Ask(vec![asks])])[0] {
        Ok(hub::Answer::Told(told)) => told[0].clone().unwrap(),
        other => panic!("{other:?}"),
    };
    pop.turn(2_000, 11, &[pop::Event::Tell { told: vec![told], asked_ms: 1_400 }]);
    let set = hub::Event::Set { key: key(), net: Net { p: 8, n: 0 }, clear: false };
    let add = hub::Event::Add { key: key(), by: 2, once: "k".into() };
    assert!(hub.turn(3_000, 99, &[set, add]).iter().all(Result::is_ok));
    rows("pop", pop.store());
    rows("hub", hub.store());
}

#[test]
fn a_pages_record_keeps_its_bytes() {
    let mut page = Session::new(5, 1_000);
    page.add(&key(), 4, 0).unwrap();
    page.outgoing(300, 1).unwrap();
    let home = place().location;
    let opened = Opened { token: "t.s".into(), expires_ms: 8, home };
    page.answered(200, &wire::encode(&opened).unwrap(), 310, 1);
    page.outgoing(320, 1).unwrap();
    let seen = Seen { epoch: Epoch(1), lineage: 2, version: 3, synced: true, p: 50, n: 6 };
    let outcome = Outcome { applied: Net { p: 4, n: 0 }, seen: Some(seen), refused: None };
    let synced = Synced { outcomes: vec![outcome], near: home };
    page.answered(200, &wire::encode(&synced).unwrap(), 330, 1);
    page.add(&key(), -1, 340).unwrap();
    let record = page.unsaved().pop().unwrap().1.unwrap();
    check("record", &record);
    let mut later = Session::new(6, 1_000);
    later.adopt(&record, 400).unwrap();
    assert_eq!(later.view(&key()).value, 43, "46 of the others, and 4 - 1 of its own");
}
