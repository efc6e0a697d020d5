//! How the sandbox's first process builds its file system.
//!
//! Every place is opened beneath the new root without following symbolic links, and mounts are moved onto that
//! descriptor: what a folder's owner changes meanwhile cannot lead a mount elsewhere.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{self as mnt, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::landlock::Rules;
use crate::plan::{IfMissing, Op, UserNamespaces};
use crate::sys::{self, MountAttributes};
use crate::weaken::{Layer, Weaken};

/// Mounts an empty root on `stage` and makes it the working directory.
pub(crate) fn mount_root(stage: &CStr) -> Result<OwnedFd, Errno> {
    let context = open_file_system(c"tmpfs")?;
    mnt::fsconfig_set_string(&context, c"size", c"64m")?;
    mnt::fsconfig_set_string(&context, c"mode", c"755")?;
    let root = mount(&context, NOSUID | NODEV)?;
    mnt::move_mount(
        &root,
        c"",
        CWD,
        stage,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    rustix::process::fchdir(&root)?;
    Ok(root)
}

/// Makes the finished root read-only and the only one.
pub(crate) fn enter_root(root: BorrowedFd<'_>, weaken: Weaken) -> Result<(), Errno> {
    if !weaken.is_off(Layer::ReadOnly) {
        sys::mount_setattr(root, attributes(RDONLY), false)?;
    }
    match rustix::process::pivot_root(c".", c".") {
        Ok(()) => mnt::unmount(c".", mnt::UnmountFlags::DETACH)?,
        // The root is an initial memory disk, which cannot be left (pivot_root(2)): the new one is laid over it. What lies
        // below is out of reach without the right to mount or to change roots.
        Err(Errno::INVAL) => {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            mnt::move_mount(root, c"", CWD, c"/", flags)?;
            rustix::process::chroot(c".")?;
        }
        Err(errno) => return Err(errno),
    }
    rustix::process::chdir(c"/")
}

/// Adds the places that exist in the finished root to Landlock's rules.
pub(crate) fn allow(rules: &Rules) -> Result<(), Errno> {
    for (path, access) in &rules.places {
        let place = rustix::fs::open(
            path.as_c_str(),
            OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
        sys::landlock_allow(rules.set.as_fd(), place.as_fd(), *access)?;
    }
    Ok(())
}

/// A detached copy of the mounts at a path, with `attributes` set.
pub(crate) fn clone_path(path: &CStr, recursive: bool, attributes: u64) -> Result<OwnedFd, Errno> {
    let tree = mnt::open_tree(CWD, path, tree_flags(recursive))?;
    sys::mount_setattr(tree.as_fd(), self::attributes(attributes), recursive)?;
    Ok(tree)
}

/// Keeps a descriptor open until the process ends.
pub(crate) fn keep(descriptor: OwnedFd) -> RawFd {
    descriptor.into_raw_fd()
}

/// Does one step.
pub(crate) fn perform(
    op: &Op,
    root: BorrowedFd<'_>,
    trees: &[RawFd],
    scratch: &mut Option<OwnedFd>,
) -> Result<(), Errno> {
    match op {
        Op::Dir { at, mode } => match rustix::fs::mkdirat(root, at.as_c_str(), Mode::from(*mode)) {
            Ok(()) => rustix::fs::chmodat(
                root,
                at.as_c_str(),
                Mode::from(*mode),
                rustix::fs::AtFlags::empty(),
            ),
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        },
        Op::File { at, mode, bytes } => make_file(root, at, *mode, bytes),
        Op::Link { at, target } => rustix::fs::symlinkat(target.as_c_str(), root, at.as_c_str()),
        Op::Show { source, at } => place(sys::borrowed(trees[*source]), root, at),
        Op::ShowAgain {
            from,
            at,
            attributes,
            if_missing,
        } => {
            let target = match open_beneath(root, at) {
                // Where this process, with all its capabilities, may not go, the command may not either.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)
                    if *if_missing == IfMissing::Skip =>
                {
                    return Ok(());
                }
                target => target?,
            };
            let tree = if from == at {
                // What was opened, not what the path leads to now.
                mnt::open_tree(&target, c"", tree_flags(false))?
            } else {
                mnt::open_tree(root, from.as_c_str(), tree_flags(false))?
            };
            sys::mount_setattr(tree.as_fd(), self::attributes(*attributes), false)?;
            move_onto(tree.as_fd(), target.as_fd())
        }
        Op::Scratch { at, size, inodes } => {
            let context = open_file_system(c"tmpfs")?;
            mnt::fsconfig_set_string(&context, c"size", size.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"nr_inodes", inodes.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"mode", c"755")?;
            let mounted = mount(&context, NOSUID | NODEV)?;
            place(mounted.as_fd(), root, at)?;
            *scratch = Some(mounted);
            Ok(())
        }
        Op::Overlay {
            at,
            from,
            lower,
            upper,
            work,
        } => {
            let context = open_file_system(c"overlay")?;
            rustix::process::fchdir(open_beneath(root, from)?)?;
            mnt::fsconfig_set_string(&context, c"lowerdir", lower.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"upperdir", upper.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"workdir", work.as_c_str())?;
            // The attributes that an unprivileged overlay may write.
            mnt::fsconfig_set_flag(&context, c"userxattr")?;
            // The layer is reviewed or thrown away: it need not survive a power failure, and the sandbox's end must
            // not wait for the disk.
            mnt::fsconfig_set_flag(&context, c"volatile")?;
            let mounted = mount(&context, NOSUID | NODEV)?;
            rustix::process::fchdir(root)?;
            place(mounted.as_fd(), root, at)
        }
        Op::Terminals { at } => {
            let context = open_file_system(c"devpts")?;
            mnt::fsconfig_set_flag(&context, c"newinstance")?;
            mnt::fsconfig_set_string(&context, c"ptmxmode", c"0666")?;
            mnt::fsconfig_set_string(&context, c"mode", c"0620")?;
            let mounted = mount(&context, NOSUID | NOEXEC)?;
            place(mounted.as_fd(), root, at)
        }
        Op::Processes { at, users } => {
            let context = open_file_system(c"proc")?;
            // Linux before 5.8 knows the number only, and only for the whole namespace.
            if mnt::fsconfig_set_string(&context, c"hidepid", c"invisible").is_err() {
                mnt::fsconfig_set_string(&context, c"hidepid", c"2")?;
            }
            let mounted = mount(&context, NOSUID | NODEV | NOEXEC)?;
            if *users == UserNamespaces::None {
                forbid_user_namespaces(mounted.as_fd())?;
            }
            place(mounted.as_fd(), root, at)
        }
        Op::Unmount { at } => mnt::unmount(at.as_c_str(), mnt::UnmountFlags::DETACH),
    }
}

/// Sets how many user namespaces there may be in this one: none. The filter refuses them too.
fn forbid_user_namespaces(proc: BorrowedFd<'_>) -> Result<(), Errno> {
    let setting = c"sys/user/max_user_namespaces";
    match rustix::fs::openat(
        proc,
        setting,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(setting) => rustix::io::write(&setting, b"0").map(|_| ()),
        // A kernel without the setting.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn make_file(root: BorrowedFd<'_>, at: &CStr, mode: u32, bytes: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, at, flags, Mode::from(mode))?;
    rustix::fs::fchmod(&file, Mode::from(mode))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn place(tree: BorrowedFd<'_>, root: BorrowedFd<'_>, at: &CStr) -> Result<(), Errno> {
    let target = open_beneath(root, at)?;
    move_onto(tree, target.as_fd())
}

fn open_beneath(root: BorrowedFd<'_>, at: &CStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        root,
        at,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

fn move_onto(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> Result<(), Errno> {
    mnt::move_mount(
        tree,
        c"",
        target,
        c"",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
}

fn open_file_system(kind: &CStr) -> Result<OwnedFd, Errno> {
    mnt::fsopen(kind, mnt::FsOpenFlags::FSOPEN_CLOEXEC)
}

fn mount(context: &OwnedFd, attributes: u64) -> Result<OwnedFd, Errno> {
    mnt::fsconfig_create(context)?;
    mnt::fsmount(
        context,
        mnt::FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::from_bits_retain(attributes as u32),
    )
}

/// The flags to copy a mount, or a tree of them.
pub(crate) fn tree_flags(recursive: bool) -> OpenTreeFlags {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    if recursive {
        flags | OpenTreeFlags::AT_RECURSIVE
    } else {
        flags
    }
}

/// Attributes to set, nothing to clear.
pub(crate) fn attributes(set: u64) -> MountAttributes {
    MountAttributes {
        set,
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    }
}

/// Not writable.
pub(crate) const RDONLY: u64 = MountAttrFlags::MOUNT_ATTR_RDONLY.bits() as u64;
/// Set-user-id programs have no effect.
pub(crate) const NOSUID: u64 = MountAttrFlags::MOUNT_ATTR_NOSUID.bits() as u64;
/// Device files have no effect.
pub(crate) const NODEV: u64 = MountAttrFlags::MOUNT_ATTR_NODEV.bits() as u64;
/// Nothing can be executed.
pub(crate) const NOEXEC: u64 = MountAttrFlags::MOUNT_ATTR_NOEXEC.bits() as u64;
