//! The table of what is mounted, read anew only where something was mounted or taken away since.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Known {
    file: File,
    text: Arc<str>,
}

/// The text of `/proc/self/mountinfo`; nothing, where there is no such file.
pub(crate) fn read() -> Arc<str> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    // It is whole after each operation, so a panic elsewhere does not spoil it.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = match known.take() {
        Some(known) if !has_changed(&known.file) => Some(known),
        Some(known) => again(known.file),
        None => first(),
    };
    let text = fresh
        .as_ref()
        .map_or_else(|| Arc::from(""), |it| Arc::clone(&it.text));
    *known = fresh;
    text
}

fn first() -> Option<Known> {
    let file = File::open("/proc/self/mountinfo").ok()?;
    // What changes from here on is told the next time.
    has_changed(&file);
    again(file)
}

fn again(mut file: File) -> Option<Known> {
    let mut text = String::with_capacity(8 << 10);
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    let text = Arc::from(text);
    Some(Known { file, text })
}

/// Whether it has changed since this was asked before (proc_pid_mounts(5)).
fn has_changed(file: &File) -> bool {
    let mut waiting = [PollFd::new(file, PollFlags::PRI)];
    // Who cannot say is taken to have.
    !poll(&mut waiting, Some(&Timespec::default())).is_ok_and(|ready| ready == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const PLACE: &str = "VALETKEY_TEST_MOUNT_TABLE";

    #[test]
    fn what_is_mounted_after_the_first_look_is_seen() {
        let Some(place) = std::env::var_os(PLACE) else {
            // Once more, in a namespace where it may mount.
            let place = tempfile::tempdir().unwrap();
            let again = Command::new("unshare")
                .args(["--user", "--map-root-user", "--mount"])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("mount_table::tests::what_is_mounted_after_the_first_look_is_seen")
                .env(PLACE, place.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&again.stdout);
            assert!(again.status.success(), "{again:?}");
            assert!(said.contains("1 passed"), "{said}");
            return;
        };
        let place = place.into_string().unwrap();
        let has_it = || {
            read()
                .lines()
                .any(|line| line.split(' ').nth(4) == Some(&place))
        };
        let change = |program: &str, arguments: &[&str]| {
            let done = Command::new(program).args(arguments).status().unwrap();
            assert!(done.success(), "{program}");
        };
        assert!(!has_it());
        assert!(!has_it());
        change("mount", &["-t", "tmpfs", "none", &place]);
        assert!(has_it());
        assert!(has_it());
        change("umount", &[&place]);
        assert!(!has_it());
    }
}
