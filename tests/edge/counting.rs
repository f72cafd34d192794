//! What counts, counts exactly.

use crate::server::{SAFE, Server, path};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::thread;

#[test]
fn a_counter_that_nobody_counted_reads_zero() {
    let server = Server::start();
    let reply = server.get("/v1/likes/new");
    assert_eq!((reply.status, reply.exact().as_str()), (200, "0"));
    for field in ["key", "value", "as_of", "stale_ms", "version", "location"] {
        assert!(!reply.json[field].is_null(), "{field} in {}", reply.json);
    }
}

#[test]
fn locations_count_on_their_own_and_agree() {
    let server = Server::start();
    for (pop, by) in [("LHR", 5), ("SFO", -2), ("NRT", 10), ("LHR", 1)] {
        assert_eq!(server.add(pop, "likes/agree", by).json["applied"], by.to_string());
    }
    server.agree(&["LHR", "SFO", "NRT", "AMS"], "likes/agree", 14);
    let detail = server.get_at("LHR", "/v1/likes/agree?detail&fresh").json;
    assert_eq!(detail["own"]["exact"], "6");
    assert_eq!(detail["others"]["exact"], "8");
    assert_eq!(detail["missing"], json!([]));
    let parts = detail["parts"].as_array().unwrap();
    let locations: HashSet<&str> =
        parts.iter().filter_map(|part| part["location"].as_str()).collect();
    assert_eq!(locations, HashSet::from(["LHR", "SFO", "NRT"]));
}

