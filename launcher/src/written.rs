//! What a program writes to a folder, looked at while it goes on writing.
//!
//! It may exchange any name at any time, so names are only opened from the folder they are in, and lead to nothing but what
//! lies in it: never through a link, nor to what is mounted there, and to any depth.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, openat,
    openat2, statat, statfs, statx,
};
use rustix::io::Errno;

use crate::usage;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Whether everything was seen. Permissions can be taken away, from folders too.
    pub(crate) is_whole: bool,
}

impl Counted {
    pub(crate) const NOTHING: Self = Self {
        bytes: 0,
        is_whole: true,
    };
}

/// Bytes on disk below a folder; nothing if they were not counted by then.
pub(crate) fn below(folder: &Path, until: Option<Instant>) -> Option<Counted> {
    let mut bytes = 0;
    let mut seen = 0_u32;
    let mut is_late = false;
    let is_whole = open(folder).is_some_and(|top| {
        walk(top, &mut |found| {
            bytes += on_disk(found);
            seen += 1;
            is_late = seen.is_multiple_of(64) && until.is_some_and(|until| Instant::now() > until);
            !is_late
        })
    });
    (!is_late).then_some(Counted { bytes, is_whole })
}

/// Bytes on disk of files in an overlay or on the file system of `upper` that have no name any more and that processes below
/// `root` hold open.
pub(crate) fn nameless(root: u32, upper: &OwnedFd) -> Counted {
    let device = fstat(upper).map_or(0, |found| found.st_dev);
    // What the command was given it did not write.
    let given = fstat(std::io::stdin()).map(|found| (found.st_dev, found.st_ino));
    let mut seen: HashSet<_> = given.into_iter().collect();
    let mut counted = Counted::NOTHING;
    for pid in usage::tree(root).into_iter().filter(|pid| *pid != root) {
        // A thread can have descriptors of its own.
        let threads = openat(CWD, format!("/proc/{pid}/task"), FOLDER, Mode::empty());
        for thread in threads
            .and_then(|place| numbers(&place))
            .into_iter()
            .flatten()
        {
            let path = format!("/proc/{pid}/task/{}/fd", thread.to_string_lossy());
            let listed = openat(CWD, path, FOLDER, Mode::empty())
                .and_then(|place| Ok((numbers(&place)?, place)));
            match listed {
                Ok((open, place)) => open
                    .iter()
                    .filter_map(|number| nameless_file(&place, number, device))
                    .filter(|(which, _)| seen.insert(*which))
                    .for_each(|(_, bytes)| counted.bytes += bytes),
                // One without memory is ending; its descriptors are closed, or about to be.
                Err(Errno::ACCESS | Errno::PERM) if has_memory(pid, &thread) => {
                    counted.is_whole = false;
                }
                Err(_) => {}
            }
        }
    }
    counted
}

/// Whether a file below was written up to exactly this length: where a longer one is refused, writing stops there.
pub(crate) fn has_file_of(bytes: u64, scratch: Option<&OwnedFd>, upper: Option<&Path>) -> bool {
    let scratch = scratch.and_then(|scratch| reopened(scratch.as_fd()));
    let tops = scratch.into_iter().chain(upper.and_then(open));
    let mut is_there = false;
    for top in tops {
        walk(top, &mut |found| {
            // A length alone is no sign of having written: it can be set.
            is_there |= FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                && u64::try_from(found.st_size) == Ok(bytes)
                && on_disk(found) >= bytes / 2;
            !is_there
        });
    }
    is_there
}

/// A folder on the way down.
struct Level {
    /// Open, unless there are too many below it.
    place: Option<OwnedFd>,
    /// Device and inode.
    which: (u64, u64),
    /// Folders in it that were not looked into.
    left: Vec<CString>,
}

/// Looks at everything below a folder for as long as `look` says so. Whether that was everything.
fn walk(top: OwnedFd, look: &mut dyn FnMut(&Stat) -> bool) -> bool {
    let mut is_whole = true;
    let mut seen = 0;
    let mut goes_on = true;
    let mut level = |place: OwnedFd, is_whole: &mut bool| -> Option<Level> {
        let stat = fstat(&place).ok()?;
        let mut left = Vec::new();
        let mut all = Dir::read_from(&place).ok()?;
        while goes_on && let Some(entry) = all.read() {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            seen += 1;
            match statat(&place, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => {
                    goes_on = look(&found) && seen < MOST_ENTRIES;
                    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                        left.push(name.to_owned());
                    }
                }
                Err(Errno::NOENT) => {}
                Err(_) => *is_whole = false,
            }
        }
        *is_whole &= goes_on;
        if !goes_on {
            left.clear();
        }
        Some(Level {
            place: Some(place),
            which: (stat.st_dev, stat.st_ino),
            left,
        })
    };
    let Some(first) = level(top, &mut is_whole) else {
        return false;
    };
    let mut levels = vec![first];
    while let Some(here) = levels.last_mut() {
        let (Some(name), Some(place)) = (here.left.pop(), &here.place) else {
            let Some(below) = levels.pop() else { break };
            if let Some(above) = levels.last_mut()
                && above.place.is_none()
            {
                above.place = below.place.and_then(|place| up(&place, above.which));
                if above.place.is_none() {
                    // It was moved meanwhile.
                    is_whole = false;
                    levels.truncate(1);
                }
            }
            continue;
        };
        match down(place, &name) {
            Ok(inner) => match level(inner, &mut is_whole) {
                Some(inner) => {
                    levels.push(inner);
                    // The topmost stays, to begin again from.
                    if levels.len() > MOST_OPEN {
                        let far = levels.len() - MOST_OPEN;
                        levels[far].place = None;
                    }
                }
                None => is_whole = false,
            },
            // Gone, or something else by now, or not of this file system.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
            Err(_) => is_whole = false,
        }
    }
    is_whole
}

