//! Is anything lost or doubled when the process is killed while it makes one layer of several?

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use launcher::changes::{Change, Entry, Kept, Kind, Record, die_at, merge};

use crate::changes::Run;
use crate::support::{Box, as_each_user};

const NAME: &str = "merged::wherever_a_merge_is_killed_nothing_is_lost_or_doubled";
/// Has the test be what is killed: at which point, in the folder of which run.
const DIE: &str = "VALETKEY_TEST_DIE";

#[test]
fn wherever_a_merge_is_killed_nothing_is_lost_or_doubled() {
    if let Ok(asked) = std::env::var(DIE) {
        let (point, folder) = asked.split_once(' ').unwrap();
        let mut record = Record::load(Path::new(folder)).unwrap();
        die_at(point.parse().unwrap());
        let all = record.layers.len();
        return merge(&mut record, all).unwrap();
    }
    as_each_user(NAME, || {
        let mut run = run();
        let saw = look(&mut run);
        let told = told(&run);
        assert!(told.len() > 12, "{told:?}");
        let saved = run.folder().with_file_name("saved");
        copy(&run.folder(), &saved);
        let mut killed = 0;
        while is_killed(&run, killed + 1) {
            killed += 1;
            assert_eq!(self::told(&run), told, "killed at {killed}");
            assert_eq!(look(&mut run), saw, "killed at {killed}");
            // Whoever begins anew comes to the end.
            let mut record = Record::load(&run.folder()).unwrap();
            let all = record.layers.len();
            merge(&mut record, all).unwrap();
            assert_eq!(run.layers(), 1);
            assert_eq!(self::told(&run), told, "killed at {killed}, and done again");
            assert_eq!(look(&mut run), saw, "killed at {killed}, and done again");
            launcher::remove_folder(&run.folder()).unwrap();
            copy(&saved, &run.folder());
        }
        assert!(killed > 10, "{killed}");
        assert_eq!(self::told(&run), told, "not killed");
        Kept::discard(&run.folder()).unwrap();
        assert!(!run.folder().join("layers").exists());
    });
}

/// Layers with everything that one can say about what lies below it.
fn run() -> Run {
    let sandbox = Box::shell("")
        .file("a/x/old", "1")
        .file("b/old", "2")
        .file("c/d/deep", "3")
        .file("kept/file", "4")
        .file("gone", "5");
    let mut run = Run::over(sandbox);
    for line in [
        "rm -r a b gone; echo file > a; mkdir -p b/in; echo 1 > b/in/one; echo 1 > b/in/two; echo 1 > new",
        "rm a b/in/two; mkdir -p a/x; echo 2 > a/x/new; chmod 500 b/in; mkdir -p c/d/e; echo 2 > c/d/e/f; echo 2 > gone",
        "rm -r c; mkdir -p c/d; echo 3 > c/d/other; mkdir t; echo 3 > t/in; mv t b/t; echo 3 > new; ln -s new link",
        "chmod 700 b/in; rm b/in/one; echo 4 > b/in/three; chmod 500 b/in; rm gone link; mkdir link; echo 4 > link/x; \
         echo 4 > kept/more; chmod 555 a/x",
    ] {
        run.step(line);
    }
    run
}

/// Merges all layers in a process that is killed at this point. Whether it was.
fn is_killed(run: &Run, point: u64) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(DIE, format!("{point} {}", run.folder().display()))
        .output()
        .unwrap()
        .status;
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// What a sandbox over the layers sees, but for what its owner may not do in folders: while it works in one, the merge
/// gives them that right. It leaves no layer.
fn look(run: &mut Run) -> String {
    let seen = run.step("find . ! -name probe -printf '%y%m %p %l\\n' | sed 's/^d./d7/' | sort; find . -type f ! -name probe -exec head {} + | sort");
    let mut record = Record::load(&run.folder()).unwrap();
    let name = record.layers.pop().unwrap();
    let layer = record.layers_folder().join(name);
    record.save().unwrap();
    launcher::remove_folder(&layer).unwrap();
    seen
}

fn told(run: &Run) -> Vec<String> {
    let open = |entry: Option<Entry>| {
        entry.map(|mut entry| {
            if entry.kind == Kind::Folder {
                entry.mode |= 0o700;
            }
            entry
        })
    };
    let told = |change: Change| {
        let (was, now) = (open(change.was), open(change.now));
        (was != now).then(|| format!("{:?} {was:?} {now:?}", change.path))
    };
    run.changes().into_iter().filter_map(told).collect()
}

/// With all attributes, links and what stands for nothing.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
}
