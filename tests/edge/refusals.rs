//! Bad input gets a clear error, and nothing is lost or counted.

use crate::server::{SECRET, Server};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use poptally::key::Place;
use poptally::wire::{Ticket, encode};
use serde_json::{Value, json};
use sha2::Sha256;

#[test]
fn bad_input_is_refused_by_its_kind() {
    let server = Server::start();
    server.add("LHR", "likes/a", 5);
    server.add("LHR", "views/a", 5);
    let name = |length: usize| format!("/v1/likes/{}", "x".repeat(length));
    let large = format!(r#"{{"by":1,"pad":"{}"}}"#, "x".repeat(70_000));
    let cases: Vec<(&str, String, &str, u16, &str)> = vec![
        ("POST", "/v1/likes/a".into(), "", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "{", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "[1]", 400, "bad-json"),
        ("POST", "/v1/likes/a".into(), "{}", 400, "bad-step"),
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
    assert_eq!(server.admin("PUT", "likes/a", &json!({ "value": 1.5 })).problem(), "bad-step");
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
    let body = json!({ "token": token, "counts": { "likes/token": { "p": 1 } } });
    let reply = server.post("/v1/sync", &body);
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
