//! The edge over HTTP on real workerd with real storage. Needs `npm run build` before.
#![cfg(not(target_arch = "wasm32"))]

mod counting;
mod faults;
mod flights;
mod refusals;
mod server;
