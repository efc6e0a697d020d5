//! Credentials in header fields.

use http::{HeaderMap, HeaderName, HeaderValue};
use policies::Slot;
use smallvec::SmallVec;

use super::{Granted, Plan, basic, foreign};
use crate::fields::is_credential;
use crate::refusal::Refusal;

/// Takes every credential field out; each must hold a placeholder just where a slot says.
pub(super) fn take(
    fields: &mut HeaderMap,
    granted: &Granted<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let mut found: SmallVec<[HeaderName; 2]> = SmallVec::new();
    for name in fields.keys() {
        let text = name.as_str();
        if text.contains('_') {
            // Behind us, some read `x_api_key` as `x-api-key`.
            if is_slot(&text.replace('_', "-"), granted) && !is_exact_slot(text, granted) {
                return Err(foreign());
            }
        }
        if is_slot(text, granted) {
            found.push(name.clone());
        }
    }
    for name in found {
        let mut values = fields.get_all(&name).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(foreign());
        };
        swap(&name, value, granted, plan)?;
        fields.remove(&name);
    }
    Ok(())
}

fn swap(
    name: &HeaderName,
    value: &HeaderValue,
    granted: &Granted<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let text = value.to_str().map_err(|_| foreign())?;
    for (place, grant, slot) in granted.slots() {
        match slot {
            Slot::Header {
                name: slot_name,
                prefix,
                suffix,
            } if slot_name == name.as_str() => {
                if is_between(text, prefix, grant.placeholder(), suffix) {
                    let (front, back) = (prefix.clone(), suffix.clone());
                    plan.add_field(place, name.clone(), front, back, false);
                    return Ok(());
                }
            }
            Slot::Basic { username } if *name == http::header::AUTHORIZATION => {
                if let Some((front, back)) =
                    basic::around(text, grant.placeholder(), username.as_deref())
                {
                    plan.add_field(place, name.clone(), front, back, true);
                    return Ok(());
                }
            }
            Slot::Header { .. }
            | Slot::Basic { .. }
            | Slot::Query { .. }
            | Slot::Path { .. }
            | Slot::Cookie { .. } => {}
        }
    }
    Err(foreign())
}

/// Whether a value is the placeholder between a slot's prefix and suffix. Schemes are compared without case
/// (RFC 9110, section 11.1).
fn is_between(text: &str, prefix: &str, placeholder: &str, suffix: &str) -> bool {
    let Some((front, rest)) = text.split_at_checked(prefix.len()) else {
        return false;
    };
    front.eq_ignore_ascii_case(prefix) && rest.strip_suffix(suffix) == Some(placeholder)
}

fn is_slot(name: &str, granted: &Granted<'_>) -> bool {
    is_credential(name) || is_exact_slot(name, granted)
}

fn is_exact_slot(name: &str, granted: &Granted<'_>) -> bool {
    granted.slots().any(
        |(_, _, slot)| matches!(slot, Slot::Header { name: slot_name, .. } if slot_name == name),
    )
}
