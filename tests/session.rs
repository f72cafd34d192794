//! What a page shows when it takes over what an earlier page counted (DESIGN, rules 1, 2 and 9).
#![cfg(not(target_arch = "wasm32"))]

use poptally::counter::{Epoch, Net};
use poptally::error::{Error, Kind};
use poptally::key::{Key, Location};
use poptally::session::{Notice, Session};
use poptally::wire::{Opened, Outcome, Seen, Sync, Synced, decode, encode};

fn key() -> Key {
    Key::parse("likes/a").unwrap()
}

fn home() -> Location {
    Location::new("LHR").unwrap()
}

/// The next message; opens the session first where that is due.
fn sync(session: &mut Session, now_ms: u64) -> Sync {
    let outgoing = session.outgoing(now_ms, 5).unwrap();
    if outgoing.call == poptally::session::Call::Sync {
        return decode(&outgoing.body).unwrap();
    }
    let opened = Opened { token: format!("token-{}", session.id()), expires_ms: 1, home: home() };
    session.answered(200, &encode(&opened).unwrap(), now_ms, 5);
    sync(session, now_ms)
}

fn seen(version: u64, p: i128) -> Option<Seen> {
    Some(Seen { epoch: Epoch(0), lineage: 1, version, synced: true, p, n: 0 })
}

fn answer(session: &mut Session, applied: u64, seen: Option<Seen>, now_ms: u64) {
    let outcome = Outcome { applied: Net { p: applied, n: 0 }, seen, refused: None };
    let synced = Synced { outcomes: vec![outcome], near: home() };
    session.answered(200, &encode(&synced).unwrap(), now_ms, 5);
}

/// A page that sent 4 of its 6 and closed before it heard anything.
fn record() -> Vec<u8> {
    let mut first = Session::new(1, 1_000);
    first.add(&key(), 4, 0).unwrap();
    sync(&mut first, 300);
    first.add(&key(), 2, 300).unwrap();
    first.unsaved().pop().unwrap().1.unwrap()
}

#[test]
fn an_older_session_shows_until_a_reading_contains_it() {
    let mut page = Session::new(2, 1_000);
    page.adopt(&record(), 1_000).unwrap();
    page.watch(&key(), 1_000);
    assert_eq!(page.view(&key()).value, 6);
    let older = sync(&mut page, 1_000);
    assert_eq!((older.counts[0].1.p, older.settle), (6, true));
    // Its home has it, and the Hub's version 5 contains it.
    answer(&mut page, 6, seen(5, 100), 1_010);
    assert_eq!(page.view(&key()).waiting, 0);
    // Another shard, which heard of version 3 only: its 90 contain the 6, or not.
    sync(&mut page, 1_020);
    answer(&mut page, 0, seen(3, 90), 1_030);
    assert_eq!((page.view(&key()).value, page.view(&key()).known), (6, false));
    // Now it has heard of version 5.
    sync(&mut page, 2_100);
    answer(&mut page, 0, seen(5, 100), 2_110);
    assert_eq!(page.view(&key()).value, 100);
    let records = page.unsaved();
    assert!(records.iter().any(|(id, record)| *id == 1 && record.is_none()), "its record goes");
}

#[test]
fn a_reading_is_not_used_before_an_older_session_is_settled() {
    let mut page = Session::new(2, 1_000);
    page.adopt(&record(), 1_000).unwrap();
    page.watch(&key(), 1_000);
    sync(&mut page, 1_000);
    page.failed(1_010, 400);
    // It may contain the 4 that were sent, or not.
    sync(&mut page, 1_050);
    answer(&mut page, 0, seen(9, 50), 1_060);
    let view = page.view(&key());
    assert_eq!((view.value, view.known), (6, false));
}

