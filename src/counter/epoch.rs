//! The life of a counter between two resets, named by a hybrid clock.

use serde::{Deserialize, Serialize};

/// Names an epoch: milliseconds since 1970 in the upper 48 bits, a tie-breaker in the lower 16.
///
/// The Hub assigns it at a reset, always above the last one even when its clock went back (a
/// hybrid logical clock: Kulkarni et al., "Logical Physical Clocks", 2014). 0 is before any reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The first epoch after `self`, at `now_ms` if the clock is ahead of it.
    pub fn next(self, now_ms: u64) -> Epoch {
        Epoch((now_ms << 16).max(self.0.saturating_add(1)))
    }

    /// When it began, in ms since 1970 of the Hub's clock.
    pub fn began_ms(self) -> u64 {
        self.0 >> 16
    }
}
