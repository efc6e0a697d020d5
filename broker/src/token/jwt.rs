//! What a run token says, and whether one is ours.
//!
//! A JWT (RFC 7519) signed with Ed25519 (RFC 8037), written and read by the `jsonwebtoken` crate. Its current version is
//! used, not 9.3, which bundles ring but gets no fixes any more (the type confusions found since are fixed from 10.3
//! on); [`super::provider`] lends it ring. Before that crate sees a token, the token has to begin with the exact bytes
//! of the header that one of our keys writes: so there is no algorithm to confuse, no `kid` to look up and no `crit`,
//! `jku` or `zip` to mind, whatever the crate makes of them.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, encode};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{TokenError, provider};

/// What a token says. Each member but the step is required; unknown and repeated ones are refused.
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
    /// The only step that it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<String>,
}

/// Whom run tokens are for.
pub(crate) const AUDIENCE: &str = "valetkey-proxy";

/// One key pair, with the header that it writes.
pub(super) struct Key {
    kid: String,
    header: String,
    signing: EncodingKey,
    verifying: DecodingKey,
}

impl Key {
    /// The key of this name, from its pair (PKCS #8) and its public half.
    pub(super) fn new(
        kid: &str,
        document: &[u8],
        public: &[u8],
    ) -> Result<Self, serde_json::Error> {
        provider::install();
        Ok(Self {
            kid: kid.to_owned(),
            header: URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header(kid))?),
            signing: EncodingKey::from_ed_der(document),
            verifying: DecodingKey::from_ed_der(public),
        })
    }

    /// Its name.
    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    /// Whether a token begins as each one does that this key signed.
    pub(super) fn is_named_by(&self, token: &str) -> bool {
        token
            .strip_prefix(&self.header)
            .is_some_and(|rest| rest.starts_with('.'))
    }

    /// Signs claims.
    pub(super) fn sign(
        &self,
        claims: &Claims,
    ) -> Result<Zeroizing<String>, jsonwebtoken::errors::Error> {
        encode(&header(&self.kid), claims, &self.signing).map(Zeroizing::new)
    }

    /// The claims of a token, if this key signed them for us and their time is not over.
    pub(super) fn verify(&self, token: &str, issuer: &str) -> Result<Claims, TokenError> {
        if !self.is_named_by(token) {
            return Err(TokenError::Invalid);
        }
        let mut validation = VALIDATION.clone();
        validation.set_issuer(&[issuer]);
        match decode::<Claims>(token, &self.verifying, &validation) {
            Ok(data) => Ok(data.claims),
            Err(error) if matches!(error.kind(), ErrorKind::ExpiredSignature) => {
                Err(TokenError::Expired)
            }
            Err(_) => Err(TokenError::Invalid),
        }
    }
}

/// Typed explicitly (RFC 8725, section 3.11): no other token of ours, now or later, passes for this one.
fn header(kid: &str) -> Header {
    let mut header = Header::new(Algorithm::EdDSA);
    header.typ = Some("valetkey-run+jwt".to_owned());
    header.kid = Some(kid.to_owned());
    header
}

/// What every token has to satisfy. No leeway: whoever verifies is who signed, by the same clock.
static VALIDATION: LazyLock<Validation> = LazyLock::new(|| {
    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.leeway = 0;
    validation.set_audience(&[AUDIENCE]);
    // The other claims are required by the type.
    validation.set_required_spec_claims(&["aud", "exp", "iss", "sub"]);
    validation
});

#[cfg(test)]
mod tests {
    use ring::hmac;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    const ISSUER: &str = "valetkey:test";

    /// The PKCS #8 form of a pair: RFC 8410, section 7, with the public half that ring wants.
    fn document(seed: u8) -> Vec<u8> {
        let mut bytes =
            b"\x30\x53\x02\x01\x01\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20".to_vec();
        bytes.extend_from_slice(&[seed; 32]);
        bytes.extend_from_slice(b"\xa1\x23\x03\x21\x00");
        bytes.extend_from_slice(pair(seed).public_key().as_ref());
        bytes
    }

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn key() -> Key {
        Key::new("k1", &document(1), pair(1).public_key().as_ref()).unwrap()
    }

    fn claims() -> Claims {
        Claims {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.to_owned(),
            sub: "run_0000000010000000002".to_owned(),
            iat: 1,
            exp: 9_999_999_999,
            jti: "j".to_owned(),
            pol: "sha256:00".to_owned(),
            step: None,
        }
    }

    fn token() -> String {
        key().sign(&claims()).unwrap().to_string()
    }

    fn check(token: &str) -> Result<Claims, TokenError> {
        key().verify(token, ISSUER)
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
        let right = r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"k1"}"#;
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
                    r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"../../dev/null"}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-019 unknown kid",
                forge(
                    r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"k2"}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-020 key in the header",
                forge(
                    r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"k1","jwk":{}}"#,
                    &payload,
                    ours,
                ),
            ),
            (
                "TOK-021 crit",
                forge(
                    r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"k1","crit":["x"]}"#,
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
                forge(r#"{"typ":"JWT","alg":"EdDSA","kid":"k1"}"#, &payload, ours),
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

    #[test]
    fn a_token_for_another_audience_issuer_or_time_is_refused() {
        let signed = |change: fn(&mut Claims)| {
            let mut claims = claims();
            change(&mut claims);
            check(&key().sign(&claims).unwrap()).map(drop)
        };
        assert_eq!(signed(|_| {}), Ok(()));
        let invalid = Err(TokenError::Invalid);
        assert_eq!(signed(|claims| claims.aud.push('x')), invalid);
        assert_eq!(signed(|claims| claims.iss.push('x')), invalid);
        assert_eq!(signed(|claims| claims.exp = 1), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_without_one_of_its_claims_is_refused() {
        let right = r#"{"typ":"valetkey-run+jwt","alg":"EdDSA","kid":"k1"}"#;
        let ours = |said: &[u8]| pair(1).sign(said).as_ref().to_vec();
        let whole = serde_json::to_value(claims()).unwrap();
        for name in ["iss", "aud", "sub", "iat", "exp", "jti", "pol"] {
            let mut payload = whole.clone();
            payload.as_object_mut().unwrap().remove(name);
            let without = forge(right, &payload.to_string(), ours);
            assert_eq!(check(&without), Err(TokenError::Invalid), "{name}");
            payload[name] = serde_json::json!([whole[name]]);
            let other = forge(right, &payload.to_string(), ours);
            assert_eq!(check(&other), Err(TokenError::Invalid), "{name}");
        }
        assert!(check(&forge(right, &whole.to_string(), ours)).is_ok());
    }
}
