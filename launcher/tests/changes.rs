//! Does what a run changed appear in the workspace when it is taken over, and nothing when it is not?

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use launcher::changes::{
    Change, Conflict, Error, Hold, Kept, Moment, Record, Refused, State, Touched,
};
use launcher::{Layer, Spec, Weaken, WorkspaceMode, prepare};
use sdk::report::Outcome;

use crate::support::{Box, as_each_user};

/// A workspace and the folder of a run over it.
pub(crate) struct Run {
    sandbox: Box,
    steps: usize,
}

impl Run {
    /// A run over the workspace as it is now.
    pub(crate) fn over(sandbox: Box) -> Self {
        let run = Self { sandbox, steps: 0 };
        fs::create_dir(run.folder()).unwrap();
        after_a_tick();
        let workspace = run.sandbox.work();
        let record = Record::begin(&run.folder(), &workspace).unwrap();
        record.save().unwrap();
        run
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.sandbox.folder.path().join("run_test")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.sandbox.work()
    }

    /// Runs a line of shell as one more step.
    pub(crate) fn step(&mut self, line: &str) -> String {
        self.steps += 1;
        let name = format!("{:03}", self.steps);
        let mut record = Record::load(&self.folder()).unwrap();
        let below: Vec<PathBuf> = record.layer_folders();
        let below = below.iter().rev().map(|layer| layer.join("upper"));
        let below = below.collect();
        record.layers.push(name.clone());
        record.save().unwrap();
        let layer = record.layers_folder().join(name);
        let (upper, work) = (layer.join("upper"), layer.join("work"));
        fs::create_dir_all(&upper).unwrap();
        fs::create_dir_all(&work).unwrap();
        let mut spec: Spec = self.sandbox.spec.clone();
        spec.argv = ["/bin/sh", "-c", line].map(Into::into).to_vec();
        spec.view.workspace.as_mut().unwrap().mode = WorkspaceMode::Overlay { upper, work, below };
        let mut started = prepare(&spec).unwrap().start().unwrap();
        started.release().unwrap();
        let finished = started.wait(&mut |_, _| {});
        assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
        let mut record = Record::load(&self.folder()).unwrap();
        let upper = record.layer_folders().pop().unwrap().join("upper");
        if record.note_folders(&Touched::of(&upper).unwrap()) {
            record.save().unwrap();
        }
        finished.stdout.text
    }

    /// Makes one layer of the oldest ones.
    pub(crate) fn merge(&self, count: usize) {
        let mut record = Record::load(&self.folder()).unwrap();
        launcher::changes::merge(&mut record, count).unwrap();
        let left = fs::read_dir(record.layers_folder()).unwrap().count();
        assert_eq!(left, record.layers.len());
    }

    /// How many layers there are.
    pub(crate) fn layers(&self) -> usize {
        Record::load(&self.folder()).unwrap().layers.len()
    }

    /// Whether the next step works on a copy, as where no overlay can be had.
    pub(crate) fn in_a_copy(&mut self, is_copied: bool) {
        let off: &[Layer] = if is_copied { &[Layer::Overlay] } else { &[] };
        self.sandbox.spec.weaken = Weaken::without(off);
    }

    /// What the next step is to be.
    pub(crate) fn spec(&mut self) -> &mut Spec {
        &mut self.sandbox.spec
    }

    pub(crate) fn changes(&self) -> Vec<Change> {
        Kept::open(&self.folder()).unwrap().changes().to_vec()
    }

    /// "added path", "deleted path" …
    pub(crate) fn told(&self) -> Vec<String> {
        let told = |change: &Change| format!("{} {}", change.word(), change.path.display());
        self.changes().iter().map(told).collect()
    }

    pub(crate) fn apply(&self, paths: &[&str]) -> Result<u64, Error> {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        Kept::apply(&self.folder(), &paths).map(|applied| applied.count)
    }

    pub(crate) fn state(&self) -> State {
        Record::load(&self.folder()).unwrap().state
    }
}

