//! Locations that are cut off, resets that race, and a server that is killed.

use crate::server::{Client, Reply, Server};
use serde_json::{Value, json};
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
    server.agree(&["SFO", "LHR"], "likes/cut", 17);
    server.agree(&["SFO", "LHR"], "likes/never-heard", 3);
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
    server.agree(&["LHR", "SFO", "NRT"], "likes/reset", 4);
    // It stays away after every location was started again.
    server.restart();
    server.agree(&["LHR", "SFO", "NRT"], "likes/reset", 4);
    assert_eq!(server.admin("PUT", "likes/reset", &json!({ "value": -9 })).exact(), "-9");
    server.agree(&["LHR", "SFO", "NRT"], "likes/reset", -9);
}

#[test]
fn a_deleted_counter_stays_deleted_through_restarts_and_counts_again() {
    let mut server = Server::start();
    let pops = ["LHR", "SFO", "NRT"];
    for round in 1..=3 {
        for pop in pops {
            server.add(pop, "likes/again", round);
        }
        server.agree(&pops, "likes/again", 3 * i128::from(round));
        server.restart();
        assert_eq!(server.admin("DELETE", "likes/again", &Value::Null).exact(), "0");
        server.restart();
        server.agree(&pops, "likes/again", 0);
        assert_eq!(server.get("/v1/likes").json["items"], json!([]));
    }
    server.add("SFO", "likes/again", 7);
    server.restart();
    server.agree(&pops, "likes/again", 7);
}

#[test]
fn a_session_counts_its_later_steps_after_a_reset_and_no_earlier_one_again() {
    let server = Server::start();
    let token = server.session("LHR");
    let counts = |p: u64| json!({ "likes/session": { "p": p } });
    server.sync("LHR", &token, &counts(10));
    assert_eq!(server.admin("DELETE", "likes/session", &Value::Null).exact(), "0");
    for p in [10, 10, 12, 11] {
        server.sync("SFO", &token, &counts(p));
    }
    server.agree(&["LHR", "SFO"], "likes/session", 2);
}

#[test]
fn the_number_of_shards_changes_and_nothing_is_lost() {
    let mut server = Server::start();
    let mut tokens = Vec::new();
    for (round, shards) in [4, 1, 3].into_iter().enumerate() {
        server.restart_with(shards);
        tokens.extend((0..8).map(|_| server.session("LHR")));
        for token in &tokens {
            let counts = json!({ "likes/shards": { "p": round + 1 } });
            assert_eq!(server.sync("NRT", token, &counts).unwrap().status, 200);
        }
        for name in 0..20 {
            assert_eq!(server.add("LHR", &format!("likes/name-{name}"), 1).status, 200);
        }
        // The next number comes before the shards have told the Hubs of all this.
    }
    // 24 sessions, and the last round told 3 of each.
    server.agree(&["NRT", "LHR"], "likes/shards", 24 * 3);
    for name in 0..20 {
        server.agree(&["SFO"], &format!("likes/name-{name}"), 3);
    }
}

#[test]
fn every_shard_of_a_location_is_cut_off_and_heals() {
    let mut server = Server::start();
    server.restart_with(4);
    cut(&server, "LHR");
    for name in 0..20 {
        assert_eq!(server.add("LHR", &format!("likes/part-{name}"), 2).json["value"], Value::Null);
    }
    let asked = server.get_at("LHR", "/v1/likes/part-0?detail&fresh").json;
    assert_eq!(asked["missing"], Value::Null, "nobody was asked, so nobody answered");
    // Also the shards that the configuration has no more.
    server.restart_with(1);
    heal(&server, "LHR");
    for name in 0..20 {
        let key = format!("likes/part-{name}");
        assert_eq!(server.settles("SFO", &key, 2), "2", "{key}");
    }
}

/// What was acknowledged, and what the kills did to it.
#[derive(Default)]
struct Tally {
    acknowledged: AtomicU64,
    unanswered: AtomicU64,
}

#[test]
fn twenty_five_kills_in_the_middle_of_load_lose_and_double_nothing() {
    let mut server = Server::start();
    // Requests go on while the server is down: they fail, and are sent again.
    let client = server.client();
    let (stop, tally) = (AtomicBool::new(false), Tally::default());
    let pops = ["LHR", "SFO", "NRT", "AMS"];
    thread::scope(|scope| {
        for (at, pop) in pops.into_iter().enumerate() {
            let load = Load { client: &client, pop, away: pops[(at + 1) % 4], tally: &tally };
            let stop = &stop;
            scope.spawn(move || {
                // One session stays, and so notices when its home forgets who it is.
                let lasting = load.open();
                for round in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    load.count(&lasting, round);
                    load.once(&format!("{pop}-{round}"));
                    // The others are left at once: what is forgotten of them nobody tells again.
                    let short = load.open();
                    load.count(&short, 1);
                    load.count(&short, 2);
                }
            });
        }
        for kill in 0..25 {
            // At no moment twice: between the first requests and a good while later.
            thread::sleep(Duration::from_millis(30 + kill * 97 % 400));
            server.restart();
        }
        stop.store(true, Ordering::Relaxed);
    });
    // What is acknowledged only in memory would go now, and nobody sends it again.
    server.restart();
    let expected = tally.acknowledged.into_inner();
    let unanswered = tally.unanswered.into_inner();
    println!("{expected} counted, {unanswered} requests were sent again");
    assert!(expected > 300 && unanswered >= 25, "{expected} counted, {unanswered} sent again");
    server.agree(&pops, "likes/kills", i128::from(expected));
}

/// Somebody at a location who counts and does not rest until it is acknowledged.
struct Load<'a> {
    client: &'a Client,
    pop: &'a str,
    /// Where repeats go: any location must know them.
    away: &'a str,
    tally: &'a Tally,
}

impl Load<'_> {
    /// One step with an idempotency key.
    fn once(&self, once: &str) {
        self.until_answered(|pop| {
            let headers = [("idempotency-key", once), ("x-poptally-pop", pop)];
            self.client.send("POST", "/v1/likes/kills", &headers, br#"{"by":2}"#)
        });
        self.tally.acknowledged.fetch_add(2, Ordering::Relaxed);
    }

    fn open(&self) -> String {
        let opened = self.until_answered(|_| {
            self.client.send("POST", "/v1/session", &[("x-poptally-pop", self.pop)], b"")
        });
        opened.json["token"].as_str().unwrap().to_owned()
    }

    /// One more in a session, which makes `sent` of it.
    fn count(&self, token: &str, sent: u64) {
        let counts = json!({ "likes/kills": { "p": sent } });
        let reply = self.until_answered(|pop| self.client.sync(pop, token, &counts));
        assert_eq!(reply.json["counts"]["likes/kills"]["p"], sent.to_string());
        self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends until an answer comes, in turns from here and from elsewhere.
    fn until_answered(&self, send: impl Fn(&str) -> Option<Reply>) -> Reply {
        for pop in [self.pop, self.away].into_iter().cycle().take(2_000) {
            match send(pop) {
                Some(reply) if reply.status == 200 => return reply,
                Some(reply) if reply.status < 500 => panic!("{}", reply.json),
                _ => self.tally.unanswered.fetch_add(1, Ordering::Relaxed),
            };
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server never answered {} again", self.pop)
    }
}
