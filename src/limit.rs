//! What is too much. Every limit has a unit, a reason, and where it matters a sum.

/// A name's longest length in bytes of UTF-8: a key fits a database row's head and a URL.
pub const NAME_BYTES_MAX: usize = 256;

/// A namespace's longest length in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 32;

/// A location code's longest length in bytes: IATA codes have 3, a region's name may have 8.
pub const LOCATION_BYTES_MAX: usize = 8;

/// The largest body that the API reads, in bytes: what a browser's beacon may carry (Fetch
/// standard, 64 KiB for all keepalive requests in flight).
pub const BODY_BYTES_MAX: usize = 65_536;

/// The most keys in one message: 100 keys of 256 bytes stay below half a body.
pub const BATCH_MAX: usize = 100;

/// The most keys that one Pop pushes to one Hub in one message; the rest follows at once.
pub const PUSH_MAX: usize = 256;

/// How long a session token and the rows behind it live, in ms: a week offline (what Safari keeps
/// for scripts) and a day.
pub const SESSION_MS: u64 = 8 * 24 * 3_600_000;

/// After this time a client opens a new session, in ms, so that its old one can run out.
pub const SESSION_ROLL_MS: u64 = 24 * 3_600_000;

/// How long a Hub remembers the answer to an `Idempotency-Key` at least, in ms.
pub const ANSWER_MS: u64 = 24 * 3_600_000;

/// The number of Hub partitions. It is fixed: a key's Hub must not change.
pub const PARTITIONS: u16 = 64;

/// The most shards of a location. 64 objects at about 1,000 requests/s each.
pub const SHARDS_MAX: u16 = 64;

/// The most times that a row remembers for its unsynced amounts; 64 of about 8 bytes stay small,
/// and after a cut of an hour tell a reset's moment to within 2 minutes.
pub const SEGMENTS_MAX: usize = 64;

/// The most keys whose other locations' part a Pop keeps in memory: about 200 bytes each.
pub const HEARD_MAX: usize = 10_000;

/// The most events that wait for one commit; beyond it an object answers `overloaded`.
/// At some 3,000 events/s this is a wait of a third of a second.
pub const QUEUE_MAX: usize = 1_024;

/// How many rows of ended sessions or old answers are deleted in one turn.
pub const EXPIRE_MAX: usize = 500;

/// The shortest time between two such turns, in ms: 500 rows a second are 43 million a day.
pub const SWEEP_MS: u64 = 1_000;

/// The longest `Idempotency-Key`, in bytes.
pub const IDEMPOTENCY_BYTES_MAX: usize = 128;

/// The longest list page.
pub const LIST_MAX: usize = 1_000;

/// Wait before the first retry of a push, in ms. Doubles up to [`RETRY_MS_MAX`].
pub const RETRY_MS_MIN: u64 = 500;

/// The longest wait between retries, in ms.
pub const RETRY_MS_MAX: u64 = 30_000;

/// How long the Worker waits for a Pop, in ms: longer than the Pop waits for others.
pub const CALL_MS: u64 = 8_000;

/// How long a Pop waits for a Hub, in ms: longer than the Hub waits for other Pops.
pub const ASK_MS: u64 = 5_000;

/// How long a Hub waits for a Pop, in ms: one slow location must not hold up a fresh reading.
pub const NUDGE_MS: u64 = 2_000;

/// How long a client gathers increments before it sends them, in ms.
pub const GATHER_MS: u64 = 250;

/// The longest wait of a Hub before it tells a location of a reset again, in ms. The location hears
/// of it anyway at its next push or reading, so this is only for those that do neither.
pub const TELL_MS_MAX: u64 = 3_600_000;

/// The wait before attempt `attempt` (from 0), in ms: full jitter over a doubling range that ends at
/// `max` (M. Brooker, "Exponential Backoff and Jitter", 2015). `random` is any 64 random bits.
pub fn retry_ms(attempt: u32, random: u64, max: u64) -> u64 {
    let range = RETRY_MS_MIN.saturating_mul(1u64 << attempt.min(16)).min(max).max(1);
    // At least a tenth, so that a small draw does not turn into a busy loop.
    (range / 10).saturating_add(random.checked_rem(range).unwrap_or(0))
}
