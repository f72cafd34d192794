//! What can go wrong. One error type: a [`Kind`] that programs read, a sentence that people read.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Tells what went wrong and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The stable kind, part of the API.
    pub kind: Kind,
    /// A sentence for the person who made the call.
    pub detail: String,
}

impl Error {
    /// Makes an error of `kind` with a sentence that says what to do.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.slug(), self.detail)
    }
}

impl core::error::Error for Error {}

/// The result of everything in the core.
pub type Result<T> = core::result::Result<T, Error>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $slug:literal, $status:literal, $title:literal;)*) => {
        /// Every kind of error, with its stable name and HTTP status (RFC 9457, RFC 9110).
        ///
        /// Travels between tiers by position: add new kinds at the end only.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All kinds, in the order of their declaration.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The stable name, as in `urn:poptally:problem:bad-step`.
            pub fn slug(self) -> &'static str {
                match self { $(Kind::$name => $slug,)* }
            }

            /// The HTTP status that carries this kind.
            pub fn status(self) -> u16 {
                match self { $(Kind::$name => $status,)* }
            }

            /// A short title, the same for every occurrence.
            pub fn title(self) -> &'static str {
                match self { $(Kind::$name => $title,)* }
            }
        }
    };
}

kinds! {
    /// The body is not the JSON that the call expects.
    BadJson = "bad-json", 400, "The body is not valid JSON for this call";
    /// A namespace or name breaks the rules of [`crate::key`].
    BadName = "bad-name", 400, "The counter's name is not allowed";
    /// A step is zero, not an integer, or larger than the namespace allows.
    BadStep = "bad-step", 400, "The step is not allowed";
    /// A parameter of the call is not understood.
    BadRequest = "bad-request", 400, "The request is not understood";
    /// A binary message does not decode.
    BadMessage = "bad-message", 400, "The message does not decode";
    /// A binary message is of a version that this build does not know.
    MessageVersion = "message-version", 400, "The message's version is unknown";
    /// The `Idempotency-Key` header is malformed.
    BadIdempotencyKey = "bad-idempotency-key", 400, "The Idempotency-Key is not allowed";
    /// A location code is malformed.
    BadLocation = "bad-location", 400, "The location is not allowed";
    /// The call needs the administrator's token and has none.
    Unauthorized = "unauthorized", 401, "The call needs a token";
    /// A session token is forged, cut or signed with an unknown key.
    BadToken = "bad-token", 401, "The session token is not valid";
    /// The token given does not allow the call.
    Forbidden = "forbidden", 403, "The token does not allow this call";
    /// The namespace is not declared.
    UnknownNamespace = "unknown-namespace", 404, "The namespace is not declared";
    /// No route has this path.
    NoRoute = "no-route", 404, "Nothing is served at this path";
    /// The path exists, the method does not.
    BadMethod = "bad-method", 405, "The path does not serve this method";
    /// The step would carry a slot past 2^64 - 1.
    Overflow = "overflow", 409, "The step would overflow the counter";
    /// The session's home has a new incarnation and no longer knows it.
    SessionGone = "session-gone", 410, "The session's home was replaced";
    /// The session is past its horizon.
    SessionExpired = "session-expired", 410, "The session has expired";
    /// A body, batch or list is over its limit.
    TooLarge = "too-large", 413, "The request is too large";
    /// A negative step on a namespace that only grows.
    GrowOnly = "grow-only", 422, "The counter only grows";
    /// The same `Idempotency-Key` came with another request.
    IdempotencyMismatch = "idempotency-mismatch", 422, "The Idempotency-Key was used for another request";
    /// The `Idempotency-Key` is older than the answers that are kept.
    IdempotencyExpired = "idempotency-expired", 422, "The Idempotency-Key is too old";
    /// The namespace holds as many keys as it may.
    TooManyKeys = "too-many-keys", 429, "The namespace is full";
    /// The server has more work than it takes on.
    Overloaded = "overloaded", 503, "The server is overloaded";
    /// The location never heard of the counter and cannot ask.
    Unknown = "unknown", 503, "The value is unknown here";
    /// Another object could not be reached in time.
    Unreachable = "unreachable", 503, "A part of the system cannot be reached";
    /// The storage refused; nothing was changed.
    Storage = "storage", 500, "The storage failed";
    /// The deployment's configuration is wrong.
    Misconfigured = "misconfigured", 500, "The deployment is not configured";
}

impl Kind {
    /// Whether the same call may succeed later, unchanged.
    pub fn retryable(self) -> bool {
        self.status() >= 500 && self != Kind::Misconfigured
    }
}
