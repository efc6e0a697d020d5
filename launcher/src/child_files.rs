//! How the sandbox's first process builds its file system.
//!
//! Every place is opened beneath the new root without following symbolic links, and mounts are moved onto that
//! descriptor: what a folder's owner changes meanwhile cannot lead a mount elsewhere.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{self as mnt, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::landlock::Rules;
use crate::plan::{IfMissing, Op, UserNamespaces};
use crate::sys::{self, MountAttributes};
use crate::weaken::{Layer, Weaken};

/// Where the sandbox is built.
pub(crate) struct Site {
    /// The root that the command will have.
    pub(crate) root: OwnedFd,
    /// What is needed while building only. It lies outside of the new root and goes with the old one: each mount that
    /// is taken away by itself makes the kernel wait until no processor looks at it any more.
    workshop: OwnedFd,
}

impl Site {
    /// Mounts a workshop on `stage` and in it an empty root, which becomes the working directory.
    pub(crate) fn open(stage: &CStr) -> Result<Self, Errno> {
        let workshop = memory()?;
        mnt::move_mount(
            &workshop,
            c"",
            CWD,
            stage,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
        rustix::fs::mkdirat(&workshop, c"root", Mode::from(0o755))?;
        // A part of the workshop's file system, of which nothing beside it can be reached: one less to make.
        let place = open_beneath(workshop.as_fd(), c"root")?;
        let root = mnt::open_tree(&place, c"", tree_flags(false))?;
        move_onto(root.as_fd(), place.as_fd())?;
        rustix::process::fchdir(&root)?;
        Ok(Self { root, workshop })
    }

    /// Where a path of the plan is.
    fn find<'a>(&'a self, path: &'a CStr) -> (BorrowedFd<'a>, &'a CStr) {
        let in_workshop = path.to_bytes_with_nul().strip_prefix(WORKSHOP);
        match in_workshop.map(CStr::from_bytes_with_nul) {
            Some(Ok(rest)) => (self.workshop.as_fd(), rest),
            Some(Err(_)) | None => (self.root.as_fd(), path),
        }
    }

    fn open_beneath(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        let (folder, path) = self.find(path);
        open_beneath(folder, path)
    }

    fn place(&self, tree: BorrowedFd<'_>, at: &CStr) -> Result<(), Errno> {
        move_onto(tree, self.open_beneath(at)?.as_fd())
    }
}

/// What the plan calls the workshop.
const WORKSHOP: &[u8] = b".sandbox/";

