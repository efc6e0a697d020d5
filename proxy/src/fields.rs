//! Which header fields are refused, dropped or passed.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header, response};
use policies::Fields;
use sdk::Code;
use smallvec::SmallVec;

use crate::refusal::Refusal;

/// What the header of a request says about the connection it came on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// It asks for another protocol.
    pub(crate) upgrade: bool,
    /// It takes trailers.
    pub(crate) trailers: bool,
}

/// Refuses what can be read in more than one way, and drops what concerns only this connection or would speak for
/// somebody else.
pub(crate) fn clean_request(parts: &mut Parts) -> Result<Wishes, Refusal> {
    refuse_method(&parts.method)?;
    let fields = &mut parts.headers;
    let mut wishes = Wishes::default();
    let mut drop = Names::new();
    for name in fields.keys() {
        let text = name.as_str();
        if text.contains('_') {
            // Behind us, some read `content_length` as `content-length` (CGI makes them one).
            let twin = text.replace('_', "-");
            if is_framing(&twin) {
                return Err(Refusal::ambiguous(
                    "a field name with `_` that means another field",
                ));
            }
            if is_dropped(&twin) {
                drop.push(name.clone());
            }
        } else if is_dropped(text) {
            drop.push(name.clone());
        }
    }
    check_framing(fields)?;
    if let Some(value) = fields.get(header::EXPECT)
        && !value.as_bytes().eq_ignore_ascii_case(b"100-continue")
    {
        return Err(Refusal::ambiguous("only `100-continue` may be expected"));
    }
    wishes.trailers = tokens(fields, &header::TE).any(|token| is_token(token, "trailers"));
    // An upgrade to HTTP/2 in clear may be declined by just answering (RFC 9110, section 7.8).
    wishes.upgrade =
        tokens(fields, &header::UPGRADE).any(|token| !token.is_empty() && !is_token(token, "h2c"));
    for token in tokens(fields, &header::CONNECTION) {
        if let Ok(name) = HeaderName::from_bytes(token)
            && name != header::HOST
        {
            drop.push(name);
        }
    }
    for name in drop {
        fields.remove(name);
    }
    Ok(wishes)
}

/// Refuses a header that is longer than ours may be. hyper does so for HTTP/1.1 by itself.
pub(crate) fn refuse_long_header(parts: &Parts, most: usize) -> Result<(), Refusal> {
    if parts.version != Version::HTTP_2 {
        return Ok(());
    }
    // As HTTP/2 counts (RFC 9113, section 6.5.2).
    let fields = parts.headers.iter();
    let length: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum();
    let target = parts
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    if length + target > most {
        return Err(Refusal::unreadable(431));
    }
    Ok(())
}

/// Makes the header of a request fit the version that the upstream speaks.
pub(crate) fn fit_request(parts: &mut Parts, version: Version, wishes: Wishes, host: &HeaderValue) {
    let fields = &mut parts.headers;
    parts.version = version;
    join_cookies(fields);
    // What a first try on a connection of another version left.
    fields.remove(header::CONNECTION);
    if wishes.trailers {
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
        if version != Version::HTTP_2 {
            fields.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
    }
    if version == Version::HTTP_2 {
        fields.remove(header::HOST);
    } else {
        fields.insert(header::HOST, host.clone());
    }
}

/// Drops from an answer what concerns only the upstream's connection, or would speak in our name.
pub(crate) fn clean_answer(parts: &mut response::Parts) -> Result<(), Refusal> {
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody asked for it.
        return Err(Refusal::new(Code::UpstreamUnreachable));
    }
    let fields = &mut parts.headers;
    let mut drop = Names::new();
    for name in fields.keys() {
        if is_dropped_from_answers(name.as_str()) {
            drop.push(name.clone());
        }
    }
    for token in tokens(fields, &header::CONNECTION) {
        if let Ok(name) = HeaderName::from_bytes(token)
            && name != header::CONTENT_LENGTH
        {
            drop.push(name);
        }
    }
    // Both were given, and the body was read by the other (RFC 9112, section 6.3).
    if fields.contains_key(header::TRANSFER_ENCODING) {
        drop.push(header::CONTENT_LENGTH);
    }
    for name in drop {
        fields.remove(name);
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

/// Drops from trailers what would change what the header said.
pub(crate) fn strip_trailers(fields: &mut HeaderMap) {
    let drop: Names = fields
        .keys()
        .filter(|name| {
            let text = name.as_str().replace('_', "-");
            is_framing(&text)
                || is_dropped(&text)
                || is_credential(&text)
                || matches!(
                    text.as_str(),
                    "cookie" | "set-cookie" | "cache-control" | "expect" | "range"
                )
        })
        .cloned()
        .collect();
    for name in drop {
        fields.remove(name);
    }
}

/// Fields in which credentials usually stand. At a host with a credential of ours, they hold ours or nothing.
pub(crate) fn is_credential(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "x-api-key"
            | "api-key"
            | "apikey"
            | "x-goog-api-key"
            | "x-auth-token"
            | "x-amz-security-token"
            | "private-token"
            | "x-vault-token"
    )
}

/// A header as policies read it.
pub(crate) struct Seen<'h>(pub(crate) &'h HeaderMap);

