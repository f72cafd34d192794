//! A deterministic world in which the real tiers run on a network, disks and clocks that fail.
//!
//! One seed decides everything. A failing run prints how to replay it:
//! `SIM_MIX=crashes SIM_SEED=123 cargo test --profile bench --test sim replay -- --nocapture`
#![cfg(not(target_arch = "wasm32"))]

mod disk;
mod judge;
mod mix;
mod random;
mod world;

use mix::Mix;

/// How many seeds each mix runs: `SIM_SEEDS`, or so many that all take about half a minute.
fn seeds() -> u64 {
    std::env::var("SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_500)
}

fn run(name: &str, mix: &Mix) {
    let mut steps = 0;
    for seed in 0..seeds() {
        match world::run(seed, mix, false) {
            Ok(done) => steps += done,
            Err(violation) => panic!(
                "{violation}\nreplay: SIM_MIX={name} SIM_SEED={seed} \
                 cargo test --profile bench --test sim replay -- --nocapture"
            ),
        }
    }
    println!("{name}: {} seeds, {steps} steps, 0 violations", seeds());
}

macro_rules! mixes {
    ($($test:ident: $name:ident,)*) => {
        $(#[test]
        fn $test() {
            run(stringify!($name), &Mix::$name());
        })*

        fn mix(name: &str) -> Mix {
            match name {
                $(stringify!($name) => Mix::$name(),)*
                other => panic!("no mix is called {other}"),
            }
        }
    };
}

mixes! {
    a_calm_world_counts_exactly: calm,
    loss_repetition_delay_and_reordering_change_nothing: lossy,
    crashes_and_failing_disks_lose_nothing_acknowledged: crashes,
    a_reset_beats_a_location_that_was_cut_off: resets,
    a_lost_or_restored_storage_never_counts_twice: storage,
    sessions_past_their_horizon_never_count_twice: days,
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("SIM_SEED") else { return };
    let name = std::env::var("SIM_MIX").unwrap_or_else(|_| "lossy".into());
    match world::run(seed.parse().unwrap(), &mix(&name), true) {
        Ok(steps) => println!("seed {seed} of {name}: {steps} steps, 0 violations"),
        Err(violation) => panic!("{violation}"),
    }
}
