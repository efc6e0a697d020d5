//! Whether a placeholder or the run's token stands where it must not.

use std::borrow::Cow;

use broker::{Found, Run, Tripwire};
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::percent_decode;
use policies::{Host, RequestPath};

use crate::destination::Destination;
use crate::slots::Plan;

/// What must not leave, in what is left of a request after its credentials were taken out.
///
/// All of a request's header leaves: its method may be any word, its host may be any below a `*.`, and names of fields
/// are sent as the run wrote them.
pub(crate) fn find<'r>(
    run: &'r Run,
    destination: &Destination,
    parts: &Parts,
    path: &RequestPath,
    plan: &Plan,
) -> Option<Found<'r>> {
    let tripwire = run.tripwire();
    let host = match destination.host() {
        Host::Name(name) => name.as_str(),
        Host::V4(_) | Host::V6(_) => "",
    };
    plan.rest(path)
        .into_iter()
        .chain(plan.texts())
        .find_map(|text| find_decoded(tripwire, text.as_bytes()))
        .or_else(|| tripwire.find_in_name(parts.method.as_str().as_bytes()))
        .or_else(|| tripwire.find_in_name(host.as_bytes()))
        .or_else(|| find_in_fields(tripwire, &parts.headers))
}

/// What must not leave, in the names and values of fields.
pub(crate) fn find_in_fields<'t>(tripwire: &'t Tripwire, fields: &HeaderMap) -> Option<Found<'t>> {
    fields
        .keys()
        .find_map(|name| tripwire.find_in_name(name.as_str().as_bytes()))
        .or_else(|| {
            fields
                .values()
                .find_map(|value| find_decoded(tripwire, value.as_bytes()))
        })
}

/// Finds it behind percent-encoding too, which need not be of the characters that usually are.
fn find_decoded<'t>(tripwire: &'t Tripwire, text: &[u8]) -> Option<Found<'t>> {
    let mut text = Cow::Borrowed(text);
    for _ in 0..MOST_DECODED {
        if let Some(found) = tripwire.find(&text) {
            return Some(found);
        }
        if !text.contains(&b'%') {
            return None;
        }
        let decoded: Vec<u8> = percent_decode(&text).collect();
        if decoded.len() == text.len() {
            return None;
        }
        text = Cow::Owned(decoded);
    }
    tripwire.find(&text)
}

/// URLs in URLs in URLs.
const MOST_DECODED: usize = 3;