#[test]
fn what_was_sent_to_a_home_that_is_gone_is_indeterminate_and_the_rest_goes_on() {
    let mut page = Session::new(2, 1_000);
    page.adopt(&record(), 1_000).unwrap();
    // The later page resends all 6: from now on all of it may have been counted.
    sync(&mut page, 1_000);
    page.answered(410, b"", 1_010, 5);
    assert_eq!(page.notices(), [Notice::Indeterminate(key(), Net { p: 6, n: 0 })]);
    assert_eq!(page.view(&key()).value, 0);
    page.add(&key(), 3, 1_020).unwrap();
    assert_eq!(sync(&mut page, 2_000).counts[0].1, Net { p: 3, n: 0 });
}

#[test]
fn what_was_never_sent_moves_when_the_home_is_gone() {
    let mut page = Session::new(2, 1_000);
    page.add(&key(), 1, 0).unwrap();
    sync(&mut page, 300);
    page.add(&key(), 5, 310).unwrap();
    page.answered(410, b"", 320, 9);
    assert_eq!(page.notices(), [Notice::Indeterminate(key(), Net { p: 1, n: 0 })]);
    assert_eq!(page.view(&key()).value, 5);
    assert_eq!(sync(&mut page, 1_000).counts[0].1, Net { p: 5, n: 0 });
}

#[test]
fn a_page_that_never_opened_a_session_is_carried_over_once() {
    let mut first = Session::new(1, 1_000);
    first.add(&key(), 4, 0).unwrap();
    let record = first.unsaved().pop().unwrap().1.unwrap();
    let mut page = Session::new(2, 1_000);
    page.adopt(&record, 100).unwrap();
    assert!(page.unsaved().iter().any(|(id, record)| *id == 1 && record.is_none()));
    assert_eq!(sync(&mut page, 1_000).counts[0].1, Net { p: 4, n: 0 });
    assert_eq!(page.view(&key()).value, 4);
}

#[test]
fn what_is_refused_is_taken_back_and_reported() {
    let mut page = Session::new(2, 1_000);
    page.add(&key(), 4, 0).unwrap();
    sync(&mut page, 300);
    let refused = Some(Error::new(Kind::GrowOnly, "no"));
    let outcome = Outcome { applied: Net::ZERO, seen: seen(1, 10), refused };
    let synced = Synced { outcomes: vec![outcome], near: home() };
    page.answered(200, &encode(&synced).unwrap(), 310, 5);
    assert_eq!(page.view(&key()).value, 10);
    assert!(matches!(&page.notices()[..], [Notice::Refused(_, Net { p: 4, n: 0 }, _)]));
}

#[test]
fn a_reset_takes_the_own_counts_with_it() {
    let mut page = Session::new(2, 1_000);
    page.add(&key(), 4, 0).unwrap();
    sync(&mut page, 300);
    answer(&mut page, 4, seen(1, 10), 310);
    assert_eq!(page.view(&key()).value, 10);
    page.add(&key(), 1, 320).unwrap();
    sync(&mut page, 600);
    let new = Seen { epoch: Epoch(9), lineage: 1, version: 2, synced: true, p: 1, n: 0 };
    answer(&mut page, 5, Some(new), 610);
    assert_eq!(page.view(&key()).value, 1);
}

#[test]
fn what_a_page_has_shown_does_not_go_back_when_an_older_session_is_met() {
    // The earlier page read 100 of the others, at a home that had 3 of them not pushed yet.
    let mut first = Session::new(1, 1_000);
    first.watch(&key(), 0);
    sync(&mut first, 0);
    answer(&mut first, 0, seen(4, 100), 10);
    first.add(&key(), 6, 20).unwrap();
    sync(&mut first, 300);
    let record = first.unsaved().pop().unwrap().1.unwrap();
    let mut page = Session::new(2, 1_000);
    page.adopt(&record, 1_000).unwrap();
    page.watch(&key(), 1_000);
    assert_eq!(page.view(&key()).value, 106);
    sync(&mut page, 1_000);
    answer(&mut page, 6, seen(5, 106), 1_010);
    // Another home knows the 6, and only 97 of the others.
    sync(&mut page, 1_020);
    answer(&mut page, 0, seen(5, 103), 1_030);
    assert_eq!(page.view(&key()).value, 106);
}
