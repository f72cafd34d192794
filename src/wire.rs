//! The bytes of every message and stored row: a version byte, then postcard.
//!
//! Old and new builds run side by side during a deployment. So a field is only ever added at the
//! end, readers pass over what they do not know, and what cannot be read so is a new version.
//! `tests/bytes/` keeps the bytes of every released version.

use crate::counter::{Epoch, Net, Slot, SlotId, Total};
use crate::error::{Error, Kind, Result};
use crate::key::{Key, Location, Place};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of all messages and rows of this build.
pub const VERSION: u8 = 1;

/// Encodes a message or row.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    let bytes = alloc::vec![VERSION];
    postcard::to_extend(message, bytes)
        .map_err(|_| Error::new(Kind::BadMessage, "the message cannot be encoded"))
}

/// Decodes a message or row. Fails with [`Kind::MessageVersion`] or [`Kind::BadMessage`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, body)) => postcard::take_from_bytes(body)
            .map(|(message, _)| message)
            .map_err(|_| Error::new(Kind::BadMessage, "the message is cut or not of this kind")),
        Some(_) => Err(Error::new(
            Kind::MessageVersion,
            "the message is of a version that this build does not know; update the older side",
        )),
        None => Err(Error::new(Kind::BadMessage, "the message is empty")),
    }
}

/// Who a session is, as its token says. The edge signs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The session's id, 128 random bits.
    pub sid: [u8; 16],
    /// The object that folds this session.
    pub home: Place,
    /// The home's incarnation when the session was opened.
    pub incarnation: u64,
    /// The session's horizon by the home's clock, in ms since 1970.
    pub expires_ms: u64,
}

/// Client to edge: opens a session. A past token makes its home preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The token of the client's last session, if it had one.
    #[serde(default)]
    pub last: Option<String>,
}

/// Edge to client: a session is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// What the client shows at every sync. Opaque.
    pub token: String,
    /// The horizon, in ms since 1970 by the home's clock.
    pub expires_ms: u64,
    /// The home's location.
    pub home: Location,
}

/// Client to edge: all that the session has counted so far, per key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sync {
    /// The session's token.
    pub token: String,
    /// Cumulative counts.
    pub counts: Vec<(Key, Net)>,
    /// Keys to read besides.
    pub read: Vec<Key>,
    /// Push to the Hub before answering, and say which of its versions contains the counts.
    pub settle: bool,
}

/// Edge to client: what is counted, and how things stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// One answer for each of the counts, then one for each key to read, in their order.
    pub outcomes: Vec<Outcome>,
    /// The location that took the message, which may not be the home.
    pub near: Location,
}

/// What a client needs of a [`Counted`] or [`Reading`]: few types are few bytes in a browser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the home has folded in of the session; nothing for a key that was only read.
    pub applied: Net,
    /// The counter with `applied` in it; none where the others are unknown.
    pub seen: Option<Seen>,
    /// Why not all was folded, or why the key cannot be read.
    pub refused: Option<Error>,
}

/// A counter at one moment, as a client keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The epoch.
    pub epoch: Epoch,
    /// The Hub's lineage.
    pub lineage: u64,
    /// The Hub's version that is contained.
    pub version: u64,
    /// Whether that version contains all that the home has counted.
    pub synced: bool,
    /// Σp.
    pub p: i128,
    /// Σn.
    pub n: i128,
}

/// What became of one count of a [`Sync`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// What the home has folded in of the session, durably: it may lag behind what was sent.
    pub applied: Net,
    /// The counter, `applied` included.
    pub reading: Option<Reading>,
    /// Why not all was folded, if it was refused.
    pub refused: Option<Error>,
}

impl From<Counted> for Outcome {
    fn from(counted: Counted) -> Self {
        let seen = counted.reading.and_then(|reading| reading.seen());
        Outcome { applied: counted.applied, seen, refused: counted.refused }
    }
}

impl From<Result<Reading>> for Outcome {
    fn from(reading: Result<Reading>) -> Self {
        match reading {
            Ok(reading) => Outcome { seen: reading.seen(), ..Outcome::default() },
            Err(error) => Outcome { refused: Some(error), ..Outcome::default() },
        }
    }
}

/// A counter's state as one location knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The epoch.
    pub epoch: Epoch,
    /// Σp and Σn: the location's own part and the others'.
    pub total: Total,
    /// The location's own part.
    pub own: Net,
    /// What of the own part the Hub has not acknowledged.
    pub unsynced: Net,
    /// How the Hub knew the others; none when it was never heard.
    pub others: Option<Others>,
}

impl Reading {
    /// The value, or nothing when the others are unknown: it would be wrong by an unknown amount.
    pub fn value(&self) -> Option<i128> {
        self.others.as_ref().map(|_| self.total.value())
    }

    /// The reading as a client keeps it.
    pub fn seen(&self) -> Option<Seen> {
        let signed = |part: u128| i128::try_from(part).unwrap_or(i128::MAX);
        self.others.map(|others| Seen {
            epoch: self.epoch,
            lineage: others.lineage,
            version: others.version,
            synced: self.unsynced.is_zero(),
            p: signed(self.total.p),
            n: signed(self.total.n),
        })
    }
}

/// What a Pop knows of all slots but its own, from the Hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    /// The Hub's lineage: under another one its versions mean nothing.
    pub lineage: u64,
    /// The Hub's version of the key that is contained.
    pub version: u64,
    /// When the Hub was asked, in ms since 1970 by the Pop's clock: never younger than the truth.
    pub as_of_ms: u64,
    /// Σp and Σn over the others' slots.
    pub total: Total,
}

/// Pop to Hub: what I hold, and what I want to hear.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The key.
    pub key: Key,
    /// My slot.
    pub id: SlotId,
    /// What it holds, if anything.
    pub mine: Option<Slot>,
    /// Slots of my earlier incarnations that the Hub has not acknowledged. They never grow.
    pub frozen: Vec<(SlotId, Slot)>,
}

/// Hub to Pop: how a key stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The key.
    pub key: Key,
    /// The slot to which the answer is addressed.
    pub id: SlotId,
    /// The Hub's lineage.
    pub lineage: u64,
    /// The key's version at the Hub.
    pub version: u64,
    /// The key's epoch.
    pub epoch: Epoch,
    /// What the Hub durably holds of the asker's slot in that epoch.
    pub mine: Option<Net>,
    /// Σ over all other slots of the epoch.
    pub others: Total,
    /// Earlier incarnations of the asker that the Hub now holds durably.
    pub frozen: Vec<SlotId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_version_is_refused_by_its_name() {
        let mut bytes = encode(&Open::default()).unwrap();
        bytes[0] = 2;
        assert_eq!(decode::<Open>(&bytes).unwrap_err().kind, Kind::MessageVersion);
        assert_eq!(decode::<Open>(&[]).unwrap_err().kind, Kind::BadMessage);
        assert_eq!(decode::<Sync>(&[1, 255]).unwrap_err().kind, Kind::BadMessage);
    }

    #[test]
    fn what_a_newer_build_appends_is_passed_over() {
        let mut bytes = encode(&Open::default()).unwrap();
        bytes.extend([1, 2, 3]);
        assert_eq!(decode::<Open>(&bytes).unwrap(), Open::default());
    }
}
