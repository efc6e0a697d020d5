//! Credentials in the path and in the query.

use std::ops::Range;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use policies::{RequestPath, Slot};
use smallvec::SmallVec;

use super::{GrantPlace, Granted, Plan, foreign};
use crate::refusal::Refusal;

/// A part of the target that becomes a secret.
#[derive(Debug)]
pub(super) struct TargetHole {
    pub(super) grant: GrantPlace,
    /// Which bytes of the target; none: a parameter of this name is added.
    at: Result<Range<usize>, String>,
    is_path: bool,
}

impl TargetHole {
    pub(super) fn append(grant: GrantPlace, name: &str) -> Self {
        Self {
            grant,
            at: Err(name.to_owned()),
            is_path: false,
        }
    }
}

/// Finds the slots in a target; each must hold its placeholder.
pub(super) fn take(
    path: &RequestPath,
    granted: &Granted<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    take_path(path, granted, plan)?;
    let Some(query) = path.query() else {
        return Ok(());
    };
    let mut start = path.path().len() + 1;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let at = start + pair.len() - value.len()..start + pair.len();
        start += pair.len() + 1;
        let (name, value) = (decode(name), decode(value));
        // Some servers take `;` for `&`, and then find a second key where we saw the end of a value.
        let hidden = pair.split(';').skip(1);
        let is_hidden = hidden
            .map(|part| decode(part.split('=').next().unwrap_or(part)))
            .chain((!is_name(&name, granted)).then(|| name.clone()))
            .any(|name| is_read_as_slot(&name, granted));
        if is_hidden {
            return Err(foreign());
        }
        take_parameter(&name, &value, at, granted, plan)?;
    }
    Ok(())
}

/// What is not swapped.
pub(super) fn rest<'t>(holes: &[TargetHole], path: &'t RequestPath) -> SmallVec<[&'t str; 2]> {
    let mut all = SmallVec::new();
    let mut from = 0;
    for (range, _) in swapped(holes) {
        all.push(&path.sent()[from..range.start]);
        from = range.end;
    }
    all.push(&path.sent()[from..]);
    all
}

/// The path, with a mark where a credential stands.
pub(super) fn logged_path(holes: &[TargetHole], path: &RequestPath) -> String {
    let mut text = path.path().to_owned();
    for (range, hole) in swapped(holes) {
        if hole.is_path && range.end <= text.len() {
            text.replace_range(range.clone(), "{secret}");
            break;
        }
    }
    text
}

/// The target to send.
pub(super) fn fill<'c>(
    holes: &[TargetHole],
    path: &RequestPath,
    secret: &impl Fn(GrantPlace) -> Result<&'c str, Refusal>,
) -> Result<String, Refusal> {
    let mut target = String::with_capacity(path.sent().len() + 64 * holes.len());
    let mut from = 0;
    for (range, hole) in swapped(holes) {
        target.push_str(&path.sent()[from..range.start]);
        let set = if hole.is_path { PATH } else { QUERY };
        target.extend(utf8_percent_encode(secret(hole.grant)?, set));
        from = range.end;
    }
    target.push_str(&path.sent()[from..]);
    for hole in holes {
        if let Err(name) = &hole.at {
            target.push(if path.query().is_none() && !target.contains('?') {
                '?'
            } else {
                '&'
            });
            target.extend(utf8_percent_encode(name, QUERY));
            target.push('=');
            target.extend(utf8_percent_encode(secret(hole.grant)?, QUERY));
        }
    }
    Ok(target)
}

/// The holes that stand for bytes of the target, in their order.
fn swapped(holes: &[TargetHole]) -> SmallVec<[(&Range<usize>, &TargetHole); 2]> {
    let mut all: SmallVec<[(&Range<usize>, &TargetHole); 2]> = holes
        .iter()
        .filter_map(|hole| hole.at.as_ref().ok().map(|range| (range, hole)))
        .collect();
    all.sort_by_key(|(range, _)| range.start);
    all
}

fn take_path(path: &RequestPath, granted: &Granted<'_>, plan: &mut Plan) -> Result<(), Refusal> {
    let mut is_slot = false;
    for (place, grant, slot) in granted.slots() {
        let Slot::Path { template } = slot else {
            continue;
        };
        let Some((front, back)) = template.split_once("{secret}") else {
            continue;
        };
        let Some(rest) = path.path().strip_prefix(front) else {
            continue;
        };
        let end = rest.find('/').unwrap_or(rest.len());
        if !rest[end..].starts_with(back) && !back.is_empty() {
            continue;
        }
        is_slot = true;
        if decode(&rest[..end]) == grant.placeholder() {
            plan.target.push(TargetHole {
                grant: place,
                at: Ok(front.len()..front.len() + end),
                is_path: true,
            });
            return Ok(());
        }
    }
    if is_slot { Err(foreign()) } else { Ok(()) }
}

fn take_parameter(
    name: &str,
    value: &str,
    at: Range<usize>,
    granted: &Granted<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let mut is_slot = AMAZON.iter().any(|field| name.eq_ignore_ascii_case(field));
    for (place, grant, slot) in granted.slots() {
        let Slot::Query { name: slot_name } = slot else {
            continue;
        };
        if slot_name != name {
            continue;
        }
        is_slot = true;
        let is_second = plan
            .target
            .iter()
            .any(|hole| !hole.is_path && hole.grant == place);
        if value == grant.placeholder() && !is_second {
            plan.target.push(TargetHole {
                grant: place,
                at: Ok(at),
                is_path: false,
            });
            return Ok(());
        }
    }
    if is_slot { Err(foreign()) } else { Ok(()) }
}

fn is_name(name: &str, granted: &Granted<'_>) -> bool {
    granted
        .slots()
        .any(|(_, _, slot)| matches!(slot, Slot::Query { name: slot_name } if slot_name == name))
}

/// Whether some server reads this name as that of a slot: without regard to case, without blanks around it, or only up
/// to a bracket or a NUL.
fn is_read_as_slot(name: &str, granted: &Granted<'_>) -> bool {
    let bare = name.trim();
    let bare = &bare[..bare.find(['[', '\0']).unwrap_or(bare.len())];
    granted.slots().any(|(_, _, slot)| {
        matches!(slot, Slot::Query { name: slot_name } if slot_name.eq_ignore_ascii_case(bare))
    })
}

fn decode(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

/// A signed URL is a credential as a whole.
const AMAZON: [&str; 3] = [
    "X-Amz-Signature",
    "X-Amz-Credential",
    "X-Amz-Security-Token",
];

// RFC 3986: what a parameter's value holds unencoded, and what a segment does.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &QUERY
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'=');
