//! Which faults a run has.

/// How often what goes wrong, in parts of a thousand, and how the world behaves.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Messages lost.
    pub lose: u64,
    /// Messages that arrive twice.
    pub repeat: u64,
    /// The longest delay of a message, in ms.
    pub delay_ms: u64,
    /// Commits that fail.
    pub disk_fails: u64,
    /// Objects that are killed between their write and their answer.
    pub kill: u64,
    /// How far clocks disagree, in ms.
    pub skew_ms: u64,
    /// Counters are set and cleared.
    pub resets: bool,
    /// Storage is lost, or restored from an old copy.
    pub storage: bool,
    /// Time jumps by hours and days.
    pub days: bool,
}

impl Mix {
    pub fn calm() -> Mix {
        Mix {
            lose: 0,
            repeat: 0,
            delay_ms: 20,
            disk_fails: 0,
            kill: 0,
            skew_ms: 0,
            resets: false,
            storage: false,
            days: false,
        }
    }

    pub fn lossy() -> Mix {
        Mix { lose: 200, repeat: 200, delay_ms: 3_000, skew_ms: 2_000, ..Mix::calm() }
    }

    pub fn crashes() -> Mix {
        Mix { disk_fails: 80, kill: 120, ..Mix::lossy() }
    }

    pub fn resets() -> Mix {
        Mix { resets: true, skew_ms: 0, delay_ms: 500, ..Mix::crashes() }
    }

    pub fn storage() -> Mix {
        Mix { storage: true, ..Mix::crashes() }
    }

    pub fn days() -> Mix {
        Mix { days: true, ..Mix::crashes() }
    }
}