/// Lets the clock of the file system move on, so that what was written before is older than what comes.
pub(crate) fn after_a_tick() {
    let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let time = || {
        fs::write(file.path(), "x").unwrap();
        let found = fs::metadata(file.path()).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let first = time();
    while time() <= first {
        std::thread::yield_now();
    }
}

/// Everything about a tree but the time of looking: kind, permissions, contents, target, and when it was written.
pub(crate) fn snapshot(top: &Path, with_times: bool) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let whole = top.join(&path);
        let found = whole.symlink_metadata().unwrap();
        let contents = if found.is_dir() {
            for entry in fs::read_dir(&whole).unwrap() {
                left.push(path.join(entry.unwrap().file_name()));
            }
            String::new()
        } else if found.is_symlink() {
            fs::read_link(&whole).unwrap().display().to_string()
        } else if found.is_file() {
            String::from_utf8_lossy(&fs::read(&whole).unwrap()).into_owned()
        } else {
            String::new()
        };
        let times = match with_times {
            true => format!("{}.{}", found.mtime(), found.mtime_nsec()),
            false => String::new(),
        };
        let mode = found.mode();
        all.insert(path, format!("{mode:o} {times} {contents}"));
    }
    all
}

#[test]
fn every_kind_of_change_is_told() {
    as_each_user("changes::every_kind_of_change_is_told", || {
        let sandbox = Box::shell("")
            .file("changed", "before")
            .file("touched", "same")
            .file("gone", "before")
            .file("moved", "text")
            .file("folder/inner/a", "1")
            .file("folder/b", "2")
            .file("new-kind/x", "3")
            .file("emptied/old", "4")
            .file("emptied/kept", "5");
        let mut run = Run::over(sandbox);
        run.step(
            "echo after > changed; touch touched; rm gone; mv moved moved-to; rm -r folder; \
             rm -r new-kind; echo file > new-kind; rm -r emptied; mkdir emptied; echo 4 > emptied/new; \
             printf 5 > emptied/kept; mkdir -p made/deep; ln -s ../changed made/link; chmod 600 touched",
        );
        let expected = [
            "changed changed",
            "deleted emptied/old",
            "added emptied/new",
            "deleted folder",
            "deleted folder/b",
            "deleted folder/inner",
            "deleted folder/inner/a",
            "deleted gone",
            "added made",
            "added made/deep",
            "added made/link",
            "deleted moved",
            "added moved-to",
            "replaced new-kind",
            "deleted new-kind/x",
            "changed touched",
        ];
        let mut expected = expected.map(str::to_owned).to_vec();
        let mut told = run.told();
        told.sort();
        expected.sort();
        assert_eq!(told, expected);
        assert_eq!(run.apply(&[]).unwrap(), expected.len() as u64);
        assert_eq!(run.told(), [""; 0]);
        assert!(matches!(run.state(), State::Applied { count: 16, .. }));
        assert!(!run.folder().join("layers").exists());
        assert_eq!(
            fs::read_to_string(run.work().join("new-kind")).unwrap(),
            "file\n"
        );
        assert!(!run.work().join("folder").exists());
        assert_eq!(
            fs::read_to_string(run.work().join("made/link")).unwrap(),
            "after\n"
        );
    });
}

#[test]
fn later_steps_count_and_a_layer_that_is_dropped_does_not() {
    as_each_user(
        "changes::later_steps_count_and_a_layer_that_is_dropped_does_not",
        || {
            let sandbox = Box::shell("")
                .file("a", "1")
                .file("d/x", "2")
                .file("d/y", "3");
            let mut run = Run::over(sandbox);
            run.step("echo one > a; rm -r d; echo n > new");
            run.step("mkdir d; echo again > d/y; rm new; cat a");
            assert_eq!(
                run.step("echo three > a; echo lost > lost; cat d/y"),
                "again\n"
            );
            let mut record = Record::load(&run.folder()).unwrap();
            record.layers.pop();
            record.save().unwrap();
            assert_eq!(run.told(), ["changed a", "deleted d/x", "changed d/y"]);
            run.apply(&[]).unwrap();
            assert_eq!(fs::read_to_string(run.work().join("a")).unwrap(), "one\n");
            assert_eq!(
                fs::read_to_string(run.work().join("d/y")).unwrap(),
                "again\n"
            );
            assert!(!run.work().join("d/x").exists());
        },
    );
}