impl Fields for Seen<'_> {
    fn values(&self, name: &str) -> Vec<&[u8]> {
        self.0
            .get_all(name)
            .iter()
            .map(HeaderValue::as_bytes)
            .collect()
    }
}

type Names = SmallVec<[HeaderName; 8]>;

fn refuse_method(method: &Method) -> Result<(), Refusal> {
    // TRACE and its like answer with the request, and so with the credential in it.
    if *method == Method::CONNECT {
        return Err(Refusal::ambiguous("CONNECT has no place here"));
    }
    let text = method.as_str();
    if ["TRACE", "TRACK", "DEBUG", "PRI"]
        .iter()
        .any(|refused| text.eq_ignore_ascii_case(refused))
    {
        return Err(Refusal::with_hint(
            Code::MethodNotAllowed,
            "this method would give back what was put in",
        ));
    }
    Ok(())
}

/// hyper accepts codings before `chunked` and repeated fields; nobody needs them.
fn check_framing(fields: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = fields.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => {
            if fields.contains_key(header::CONTENT_LENGTH) {
                return Err(Refusal::ambiguous("two lengths for one body"));
            }
        }
        (Some(_), _) => return Err(Refusal::ambiguous("a transfer coding other than `chunked`")),
    }
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next()
        && (lengths.next().is_some() || !length.as_bytes().iter().all(u8::is_ascii_digit))
    {
        return Err(Refusal::ambiguous("a length that is not one number"));
    }
    Ok(())
}

/// HTTP/2 clients send a cookie in crumbs (RFC 9113, section 8.2.3).
fn join_cookies(fields: &mut HeaderMap) {
    let mut values = fields.get_all(header::COOKIE).iter();
    if values.next().is_none() || values.next().is_none() {
        return;
    }
    let mut joined = Vec::new();
    let mut is_sensitive = false;
    for value in fields.get_all(header::COOKIE) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(value.as_bytes());
        is_sensitive |= value.is_sensitive();
    }
    if let Ok(mut value) = HeaderValue::from_bytes(&joined) {
        value.set_sensitive(is_sensitive);
        fields.insert(header::COOKIE, value);
    }
}

fn tokens<'h>(fields: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    fields
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
}

fn is_token(token: &[u8], text: &str) -> bool {
    // Weights and versions follow after these.
    let end = token
        .iter()
        .position(|byte| matches!(byte, b';' | b'/'))
        .unwrap_or(token.len());
    token[..end]
        .trim_ascii()
        .eq_ignore_ascii_case(text.as_bytes())
}

fn is_framing(name: &str) -> bool {
    matches!(
        name,
        "content-length"
            | "transfer-encoding"
            | "host"
            | "connection"
            | "upgrade"
            | "te"
            | "expect"
    )
}

