//! The proof on real data: 7,009,728 flights counted at the 303 airports where they begin, on a
//! counter for each of the 304 where they end, while every fifth reply is lost.
//!
//! `npm start` in one terminal, then `cargo run --release --example flights` in another.
//! Options: `--url URL`, `--rows N`, `--threads N`, `--csv PATH`.

#[cfg(not(target_arch = "wasm32"))]
mod program;
#[cfg(not(target_arch = "wasm32"))]
mod proof;

#[cfg(not(target_arch = "wasm32"))]
use program::main;

/// `wasm-pack test` builds the examples too.
#[cfg(target_arch = "wasm32")]
fn main() {}