#[test]
fn a_hundred_adds_with_one_idempotency_key_count_once() {
    let server = Server::start();
    // All of an answer but where it was asked for.
    let words = |mut answer: Value| {
        answer.as_object_mut().unwrap().remove("location");
        answer.to_string()
    };
    let answers: HashSet<String> = thread::scope(|scope| {
        let calls: Vec<_> = (0..100)
            .map(|call| {
                let (server, pop) = (&server, format!("P{}", call % 10));
                scope.spawn(move || {
                    let headers =
                        [("idempotency-key", "one-key"), ("x-poptally-pop", pop.as_str())];
                    let reply =
                        server.send("POST", "/v1/likes/once", &headers, br#"{"by":3}"#).unwrap();
                    assert_eq!((reply.status, reply.exact().as_str()), (200, "3"));
                    words(reply.json)
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(answers.len(), 1, "every answer is the same: {answers:?}");
    let headers = [("idempotency-key", "\"one-key\"")];
    let other = server.send("POST", "/v1/likes/once", &headers, br#"{"by":4}"#).unwrap();
    assert_eq!((other.status, other.problem()), (422, "idempotency-mismatch"));
    let again = server.send("POST", "/v1/likes/once", &headers, br#"{ "by": 3 }"#).unwrap();
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(answers, HashSet::from([words(again.json)]));
    server.agree(&["LHR", "P0", "P9"], "likes/once", 3);
}

#[test]
fn an_idempotency_key_answers_for_one_counter_only_and_survives_a_restart() {
    let mut server = Server::start();
    let headers = [("idempotency-key", "shared")];
    let add = |server: &Server, key: &str| {
        server.send("POST", &path(key), &headers, br#"{"by":1}"#).unwrap()
    };
    for key in ["likes/first", "likes/second", "views/first"] {
        assert_eq!(add(&server, key).exact(), "1", "{key} has answers of its own");
    }
    server.restart();
    let again = add(&server, "likes/first");
    assert_eq!((again.exact().as_str(), again.header("idempotency-replayed")), ("1", "true"));
    server.agree(&["LHR"], "likes/first", 1);
}

#[test]
fn an_idempotency_key_from_before_yesterday_is_refused() {
    let server = Server::start();
    // A UUIDv7 of 2023.
    let headers = [("idempotency-key", "018b2f7e-0000-7000-8000-000000000000")];
    let old = server.send("POST", "/v1/likes/old", &headers, br#"{"by":1}"#).unwrap();
    assert_eq!((old.status, old.problem()), (422, "idempotency-expired"));
    assert_eq!(server.get("/v1/likes/old").exact(), "0");
}

/// Sends counts from elsewhere than the session's home.
fn sync(server: &Server, token: &str, counts: Value) -> Value {
    let reply = server.sync("NRT", token, &counts).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.json);
    reply.json["counts"].clone()
}

#[test]
fn a_sync_sent_ten_times_changes_nothing_after_the_first() {
    let server = Server::start();
    let token = server.session("LHR");
    for _ in 0..10 {
        let counts = sync(&server, &token, json!({ "likes/sync": { "p": 7, "n": 2 } }));
        assert_eq!(counts["likes/sync"]["p"], "7");
        assert_eq!(counts["likes/sync"]["exact"], "5");
    }
    // An older message that comes late takes nothing back.
    let late = sync(&server, &token, json!({ "likes/sync": { "p": 3 } }));
    assert_eq!(late["likes/sync"]["p"], "7");
    sync(&server, &token, json!({ "likes/sync": { "p": 8, "n": 2 } }));
    server.agree(&["SFO", "LHR"], "likes/sync", 6);
}

#[test]
fn syncs_that_come_at_once_and_out_of_order_count_what_the_last_one_says() {
    let server = Server::start();
    let token = server.session("LHR");
    thread::scope(|scope| {
        for thread in 0..10_u64 {
            let (server, token) = (&server, &token);
            scope.spawn(move || {
                // Each number from 1 to 50 is sent ten times, by everybody in another order.
                for step in 0..50 {
                    let sent = (step * (2 * thread + 1) * 3 + thread) % 50 + 1;
                    let pop = ["LHR", "SFO", "NRT"][(thread % 3) as usize];
                    let counts = json!({ "likes/order": { "p": sent, "n": sent / 10 } });
                    let reply = server.sync(pop, token, &counts).unwrap();
                    let applied = &reply.json["counts"]["likes/order"]["p"];
                    let applied: u64 = applied.as_str().unwrap().parse().unwrap();
                    assert!((sent..=50).contains(&applied), "{sent}: {}", reply.json);
                }
            });
        }
    });
    server.agree(&["LHR", "AMS"], "likes/order", 50 - 5);
}

#[test]
fn a_batch_with_a_bad_entry_applies_the_good_ones_and_names_the_bad() {
    let server = Server::start();
    let token = server.session("LHR");
    let counts = sync(
        &server,
        &token,
        json!({
            "likes/good": { "p": 1 },
            "views/down": { "n": 1 },
            "nobody/knows": { "p": 1 },
            "no-key": { "p": 1 },
            "likes/half": { "p": 1.5 },
            "likes/also-good": { "n": 4 },
        }),
    );
    let kind = |key: &str| counts[key]["problem"]["type"].as_str().unwrap_or("").to_owned();
    assert_eq!(counts["likes/good"]["exact"], "1");
    assert_eq!(counts["likes/also-good"]["exact"], "-4");
    assert!(kind("views/down").ends_with(":grow-only"), "{counts}");
    assert!(kind("nobody/knows").ends_with(":unknown-namespace"), "{counts}");
    assert!(kind("no-key").ends_with(":bad-name"), "{counts}");
    assert!(kind("likes/half").ends_with(":bad-step"), "{counts}");
}

#[test]
fn a_bad_key_to_read_does_not_hold_up_the_counts() {
    let server = Server::start();
    let token = server.session("LHR");
    let body = json!({
        "token": token,
        "counts": { "likes/read": { "p": 2 } },
        "read": ["no-key", "likes/other", 5],
    });
    let reply = server.post("/v1/sync", &body);
    assert_eq!((reply.status, &reply.json["counts"]["likes/read"]["exact"]), (200, &json!("2")));
    assert_eq!(reply.json["read"]["likes/other"]["exact"], "0");
    for bad in ["no-key", "5"] {
        let kind = reply.json["read"][bad]["problem"]["type"].as_str().unwrap_or_default();
        assert!(kind.ends_with(":bad-name"), "{}", reply.json);
    }
    let wrong = server.post("/v1/sync", &json!({ "token": token, "read": "likes/other" }));
    assert_eq!((wrong.status, wrong.problem()), (400, "bad-json"));
}

#[test]
fn a_long_time_offline_is_folded_step_by_step() {
    let server = Server::start();
    let token = server.session("LHR");
    for applied in ["10", "20", "25", "25"] {
        let counts = sync(&server, &token, json!({ "few/long": { "p": 25 } }));
        assert_eq!(counts["few/long"]["p"], applied);
    }
}

#[test]
fn numbers_beyond_two_to_the_53_are_exact_in_every_answer() {
    let server = Server::start();
    server.admin("PUT", "likes/big", &json!({ "value": SAFE }));
    for more in 1..=10 {
        let reply = server.add("LHR", "likes/big", 1);
        assert_eq!(reply.exact(), (SAFE + more).to_string());
        assert_eq!(reply.json["value"], json!(SAFE + more));
    }
    let all = "9007199254741001";
    assert_eq!(server.settles("SFO", "likes/big", 9_007_199_254_741_001), all);
    assert_eq!(server.get_at("LHR", "/v1/likes/big?detail").exact(), all);
    let read = server.post("/v1/read", &json!({ "keys": ["likes/big"] }));
    assert_eq!(read.json["items"][0]["exact"], all);
    let listed = || server.get("/v1/likes?prefix=big").json["items"][0]["exact"].clone();
    for _ in 0..100 {
        if listed() == all {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(listed(), all);
    let huge = "9223372036854775807";
    let set = server.admin("PUT", "likes/big", &json!({ "value": huge }));
    assert_eq!((set.exact().as_str(), &set.json["value"]), (huge, &json!(i64::MAX)));
    assert_eq!(server.settles("LHR", "likes/big", i128::from(i64::MAX)), huge);
    let detail = server.get_at("LHR", "/v1/likes/big?detail").json;
    let mut parts = detail["parts"].as_array().unwrap().iter();
    let of_the_hub = parts.find(|part| part["location"] == "hub").unwrap();
    assert_eq!((&detail["exact"], &of_the_hub["exact"]), (&json!(huge), &json!(huge)));
    let read = server.post("/v1/read", &json!({ "keys": ["likes/big"] }));
    assert_eq!(read.json["items"][0]["exact"], huge);
    for order in ["name", "value"] {
        let listed = server.get(&format!("/v1/likes?prefix=big&order={order}")).json;
        assert_eq!(listed["items"][0]["exact"], huge);
    }
    let token = server.session("LHR");
    let counts = sync(&server, &token, json!({ "likes/big": { "p": "1" } }));
    assert_eq!(counts["likes/big"]["exact"], "9223372036854775808");
    let negative = server.admin("PUT", "likes/big", &json!({ "value": "-18446744073709551615" }));
    assert_eq!(negative.exact(), "-18446744073709551615");
}

#[test]
fn a_step_past_two_to_the_64_is_refused_and_nothing_changes() {
    let server = Server::start();
    let full = "18446744073709551615";
    server.admin("PUT", "likes/full", &json!({ "value": full }));
    let headers = [("idempotency-key", "over")];
    let over = server.send("POST", "/v1/likes/full", &headers, br#"{"by":1}"#).unwrap();
    assert_eq!((over.status, over.problem()), (409, "overflow"));
    assert_eq!(server.get("/v1/likes/full").exact(), full);
    // A location's own slot still has room, and the total is wider than a slot.
    assert_eq!(server.add("LHR", "likes/full", 1).exact(), "18446744073709551616");
}

#[test]
fn a_location_refuses_what_its_slot_cannot_hold_and_goes_on() {
    let server = Server::start();
    // 2,048 of the largest steps end 2,048 below 2^64.
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..128 {
                    assert_eq!(server.add("LHR", "huge/up", SAFE as i64).status, 200);
                }
            });
        }
    });
    let full = u64::MAX.to_string();
    let over = server.add("LHR", "huge/up", 2_048);
    assert_eq!((over.status, over.problem()), (409, "overflow"));
    assert_eq!(server.add("LHR", "huge/up", 2_047).exact(), full);
    let over = server.add("LHR", "huge/up", 1);
    assert_eq!((over.status, over.problem()), (409, "overflow"));
    assert_eq!(server.get_at("LHR", "/v1/huge/up").exact(), full, "nothing changed");
    // A session hears it of this key, and the others of its message are counted.
    let token = server.session("LHR");
    let counts = sync(&server, &token, json!({ "huge/up": { "p": 3 }, "huge/beside": { "p": 3 } }));
    let problem = counts["huge/up"]["problem"]["type"].as_str().unwrap_or("");
    assert!(problem.ends_with(":overflow"), "{counts}");
    assert_eq!((&counts["huge/up"]["p"], &counts["huge/beside"]["p"]), (&json!("0"), &json!("3")));
    // The other direction and the other locations have room of their own.
    server.add("SFO", "huge/up", 5);
    server.add("LHR", "huge/up", -7);
    server.agree(&["LHR", "SFO"], "huge/up", i128::from(u64::MAX) + 5 - 7);
}

#[test]
fn a_public_reading_comes_from_the_edge_cache_for_a_while() {
    let server = Server::start();
    server.add("LHR", "pages/home", 1);
    let first = server.get_at("LHR", "/v1/pages/home");
    assert_eq!(
        (first.exact().as_str(), first.header("cache-control")),
        ("1", "public, max-age=60")
    );
    server.add("LHR", "pages/home", 1);
    assert_eq!(server.get_at("LHR", "/v1/pages/home").exact(), "1", "kept from before");
    assert_eq!(server.get_at("LHR", "/v1/pages/home").header("etag"), first.header("etag"));
    let known = [("x-poptally-pop", "LHR"), ("if-none-match", first.header("etag"))];
    assert_eq!(server.send("GET", "/v1/pages/home", &known, b"").unwrap().status, 304);
    // Who wants it exact gets it, and every location has a cache of its own.
    assert_eq!(server.get_at("LHR", "/v1/pages/home?fresh").exact(), "2");
    assert_eq!(server.get_at("LHR", "/v1/pages/home?detail").exact(), "2");
    assert_eq!(server.get_at("SFO", "/v1/pages/home").exact(), "2");
    // Where a namespace has no `cache`, nothing is kept.
    server.add("LHR", "likes/home", 1);
    assert_eq!(server.get_at("LHR", "/v1/likes/home").header("cache-control"), "no-cache");
    server.add("LHR", "likes/home", 1);
    assert_eq!(server.get_at("LHR", "/v1/likes/home").exact(), "2");
}

#[test]
fn a_reading_has_a_validator_that_every_shard_shares() {
    let server = Server::start();
    server.add("LHR", "likes/etag", 2);
    let reply = server.get_at("LHR", "/v1/likes/etag");
    let etag = reply.header("etag").to_owned();
    let again = |etag: &str| {
        let headers = [("if-none-match", etag), ("x-poptally-pop", "SFO")];
        server.send("GET", "/v1/likes/etag", &headers, b"").unwrap().status
    };
    assert_eq!(server.settles("SFO", "likes/etag", 2), "2");
    assert_eq!(again(&etag), 304);
    server.add("SFO", "likes/etag", 1);
    assert_eq!(again(&etag), 200);
}

#[test]
fn lists_come_by_name_and_by_value_page_by_page() {
    let server = Server::start();
    for (name, value) in [("c", 5), ("a", 7), ("b", 5), ("zz", 1)] {
        server.admin("PUT", &format!("likes/{name}"), &json!({ "value": value }));
    }
    let all = |query: &str| {
        let (mut names, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/likes?limit=2{query}{cursor}")).json;
            names.extend(
                page["items"].as_array().unwrap().iter().map(|item| item["name"].to_string()),
            );
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return names.join(" ").replace('"', ""),
            }
        }
    };
    assert_eq!(all(""), "a b c zz");
    assert_eq!(all("&order=value"), "a b c zz");
    assert_eq!(all("&prefix=z"), "zz");
    server.admin("DELETE", "likes/a", &Value::Null);
    assert_eq!(all(""), "b c zz");
    server.add("LHR", "likes/a", 1);
    assert_eq!(server.settles("SFO", "likes/a", 1), "1");
    assert_eq!(all(""), "a b c zz", "a deleted name stays usable");
    assert_eq!(server.get("/v1/likes?order=size").problem(), "bad-request");
    assert_eq!(server.get("/v1/likes?limit=0").problem(), "bad-request");
}

#[test]
fn many_keys_are_read_in_one_call() {
    let server = Server::start();
    server.add("LHR", "likes/one", 1);
    let reply = server.send(
        "POST",
        &path("likes/two%20words"),
        &[("x-poptally-pop", "LHR")],
        br#"{"by":2}"#,
    );
    assert_eq!(reply.unwrap().exact(), "2");
    let keys = json!({ "keys": ["likes/one", "likes/two words", "likes/none", "bad", "zz/x"] });
    let body = keys.to_string();
    let read =
        server.send("POST", "/v1/read", &[("x-poptally-pop", "LHR")], body.as_bytes()).unwrap();
    let items = read.json["items"].as_array().unwrap().clone();
    let exact: Vec<&str> = items.iter().map(|item| item["exact"].as_str().unwrap_or("-")).collect();
    assert_eq!(exact, ["1", "2", "0", "-", "-"]);
    assert!(items[3]["problem"]["type"].as_str().unwrap().ends_with("bad-name"));
    assert_eq!(items[4]["key"], "zz/x");
}

#[test]
fn one_hot_counter_takes_many_at_once() {
    let server = Server::start();
    thread::scope(|scope| {
        for thread in 0..16 {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..50 {
                    let reply = server.add(["LHR", "SFO"][thread % 2], "views/hot", 1);
                    assert_eq!(reply.status, 200, "{}", reply.json);
                }
            });
        }
    });
    assert_eq!(server.settles("LHR", "views/hot", 800), "800");
    let ops = server.get("/dev/ops").json;
    let (turns, rows) = (ops["turns"].as_u64().unwrap(), ops["rows_written"].as_u64().unwrap());
    assert!(rows < 800, "group commit: 800 steps took {rows} rows in {turns} turns");
}

#[test]
fn who_only_reads_writes_nothing() {
    let server = Server::start();
    server.add("LHR", "likes/read", 1);
    assert_eq!(server.settles("SFO", "likes/read", 1), "1");
    thread::sleep(std::time::Duration::from_millis(1_500));
    let before = server.get("/dev/ops").json;
    for _ in 0..20 {
        server.get_at("SFO", "/v1/likes/read");
        server.get_at("AMS", "/v1/likes/read?detail");
        server.get_at("AMS", "/v1/likes/nobody");
    }
    thread::sleep(std::time::Duration::from_millis(1_500));
    let after = server.get("/dev/ops").json;
    for op in ["rows_written", "alarms_set", "alarms_rang"] {
        assert_eq!(before[op], after[op], "{op}");
    }
}
