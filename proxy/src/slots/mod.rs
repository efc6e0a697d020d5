//! The places of a request that hold credentials: what the run put there is taken out, what belongs there is put in.
//!
//! For each place: nothing there, and the credential is put in; the run's placeholder, and it is swapped; anything
//! else, and the request is refused. Taking comes before the tripwire looks at what is left, putting in comes last.

mod basic;
mod cookie;
mod field;
mod target;

use broker::{Credential, Grant};
use http::{HeaderMap, HeaderName, HeaderValue};
use policies::{RequestPath, Slot};
use sdk::Code;
use smallvec::SmallVec;

use crate::refusal::Refusal;

/// A grant, by its place among the run's grants.
pub(crate) type GrantPlace = usize;

/// Where credentials are going to be put.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    fields: SmallVec<[FieldHole; 1]>,
    cookies: Option<cookie::Cookies>,
    target: SmallVec<[target::TargetHole; 1]>,
}

/// A field that is made from a text before, the secret, and a text after.
#[derive(Debug)]
struct FieldHole {
    grant: GrantPlace,
    name: HeaderName,
    front: String,
    back: String,
    /// Whether the whole is written in base64 after `Basic `.
    is_basic: bool,
}

/// The grants that take part in one request.
pub(crate) struct Granted<'g> {
    pub(crate) all: &'g [Grant],
    pub(crate) places: &'g [GrantPlace],
}

impl<'g> Granted<'g> {
    fn iter(&self) -> impl Iterator<Item = (GrantPlace, &'g Grant)> {
        let all = self.all;
        self.places
            .iter()
            .filter_map(move |place| all.get(*place).map(|grant| (*place, grant)))
    }

    fn slots(&self) -> impl Iterator<Item = (GrantPlace, &'g Grant, &'g Slot)> {
        self.iter()
            .flat_map(|(place, grant)| grant.slots().iter().map(move |slot| (place, grant, slot)))
    }
}

/// Takes what the run put into credential slots out of the header, and plans what is put in.
pub(crate) fn take(
    fields: &mut HeaderMap,
    path: &RequestPath,
    granted: &Granted<'_>,
) -> Result<Plan, Refusal> {
    let mut plan = Plan::default();
    if granted.places.is_empty() {
        return Ok(plan);
    }
    field::take(fields, granted, &mut plan)?;
    cookie::take(fields, granted, &mut plan)?;
    target::take(path, granted, &mut plan)?;
    for (place, grant) in granted.iter() {
        if !plan.has(place)
            && let Some(slot) = grant.slots().first()
        {
            plan.inject(place, slot);
        }
    }
    Ok(plan)
}

impl Plan {
    /// The grants whose credentials are needed.
    pub(crate) fn grants(&self) -> SmallVec<[GrantPlace; 2]> {
        let mut all: SmallVec<[GrantPlace; 2]> = self
            .fields
            .iter()
            .map(|hole| hole.grant)
            .chain(self.cookies.iter().flat_map(cookie::Cookies::grants))
            .chain(self.target.iter().map(|hole| hole.grant))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The texts from the run that stand around the credentials and go out with them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.fields
            .iter()
            .flat_map(|hole| [hole.front.as_str(), hole.back.as_str()])
            .chain(self.cookies.iter().flat_map(cookie::Cookies::texts))
    }

    /// The parts of the target that are not swapped.
    pub(crate) fn rest<'t>(&self, path: &'t RequestPath) -> SmallVec<[&'t str; 2]> {
        target::rest(&self.target, path)
    }

    /// The path for the audit log.
    pub(crate) fn logged_path(&self, path: &RequestPath) -> String {
        target::logged_path(&self.target, path)
    }

    /// Puts the credentials in, and returns the target to send.
    pub(crate) fn put<'c>(
        &self,
        fields: &mut HeaderMap,
        path: &RequestPath,
        credential: impl Fn(GrantPlace) -> Option<&'c Credential>,
    ) -> Result<String, Refusal> {
        let secret = |place| {
            credential(place)
                .map(Credential::danger_expose)
                .ok_or_else(unavailable)
        };
        for hole in &self.fields {
            let secret = secret(hole.grant)?;
            let value = if hole.is_basic {
                basic::encode(&hole.front, secret, &hole.back)
            } else {
                joined(&[&hole.front, secret, &hole.back])
            };
            fields.insert(hole.name.clone(), sensitive(value.as_bytes())?);
        }
        if let Some(cookies) = &self.cookies {
            let value = cookies.fill(&secret)?;
            fields.insert(http::header::COOKIE, sensitive(value.as_bytes())?);
        }
        target::fill(&self.target, path, &secret)
    }

    fn has(&self, place: GrantPlace) -> bool {
        self.grants().contains(&place)
    }

    fn inject(&mut self, grant: GrantPlace, slot: &Slot) {
        match slot {
            Slot::Header {
                name,
                prefix,
                suffix,
            } => {
                if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                    self.add_field(grant, name, prefix.clone(), suffix.clone(), false);
                }
            }
            Slot::Basic { username } => {
                let front = format!("{}:", username.as_deref().unwrap_or(ANY_USER));
                self.add_field(
                    grant,
                    http::header::AUTHORIZATION,
                    front,
                    String::new(),
                    true,
                );
            }
            Slot::Query { name } => self.target.push(target::TargetHole::append(grant, name)),
            Slot::Cookie { name } => self.cookies.get_or_insert_default().add(grant, name),
            // A path is what the run asks for; there is no place in it that we could choose.
            Slot::Path { .. } => {}
        }
    }

    fn add_field(
        &mut self,
        grant: GrantPlace,
        name: HeaderName,
        front: String,
        back: String,
        is_basic: bool,
    ) {
        // A field has one value: what the run chose by its placeholder stays.
        if !self.fields.iter().any(|hole| hole.name == name) {
            self.fields.push(FieldHole {
                grant,
                name,
                front,
                back,
                is_basic,
            });
        }
    }
}

/// Something stands in a credential slot that we did not give to the run.
fn foreign() -> Refusal {
    Refusal::new(Code::ForeignCredential)
}

fn unavailable() -> Refusal {
    Refusal::new(Code::CredentialUnavailable)
}

fn sensitive(value: &[u8]) -> Result<HeaderValue, Refusal> {
    let mut value = HeaderValue::from_bytes(value).map_err(|_| unavailable())?;
    // Never put into a table of HPACK, never shown by `Debug`.
    value.set_sensitive(true);
    Ok(value)
}

/// Joined in one allocation of the right size, so that no outgrown copy is left behind.
fn joined(parts: &[&str]) -> String {
    parts.concat()
}

/// GitHub and its like take any user name with a token for a password, but not an empty one.
const ANY_USER: &str = "x-access-token";
