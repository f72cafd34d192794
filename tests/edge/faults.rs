//! Locations that are cut off, resets that race, and a server that is killed.

use crate::server::Server;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn cut(server: &Server, pop: &str) {
    assert_eq!(server.post(&format!("/dev/cut?pop={pop}"), &Value::Null).json["cut"], true);
}

fn heal(server: &Server, pop: &str) {
    assert_eq!(server.post(&format!("/dev/heal?pop={pop}"), &Value::Null).json["cut"], false);
}

#[test]
fn a_location_that_is_cut_off_counts_on_and_says_how_old_the_others_are() {
    let mut server = Server::start();
    server.add("LHR", "likes/cut", 1);
    server.add("SFO", "likes/cut", 1);
    assert_eq!(server.settles("LHR", "likes/cut", 2), "2");
    cut(&server, "LHR");
    server.add("SFO", "likes/cut", 10);
    let added = server.add("LHR", "likes/cut", 5);
    assert_eq!((added.status, added.exact().as_str()), (200, "7"));
    assert_eq!(server.settles("SFO", "likes/cut", 12), "12");
    thread::sleep(Duration::from_millis(1_200));
    let there = server.get_at("LHR", "/v1/likes/cut?detail").json;
    assert_eq!(there["exact"], "7");
    assert!(there["stale_ms"].as_u64().unwrap() >= 1_000, "{there}");
    assert_eq!((&there["cut"], &there["hub"]), (&json!(true), &json!("unreachable")));
    assert_eq!(there["unsynced"]["exact"], "5");

    // What it never heard of is unknown, not 0; what is counted there is counted.
    let unknown = server.get_at("LHR", "/v1/likes/never-heard");
    assert_eq!((unknown.status, unknown.problem()), (503, "unknown"));
    assert_eq!(server.add("LHR", "likes/never-heard", 3).json["value"], Value::Null);
    let own = server.get_at("LHR", "/v1/likes/never-heard?detail").json;
    assert_eq!((&own["exact"], &own["own"]["exact"]), (&Value::Null, &json!("3")));
    let once = [("x-poptally-pop", "LHR"), ("idempotency-key", "cut")];
    let refused = server.send("POST", "/v1/likes/cut", &once, br#"{"by":1}"#).unwrap();
    assert_eq!((refused.status, refused.problem()), (503, "unreachable"));
    let fresh = server.get_at("SFO", "/v1/likes/cut?fresh").json;
    assert_eq!(fresh["missing"], json!(["LHR"]));

    server.restart();
    assert_eq!(server.get_at("LHR", "/v1/likes/cut?detail").json["cut"], true);
    heal(&server, "LHR");
    for pop in ["SFO", "LHR"] {
        assert_eq!(server.settles(pop, "likes/cut", 17), "17");
        assert_eq!(server.settles(pop, "likes/never-heard", 3), "3");
    }
}

#[test]
fn a_reset_beats_a_location_that_was_cut_off_and_keeps_what_it_counted_after() {
    let mut server = Server::start();
    server.add("LHR", "likes/reset", 100);
    assert_eq!(server.settles("SFO", "likes/reset", 100), "100");
    cut(&server, "LHR");
    server.add("LHR", "likes/reset", 7);
    assert_eq!(server.admin("DELETE", "likes/reset", &Value::Null).exact(), "0");
    server.add("LHR", "likes/reset", 3);
    server.add("SFO", "likes/reset", 1);
    assert_eq!(server.settles("SFO", "likes/reset", 1), "1");
    server.restart();
    heal(&server, "LHR");
    for pop in ["LHR", "SFO", "NRT"] {
        assert_eq!(server.settles(pop, "likes/reset", 4), "4", "at {pop}");
    }
    // It stays away after every location was started again.
    server.restart();
    for pop in ["LHR", "SFO", "NRT"] {
        assert_eq!(server.settles(pop, "likes/reset", 4), "4", "at {pop}");
    }
    assert_eq!(server.admin("PUT", "likes/reset", &json!({ "value": -9 })).exact(), "-9");
    assert_eq!(server.settles("LHR", "likes/reset", -9), "-9");
}

#[test]
fn the_number_of_shards_changes_and_nothing_is_lost() {
    let mut server = Server::start();
    let mut expected = 0;
    let tokens: Vec<String> = (0..4).map(|_| server.session("LHR")).collect();
    for (round, shards) in [4, 1, 3].into_iter().enumerate() {
        server.restart_with(shards);
        let count = round as u64 + 1;
        for token in &tokens {
            let body = json!({ "token": token, "counts": { "likes/shards": { "p": count } } });
            assert_eq!(server.post("/v1/sync", &body).status, 200);
        }
        for pop in ["LHR", "SFO"] {
            server.add(pop, "likes/shards", 10);
        }
        expected += 4 + 20;
        assert_eq!(server.settles("NRT", "likes/shards", expected), expected.to_string());
    }
}

/// A session as a client without our library would keep it.
struct Session {
    token: String,
    sent: u64,
    acknowledged: u64,
}

#[test]
fn twenty_five_kills_in_the_middle_of_load_lose_and_double_nothing() {
    let server = Mutex::new(Server::start());
    // Requests go on while the server is down: they fail, and are sent again.
    let address = server.lock().unwrap().client();
    let (stop, accepted, kills) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (address, stop, accepted) = (&address, &stop, &accepted);
            scope.spawn(move || {
                let pop = ["LHR", "SFO", "NRT", "AMS"][thread];
                let mut session: Option<Session> = None;
                let mut step = 0;
                while !stop.load(Ordering::Relaxed) {
                    step += 1;
                    if step % 3 == 0 {
                        add_until_answered(address, &format!("{thread}-{step}"), pop);
                        accepted.fetch_add(2, Ordering::Relaxed);
                    } else {
                        accepted.fetch_add(
                            sync_until_answered(address, &mut session, pop),
                            Ordering::Relaxed,
                        );
                    }
                }
            });
        }
        for _ in 0..25 {
            thread::sleep(Duration::from_millis(250));
            server.lock().unwrap().restart();
            kills.fetch_add(1, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let server = server.into_inner().unwrap();
    let expected = accepted.load(Ordering::Relaxed);
    println!("{} kills, {expected} counted", kills.load(Ordering::Relaxed));
    assert!(expected > 100, "there was load: {expected}");
    for pop in ["LHR", "SFO", "NRT", "AMS"] {
        assert_eq!(server.settles(pop, "likes/kills", i128::from(expected)), expected.to_string());
    }
}

/// A step with an idempotency key, sent until it is answered.
fn add_until_answered(address: &crate::server::Client, once: &str, pop: &str) {
    let headers = [("idempotency-key", once), ("x-poptally-pop", pop)];
    loop {
        match address.send("POST", "/v1/likes/kills", &headers, br#"{"by":2}"#) {
            Some(reply) if reply.status == 200 => return,
            Some(reply) if reply.status < 500 => panic!("{}", reply.json),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// One more in a session, sent until it is acknowledged. Returns how much that acknowledged.
fn sync_until_answered(
    address: &crate::server::Client,
    session: &mut Option<Session>,
    pop: &str,
) -> u64 {
    loop {
        let Some(known) = session else {
            let opened = address.send("POST", "/v1/session", &[("x-poptally-pop", pop)], b"");
            let token = opened.and_then(|reply| reply.json["token"].as_str().map(str::to_owned));
            *session = token.map(|token| Session { token, sent: 0, acknowledged: 0 });
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        known.sent = known.acknowledged + 1;
        let body =
            json!({ "token": known.token, "counts": { "likes/kills": { "p": known.sent } } });
        match address.send(
            "POST",
            "/v1/sync",
            &[("x-poptally-pop", pop)],
            body.to_string().as_bytes(),
        ) {
            Some(reply) if reply.status == 200 => {
                let applied =
                    reply.json["counts"]["likes/kills"]["p"].as_str().unwrap().parse::<u64>();
                known.acknowledged = applied.unwrap();
                assert_eq!(
                    known.acknowledged, known.sent,
                    "a kill must not forget what was acknowledged"
                );
                return 1;
            }
            Some(reply) if reply.status < 500 => panic!("{}", reply.json),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}