#[test]
fn a_file_that_changed_meanwhile_is_a_conflict_and_nothing_is_taken_over() {
    let sandbox = Box::shell("")
        .file("a", "1")
        .file("b", "2")
        .file("c", "3")
        .file("f/d", "4");
    let mut run = Run::over(sandbox);
    run.step("echo run > a; rm b; echo run > c; echo run > new; rm -r f");
    fs::write(run.work().join("a"), "owner").unwrap();
    fs::write(run.work().join("b"), "owner").unwrap();
    fs::write(run.work().join("new"), "owner").unwrap();
    fs::write(run.work().join("f/e"), "owner").unwrap();
    let before = snapshot(&run.work(), true);
    let Err(Error::Conflicts(conflicts)) = run.apply(&[]) else {
        panic!("there are conflicts");
    };
    let paths: Vec<_> = conflicts
        .iter()
        .map(|c| c.path.display().to_string())
        .collect();
    assert_eq!(paths, ["a", "b", "f", "f/e", "new"]);
    assert_eq!(snapshot(&run.work(), true), before);
    // What is in nobody's way can be chosen.
    assert_eq!(run.apply(&["c"]).unwrap(), 1);
    assert_eq!(fs::read_to_string(run.work().join("c")).unwrap(), "run\n");
    assert!(matches!(run.state(), State::PartlyApplied { .. }));
    assert!(matches!(run.apply(&["b"]), Err(Error::Conflicts(_))));
    assert_eq!(fs::read_to_string(run.work().join("b")).unwrap(), "owner");
}

#[test]
fn a_file_that_was_removed_meanwhile_does_not_come_back() {
    let sandbox = Box::shell("").file("a", "1").file("moved", "2");
    let mut run = Run::over(sandbox);
    run.step("echo run > a; mv moved elsewhere");
    assert_eq!(
        run.changes()
            .iter()
            .filter(|c| c.conflict.is_some())
            .count(),
        0
    );
    fs::remove_file(run.work().join("a")).unwrap();
    let changes = run.changes();
    assert_eq!(changes[0].conflict, Some(Conflict::Removed));
}

#[test]
fn another_folder_in_the_workspaces_place_is_refused() {
    let sandbox = Box::shell("").file("a", "1");
    let mut run = Run::over(sandbox);
    run.step("echo run > a");
    let aside = run.sandbox.folder.path().join("aside");
    fs::rename(run.work(), &aside).unwrap();
    symlink(&aside, run.work()).unwrap();
    assert!(matches!(run.apply(&[]), Err(Error::Workspace { .. })));
    fs::remove_file(run.work()).unwrap();
    fs::create_dir(run.work()).unwrap();
    assert!(matches!(run.apply(&[]), Err(Error::Workspace { .. })));
    assert_eq!(fs::read_to_string(aside.join("a")).unwrap(), "1");
    fs::remove_dir(run.work()).unwrap();
    fs::rename(&aside, run.work()).unwrap();
    assert_eq!(run.apply(&[]).unwrap(), 1);
}

#[test]
fn a_folder_exchanged_for_a_link_does_not_lead_out() {
    let sandbox = Box::shell("").file("d/a", "1");
    let mut run = Run::over(sandbox);
    run.step("echo run > d/a; echo run > d/b");
    let elsewhere = run.sandbox.folder.path().join("elsewhere");
    fs::rename(run.work().join("d"), &elsewhere).unwrap();
    symlink(&elsewhere, run.work().join("d")).unwrap();
    assert!(matches!(run.apply(&[]), Err(Error::Conflicts(_))));
    assert!(matches!(
        run.apply(&["d/b"]),
        Err(Error::Conflicts(_) | Error::Needs { .. })
    ));
    assert_eq!(fs::read_to_string(elsewhere.join("a")).unwrap(), "1");
    assert!(!elsewhere.join("b").exists());
}

#[test]
fn what_leads_to_a_process_is_refused_and_told() {
    let sandbox = Box::shell("").file("a", "1");
    let mut run = Run::over(sandbox);
    run.step(
        "mkfifo pipe; ln -s /etc/passwd out; ln -s ../../x up; ln -s a in; cp /bin/true tool; chmod 4755 tool",
    );
    let changes = run.changes();
    let refused: BTreeMap<String, Option<Refused>> = changes
        .iter()
        .map(|change| (change.path.display().to_string(), change.refused))
        .collect();
    assert_eq!(refused["pipe"], Some(Refused::Special));
    assert_eq!(refused["out"], Some(Refused::LeadsOut));
    assert_eq!(refused["up"], Some(Refused::LeadsOut));
    assert_eq!(refused["in"], None);
    assert!(
        changes
            .iter()
            .any(|c| c.path.ends_with("tool") && c.loses_bits())
    );
    assert_eq!(run.apply(&[]).unwrap(), 2);
    let tool = run.work().join("tool").metadata().unwrap();
    assert_eq!(tool.permissions().mode() & 0o7777, 0o755);
    assert!(run.work().join("pipe").symlink_metadata().is_err());
    assert!(run.work().join("out").symlink_metadata().is_err());
    assert_eq!(run.apply(&["out"]).unwrap(), 1);
    assert_eq!(
        fs::read_link(run.work().join("out")).unwrap(),
        Path::new("/etc/passwd")
    );
    assert_eq!(run.apply(&["pipe"]).unwrap(), 0);
}

