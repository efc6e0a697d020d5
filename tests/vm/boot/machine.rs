//! The emulated machine itself: how it is started, and ended where it stands still.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Kernel, Root};

/// Runs qemu until the machine turns itself off, or stands still. What the script prints lands in `printed`, the kernel's
/// words in `console`. Why it ended.
///
/// A slow machine goes on as long as it says something: no bound on the whole could tell it from one that hangs.
pub(super) fn run(kernel: &Kernel, folder: &Path, root: Root) -> String {
    let said = ["printed", "console"].map(|name| folder.join(name));
    for path in &said {
        fs::write(path, "").unwrap();
    }
    let mut qemu = start(kernel, folder, root);
    let begun = Instant::now();
    let size = || -> u64 {
        let sizes = said
            .iter()
            .map(|path| fs::metadata(path).map_or(0, |found| found.len()));
        sizes.sum()
    };
    let (mut last, mut since) = (0, Instant::now());
    loop {
        if ends_within(&qemu, Duration::from_secs(5)) {
            return format!("qemu: {}", qemu.wait().unwrap());
        }
        let now = size();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let why = if since.elapsed() > SILENCE {
            format!("it said nothing for {} s", SILENCE.as_secs())
        } else if begun.elapsed() > MOST {
            format!("it went on for {} s", MOST.as_secs())
        } else {
            continue;
        };
        qemu.kill().unwrap();
        qemu.wait().unwrap();
        return why;
    }
}

/// What is in one of the files, as far as the machine came.
pub(super) fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}

fn start(kernel: &Kernel, folder: &Path, root: Root) -> Child {
    let serial = |name: &str| format!("file:{}", folder.join(name).display());
    let mut command = Command::new("qemu-system-x86_64");
    // One processor: two that are emulated on processors with other work wait for each other most of the time.
    command.args(["-accel", &kernel.acceleration, "-smp", "1", "-m", MEBIBYTES]);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-display", "none"]);
    command.args(["-serial", &serial("console"), "-serial", &serial("printed")]);
    command.arg("-kernel").arg(&kernel.image);
    command.arg("-initrd").arg(folder.join("early"));
    command.args(["-append", "console=ttyS0 loglevel=7 panic=-1 oops=panic"]);
    if root == Root::Disk {
        let disk = folder.join("disk").display().to_string();
        let drive = format!("file={disk},format=raw,if=virtio,cache=unsafe");
        command.args(["-drive", &drive]);
    }
    command.stdin(Stdio::null()).spawn().unwrap()
}

fn ends_within(qemu: &Child, time: Duration) -> bool {
    let pid = Pid::from_raw(i32::try_from(qemu.id()).unwrap()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let mut waiting = [PollFd::new(&pidfd, PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap();
    poll(&mut waiting, Some(&time)).is_ok_and(|ready| ready > 0)
}

const MEBIBYTES: &str = "1536";
/// What a test in the machine may take on processors that are busy, many times over.
const SILENCE: Duration = Duration::from_secs(180);
/// Less than what the test runner gives.
const MOST: Duration = Duration::from_secs(1500);
