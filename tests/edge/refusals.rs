//! Bad input gets a clear error, and nothing is lost or counted.

use crate::server::{SECRET, Server};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use poptally::counter::Net;
use poptally::key::{Key, Place};
use poptally::wire::{Sync, Ticket, encode};
use serde_json::{Value, json};
use sha2::Sha256;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

#[test]
fn bad_input_is_refused_by_its_kind() {
    let server = Server::start();
    server.add("LHR", "likes/a", 5);
    server.add("LHR", "views/a", 5);
    let name = |length: usize| format!("/v1/likes/{}", "x".repeat(length));
    let (deep, deeper) = ("[".repeat(60_000), r#"{"by":"#.repeat(9_000));
    let large = format!(r#"{{"by":1,"pad":"{}"}}"#, "x".repeat(70_000));
    let cases: Vec<(&str, String, &str, u16, &str)> = vec![
        ("POST", "/v1/likes/a".into(), "", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "{", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "[1]", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), &deep, 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), &deeper, 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "\u{feff}{\"by\":1}", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "{}", 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":[1]}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":""}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":"0x1"}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":" 1"}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":"one"}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":null}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":true}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":0}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":1.5}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":1e30}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":1000001}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":-9223372036854775808}"#, 400, "bad-step"),
        ("POST", "/v1/likes/a".into(), r#"{"by":"99999999999999999999"}"#, 400, "bad-step"),
        ("POST", "/v1/views/a".into(), r#"{"by":-1}"#, 422, "grow-only"),
        ("POST", name(257), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/a%00b".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/a%0Ab".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/a%7Fb".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/a%C2%85b".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/%FF".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/likes/".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/Likes/a".into(), r#"{"by":1}"#, 400, "bad-name"),
        ("POST", "/v1/nobody/a".into(), r#"{"by":1}"#, 404, "unknown-namespace"),
        ("GET", "/v1/nobody/a".into(), "", 404, "unknown-namespace"),
        ("GET", "/v1/nobody".into(), "", 404, "unknown-namespace"),
        ("POST", "/v1/likes/a".into(), &large, 413, "too-large"),
        ("PATCH", "/v1/likes/a".into(), r#"{"by":1}"#, 405, "bad-method"),
        ("GET", "/v1/sync".into(), "", 405, "bad-method"),
        ("GET", "/v1/Likes".into(), "", 400, "bad-name"),
        ("GET", "/v1/likes/..".into(), "", 400, "bad-name"),
        ("GET", "/v1/likes/a/b/c".into(), "", 404, "no-route"),
        ("POST", "/v2/likes/a".into(), r#"{"by":1}"#, 404, "no-route"),
        ("PUT", "/v1/likes/a".into(), r#"{"value":1}"#, 401, "unauthorized"),
        ("DELETE", "/v1/likes/a".into(), "", 401, "unauthorized"),
        ("POST", "/v1/sync".into(), "", 400, "bad-json"),
        ("POST", "/v1/sync".into(), "{}", 401, "bad-token"),
        ("POST", "/v1/sync".into(), r#"{"counts":3}"#, 400, "bad-json"),
        ("POST", "/v1/sync".into(), "\u{2}future", 400, "message-version"),
        ("POST", "/v1/sync".into(), "\u{1}\u{7f}cut", 400, "bad-message"),
        ("POST", "/v1/session".into(), "{not json", 400, "bad-json"),
        ("POST", "/v1/session".into(), "\u{9}", 400, "message-version"),
        ("POST", "/v1/read".into(), "{}", 400, "bad-json"),
        ("POST", "/dev/cut".into(), "", 400, "bad-request"),
        ("POST", "/dev/cut?pop=x".into(), "", 400, "bad-location"),
    ];
    for (method, path, body, status, kind) in cases {
        let reply = server.send(method, &path, &[], body.as_bytes()).unwrap();
        let seen = (reply.status, reply.problem().to_owned());
        assert_eq!(
            seen,
            (status, kind.to_owned()),
            "{method} {path:.40} {body:.40}: {}",
            reply.json
        );
    }
    let header = |name: &'static str, value: &str, kind: &str| {
        let reply = server.send("POST", "/v1/likes/a", &[(name, value)], br#"{"by":1}"#).unwrap();
        assert_eq!(reply.problem(), kind, "{name}: {value:.20}");
    };
    header("idempotency-key", &"k".repeat(129), "bad-idempotency-key");
    header("idempotency-key", "two words", "bad-idempotency-key");
    header("x-poptally-pop", "lhr", "bad-location");
    let wrong = [("authorization", "Bearer wrong")];
    let reply = server.send("PUT", "/v1/likes/a", &wrong, br#"{"value":1}"#).unwrap();
    assert_eq!((reply.status, reply.problem()), (403, "forbidden"));
    let many: Vec<String> = (0..101).map(|at| format!("likes/{at}")).collect();
    assert_eq!(server.post("/v1/read", &json!({ "keys": many })).problem(), "too-large");
    for wrong in [json!(1.5), json!("one"), json!(null), json!("18446744073709551616")] {
        assert_eq!(
            server.admin("PUT", "likes/a", &json!({ "value": wrong })).problem(),
            "bad-step"
        );
    }
    assert_eq!(server.admin("PUT", "views/a", &json!({ "value": -1 })).problem(), "grow-only");

    assert_eq!(server.settles("LHR", "likes/a", 5), "5", "nothing of it was counted");
    assert_eq!(server.settles("LHR", "views/a", 5), "5");
    assert_eq!(server.get("/v1/likes?prefix=x").json["items"], json!([]));
}

/// A token as the server would sign it.
fn mint(ticket: &Ticket, secret: &str) -> String {
    let body = encode(ticket).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(&body);
    format!("{}.{}", BASE64.encode(&body), BASE64.encode(mac.finalize().into_bytes()))
}

fn ticket_of(token: &str) -> Ticket {
    let body = BASE64.decode(token.split_once('.').unwrap().0).unwrap();
    poptally::wire::decode(&body).unwrap()
}

fn sync_with(server: &Server, token: &str) -> (u16, Value) {
    let reply = server.sync("LHR", token, &json!({ "likes/token": { "p": 1 } })).unwrap();
    (reply.status, reply.json)
}

#[test]
fn a_forged_cut_or_expired_token_counts_nothing() {
    let server = Server::start();
    let token = server.session("LHR");
    let ticket = ticket_of(&token);
    let refused = |token: &str, status: u16, kind: &str| {
        let (seen, json) = sync_with(&server, token);
        assert_eq!(
            (seen, json["type"].as_str()),
            (status, Some(format!("urn:poptally:problem:{kind}").as_str()))
        );
    };
    refused(&mint(&ticket, "another-secret-0123456789abcdefghi"), 401, "bad-token");
    refused(&token[..token.len() - 3], 401, "bad-token");
    refused(&token[3..], 401, "bad-token");
    refused("", 401, "bad-token");
    refused("..", 401, "bad-token");
    let elsewhere = Ticket { incarnation: ticket.incarnation ^ 1, ..ticket.clone() };
    refused(&mint(&elsewhere, SECRET), 410, "session-gone");
    let nowhere = Ticket { home: Place::parse("ZZZ/9").unwrap(), ..ticket.clone() };
    refused(&mint(&nowhere, SECRET), 410, "session-gone");

    let expired = Ticket { expires_ms: 1, sid: [7; 16], ..ticket };
    let (status, json) = sync_with(&server, &mint(&expired, SECRET));
    let problem = json["counts"]["likes/token"]["problem"]["type"].as_str().unwrap_or("");
    assert_eq!((status, problem), (200, "urn:poptally:problem:session-expired"));
    assert_eq!(server.get_at("LHR", "/v1/likes/token").exact(), "0");

    assert_eq!(sync_with(&server, &token).0, 200, "the true token still counts");
    assert_eq!(server.get_at("LHR", "/v1/likes/token").exact(), "1");
}

#[test]
fn a_secret_is_changed_and_the_sessions_of_the_old_one_go_on() {
    let mut server = Server::start();
    let old = server.session("LHR");
    let new = "the-next-secret-0123456789abcdef-xyz";
    server.settings.secret = format!("{new},{SECRET}");
    server.restart();
    assert_eq!(sync_with(&server, &old).0, 200);
    let young = server.session("LHR");
    server.settings.secret = new.into();
    server.restart();
    assert_eq!(sync_with(&server, &young).0, 200);
    assert_eq!(sync_with(&server, &old).0, 401);
    server.agree(&["LHR"], "likes/token", 2);
}

#[test]
fn in_production_nobody_names_a_location_or_cuts_one_off() {
    let mut server = Server::start();
    server.settings.mode = "production";
    server.restart();
    let location = |cf: &str| {
        let headers = [("cf-blob", cf), ("x-poptally-pop", "LHR")];
        let reply = server.send("POST", "/v1/likes/where", &headers, br#"{"by":1}"#).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.json);
        reply.json["location"].as_str().unwrap().to_owned()
    };
    assert_eq!(location(r#"{"colo":"SFO"}"#), "SFO");
    for nowhere in ["{}", r#"{"colo":null}"#, r#"{"colo":7}"#] {
        assert_eq!(location(nowhere), "LOCAL");
    }
    for (method, path) in
        [("POST", "/dev/cut?pop=SFO"), ("POST", "/dev/heal?pop=SFO"), ("GET", "/dev/ops")]
    {
        let reply = server.send(method, path, &[], b"").unwrap();
        assert_eq!((reply.status, reply.problem()), (404, "no-route"), "{path}");
    }
    assert_eq!(server.get("/v1/likes/where?fresh").exact(), "4");
}

#[test]
fn a_full_namespace_refuses_new_names_and_keeps_the_old() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        assert_eq!(server.add("LHR", &format!("few/{name}"), 1).status, 200);
    }
    for name in 0..1_000 {
        let reply = server.add("LHR", &format!("few/endless-{name}"), 1);
        assert_eq!((reply.status, reply.problem()), (429, "too-many-keys"));
    }
    assert_eq!(server.add("LHR", "few/a", 1).exact(), "2");
}

#[test]
fn an_endless_flow_of_names_and_repeats_harms_nobody() {
    let server = Server::start();
    let token = server.session("LHR");
    let many: serde_json::Map<String, Value> =
        (0..100).map(|name| (format!("few/flow-{name}"), json!({ "p": 1 }))).collect();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let reply = server.sync("LHR", &token, &Value::Object(many.clone())).unwrap();
                    assert_eq!(reply.status, 200, "{}", reply.json);
                    let counts = reply.json["counts"].as_object().unwrap().values();
                    let refused = counts.filter(|count| !count["problem"].is_null()).count();
                    assert_eq!(refused, 97, "max_keys is 3");
                }
            });
        }
    });
    let listed = || server.get("/v1/few?limit=1000").json["items"].as_array().unwrap().clone();
    for _ in 0..100 {
        if listed().len() == 3 {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let listed: Vec<Value> = listed().into_iter().map(|item| item["exact"].clone()).collect();
    assert_eq!(listed, ["1", "1", "1"], "20,000 repeats counted nothing");
}

#[test]
fn messages_of_noise_are_refused_and_count_nothing() {
    let server = Server::start();
    let token = server.session("LHR");
    let key = Key::parse("likes/noise").unwrap();
    let counts = vec![(key, Net { p: 1, n: 0 })];
    let sync = Sync { token, counts, ..Sync::default() };
    let whole = encode(&sync).unwrap();
    // Cut at every byte; then with one byte changed, each in turn.
    let cut = (0..whole.len()).map(|end| whole[..end].to_vec());
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x80;
        bytes
    });
    let mut noise: Vec<Vec<u8>> = cut.chain(flipped).collect();
    // Noise behind the right version, with lengths that promise far too much.
    noise.extend((0..256u32).map(|seed| {
        let byte = |at: u32| (seed * 31 + at).wrapping_mul(2_654_435_761).to_be_bytes()[0];
        [1].into_iter().chain((0..seed % 64).map(byte)).collect()
    }));
    noise.push([vec![1], vec![0xff; 60_000]].concat());
    for bytes in noise {
        for path in ["/v1/sync", "/v1/session"] {
            let reply = server.send("POST", path, &[], &bytes).unwrap();
            // One flipped byte may leave a message that reads: then it says something else.
            if reply.status != 200 {
                assert!((400..=413).contains(&reply.status), "{}", reply.json);
                reply.problem();
            }
        }
    }
    assert_eq!(server.get_at("LHR", "/v1/likes/noise").exact(), "0");
    assert_eq!(server.send("POST", "/v1/sync", &[], &whole).unwrap().status, 200);
    server.agree(&["LHR"], "likes/noise", 1);
}

/// Writes raw bytes and returns the connection.
fn raw(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

#[test]
fn who_is_slow_or_breaks_off_holds_up_nobody_and_counts_nothing() {
    let server = Server::start();
    let head = |length: &str| format!("POST /v1/likes/slow HTTP/1.1\r\nhost: a\r\n{length}\r\n");
    // 200 requests that stay without the rest of their head, and 200 without the rest of their body.
    let half = head("content-length: 8\r\n");
    let hanging: Vec<TcpStream> = (0..200)
        .flat_map(|_| {
            [raw(&server, &half[..half.len() / 2]), raw(&server, &format!("{half}{{\"b"))]
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.add("LHR", "likes/quick", 1).status, 200);
    }
    drop(hanging);
    server.agree(&["LHR"], "likes/quick", 20);
    assert_eq!(server.get_at("LOCAL", "/v1/likes/slow").exact(), "0");

    // A body that comes in pieces has no length: it counts when whole, and is refused when large.
    let piece = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let chunked = head("connection: close\r\ntransfer-encoding: chunked\r\n");
    let small = format!("{chunked}{}{}0\r\n\r\n", piece("{\"by\""), piece(":2}"));
    let mut answer = String::new();
    raw(&server, &small).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let large = format!("{chunked}{}", piece(&" ".repeat(70_000)));
    let mut first = [0; 12];
    raw(&server, &large).read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 413");
    server.agree(&["LOCAL"], "likes/slow", 2);
}

#[test]
fn every_answer_may_be_read_by_any_page() {
    let server = Server::start();
    let preflight =
        server.send("OPTIONS", "/v1/likes/a", &[("origin", "https://example.org")], b"").unwrap();
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.header("access-control-allow-origin"), "*");
    assert!(preflight.header("access-control-allow-headers").contains("idempotency-key"));
    assert!(preflight.header("access-control-allow-methods").contains("DELETE"));
    assert_eq!(server.get("/v1/likes/a").header("access-control-allow-origin"), "*");
    assert!(server.get("/v1/likes/a").header("server-timing").starts_with("total;dur="));
}