fn down(place: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = FOLDER | OFlags::NOFOLLOW;
    openat2(place, name, flags, Mode::empty(), resolve)
}

/// The folder above, if it is this one.
fn up(place: &OwnedFd, which: (u64, u64)) -> Option<OwnedFd> {
    let above = openat(place, c"..", FOLDER, Mode::empty()).ok()?;
    let stat = fstat(&above).ok()?;
    ((stat.st_dev, stat.st_ino) == which).then_some(above)
}

/// Opens a folder to count in.
pub(crate) fn open(folder: &Path) -> Option<OwnedFd> {
    openat(CWD, folder, FOLDER, Mode::empty()).ok()
}

fn reopened(place: BorrowedFd<'_>) -> Option<OwnedFd> {
    openat(place, c".", FOLDER, Mode::empty()).ok()
}

/// Which file an open one is and its bytes on disk, if it has no name any more and lies where it counts.
fn nameless_file(place: &OwnedFd, number: &CStr, device: u64) -> Option<((u64, u64), u64)> {
    let wanted = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
    // A file system that does not answer is not to be waited for.
    let found = statx(place, number, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
    if !is_file || found.stx_nlink > 0 {
        return None;
    }
    let its = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
    let path = format!(
        "/proc/self/fd/{}/{}",
        place.as_raw_fd(),
        number.to_string_lossy()
    );
    let counts = its == device || statfs(path).is_ok_and(|found| found.f_type == OVERLAY);
    counts.then_some(((its, found.stx_ino), found.stx_blocks * 512))
}

fn has_memory(pid: u32, thread: &CStr) -> bool {
    let path = format!("/proc/{pid}/task/{}/status", thread.to_string_lossy());
    std::fs::read_to_string(path).is_ok_and(|text| text.contains("VmSize:"))
}

/// The numbers in a folder of `/proc`.
fn numbers(place: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut numbers = Vec::new();
    for entry in Dir::read_from(place)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes().iter().all(u8::is_ascii_digit) {
            numbers.push(name);
        }
    }
    Ok(numbers)
}

fn on_disk(found: &Stat) -> u64 {
    u64::try_from(found.st_blocks).unwrap_or(0) * 512
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const OVERLAY: i64 = 0x794c_7630;
const MOST_ENTRIES: usize = 2_000_000;
const MOST_OPEN: usize = 32;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_lies_deeper_than_any_path_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut inner = open(folder.path()).unwrap();
        for _ in 0..1000 {
            rustix::fs::mkdirat(&inner, "beside", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&inner, "deeper", Mode::RWXU).unwrap();
            inner = openat(&inner, "deeper", FOLDER, Mode::empty()).unwrap();
        }
        let bottom = format!("/proc/self/fd/{}/file", inner.as_raw_fd());
        fs::write(bottom, vec![7; MIB as usize]).unwrap();
        let counted = below(folder.path(), None).unwrap();
        assert!(counted.is_whole && counted.bytes >= MIB, "{counted:?}");
        assert!(has_file_of(MIB, None, Some(folder.path())));
    }

    #[test]
    fn what_takes_long_to_count_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..200 {
            fs::write(folder.path().join(number.to_string()), "some").unwrap();
        }
        let now = Instant::now();
        assert!(below(folder.path(), Some(now)).is_none());
        let later = now + std::time::Duration::from_secs(600);
        assert!(below(folder.path(), Some(later)).is_some());
    }

    #[test]
    fn a_link_in_a_folders_place_leads_nowhere() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![7; MIB as usize]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(outside.path(), folder.path().join("link")).unwrap();
        let counted = below(folder.path(), None).unwrap();
        assert!(counted.is_whole && counted.bytes < MIB, "{counted:?}");
        // As it is when the name was a folder's a moment ago.
        let top = open(folder.path()).unwrap();
        assert!(matches!(
            down(&top, c"link"),
            Err(Errno::LOOP | Errno::NOTDIR)
        ));
        assert!(matches!(down(&top, c".."), Err(Errno::XDEV)));
    }

    #[test]
    fn a_folder_that_was_moved_does_not_lead_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let inner = open(&folder.path().join("a/b")).unwrap();
        let stat = fstat(open(&folder.path().join("a")).unwrap()).unwrap();
        let which = (stat.st_dev, stat.st_ino);
        assert!(up(&inner, which).is_some());
        fs::rename(folder.path().join("a/b"), folder.path().join("b")).unwrap();
        assert!(up(&inner, which).is_none());
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        assert!(below(folder.path(), None).unwrap().is_whole);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        // Nothing is closed to root.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(below(folder.path(), None).unwrap().is_whole, is_root);
    }

    #[test]
    fn a_length_that_was_only_set_is_no_file_that_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = fs::File::create(folder.path().join("set")).unwrap();
        file.set_len(MIB).unwrap();
        assert!(!has_file_of(MIB, None, Some(folder.path())));
        fs::write(folder.path().join("written"), vec![7; MIB as usize]).unwrap();
        assert!(has_file_of(MIB, None, Some(folder.path())));
    }
}