/// Hop-by-hop fields, fields that speak for a proxy, and fields with which a request means something else than it says.
fn is_dropped(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "transfer-encoding"
            | "content-length"
            | "upgrade"
            | "http2-settings"
            | "forwarded"
            | "via"
            | "x-real-ip"
            | "x-client-ip"
            | "client-ip"
            | "true-client-ip"
            | "x-cluster-client-ip"
            | "cf-connecting-ip"
            | "x-http-method-override"
            | "x-http-method"
            | "x-method-override"
            | "x-original-url"
            | "x-original-host"
            | "x-rewrite-url"
            | "x-host"
            | "alt-svc"
            | "alt-used"
            | "max-forwards"
            | "x-run-id"
            | "x-inject"
            | "x-broker-token"
    ) || name.starts_with("proxy-")
        || name.starts_with("x-forwarded-")
        || name.starts_with("valetkey-")
        || name.starts_with("x-valetkey-")
}

fn is_dropped_from_answers(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "transfer-encoding"
            | "upgrade"
            | "alt-svc"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "proxy-authorization"
    ) || name.starts_with("valetkey-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn parts(method: &str, fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_concerns_one_hop_or_speaks_for_others_is_dropped() {
        let mut parts = parts(
            "GET",
            &[
                ("proxy-authorization", "Bearer test-token"),
                ("proxy-connection", "keep-alive"),
                ("keep-alive", "timeout=5"),
                ("x-forwarded-for", "1.2.3.4"),
                ("x_forwarded_for", "1.2.3.4"),
                ("x-http-method-override", "DELETE"),
                ("x-original-url", "/admin"),
                ("connection", "close, x-private"),
                ("x-private", "1"),
                ("accept", "*/*"),
            ],
        );
        clean_request(&mut parts).unwrap();
        let names: Vec<_> = parts.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept"]);
    }

    #[test]
    fn a_body_with_an_unclear_length_is_refused() {
        for fields in [
            &[("transfer-encoding", "gzip, chunked")][..],
            &[
                ("transfer-encoding", "chunked"),
                ("transfer-encoding", "chunked"),
            ],
            &[("transfer-encoding", ",chunked")],
            &[("transfer_encoding", "chunked")],
            &[("content_length", "5")],
            &[("content-length", "+5")],
        ] {
            let refused = clean_request(&mut parts("POST", fields)).unwrap_err();
            assert_eq!(refused.code, Code::AmbiguousRequest);
        }
        assert!(clean_request(&mut parts("POST", &[("transfer-encoding", "chunked")])).is_ok());
        assert!(clean_request(&mut parts("POST", &[("content-length", "5")])).is_ok());
    }

    #[test]
    fn a_method_that_gives_the_request_back_is_refused() {
        for method in ["TRACE", "TRACK", "trace"] {
            let refused = clean_request(&mut parts(method, &[])).unwrap_err();
            assert_eq!(refused.code, Code::MethodNotAllowed);
        }
        assert!(clean_request(&mut parts("OPTIONS", &[])).is_ok());
    }

    #[test]
    fn an_upgrade_is_noticed_and_one_to_http2_declined() {
        let mut websocket = parts(
            "GET",
            &[("connection", "upgrade"), ("upgrade", "websocket")],
        );
        assert!(clean_request(&mut websocket).unwrap().upgrade);
        let mut h2c = parts(
            "GET",
            &[
                ("connection", "upgrade, http2-settings"),
                ("upgrade", "h2c"),
            ],
        );
        assert!(!clean_request(&mut h2c).unwrap().upgrade);
        assert!(h2c.headers.is_empty());
    }

    #[test]
    fn crumbs_of_a_cookie_become_one_line() {
        let mut parts = parts("GET", &[("cookie", "a=1"), ("cookie", "b=2")]);
        fit_request(
            &mut parts,
            Version::HTTP_11,
            Wishes::default(),
            &HeaderValue::from_static("h"),
        );
        assert_eq!(parts.headers[header::COOKIE], "a=1; b=2");
    }
}
