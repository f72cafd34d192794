//! What each counter must and may be: a model that knows nothing of slots, epochs or sessions.

use poptally::counter::{Net, Total};
use poptally::key::Key;
use std::collections::BTreeMap;

/// One key as it truly stands.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// All that pages ever counted.
    issued: Net,
    /// What pages were told to be indeterminate.
    indeterminate: Net,
    /// What objects folded in, ever.
    folded: Net,
    /// What must be there now: the last set value, and what was folded since.
    live: Net,
    /// What a lost storage may have taken from it.
    lost: Net,
    resets: u64,
}

#[derive(Default)]
pub struct Judge {
    keys: BTreeMap<Key, Truth>,
    /// What was folded of each session, as the judge adds it up itself.
    sessions: BTreeMap<([u8; 16], Key), Net>,
}

pub type Verdict = Result<(), String>;

impl Judge {
    /// A page counted.
    pub fn issued(&mut self, key: &Key, net: Net) {
        let truth = self.keys.entry(key.clone()).or_default();
        truth.issued = truth.issued.plus(net).unwrap();
    }

    /// A page was told that it can't be known whether these are counted.
    pub fn indeterminate(&mut self, key: &Key, net: Net) {
        let truth = self.keys.entry(key.clone()).or_default();
        truth.indeterminate = truth.indeterminate.plus(net).unwrap();
    }

    /// An object says that it has now applied so much of a session.
    pub fn applied(&mut self, sid: [u8; 16], key: &Key, applied: Net) {
        let known = self.sessions.entry((sid, key.clone())).or_default();
        let more = applied.beyond(*known);
        known.p = known.p.max(applied.p);
        known.n = known.n.max(applied.n);
        self.folded(key, more);
    }

    /// An object folded a step.
    pub fn folded(&mut self, key: &Key, net: Net) {
        let truth = self.keys.entry(key.clone()).or_default();
        truth.folded = truth.folded.plus(net).unwrap();
        truth.live = truth.live.plus(net).unwrap();
    }

    /// The counter was set: what was folded before counts no more.
    pub fn reset(&mut self, key: &Key, net: Net) {
        let truth = self.keys.entry(key.clone()).or_default();
        truth.live = net;
        truth.lost = Net::ZERO;
        truth.resets += 1;
    }

    /// A storage was lost with counts that no Hub had.
    pub fn lost(&mut self, key: &Key, net: Net) {
        let truth = self.keys.entry(key.clone()).or_default();
        truth.lost = truth.lost.plus(net).unwrap();
    }

    /// The most that anybody may show of a key that only grows.
    pub fn most(&self, key: &Key) -> i128 {
        let truth = self.keys.get(key).cloned().unwrap_or_default();
        let sessions = self.sessions.iter().filter(|((_, of), _)| of == key);
        let folded: u64 = sessions.map(|(_, net)| net.p).sum();
        // What pages issued, and what came without a session.
        i128::from(truth.issued.p) + i128::from(truth.folded.p - folded)
    }

    /// No reading, anywhere, at any moment, exceeds what was ever counted.
    pub fn check_reading(&self, key: &Key, total: Total) -> Verdict {
        let truth = self.keys.get(key).cloned().unwrap_or_default();
        let (p, n) = (u128::from(truth.folded.p), u128::from(truth.folded.n));
        if truth.resets == 0 && (total.p > p || total.n > n) {
            return Err(format!("exactly once: {key} reads {total:?}, only {truth:?} was counted"));
        }
        Ok(())
    }

    /// When all is quiet, every replica reads exactly what was accepted.
    pub fn check_final(&self, key: &Key, total: Total) -> Verdict {
        let truth = self.keys.get(key).cloned().unwrap_or_default();
        let fits = |got: u128, live: u64, lost: u64| {
            got <= u128::from(live) && got >= u128::from(live.saturating_sub(lost))
        };
        if !fits(total.p, truth.live.p, truth.lost.p) || !fits(total.n, truth.live.n, truth.lost.n)
        {
            return Err(format!("exactly once: {key} ends at {total:?}, the truth is {truth:?}"));
        }
        Ok(())
    }

    /// When all is quiet, all that pages counted was folded once, or reported as indeterminate.
    /// `steps` is what was folded of it without a session.
    pub fn check_sessions(&self) -> Verdict {
        let mut folded: BTreeMap<&Key, Net> = BTreeMap::new();
        for ((_, key), net) in &self.sessions {
            let sum = folded.entry(key).or_default();
            *sum = sum.plus(*net).unwrap();
        }
        for (key, truth) in &self.keys {
            let folded = folded.get(key).copied().unwrap_or_default();
            let most = truth.issued;
            let least = most.beyond(truth.indeterminate);
            if folded.exceeds(most) || least.exceeds(folded) {
                return Err(format!(
                    "exactly once: of {key} sessions have {folded:?} folded, {truth:?} was counted"
                ));
            }
        }
        Ok(())
    }
}
