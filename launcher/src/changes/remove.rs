//! Removing a folder with all that is in it, whatever a run left there: without permissions, or nested without end.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Removes what is at this path with all that is in it, as [`remove`] does.
///
/// # Errors
/// If something of it is still there.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    remove(std::fs::File::open(parent)?.as_fd(), name)
}

/// Removes what is called `name` in a folder, with all that is in it. Links are removed, not followed; what is mounted
/// in it is left alone, and is an error.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    if rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).is_err() {
        let top = open_to_empty(parent, name)?;
        empty(&top)?;
        rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Empties a folder level by level: folders in folders are moved up first, so that no depth is too deep.
fn empty(top: &OwnedFd) -> io::Result<()> {
    let mut left: VecDeque<CString> = entries(top)?.into();
    let mut moved: u64 = 0;
    while let Some(name) = left.pop_front() {
        if unlinked(top, &name)? {
            continue;
        }
        let folder = open_to_empty(top.as_fd(), OsStr::from_bytes(name.as_bytes()))?;
        for inner in entries(&folder)? {
            if unlinked(&folder, &inner)? {
                continue;
            }
            // To move a folder is to write to it, as its `..` changes.
            drop(open_to_empty(
                folder.as_fd(),
                OsStr::from_bytes(inner.as_bytes()),
            )?);
            left.push_back(move_up(&folder, &inner, top, &mut moved)?);
        }
        drop(folder);
        rustix::fs::unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

/// Whether it could be removed as it is: everything but a folder that holds something.
fn unlinked(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
    let stat = match rustix::fs::statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(errno.into()),
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::empty())?;
        return Ok(true);
    }
    match rustix::fs::unlinkat(folder, name.as_c_str(), AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn move_up(from: &OwnedFd, name: &CString, top: &OwnedFd, moved: &mut u64) -> io::Result<CString> {
    loop {
        *moved += 1;
        let new = CString::new(format!("moved-{moved}")).expect("the name holds no NUL");
        let done = rustix::fs::renameat_with(
            from,
            name.as_c_str(),
            top,
            new.as_c_str(),
            RenameFlags::NOREPLACE,
        );
        match done {
            Ok(()) => return Ok(new),
            Err(Errno::EXIST) => {}
            // The file system does not know the flag.
            Err(Errno::INVAL | Errno::NOSYS) if !exists(top, &new) => {
                rustix::fs::renameat(from, name.as_c_str(), top, new.as_c_str())?;
                return Ok(new);
            }
            Err(Errno::INVAL | Errno::NOSYS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn exists(folder: &OwnedFd, name: &CString) -> bool {
    rustix::fs::statat(folder, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Opens a folder with the permission to take out what is in it.
fn open_to_empty(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let open = |at: BorrowedFd<'_>, name: &OsStr, flags: OFlags| {
        let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(at, name, flags, Mode::empty(), resolve)
    };
    let found = open(parent, name, OFlags::PATH)?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        let path = OsString::from(format!("/proc/self/fd/{}", found.as_raw_fd()));
        rustix::fs::chmod(path, Mode::RWXU)?;
    }
    Ok(open(found.as_fd(), OsStr::new("."), OFlags::RDONLY)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn remove_below(folder: &std::path::Path, name: &str) -> io::Result<()> {
        let parent = fs::File::open(folder).unwrap();
        remove(parent.as_fd(), OsStr::new(name))
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut inner: OwnedFd = fs::File::open(folder.path()).unwrap().into();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&inner, "deep", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&inner, "beside", Mode::RWXU).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            inner = rustix::fs::openat(&inner, "deep", flags, Mode::empty()).unwrap();
        }
        remove_below(folder.path(), "deep").unwrap();
        remove_below(folder.path(), "beside").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_is_removed_and_what_it_leads_to_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().join("kept");
        fs::create_dir_all(folder.path().join("gone/closed")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
        symlink(&kept, folder.path().join("gone/closed/link")).unwrap();
        let none = fs::Permissions::from_mode(0o000);
        fs::set_permissions(folder.path().join("gone/closed"), none).unwrap();
        remove_below(folder.path(), "gone").unwrap();
        assert!(!folder.path().join("gone").exists());
        assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "kept");
    }
}
