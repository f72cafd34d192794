//! The browser face in Node: `wasm-pack test --node --mode no-install -- --features browser`.
#![cfg(all(target_arch = "wasm32", feature = "browser"))]

mod face;