#[test]
fn names_that_taking_over_uses_itself_are_refused() {
    let mut run = Run::over(Box::shell(""));
    run.step("echo x > .valetkey-apply-run_test-0; echo y > fine");
    assert_eq!(run.apply(&[]).unwrap(), 1);
    assert!(!run.work().join(".valetkey-apply-run_test-0").exists());
}

#[test]
fn what_lies_in_something_refused_is_left_as_it_was() {
    let sandbox = Box::shell("")
        .file("src/a", "1")
        .file("lib/b", "2")
        .file("gone/c", "3");
    let mut run = Run::over(sandbox);
    run.step(
        "rm -r src lib gone; mkfifo src; ln -s /etc lib; mkdir .valetkey-apply-x; echo x > .valetkey-apply-x/f; \
         echo y > fine",
    );
    // Neither the old folder nor nothing in its place: it is as it was.
    run.apply(&[]).unwrap();
    assert_eq!(fs::read_to_string(run.work().join("src/a")).unwrap(), "1");
    assert_eq!(fs::read_to_string(run.work().join("lib/b")).unwrap(), "2");
    assert!(!run.work().join(".valetkey-apply-x").exists());
    // What is not refused is taken over all the same.
    assert!(run.work().join("fine").exists());
    assert!(!run.work().join("gone").exists());
    // A link that leads out, asked for by name, takes the folder's place.
    run.apply(&["lib"]).unwrap();
    assert_eq!(
        fs::read_link(run.work().join("lib")).unwrap(),
        Path::new("/etc")
    );
}

#[test]
fn a_chosen_file_in_a_new_folder_brings_the_folder_and_nothing_else() {
    let mut run = Run::over(Box::shell("").file("f", "1"));
    run.step("mkdir -p new/deep/er; echo 1 > new/deep/er/a; echo 2 > new/deep/er/b; echo 3 > new/c; rm f; mkdir f; echo 4 > f/g");
    assert_eq!(run.apply(&["new/deep/er/a"]).unwrap(), 1);
    assert!(run.work().join("new/deep/er/a").exists());
    assert!(!run.work().join("new/deep/er/b").exists());
    assert!(!run.work().join("new/c").exists());
    assert!(matches!(run.apply(&["f/g"]), Err(Error::Needs { .. })));
    assert!(matches!(
        run.apply(&["not-there"]),
        Err(Error::Unchanged { .. })
    ));
    run.apply(&[]).unwrap();
    assert_eq!(fs::read_to_string(run.work().join("f/g")).unwrap(), "4\n");
    assert!(run.work().join("new/deep/er/b").exists());
}

#[test]
fn while_the_run_goes_on_nothing_is_taken_over_or_thrown_away() {
    let mut run = Run::over(Box::shell("").file("a", "1"));
    run.step("echo run > a");
    let hold = Hold::take(&run.folder()).unwrap();
    assert!(matches!(run.apply(&[]), Err(Error::InUse)));
    assert!(matches!(Kept::discard(&run.folder()), Err(Error::InUse)));
    assert_eq!(run.told(), ["changed a"]);
    drop(hold);
    assert_eq!(run.apply(&[]).unwrap(), 1);
}

#[test]
fn what_a_killed_apply_left_is_cleared_and_the_rest_is_taken_over() {
    let sandbox = Box::shell("")
        .file("a", "1")
        .file("d/x", "2")
        .file("d/y", "3");
    let mut run = Run::over(sandbox);
    run.step("echo run > a; rm -r d; echo new > b; mv b c; echo z > z");
    // As it is when we are killed with `z` put in its place, `d` half removed and `a` made.
    let mut record = Record::load(&run.folder()).unwrap();
    record.state = State::Applying {
        since: Moment::now(),
        folders: vec![String::new()],
    };
    record.save().unwrap();
    fs::write(run.work().join("z"), "z\n").unwrap();
    fs::write(run.work().join(".valetkey-apply-run_test-0"), "half").unwrap();
    fs::rename(
        run.work().join("d"),
        run.work().join(".valetkey-apply-run_test-2"),
    )
    .unwrap();
    fs::remove_file(run.work().join(".valetkey-apply-run_test-2/x")).unwrap();
    run.apply(&[]).unwrap();
    let left: Vec<_> = snapshot(&run.work(), false).into_keys().collect();
    let expected = ["", "a", "c", "probe", "z"].map(PathBuf::from);
    assert_eq!(left, expected);
    assert_eq!(fs::read_to_string(run.work().join("a")).unwrap(), "run\n");
}

