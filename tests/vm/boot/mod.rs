//! A machine that a test boots: a distribution's own kernel under qemu, with files and a script of the test's.

mod cpio;
mod files;
mod machine;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use files::Files;

/// Where the machine's files are while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    /// On a disk with ext4, as on most machines.
    Disk,
    /// In the initial memory disk, as on some small machines.
    Memory,
}

/// Boots the kernel in a folder of `target/test-tools` ([`DEBIAN`] or `ubuntu`), runs a shell script as root, and gives what it
/// printed.
///
/// `None`, after saying why, where `tests/run` could not install what it takes.
pub(crate) fn boot(kernel: &str, files: &Files, root: Root, script: &str) -> Option<String> {
    let kernel = match Kernel::find(kernel) {
        Ok(found) => found,
        Err(why) => {
            let is_required = std::env::var_os("VALETKEY_TEST_MACHINE").is_some();
            assert!(!is_required || kernel != DEBIAN, "{why}");
            say(&format!("skipped: {why}"));
            return None;
        }
    };
    let folder = tempfile::Builder::new()
        .prefix("valetkey-vm-")
        .tempdir_in("/var/tmp")
        .unwrap();
    let path = |name: &str| folder.path().join(name);
    files.write(
        "script",
        &format!("{PREPARE}echo {BEGUN}\n{script}\necho {DONE}\n"),
    );
    let mut early = cpio::Archive::default();
    early.folder("proc");
    early.folder("new");
    early.file("busybox", &fs::read(files::BUSYBOX).unwrap());
    for module in &kernel.modules {
        early.file(&module.name, &module.bytes);
    }
    let names: Vec<&str> = kernel
        .modules
        .iter()
        .map(|module| module.name.as_str())
        .collect();
    if root == Root::Memory {
        early.tree(files.folder());
    }
    early.file("init", init(root, &names).as_bytes());
    fs::write(path("early"), early.end()).unwrap();
    // An emulated kernel now and then hangs while it starts, where the machine is busy: nothing of ours has run by then.
    for attempt in 1..=ATTEMPTS {
        if root == Root::Disk {
            make_disk(files.folder(), &path("disk"));
        }
        let why = machine::run(&kernel, folder.path(), root);
        let printed = machine::text(&path("printed"));
        if printed.lines().any(|line| line == DONE) {
            return Some(printed);
        }
        let told = format!(
            "the machine did not come to the end of its script ({why}):\n{printed}\n---- console:\n{}",
            machine::text(&path("console"))
        );
        assert!(attempt < ATTEMPTS && !printed.contains(BEGUN), "{told}");
        say(&format!("started again: {told}"));
    }
    None
}

/// Where `tests/run` puts what it fetched.
pub(crate) fn tools() -> PathBuf {
    std::env::var_os("VALETKEY_TEST_TOOLS").map_or_else(
        || {
            let here = Path::new(env!("CARGO_MANIFEST_DIR"));
            let mut found = here
                .ancestors()
                .map(|folder| folder.join("target/test-tools"));
            found.find(|folder| folder.is_dir()).unwrap_or_default()
        },
        PathBuf::from,
    )
}

#[expect(
    clippy::print_stderr,
    reason = "a test that is skipped says so to whoever runs it"
)]
fn say(what: &str) {
    eprintln!("{what}");
}

/// The kernel that `tests/run` unpacked.
struct Kernel {
    image: PathBuf,
    modules: Vec<modules::Module>,
    acceleration: String,
}

impl Kernel {
    fn find(name: &str) -> Result<Self, String> {
        let folder = tools().join(name);
        // Written last, and only where all of it could be had; it names what qemu accelerates with.
        let acceleration = fs::read_to_string(folder.join("acceleration")).map_err(|_| {
            format!(
                "no kernel to boot in {}: `tests/run` says why",
                folder.display()
            )
        })?;
        let image = fs::read_dir(folder.join("boot"))
            .map_err(|error| error.to_string())?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.display().to_string().contains("vmlinuz"))
            .ok_or("no kernel in the package")?;
        Ok(Self {
            image,
            modules: modules::find(&folder.join("lib/modules"), MODULES),
            acceleration: acceleration.trim().to_owned(),
        })
    }
}

fn make_disk(files: &Path, disk: &Path) {
    let made = Command::new("/usr/sbin/mkfs.ext4")
        .args(["-q", "-E", "root_owner=0:0", "-d"])
        .args([files, disk])
        .arg("3G")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// The first program: it loads the modules and goes over to the machine's root.
fn init(root: Root, modules: &[&str]) -> String {
    let go = match root {
        Root::Disk => {
            "/busybox mount -t ext4 /dev/vda /new\n/busybox mount -t devtmpfs dev /new/dev\n\
             exec /busybox switch_root /new /busybox sh /script >/new/dev/ttyS1 2>&1 </dev/null\n"
        }
        Root::Memory => "exec /busybox sh /script >/dev/ttyS1 2>&1 </dev/null\n",
    };
    format!(
        "#!/busybox sh\n/busybox mkdir -p /dev\n/busybox mount -t devtmpfs dev /dev\n\
         for module in {}; do /busybox insmod /$module; done\n{go}",
        modules.join(" ")
    )
}

/// What every script begins with: what a distribution's start-up would have mounted, and the power off in the end.
const PREPARE: &str = r#"
export PATH=/usr/bin:/bin HOME=/root LC_ALL=C.UTF-8
trap '/busybox sync; /busybox poweroff -f' EXIT
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
/busybox mount -t devpts devpts /dev/pts
/busybox mount -t tmpfs -o mode=1777 shm /dev/shm
ln -s /proc/self/fd /dev/fd
ip link set lo up
/busybox mount -t cgroup2 cgroup /sys/fs/cgroup
echo '+memory +pids +cpu' > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/root
echo $$ > /sys/fs/cgroup/root/cgroup.procs

chown user /home/user

# Makes a group and delegates it to an ordinary user.
delegate() {
    mkdir -p $1
    chown user $1 $1/cgroup.procs $1/cgroup.threads $1/cgroup.subtree_control
}

# Runs a command as an ordinary user, alone in a group that is delegated to it.
delegated() {
    group=/sys/fs/cgroup/user.slice/user.scope
    delegate $group
    echo '+memory +pids +cpu' > /sys/fs/cgroup/user.slice/cgroup.subtree_control
    inside $group "$@"
}

# The same, where others are in the group too: in a leaf of one that was prepared for groups.
shared() {
    group=/sys/fs/cgroup/user.slice/shared.scope
    delegate $group
    echo '+memory +pids +cpu' > $group/cgroup.subtree_control
    delegate $group/leaf
    inside $group/leaf "$@"
}

inside() {
    python3 -c 'import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
os.environ["HOME"] = "/home/user"
os.setgroups([]); os.setgid(1001); os.setuid(1001)
os.execvp(sys.argv[2], sys.argv[2:])' "$@"
}
"#;

/// The one that `.ci/run` insists on, by `VALETKEY_TEST_MACHINE`.
pub(crate) const DEBIAN: &str = "kernel";
const BEGUN: &str = "==== begun";
const DONE: &str = "==== done";
/// How often a machine is started that does not come to the test's own script.
const ATTEMPTS: u32 = 3;

/// What the launcher needs of the kernel that Debian builds as modules.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_blk",
    "overlay",
    "nf_tables",
    "nft_tproxy",
    "nft_redir",
    "nft_ct",
    "nft_chain_nat",
    "nft_reject_inet",
];
