//! What JavaScript sees of a session: bytes, numbers and BigInts, exact ones.

use js_sys::{Array, BigInt, Uint8Array};
use poptally::browser::Tally;
use poptally::counter::{Epoch, Net};
use poptally::key::{Key, Location};
use poptally::wire::{Opened, Outcome, Seen, Sync, Synced, decode, encode};
use wasm_bindgen::JsCast;
use wasm_bindgen_test::wasm_bindgen_test;

const KEY: &str = "likes/post-42";

fn view(tally: &Tally) -> (String, String, bool) {
    let view = tally.view(KEY);
    let digits =
        |at: u32| String::from(view.get(at).unchecked_into::<BigInt>().to_string(10).unwrap());
    (digits(0), digits(1), view.get(3).as_bool().unwrap())
}

fn body(outgoing: &Array) -> (String, Vec<u8>) {
    (outgoing.get(0).as_string().unwrap(), outgoing.get(1).unchecked_into::<Uint8Array>().to_vec())
}

/// A server that has counted `others` elsewhere, and folds what it is sent.
fn serve(tally: &Tally, others: i128, now_ms: f64) -> Option<Sync> {
    let (path, request) = body(&tally.outgoing(now_ms, 1)?);
    let home = Location::new("LHR").unwrap();
    if path == "/v1/session" {
        let opened = Opened { token: "token".into(), expires_ms: 1, home };
        tally.answered(200, &encode(&opened).unwrap(), now_ms, 1);
        return serve(tally, others, now_ms);
    }
    let sync: Sync = decode(&request).unwrap();
    let outcome = |net: Net| Outcome {
        applied: net,
        seen: Some(Seen {
            epoch: Epoch(0),
            lineage: 1,
            version: 1,
            synced: true,
            p: others + i128::from(net.p),
            n: i128::from(net.n),
        }),
        refused: None,
    };
    let counts = sync.counts.iter().map(|(_, net)| *net);
    let outcomes = counts.chain(sync.read.iter().map(|_| Net::ZERO)).map(outcome).collect();
    tally.answered(200, &encode(&Synced { outcomes, near: home }).unwrap(), now_ms, 1);
    Some(sync)
}

#[wasm_bindgen_test]
fn a_click_shows_at_once_and_waits_for_its_confirmation() {
    let tally = Tally::new(7, 1_000.0);
    tally.add(KEY, 1, 0.0).unwrap();
    tally.add(KEY, -3, 0.0).unwrap();
    assert_eq!(view(&tally), ("-2".into(), "-2".into(), false));
    assert!(serve(&tally, 10, 100.0).is_none(), "it gathers for 250 ms first");
    let sync = serve(&tally, 10, 250.0).unwrap();
    assert_eq!(sync.counts, [(Key::parse(KEY).unwrap(), Net { p: 1, n: 3 })]);
    assert_eq!(view(&tally), ("8".into(), "0".into(), true));
}

#[wasm_bindgen_test]
fn numbers_beyond_two_to_the_53_are_exact_in_javascript() {
    let tally = Tally::new(7, 1_000.0);
    tally.watch(KEY, 0.0);
    serve(&tally, (1 << 53) + 1, 0.0).unwrap();
    assert_eq!(view(&tally).0, "9007199254740993");
    tally.add(KEY, i64::MAX, 0.0).unwrap();
    assert_eq!(view(&tally).0, "9232379236109516800");
    serve(&tally, i128::from(u64::MAX) * 4, 300.0).unwrap();
    assert_eq!(view(&tally).0, "83010348331692982267");
}

#[wasm_bindgen_test]
fn a_step_past_two_to_the_64_is_refused_and_nothing_changes() {
    let tally = Tally::new(7, 1_000.0);
    tally.add(KEY, i64::MAX, 0.0).unwrap();
    tally.add(KEY, i64::MAX, 0.0).unwrap();
    tally.add(KEY, 1, 0.0).unwrap();
    assert!(tally.add(KEY, 1, 0.0).is_err());
    assert!(tally.add(KEY, 0, 0.0).is_err());
    assert_eq!(view(&tally).0, u64::MAX.to_string());
}

#[wasm_bindgen_test]
fn a_later_page_sends_what_an_earlier_one_stored() {
    let first = Tally::new(7, 1_000.0);
    first.add(KEY, 5, 0.0).unwrap();
    let open = body(&first.outgoing(250.0, 1).unwrap());
    assert_eq!(open.0, "/v1/session");
    let opened = Opened { token: "t".into(), expires_ms: 1, home: Location::new("LHR").unwrap() };
    first.answered(200, &encode(&opened).unwrap(), 250.0, 1);
    first.outgoing(250.0, 1).unwrap();
    let record = first.unsaved().get(0).unchecked_into::<Array>();
    assert_eq!(record.get(0), wasm_bindgen::JsValue::from(BigInt::from(7u64)));

    let later = Tally::new(8, 1_000.0);
    later.adopt(&record.get(1).unchecked_into::<Uint8Array>().to_vec(), 300.0).unwrap();
    assert_eq!(view(&later).0, "5");
    let sync = serve(&later, 0, 300.0).unwrap();
    assert_eq!(sync.counts, [(Key::parse(KEY).unwrap(), Net { p: 5, n: 0 })]);
    assert!(sync.settle, "an older ledger asks for the version that contains it");
    assert_eq!(view(&later), ("5".into(), "0".into(), false));
}

#[wasm_bindgen_test]
fn a_bad_name_is_refused_by_its_kind() {
    assert!(Tally::check("likes/a").is_ok());
    assert!(Tally::check("likes").is_err());
    assert!(Tally::check("Likes/a").is_err());
}

#[wasm_bindgen_test]
fn keys_hash_in_wasm_as_they_do_natively() {
    // The same numbers as in `src/key.rs`: a key's Hub is the same for everyone.
    assert_eq!(poptally::key::hash(b"likes/a"), 0xfc9a_381d_301f_5fee);
    assert_eq!(Key::parse("likes/b").unwrap().partition(), 29);
}
