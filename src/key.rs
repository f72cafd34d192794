//! What a name may be: keys, locations, shards, and the partition that a key belongs to.

use crate::error::{Error, Kind, Result};
use crate::limit::{LOCATION_BYTES_MAX, NAME_BYTES_MAX, NAMESPACE_BYTES_MAX, PARTITIONS};
use alloc::string::{String, ToString};
use core::fmt;
use serde::{Deserialize, Serialize};

/// Names one counter: `namespace/name`. Whoever holds a `Key` holds a checked one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// Words of the API that stand where a namespace would.
const RESERVED: [&str; 6] = ["session", "sync", "read", "live", "export", "import"];

impl Key {
    /// Checks a namespace (`[a-z0-9-]{1,32}`, no word of the API) and a name (1 to 256 bytes of
    /// UTF-8 without control characters, not `.` or `..`). Fails with [`Kind::BadName`].
    pub fn new(namespace: &str, name: &str) -> Result<Self> {
        let ok = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let bad = |detail: &str| Err(Error::new(Kind::BadName, detail));
        if namespace.is_empty()
            || namespace.len() > NAMESPACE_BYTES_MAX
            || !namespace.bytes().all(ok)
            || RESERVED.contains(&namespace)
        {
            return bad("a namespace has 1 to 32 characters of a-z, 0-9 and -, \
                        and is none of session, sync, read, live, export, import");
        }
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return bad("a name has 1 to 256 bytes of UTF-8");
        }
        if name.chars().any(char::is_control) {
            return bad("a name has no control characters");
        }
        if name == "." || name == ".." {
            return bad("a name is not . or .., which no address can carry");
        }
        let mut text = String::with_capacity(NAMESPACE_BYTES_MAX.saturating_add(name.len()));
        text.push_str(namespace);
        text.push('/');
        text.push_str(name);
        Ok(Self(text))
    }

    /// Checks `namespace/name`. Everything after the first slash is the name.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Err(Error::new(Kind::BadName, "a key is namespace/name")),
        }
    }

    /// The whole key, `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first slash.
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The part after the first slash.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// The Hub partition that owns this key, below [`PARTITIONS`].
    pub fn partition(&self) -> u16 {
        below(hash(self.0.as_bytes()), PARTITIONS)
    }

    /// The shard that reads and one-shot writes of this key go to, below `shards`.
    pub fn shard(&self, shards: u16) -> u16 {
        // Other bits than the partition's, so that one shard meets all partitions.
        below(hash(self.0.as_bytes()) >> 32, shards)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Key {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        Self::parse(&text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> String {
        key.0
    }
}

/// Names a location: a PoP's IATA code, or a region that gathers several; `[A-Z0-9]{2,8}`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Location([u8; LOCATION_BYTES_MAX]);

impl Location {
    /// Where a Hub's own slot is said to be. Lower case: no real location can have it.
    pub const HUB: Location = Location(*b"hub\0\0\0\0\0");

    /// Checks a code. Fails with [`Kind::BadLocation`].
    pub fn new(code: &str) -> Result<Self> {
        let ok = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit();
        if code.len() < 2 || code.len() > LOCATION_BYTES_MAX || !code.bytes().all(ok) {
            let detail = "a location is 2 to 8 characters of A-Z and 0-9, such as LHR";
            return Err(Error::new(Kind::BadLocation, detail));
        }
        let mut bytes = [0; LOCATION_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(code.bytes()) {
            *to = from;
        }
        Ok(Self(bytes))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or("").trim_end_matches('\0')
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names one durable object of a location, `LHR/3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The location.
    pub location: Location,
    /// The object's number within the location.
    pub shard: u16,
}

impl Place {
    /// Reads a name such as `LHR/3` back.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || Error::new(Kind::BadLocation, "a Pop's name is LOCATION/SHARD, such as LHR/3");
        let (location, shard) = text.split_once('/').ok_or_else(bad)?;
        Ok(Self { location: Location::new(location)?, shard: shard.parse().map_err(|_| bad())? })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location.to_string())?;
        write!(f, "/{}", self.shard)
    }
}

/// The shard at which a session opens: a bucket of time and a random part over a quarter of the
/// range, so that a hot key spreads by itself (jittered shard selection).
pub fn jittered_shard(shards: u16, now_ms: u64, random: u64) -> u16 {
    let bucket = now_ms / 2_000;
    let jitter = below(random, shards.div_ceil(4));
    below(bucket.wrapping_add(u64::from(jitter)), shards)
}

/// The remainder of `bits` by `end`; 0 where `end` is 0.
fn below(bits: u64, end: u16) -> u16 {
    bits.checked_rem(u64::from(end)).and_then(|rest| u16::try_from(rest).ok()).unwrap_or(0)
}

/// FNV-1a (Fowler, Noll, Vo) over explicit bytes, with a final mix (MurmurHash3): the same natively
/// and in wasm, unlike `std::hash`.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        h = (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(namespace: &str, name: &str) {
        assert_eq!(
            Key::new(namespace, name).unwrap_err().kind,
            Kind::BadName,
            "{namespace}/{name}"
        );
    }

    #[test]
    fn names_are_checked() {
        Key::new("likes", &"x".repeat(256)).unwrap();
        Key::new("likes", "a/b ü").unwrap();
        refused("likes", &"x".repeat(257));
        refused("likes", "");
        refused("likes", "a\u{7}b");
        refused("likes", "a\u{85}b");
        refused("likes", "..");
        refused("", "a");
        refused("Likes", "a");
        refused("sync", "a");
        refused(&"n".repeat(33), "a");
    }

    #[test]
    fn a_key_splits_at_the_first_slash() {
        let key = Key::parse("likes/a/b").unwrap();
        assert_eq!((key.namespace(), key.name()), ("likes", "a/b"));
    }

    #[test]
    fn partitions_never_move() {
        // A key's Hub must stay the same for ever; tests/face checks the same in wasm.
        let of = |text: &str| Key::parse(text).unwrap().partition();
        assert_eq!(hash(b"likes/a"), 0xfc9a_381d_301f_5fee);
        assert_eq!([of("likes/a"), of("likes/b"), of("views/home")], [46, 29, 0]);
        let used: alloc::collections::BTreeSet<u16> =
            (0..2_000).map(|i| of(&alloc::format!("likes/{i}"))).collect();
        assert_eq!(used.len(), usize::from(PARTITIONS));
    }

    #[test]
    fn jitter_stays_in_range_and_uses_every_shard() {
        let used: alloc::collections::BTreeSet<u16> =
            (0..400).map(|i| jittered_shard(12, i * 500, i.wrapping_mul(7919))).collect();
        assert_eq!(used, (0..12).collect());
    }
}
