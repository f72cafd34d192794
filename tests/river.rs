//! The river: `src/lib.rs` declares the modules in the order of their dependence, and a module of
//! the core uses only those above it.
#![cfg(not(target_arch = "wasm32"))]

use std::fs;
use std::path::Path;

/// The modules that `lib.rs` declares, in order.
fn declared() -> Vec<String> {
    let lib = fs::read_to_string("src/lib.rs").unwrap();
    let name = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    lib.lines().filter_map(name).collect()
}

/// The text of a module with all its files.
fn text(module: &str) -> String {
    let file = format!("src/{module}.rs");
    if Path::new(&file).exists() {
        return fs::read_to_string(file).unwrap();
    }
    let files = fs::read_dir(format!("src/{module}")).unwrap();
    files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn a_module_uses_only_those_above_it() {
    let modules = declared();
    assert!(modules.len() > 10, "lib.rs declares {modules:?}");
    for (at, module) in modules.iter().enumerate() {
        let text = text(module);
        for below in &modules[at + 1..] {
            let used = text.contains(&format!("use crate::{below}::"));
            assert!(!used, "{module} uses {below}, which lib.rs declares below it");
        }
    }
}

#[test]
fn the_core_knows_no_host() {
    for module in declared().iter().filter(|module| !["edge", "browser"].contains(&module.as_str()))
    {
        let text = text(module);
        for host in ["worker::", "js_sys", "wasm_bindgen", "std::", "getrandom"] {
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let used = code.into_iter().any(|line| line.contains(host));
            assert!(!used, "{module} uses {host}");
        }
    }
}
