//! The browser face in a real browser: `wasm-pack test --headless --chrome -- --features browser`.
#![cfg(all(target_arch = "wasm32", feature = "browser"))]

mod face;

wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_browser);
