//! Which files there are for the command, as Landlock rules.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope, make_bitflags,
};
use landlock::{CompatLevel, Compatible};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;

/// What may be done with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Reading and executing.
    Read,
    /// All but making devices and sockets.
    Write,
    /// Using a device.
    Device,
}

/// Rules under construction.
pub(crate) struct Rules {
    set: RulesetCreated,
}

impl Rules {
    /// Rules that allow nothing. All parts of Landlock that are used must be there.
    pub(crate) fn new() -> Result<Self, Error> {
        let version = crate::sys::landlock_version();
        if !version.is_ok_and(|version| version >= crate::advice::LANDLOCK) {
            return Err(machine(match version {
                Ok(_) => std::io::Error::other("too old a version of Landlock"),
                Err(errno) => errno.into(),
            }));
        }
        let set = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(VERSION))
            // No rule follows: the connections of the command are made by the supervisor.
            .and_then(|rules| rules.handle_access(AccessNet::from_all(VERSION)))
            .and_then(|rules| rules.scope(Scope::from_all(VERSION)))
            .and_then(Ruleset::create)
            .map_err(machine)?;
        Ok(Self { set })
    }

    /// Allows something with the tree at a system path, following links. Nothing there is nothing to allow.
    pub(crate) fn allow_system(&mut self, path: &Path, right: Right) -> Result<(), Error> {
        match rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(place) => self.allow(&place, right),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => Ok(()),
            Err(errno) => Err(machine(std::io::Error::from(errno))),
        }
    }

    /// Allows something with an opened tree.
    pub(crate) fn allow(&mut self, place: &OwnedFd, right: Right) -> Result<(), Error> {
        let found =
            rustix::fs::fstat(place).map_err(|errno| machine(std::io::Error::from(errno)))?;
        let wanted = match right {
            Right::Read => READ,
            Right::Write => AccessFs::from_all(VERSION) & !NOBODYS,
            Right::Device => DEVICE,
        };
        let wanted = if crate::layout::is_dir(&found) {
            wanted
        } else {
            wanted & AccessFs::from_file(VERSION)
        };
        (&mut self.set)
            .add_rule(PathBeneath::new(place.as_fd(), wanted))
            .map(|_| ())
            .map_err(machine)
    }

    /// The set of rules for the kernel.
    pub(crate) fn into_set(self) -> Result<OwnedFd, Error> {
        set(self.set)
    }
}

/// Rules for the guard, who may send signals to its own descendants only.
pub(crate) fn own_signals() -> Result<OwnedFd, Error> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(Ruleset::create)
        .map_err(machine)?;
    set(rules)
}

fn set(rules: RulesetCreated) -> Result<OwnedFd, Error> {
    Option::<OwnedFd>::from(rules)
        .ok_or_else(|| machine(std::io::Error::from(std::io::ErrorKind::Unsupported)))
}

fn machine(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Machine {
        part: "making Landlock rules".into(),
        advice: crate::advice::landlock(crate::sys::landlock_version()),
        source: std::io::Error::other(source),
    }
}

/// The oldest version that keeps signals and abstract sockets apart: with an older one a command could end the
/// supervisor.
const VERSION: ABI = ABI::V6;
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
const DEVICE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
const NOBODYS: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{MakeChar | MakeBlock | MakeSock | IoctlDev});