fn memory() -> Result<OwnedFd, Errno> {
    let context = open_file_system(c"tmpfs")?;
    mnt::fsconfig_set_string(&context, c"size", c"64m")?;
    mnt::fsconfig_set_string(&context, c"mode", c"755")?;
    mount(&context, NOSUID | NODEV)
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
pub(crate) fn allow(rules: &Rules, set: BorrowedFd<'_>) -> Result<(), Errno> {
    for (path, access) in &rules.places {
        let place = rustix::fs::open(
            path.as_c_str(),
            OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
        sys::landlock_allow(set, place.as_fd(), *access)?;
    }
    Ok(())
}

/// A detached copy of the mounts at a path, with `attributes` set.
pub(crate) fn clone_path(
    path: &CStr,
    recursive: bool,
    attributes: u64,
    weaken: Weaken,
) -> Result<OwnedFd, Errno> {
    let mut flags = tree_flags(recursive);
    if weaken.is_off(Layer::Exchange) {
        flags &= !OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    }
    let tree = mnt::open_tree(CWD, path, flags)?;
    sys::mount_setattr(tree.as_fd(), self::attributes(attributes), recursive)?;
    Ok(tree)
}

/// Keeps a descriptor open until the process ends.
pub(crate) fn keep(descriptor: OwnedFd) -> RawFd {
    descriptor.into_raw_fd()
}

/// Does one step. The process's mask of permissions is empty, so that modes are what they say.
pub(crate) fn perform(
    op: &Op,
    site: &Site,
    trees: &[OwnedFd],
    scratch: &mut Option<OwnedFd>,
) -> Result<(), Errno> {
    match op {
        Op::Dir { at, mode } => {
            let (folder, at) = site.find(at);
            match rustix::fs::mkdirat(folder, at, Mode::from(*mode)) {
                Err(Errno::EXIST) => Ok(()),
                made => made,
            }
        }
        Op::File { at, mode, bytes } => {
            let (folder, at) = site.find(at);
            make_file(folder, at, *mode, bytes)
        }
        Op::Join { at, first, bytes } => {
            let (folder, at) = site.find(at);
            let file = create(folder, at, 0o444)?;
            if let Some(first) = first {
                let from = trees.get(*first).ok_or(Errno::BADF)?;
                send_all(&file, from)?;
            }
            write_all(&file, bytes)
        }
        Op::Copy { from, at } => {
            let (folder, at) = site.find(at);
            copy_file(from, folder, at)
        }
        Op::Link { at, target } => {
            let (folder, at) = site.find(at);
            rustix::fs::symlinkat(target.as_c_str(), folder, at)
        }
        Op::Show { source, at } => site.place(trees.get(*source).ok_or(Errno::BADF)?.as_fd(), at),
        Op::ShowAgain {
            from,
            at,
            attributes,
            if_missing,
        } => {
            let target = match site.open_beneath(at) {
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
                let (folder, from) = site.find(from);
                mnt::open_tree(folder, from, tree_flags(false))?
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
            site.place(mounted.as_fd(), at)?;
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
            rustix::process::fchdir(site.open_beneath(from)?)?;
            mnt::fsconfig_set_string(&context, c"lowerdir", lower.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"upperdir", upper.as_c_str())?;
            mnt::fsconfig_set_string(&context, c"workdir", work.as_c_str())?;
            // The attributes that an unprivileged overlay may write.
            mnt::fsconfig_set_flag(&context, c"userxattr")?;
            // The layer is reviewed or thrown away: it need not survive a power failure, and the sandbox's end must
            // not wait for the disk.
            mnt::fsconfig_set_flag(&context, c"volatile")?;
            let mounted = mount(&context, NOSUID | NODEV)?;
            rustix::process::fchdir(&site.root)?;
            site.place(mounted.as_fd(), at)
        }
        Op::Terminals { at } => {
            let context = open_file_system(c"devpts")?;
            mnt::fsconfig_set_flag(&context, c"newinstance")?;
            mnt::fsconfig_set_string(&context, c"ptmxmode", c"0666")?;
            mnt::fsconfig_set_string(&context, c"mode", c"0620")?;
            let mounted = mount(&context, NOSUID | NOEXEC)?;
            site.place(mounted.as_fd(), at)
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
            site.place(mounted.as_fd(), at)
        }
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
    write_all(&create(root, at, mode)?, bytes)
}

fn create(root: BorrowedFd<'_>, at: &CStr, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, at, flags, Mode::from(mode))
}

fn send_all(file: &OwnedFd, from: &OwnedFd) -> Result<(), Errno> {
    const AT_ONCE: usize = 1 << 20;
    loop {
        match rustix::fs::sendfile(file, from, None, AT_ONCE) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn write_all(file: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Copies a file of the host's that the sandbox's user may read. What is not a file or leads through a link is left out.
fn copy_file(from: &CStr, folder: BorrowedFd<'_>, at: &CStr) -> Result<(), Errno> {
    const SMALL: usize = 16 << 10;
    // A pipe would else wait for somebody who writes to it.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let Ok(file) = rustix::fs::openat2(CWD, from, flags, Mode::empty(), resolve) else {
        return Ok(());
    };
    let found = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file {
        return Ok(());
    }
    let mut bytes = [0; SMALL];
    let length = read_all(&file, &mut bytes)?;
    if length < SMALL {
        return make_file(folder, at, 0o444, &bytes[..length]);
    }
    // One mount more is quicker than many pages.
    make_file(folder, at, 0o444, &[])?;
    let tree = mnt::open_tree(&file, c"", tree_flags(false))?;
    sys::mount_setattr(
        tree.as_fd(),
        attributes(RDONLY | NOSUID | NODEV | NOEXEC),
        false,
    )?;
    move_onto(tree.as_fd(), open_beneath(folder, at)?.as_fd())
}

fn read_all(file: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    let mut length = 0;
    while length < bytes.len() {
        match rustix::io::read(file, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(length)
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