#[test]
fn discarding_removes_the_layers_and_not_a_byte_of_the_workspace() {
    as_each_user(
        "changes::discarding_removes_the_layers_and_not_a_byte_of_the_workspace",
        || {
            let mut run = Run::over(Box::shell("").file("a", "1").file("d/x", "2"));
            let before = snapshot(&run.work(), true);
            run.step("echo run > a; rm -r d; mkdir -p closed/in; echo x > closed/in/y; chmod 000 closed/in closed");
            assert!(run.told().contains(&"added closed/in/y".to_owned()));
            Kept::discard(&run.folder()).unwrap();
            assert_eq!(snapshot(&run.work(), true), before);
            assert!(!run.folder().join("layers").exists());
            assert!(matches!(run.state(), State::Discarded { .. }));
            assert_eq!(run.apply(&[]).unwrap(), 0);
        },
    );
}

#[test]
fn layers_that_a_killed_discard_or_apply_left_are_removed_by_the_next_discard() {
    for state in [
        State::Discarded { at: Moment::now() },
        State::Applied {
            at: Moment::now(),
            count: 1,
        },
    ] {
        let mut run = Run::over(Box::shell("").file("a", "1"));
        run.step("echo run > a");
        // As it is after the one and before the other.
        let mut record = Record::load(&run.folder()).unwrap();
        record.state = state.clone();
        record.layers.clear();
        record.save().unwrap();
        assert!(run.folder().join("layers/001/upper/a").exists());
        Kept::discard(&run.folder()).unwrap();
        assert!(!run.folder().join("layers").exists());
        assert_eq!(run.state(), state);
    }
}

#[test]
fn a_folder_that_the_owner_put_in_anothers_place_is_a_conflict() {
    for (is_copied, line) in [
        (false, "echo run > src/x; echo run > src/new; rm src/gone"),
        (true, "echo run > src/x; echo run > src/new; rm src/gone"),
    ] {
        let sandbox = Box::shell("")
            .file("src/x", "1")
            .file("src/gone", "1")
            .file("src.new/x", "2")
            .file("src.new/gone", "2");
        let mut run = Run::over(sandbox);
        run.in_a_copy(is_copied);
        after_a_tick();
        run.step(line);
        let work = run.work();
        let rename = |from: &str, to: &str| fs::rename(work.join(from), work.join(to)).unwrap();
        rename("src", "src.old");
        rename("src.new", "src");
        let conflicts = |run: &Run| -> Vec<String> {
            let changes = run.changes();
            let told = changes.iter().filter(|change| change.conflict.is_some());
            told.map(|change| change.path.display().to_string())
                .collect()
        };
        assert_eq!(conflicts(&run), ["src/gone", "src/x"]);
        for paths in [&[][..], &["src/x"], &["src/gone"]] {
            assert!(
                matches!(run.apply(paths), Err(Error::Conflicts(_))),
                "{paths:?}"
            );
        }
        assert_eq!(fs::read_to_string(work.join("src/x")).unwrap(), "2");
        // The twin: the folder that the run saw may have been moved meanwhile.
        rename("src", "src.new");
        rename("src.old", "src");
        assert_eq!(run.apply(&[]).unwrap(), 3);
        assert_eq!(fs::read_to_string(work.join("src/x")).unwrap(), "run\n");
    }
}

#[test]
fn two_names_of_one_file_are_taken_over_one_by_one() {
    let sandbox = Box::shell("").file("a", "1");
    fs::create_dir(sandbox.work().join("d")).unwrap();
    for name in ["b", "c", "d/e"] {
        fs::hard_link(sandbox.work().join("a"), sandbox.work().join(name)).unwrap();
    }
    let mut run = Run::over(sandbox);
    run.step("rm a; echo run > b; rm -r d; rm c; echo 1 > c");
    assert_eq!(run.apply(&["a"]).unwrap(), 1);
    assert_eq!(run.apply(&["b"]).unwrap(), 1);
    // Written to through a name that is left, it is still a conflict.
    fs::write(run.work().join("c"), "owner").unwrap();
    assert!(matches!(run.apply(&[]), Err(Error::Conflicts(_))));
    assert_eq!(fs::read_to_string(run.work().join("b")).unwrap(), "run\n");
}
