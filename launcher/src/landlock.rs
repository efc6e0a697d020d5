//! What Landlock adds: only the view's writable places can be written, kept by another part of the kernel than mounts.
//!
//! The supervisor makes the set of rules; the sandbox's first process adds the places, which only exist there, and the
//! command puts itself under it. Where the kernel has no Landlock, the mounts alone say what can be written.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use landlock::{ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, Scope, make_bitflags};

use crate::answer::Check;
use crate::error::Error;
use crate::layout::c_string;

/// The rules of one sandbox.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Rules {
    /// Which version of Landlock keeps them.
    pub(crate) version: u32,
    /// Places inside, and what may be done below each.
    pub(crate) places: Vec<(CString, u64)>,
    /// What may be done with the file that is the command's standard input.
    pub(crate) input: u64,
}

/// Makes the rules of a sandbox whose view is writable at `writable`, and the set that shall hold them. `None` where the kernel has no Landlock that
/// ordinary programs can live with.
pub(crate) fn rules(writable: &[PathBuf]) -> Result<Option<(Rules, OwnedFd)>, Error> {
    let Some(abi) = usable() else {
        return Ok(None);
    };
    let everything = AccessFs::from_all(abi);
    let read = everything & make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
    let use_file =
        everything & make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    // Devices are made by nobody in here.
    let write = everything & !make_bitflags!(AccessFs::{MakeChar | MakeBlock});
    let set = create(abi, everything)?;
    let mut places = vec![
        (c"/".into(), read.bits()),
        (c"/dev".into(), (read | use_file).bits()),
        // A process may write what the kernel lets it of its own entries.
        (c"/proc".into(), (read | use_file).bits()),
    ];
    for place in OWN.iter().map(Path::new) {
        places.push((c_string(place)?, write.bits()));
    }
    for place in writable {
        places.push((c_string(place)?, write.bits()));
    }
    let rules = Rules {
        version: abi as u32,
        places,
        // A file that was given for reading would else be opened anew for writing, through `/proc/self/fd/0`.
        input: (everything & AccessFs::ReadFile).bits(),
    };
    Ok(Some((rules, set)))
}

/// Whether the kernel has it, tried for real.
pub(crate) fn check() -> Check {
    let found = usable().map(|abi| create(abi, AccessFs::from_all(abi)).map(|_| abi as i32));
    let (ok, detail) = match found {
        Some(Ok(abi)) => (
            true,
            format!("a second wall around what can be written (version {abi})"),
        ),
        Some(Err(error)) => (false, error.to_string()),
        None => (
            false,
            "the kernel has none, or one older than version 2".into(),
        ),
    };
    Check {
        name: "landlock",
        ok,
        optional: true,
        detail,
        advice: if ok {
            String::new()
        } else {
            "use Linux 5.19 or newer with Landlock on (`lsm=landlock,…` at boot); until then mounts alone keep what can \
             be written"
                .into()
        },
    }
}

/// The version to use. The first one forbids renaming between folders, which programs cannot live with.
fn usable() -> Option<ABI> {
    match crate::sys::landlock_version().unwrap_or(0) {
        0 | 1 => None,
        2 => Some(ABI::V2),
        3 => Some(ABI::V3),
        4 => Some(ABI::V4),
        5 => Some(ABI::V5),
        // Reviewed up to here. A newer kernel knows these as well.
        6.. => Some(ABI::V6),
    }
}

fn create(abi: ABI, files: BitFlags<AccessFs>) -> Result<OwnedFd, Error> {
    let scopes = Scope::from_all(abi);
    let rules = Ruleset::default()
        .handle_access(files)
        .and_then(|rules| match scopes.is_empty() {
            true => Ok(rules),
            // Abstract sockets and processes of other sandboxes and the host.
            false => rules.scope(scopes),
        })
        .and_then(Ruleset::create)
        .map_err(|error| machine(std::io::Error::other(error)))?;
    Option::<OwnedFd>::from(rules).ok_or_else(|| machine(std::io::ErrorKind::Unsupported.into()))
}

fn machine(source: std::io::Error) -> Error {
    Error::Machine {
        part: "making Landlock rules".into(),
        advice: "run `valetkey doctor`".into(),
        source,
    }
}

/// Folders of the sandbox's own that are writable in every view.
const OWN: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];
