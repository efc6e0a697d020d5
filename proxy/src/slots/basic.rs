//! Credentials in HTTP Basic (RFC 7617): decoded, swapped, encoded again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What stands before and after the placeholder in decoded credentials, if it is the whole user name or password.
pub(super) fn around(
    value: &str,
    placeholder: &str,
    username: Option<&str>,
) -> Option<(String, String)> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    if password == placeholder && username.is_none_or(|name| name == user) {
        return Some((format!("{user}:"), String::new()));
    }
    // Some services take the key as the user name, with an empty password or one that says so.
    if user == placeholder && username.is_none() && matches!(password, "" | "x-oauth-basic") {
        return Some((String::new(), format!(":{password}")));
    }
    None
}

/// The value of the field.
pub(super) fn encode(front: &str, secret: &str, back: &str) -> String {
    let pair = [front, secret, back].concat();
    let mut value = String::with_capacity(6 + pair.len().div_ceil(3) * 4);
    value.push_str("Basic ");
    STANDARD.encode_string(pair, &mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(pair: &str) -> String {
        encode(pair, "", "")
    }

    #[test]
    fn a_placeholder_is_found_as_password_and_as_user() {
        let found = |pair| around(&basic(pair), "PLACEHOLDER", None);
        assert_eq!(found("git:PLACEHOLDER"), Some(("git:".into(), "".into())));
        assert_eq!(found("PLACEHOLDER:"), Some(("".into(), ":".into())));
        assert_eq!(found("git:other"), None);
        assert_eq!(found("git:PLACEHOLDER2"), None);
    }

    #[test]
    fn a_fixed_user_is_the_only_one() {
        let found = |pair| around(&basic(pair), "PLACEHOLDER", Some("token"));
        assert!(found("token:PLACEHOLDER").is_some());
        assert!(found("other:PLACEHOLDER").is_none());
    }
}
