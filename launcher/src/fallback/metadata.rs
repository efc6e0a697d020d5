//! Changing modes and times of files, which Landlock does not watch over: done by the supervisor, for files that the
//! command may write.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::filter::FCHMODAT2;
use super::questions::Asked;

/// Which file a call is about.
enum Which {
    /// The one that this descriptor is open on.
    Open(i32),
    /// The one at this path (a pointer), from this folder, which may be itself a link.
    Path {
        folder: i32,
        path: u64,
        follow: bool,
        or_folder: bool,
    },
}

enum Change {
    Mode(u32),
    Times(Timestamps),
}

/// Does what was asked for, if the file lies in one of the `writable` folders.
pub(super) fn change(asked: &Asked<'_>, writable: &[PathBuf]) -> Result<(), Errno> {
    let (which, change) = wanted(asked)?;
    let file = open(asked, &which)?;
    asked.check()?;
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let place = std::fs::read_link(&own).map_err(|_| Errno::PERM)?;
    if !writable.iter().any(|folder| place.starts_with(folder)) {
        return Err(Errno::PERM);
    }
    // The supervisor may do more than the command where it is root.
    if rustix::fs::fstat(&file)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    match change {
        // They would run as the owner, for anybody on this machine.
        Change::Mode(mode) if mode & SET_ID != 0 => Err(Errno::PERM),
        Change::Mode(mode) => rustix::fs::chmod(&own, Mode::from_raw_mode(mode & 0o7777)),
        Change::Times(times) => rustix::fs::utimensat(CWD, &own, &times, AtFlags::empty()),
    }
}

fn wanted(asked: &Asked<'_>) -> Result<(Which, Change), Errno> {
    let arguments = asked.question.arguments;
    let mode = |index: usize| Change::Mode(arguments[index] as u32);
    let path = |path: u64| Which::Path {
        folder: libc::AT_FDCWD,
        path,
        follow: true,
        or_folder: false,
    };
    let with_flags = |flags: u64| Which::Path {
        folder: asked.int(0),
        path: arguments[1],
        follow: flags as i32 & libc::AT_SYMLINK_NOFOLLOW == 0,
        or_folder: flags as i32 & libc::AT_EMPTY_PATH != 0,
    };
    Ok(match asked.question.number {
        libc::SYS_fchmod => (Which::Open(asked.int(0)), mode(1)),
        libc::SYS_fchmodat => (with_flags(0), mode(2)),
        FCHMODAT2 => (with_flags(arguments[3]), mode(2)),
        libc::SYS_utimensat if arguments[1] == 0 => {
            (Which::Open(asked.int(0)), times(asked, arguments[2], 1)?)
        }
        libc::SYS_utimensat => (with_flags(arguments[3]), times(asked, arguments[2], 1)?),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => (path(arguments[0]), mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utimes => (path(arguments[0]), times(asked, arguments[1], 1000)?),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat if arguments[1] == 0 => {
            (Which::Open(asked.int(0)), times(asked, arguments[2], 1000)?)
        }
        #[cfg(target_arch = "x86_64")]
        libc::SYS_futimesat => (with_flags(0), times(asked, arguments[2], 1000)?),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime => (path(arguments[0]), seconds(asked, arguments[1])?),
        _ => return Err(Errno::PERM),
    })
}

/// Two times of two numbers each; `unit` is what the second counts, in nanoseconds.
fn times(asked: &Asked<'_>, address: u64, unit: i64) -> Result<Change, Errno> {
    let [a, b, c, d] = match address {
        0 => [0, NOW, 0, NOW],
        address => {
            let [a, b, c, d] = numbers(asked, address)?;
            let scaled = |part: i64| part.checked_mul(unit).ok_or(Errno::INVAL);
            [a, scaled(b)?, c, scaled(d)?]
        }
    };
    Ok(timestamps(a, b, c, d))
}

#[cfg(target_arch = "x86_64")]
fn seconds(asked: &Asked<'_>, address: u64) -> Result<Change, Errno> {
    let [access, change] = match address {
        0 => return Ok(timestamps(0, NOW, 0, NOW)),
        address => numbers(asked, address)?,
    };
    Ok(timestamps(access, 0, change, 0))
}

fn timestamps(a: i64, b: i64, c: i64, d: i64) -> Change {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    Change::Times(Timestamps {
        last_access: time(a, b),
        last_modification: time(c, d),
    })
}

fn numbers<const COUNT: usize>(asked: &Asked<'_>, address: u64) -> Result<[i64; COUNT], Errno> {
    let mut bytes = vec![0; COUNT * 8];
    if asked.read(address, &mut bytes)? < bytes.len() {
        return Err(Errno::FAULT);
    }
    let mut found = [0; COUNT];
    for (number, bytes) in found.iter_mut().zip(bytes.chunks_exact(8)) {
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| Errno::FAULT)?;
        *number = i64::from_ne_bytes(bytes);
    }
    Ok(found)
}

/// Opens it without any right to what is in it. Links that mean something else to every process are not followed: they
/// would lead to the supervisor's own files.
fn open(asked: &Asked<'_>, which: &Which) -> Result<OwnedFd, Errno> {
    let place = OFlags::PATH | OFlags::CLOEXEC;
    let held = |number: i32| {
        let name = match number {
            libc::AT_FDCWD => "cwd".to_owned(),
            number => format!("fd/{number}"),
        };
        rustix::fs::openat(CWD, asked.place(&name), place, Mode::empty()).map_err(|_| Errno::BADF)
    };
    match which {
        Which::Open(number) if *number < 0 => Err(Errno::BADF),
        Which::Open(number) => held(*number),
        Which::Path {
            folder,
            path,
            follow,
            or_folder,
        } => {
            let path = asked.text(*path)?;
            if path.is_empty() {
                return if *or_folder {
                    held(*folder)
                } else {
                    Err(Errno::NOENT)
                };
            }
            let path = Path::new(OsStr::from_bytes(&path));
            let folder = if path.is_absolute() {
                None
            } else {
                Some(held(*folder)?)
            };
            let flags = if *follow {
                place
            } else {
                place | OFlags::NOFOLLOW
            };
            let from = folder.as_ref().map_or(CWD, std::os::fd::AsFd::as_fd);
            rustix::fs::openat2(
                from,
                path,
                flags,
                Mode::empty(),
                ResolveFlags::NO_MAGICLINKS,
            )
        }
    }
}

/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;
/// `UTIME_NOW`.
const NOW: i64 = (1 << 30) - 1;
