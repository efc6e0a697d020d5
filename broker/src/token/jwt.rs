//! What a run token says, and whether one is ours.
//!
//! A JWT (RFC 7519) signed with Ed25519 (RFC 8037). The `jsonwebtoken` crate was considered: its ring support is a hook
//! for the whole process that can be set once, it parses the header that came with the token before it knows a key, and
//! it has to be told what not to accept. Here nothing of the header is parsed: there is one header for each key of ours,
//! and a token begins with exactly those bytes or is not ours. So there is no algorithm to confuse, no `kid` to look up
//! and no `crit`, `jku` or `zip` to mind.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::TokenError;

/// What a token says. Unknown and repeated members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    /// This installation.
    pub(crate) iss: String,
    /// Always [`AUDIENCE`].
    pub(crate) aud: String,
    /// The run.
    pub(crate) sub: String,
    /// When it was made, in seconds since the epoch.
    pub(crate) iat: u64,
    /// When it expires.
    pub(crate) exp: u64,
    /// The token's own name.
    pub(crate) jti: String,
    /// The digest of the frozen policy.
    pub(crate) pol: String,
}

/// Whom run tokens are for.
pub(crate) const AUDIENCE: &str = "valetkey-proxy";

/// The first part of every token that the key of this name signs.
pub(super) fn header(kid: &str) -> String {
    // Typed explicitly (RFC 8725, section 3.11): no other token of ours, now or later, passes for this one.
    let header = format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"valetkey-run+jwt"}}"#);
    URL_SAFE_NO_PAD.encode(header)
}

/// Signs claims.
pub(super) fn sign(
    header: &str,
    claims: &Claims,
    pair: &Ed25519KeyPair,
) -> Result<Zeroizing<String>, serde_json::Error> {
    let payload = Zeroizing::new(serde_json::to_vec(claims)?);
    let mut token = Zeroizing::new(String::with_capacity(header.len() + 2 * payload.len() + 96));
    token.push_str(header);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(&payload[..], &mut token);
    let signature = pair.sign(token.as_bytes());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    Ok(token)
}

/// The claims of a token, if this key signed them. Time is not looked at.
pub(super) fn verify(token: &str, header: &str, public_key: &[u8]) -> Result<Claims, TokenError> {
    let (said, signature) = token.rsplit_once('.').ok_or(TokenError::Invalid)?;
    let payload = said
        .strip_prefix(header)
        .and_then(|rest| rest.strip_prefix('.'))
        .ok_or(TokenError::Invalid)?;
    // Strict decoding: no padding, no other alphabet, no stray bits. One token has one spelling.
    let signature = decode(signature)?;
    let payload = decode(payload)?;
    UnparsedPublicKey::new(&ED25519, public_key)
        .verify(said.as_bytes(), &signature)
        .map_err(|_| TokenError::Invalid)?;
    serde_json::from_slice(&payload).map_err(|_| TokenError::Invalid)
}

fn decode(text: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| TokenError::Invalid)
}

#[cfg(test)]
mod tests {
    use ring::hmac;
    use ring::signature::KeyPair as _;

