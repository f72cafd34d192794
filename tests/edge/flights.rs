//! A slice of the proof on real data; all of it is `cargo run --release --example flights`.

use crate::server::Server;

#[path = "../../examples/flights/proof.rs"]
mod proof;

#[test]
fn a_slice_of_the_flights_comes_out_exact() {
    let server = Server::start();
    let plan = proof::Plan { url: server.url(), rows: 400, threads: 4, ..proof::Plan::default() };
    let report = proof::run(&plan, &mut |_, _| {}).unwrap();
    assert!(report.different.is_empty(), "{:?}", report.different);
    assert!(report.thrown_away > 50, "replies were thrown away: {}", report.thrown_away);
    assert!(report.repeats >= report.thrown_away, "and asked for again: {}", report.repeats);
    assert_eq!((report.rows, report.counters > 100), (400, true));
    assert!(report.flights > 1_000 && report.origins > 10);
    assert!(report.requests > 400 && report.operations["rows_written"] > 0);
    println!("counted in {:?}, agreed in {:?}", report.counting, report.converging);
}
