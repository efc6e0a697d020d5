//! Credentials in cookies.

use http::{HeaderMap, header};
use policies::Slot;

use super::{GrantPlace, Granted, Plan, foreign};
use crate::refusal::Refusal;

/// The whole `Cookie` field, with the secrets left out.
#[derive(Debug, Default)]
pub(super) struct Cookies(Vec<Crumb>);

#[derive(Debug)]
enum Crumb {
    /// As the run sent it.
    Text(String),
    /// The name of a cookie whose value is a secret.
    Secret(String, GrantPlace),
}

/// Takes the cookies out if one of them is a slot.
pub(super) fn take(
    fields: &mut HeaderMap,
    granted: &Granted<'_>,
    plan: &mut Plan,
) -> Result<(), Refusal> {
    let is_slot = |slot: &Slot| matches!(slot, Slot::Cookie { .. });
    if !fields.contains_key(header::COOKIE) || !granted.slots().any(|(_, _, slot)| is_slot(slot)) {
        return Ok(());
    }
    let mut cookies = Cookies::default();
    for line in fields.get_all(header::COOKIE) {
        let line = line.to_str().map_err(|_| foreign())?;
        for crumb in line
            .split(';')
            .map(str::trim)
            .filter(|crumb| !crumb.is_empty())
        {
            cookies.read(crumb, granted)?;
        }
    }
    fields.remove(header::COOKIE);
    plan.cookies = Some(cookies);
    Ok(())
}

impl Cookies {
    pub(super) fn add(&mut self, grant: GrantPlace, name: &str) {
        self.0.push(Crumb::Secret(name.to_owned(), grant));
    }

    pub(super) fn grants(&self) -> impl Iterator<Item = GrantPlace> {
        self.0.iter().filter_map(|crumb| match crumb {
            Crumb::Text(_) => None,
            Crumb::Secret(_, grant) => Some(*grant),
        })
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|crumb| match crumb {
            Crumb::Text(text) => Some(text.as_str()),
            Crumb::Secret(..) => None,
        })
    }

    pub(super) fn fill<'c>(
        &self,
        secret: &impl Fn(GrantPlace) -> Result<&'c str, Refusal>,
    ) -> Result<String, Refusal> {
        let mut parts = Vec::with_capacity(self.0.len() * 4);
        for crumb in &self.0 {
            if !parts.is_empty() {
                parts.push("; ");
            }
            match crumb {
                Crumb::Text(text) => parts.push(text),
                Crumb::Secret(name, grant) => parts.extend([name, "=", secret(*grant)?]),
            }
        }
        Ok(parts.concat())
    }

    fn read(&mut self, crumb: &str, granted: &Granted<'_>) -> Result<(), Refusal> {
        let (name, value) = crumb.split_once('=').unwrap_or((crumb, ""));
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        let mut is_slot = false;
        for (place, grant, slot) in granted.slots() {
            let Slot::Cookie { name: slot_name } = slot else {
                continue;
            };
            if slot_name != name {
                continue;
            }
            is_slot = true;
            if value == grant.placeholder() {
                let is_second = self
                    .0
                    .iter()
                    .any(|crumb| matches!(crumb, Crumb::Secret(before, _) if before == name));
                if is_second {
                    return Err(foreign());
                }
                self.add(place, name);
                return Ok(());
            }
        }
        if is_slot {
            return Err(foreign());
        }
        self.0.push(Crumb::Text(crumb.to_owned()));
        Ok(())
    }
}
