//! A workspace that is exchanged for a symbolic link while sandboxes start.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use launcher::{Error, Finished, Layer, Weaken, WorkspaceMode, prepare};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::as_both;
use crate::support::Box;

/// An ordinary user's sandbox opens a place twice, and each time a link is refused: only without both it is followed.
/// Root's is opened once.
const BOTH: [Layer; 2] = [Layer::Links, Layer::Exchange];

const SECRET: &str = "test-secret-other";

/// A sandbox whose command shows a secret of another folder, if the workspace leads there; and a link to that folder.
fn sandbox(off: &[Layer]) -> (Box, std::path::PathBuf) {
    let sandbox = Box::new(["/bin/cat", "secret"])
        .mode(WorkspaceMode::ReadOnly)
        .with(|spec| spec.weaken = Weaken::without(off));
    let (other, link) = (
        sandbox.folder.path().join("other"),
        sandbox.folder.path().join("link"),
    );
    fs::create_dir(&other).unwrap();
    fs::write(other.join("secret"), SECRET).unwrap();
    symlink(&other, &link).unwrap();
    (sandbox, link)
}

/// What came of one start; nothing where it was refused.
fn start(sandbox: &Box) -> Result<Finished, Error> {
    let mut started = prepare(&sandbox.spec)?.start()?;
    started.release()?;
    Ok(started.wait(&mut |_, _| {}))
}

/// Starts while the workspace and a link change places without end; how many ran, were refused and saw the secret.
fn race(off: &[Layer], starts: usize) -> (usize, usize, usize) {
    let (sandbox, link) = sandbox(off);
    let work = sandbox.work();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &work, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                std::thread::yield_now();
            }
        });
        let (mut ran, mut refused, mut seen) = (0, 0, 0);
        for _ in 0..starts {
            match start(&sandbox) {
                Ok(finished) if finished.stdout.text.contains(SECRET) => seen += 1,
                Ok(_) => ran += 1,
                Err(_) => refused += 1,
            }
        }
        is_over.store(true, Ordering::Relaxed);
        (ran, refused, seen)
    })
}

#[test]
fn a_workspace_that_is_a_link_leads_to_the_other_folder_only_where_links_are_followed() {
    as_both(
        "escapes::links::a_workspace_that_is_a_link_leads_to_the_other_folder_only_where_links_are_followed",
        || {
            for (off, seen) in [(&[][..], false), (&BOTH[..], true)] {
                let (mut sandbox, link) = sandbox(off);
                sandbox.spec.view.workspace.as_mut().unwrap().host = link;
                let started = start(&sandbox);
                let is_seen = matches!(&started, Ok(finished) if finished.stdout.text == SECRET);
                assert_eq!(is_seen, seen, "{off:?}: {started:?}");
            }
        },
    );
}

#[test]
fn of_a_thousand_starts_with_a_folder_exchanged_for_a_link_none_shows_the_other() {
    as_both(
        "escapes::links::of_a_thousand_starts_with_a_folder_exchanged_for_a_link_none_shows_the_other",
        || {
            let (ran, refused, seen) = race(&[], 1000);
            assert_eq!(seen, 0);
            // Both were met.
            assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
            let (_, _, seen) = race(&BOTH, 100);
            assert!(seen > 0);
        },
    );
}
