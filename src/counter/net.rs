//! What one replica counted up and down, and sums of it.

use crate::error::{Error, Kind, Result};
use crate::merge::Merge;
use serde::{Deserialize, Serialize};

/// Counts what went up (`p`) and what went down (`n`); both only grow, and never wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Net {
    /// The sum of all steps up.
    pub p: u64,
    /// The sum of all steps down.
    pub n: u64,
}

impl Net {
    /// Nothing counted.
    pub const ZERO: Net = Net { p: 0, n: 0 };

    /// A step by `by`: up when positive, down when negative.
    pub fn step(by: i64) -> Net {
        if by < 0 { Net { p: 0, n: by.unsigned_abs() } } else { Net { p: by.unsigned_abs(), n: 0 } }
    }

    /// The sum; fails with [`Kind::Overflow`] past 2^64 − 1.
    pub fn plus(self, more: Net) -> Result<Net> {
        match (self.p.checked_add(more.p), self.n.checked_add(more.n)) {
            (Some(p), Some(n)) => Ok(Net { p, n }),
            _ => {
                let detail = "a location counts up to 18446744073709551615 up or down; \
                              set or clear the counter first";
                Err(Error::new(Kind::Overflow, detail))
            }
        }
    }

    /// What `self` has beyond `less`, per part; 0 where it has no more.
    pub fn beyond(self, less: Net) -> Net {
        Net { p: self.p.saturating_sub(less.p), n: self.n.saturating_sub(less.n) }
    }

    /// Both parts, none above `cap`.
    pub fn capped(self, cap: u64) -> Net {
        Net { p: self.p.min(cap), n: self.n.min(cap) }
    }

    /// Whether nothing was counted.
    pub fn is_zero(self) -> bool {
        self == Net::ZERO
    }

    /// Whether it has counted more than `other` in some part.
    pub fn exceeds(self, other: Net) -> bool {
        self.p > other.p || self.n > other.n
    }

    /// p − n.
    pub fn value(self) -> i128 {
        i128::from(self.p).saturating_sub(i128::from(self.n))
    }
}

impl Merge for Net {
    fn merge(&mut self, other: &Self) {
        self.p = self.p.max(other.p);
        self.n = self.n.max(other.n);
    }
}

/// Sums of many [`Net`]s. 2^64 slots of 2^64 would fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Σp.
    pub p: u128,
    /// Σn.
    pub n: u128,
}

impl Total {
    /// With one more part.
    pub fn plus(self, net: &Net) -> Total {
        Total {
            p: self.p.saturating_add(u128::from(net.p)),
            n: self.n.saturating_add(u128::from(net.n)),
        }
    }

    /// Without one part.
    pub fn minus(self, net: &Net) -> Total {
        Total {
            p: self.p.saturating_sub(u128::from(net.p)),
            n: self.n.saturating_sub(u128::from(net.n)),
        }
    }

    /// Σp − Σn.
    pub fn value(self) -> i128 {
        let signed = |part: u128| i128::try_from(part).unwrap_or(i128::MAX);
        signed(self.p).saturating_sub(signed(self.n))
    }
}

impl Merge for Total {
    fn merge(&mut self, other: &Self) {
        self.p = self.p.max(other.p);
        self.n = self.n.max(other.n);
    }
}
