//! poptally counts at the edge: every location counts at once on its own, locations merge as
//! CRDTs, and a browser's click is counted exactly once, however often its message is sent.
//!
//! The crate is the pure core: it knows no clock, no chance, no disk and no network, and never
//! panics. Read the modules downward: each uses only those above it, and the order is an
//! increment's way. Only `edge` and `browser` know a world; they lend it
//! to the core and decide nothing. ARCHITECTURE.md has the map.
#![cfg_attr(any(pure, feature = "lean"), no_std)]
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;

#[cfg(all(target_arch = "wasm32", feature = "edge", feature = "browser"))]
compile_error!("build one face at a time: --features edge or --features browser");

pub mod error;
pub mod limit;
pub mod key;
pub mod merge;
pub mod counter;
pub mod policy;
pub mod wire;
pub mod store;
pub mod keyed;
pub mod session;
pub mod pop;
pub mod hub;

#[cfg(all(target_arch = "wasm32", feature = "edge"))]
mod edge;

#[cfg(all(target_arch = "wasm32", feature = "browser"))]
pub mod browser;
