//! Session tokens: a ticket and its HMAC-SHA256 (RFC 2104), each in base64url.

use super::config::Config;
use crate::error::{Error, Kind, Result};
use crate::wire::{Ticket, decode, encode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Signs a ticket.
pub fn mint(config: &Config, ticket: &Ticket) -> Result<String> {
    let body = encode(ticket)?;
    let secret = config.secrets.first().map_or("", String::as_str);
    let mac = mac(secret, &body)?.finalize().into_bytes();
    Ok(format!("{}.{}", BASE64.encode(body), BASE64.encode(mac)))
}

/// Checks a token. Fails with [`Kind::BadToken`] when it was not minted here.
pub fn check(config: &Config, token: &str) -> Result<Ticket> {
    let bad = || Error::new(Kind::BadToken, "open a session first: POST /v1/session");
    let (body, signature) = token.split_once('.').ok_or_else(bad)?;
    let body = BASE64.decode(body).map_err(|_| bad())?;
    let signature = BASE64.decode(signature).map_err(|_| bad())?;
    for secret in &config.secrets {
        if mac(secret, &body)?.verify_slice(&signature).is_ok() {
            return decode(&body);
        }
    }
    Err(bad())
}

/// Compares the administrator's token in constant time.
pub fn check_admin(config: &Config, authorization: Option<&str>) -> Result<()> {
    let Some(admin) = &config.admin else {
        let detail = "no administrator's token is set: npx wrangler secret put ADMIN_TOKEN";
        return Err(Error::new(Kind::Forbidden, detail));
    };
    let Some(shown) = authorization.and_then(|header| header.strip_prefix("Bearer ")) else {
        let detail = "send the administrator's token: Authorization: Bearer TOKEN";
        return Err(Error::new(Kind::Unauthorized, detail));
    };
    // Equal MACs mean equal tokens, and their comparison takes the same time for any.
    let expected = mac(admin, b"admin")?.finalize().into_bytes();
    mac(shown, b"admin")?
        .verify_slice(&expected)
        .map_err(|_| Error::new(Kind::Forbidden, "this is not the administrator's token"))
}

fn mac(secret: &str, body: &[u8]) -> Result<Hmac<Sha256>> {
    let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes());
    let mac = mac.map_err(|_| Error::new(Kind::Misconfigured, "the secret cannot be used"))?;
    Ok(mac.chain_update(body))
}