    use super::*;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            iss: "valetkey:test".to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: "run_0000000010000000002".to_owned(),
            iat: 1,
            exp: 2,
            jti: "j".to_owned(),
            pol: "sha256:00".to_owned(),
        }
    }

    fn token() -> String {
        sign(&header("k1"), &claims(), &pair(1))
            .unwrap()
            .to_string()
    }

    fn check(token: &str) -> Result<Claims, TokenError> {
        verify(token, &header("k1"), pair(1).public_key().as_ref())
    }

    /// A token of any header and payload, signed as a function says.
    fn forge(header: &str, payload: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let said = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(payload)
        );
        let signature = sign(said.as_bytes());
        format!("{said}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn a_token_that_we_signed_says_what_was_signed() {
        assert_eq!(check(&token()), Ok(claims()));
    }

    #[test]
    fn a_forged_token_is_refused() {
        let payload = serde_json::to_string(&claims()).unwrap();
        let ours = |said: &[u8]| pair(1).sign(said).as_ref().to_vec();
        let other = |said: &[u8]| pair(2).sign(said).as_ref().to_vec();
        let public = pair(1).public_key().as_ref().to_vec();
        let hs256 = |key: &[u8], said: &[u8]| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), said)
                .as_ref()
                .to_vec()
        };
        let right = r#"{"alg":"EdDSA","kid":"k1","typ":"valetkey-run+jwt"}"#;
        // Each line: what is tried, after the cases of the attack catalogue.
        let table = [
            (
                "TOK-012 alg none",
                forge(r#"{"alg":"none","kid":"k1"}"#, &payload, |_| Vec::new()),
            ),
            (
                "TOK-012 no signature",
                forge(right, &payload, |_| Vec::new()),
            ),
            (
                "TOK-014 HS256 with the public key",
                forge(r#"{"alg":"HS256","kid":"k1"}"#, &payload, |said| {
                    hs256(&public, said)
                }),
            ),
            (
                "TOK-015 HS256 with an empty key",
                forge(r#"{"alg":"HS256","kid":"k1"}"#, &payload, |said| {
                    hs256(b"", said)
                }),
            ),
            (
                "TOK-017 zero signature",
                forge(right, &payload, |_| vec![0; 64]),
            ),
            (
                "TOK-018 kid with a path",
                forge(
                    r#"{"alg":"EdDSA","kid":"../../dev/null","typ":"valetkey-run+jwt"}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-019 unknown kid",
                forge(
                    r#"{"alg":"EdDSA","kid":"k2","typ":"valetkey-run+jwt"}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-020 key in the header",
                forge(
                    r#"{"alg":"EdDSA","kid":"k1","typ":"valetkey-run+jwt","jwk":{}}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-021 crit",
                forge(
                    r#"{"alg":"EdDSA","kid":"k1","typ":"valetkey-run+jwt","crit":["x"]}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-025 repeated claim",
                forge(right, &payload.replacen('{', r#"{"sub":"run_x","#, 1), ours),
            ),
            (
                "TOK-023 unknown claim",
                forge(
                    right,
                    &payload.replacen('{', r#"{"nbf":9999999999,"#, 1),
                    ours,
                ),
            ),
            (
                "TOK-027 another type",
                forge(r#"{"alg":"EdDSA","kid":"k1","typ":"JWT"}"#, &payload, ours),
            ),
            ("TOK-044 another payload", {
                let token = token();
                let (said, signature) = token.rsplit_once('.').unwrap();
                let header = said.split_once('.').unwrap().0;
                let payload = URL_SAFE_NO_PAD.encode(payload.replace("run_", "run-"));
                format!("{header}.{payload}.{signature}")
            }),
            ("another key", forge(right, &payload, other)),
            (
                "same header, other spelling",
                forge(
                    r#"{"kid":"k1","alg":"EdDSA","typ":"valetkey-run+jwt"}"#,
                    &payload,
                    ours,
                ),
            ),
            ("no object", forge(right, "7", ours)),
        ];
        for (name, token) in table {
            assert_eq!(check(&token), Err(TokenError::Invalid), "{name}");
        }
        // The twin: the table's own way of signing is accepted where everything is right.
        assert_eq!(check(&forge(right, &payload, ours)), Ok(claims()));
    }

    #[test]
    fn a_token_has_one_spelling() {
        let token = token();
        let variants = [
            format!("{token}x"),
            format!("{token}="),
            format!("{token}\n"),
            format!(" {token}"),
            format!("{token}."),
            format!("{token}.e30"),
            token[..token.len() - 1].to_owned(),
            token.replacen('.', "..", 1),
            token.replace('_', "/").replace('-', "+") + "==",
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
        ];
        for variant in variants {
            assert_eq!(check(&variant), Err(TokenError::Invalid), "{variant}");
        }
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let token = token();
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(check(&changed), Err(TokenError::Invalid));
        }
    }
}
