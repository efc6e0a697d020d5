//! Random trees, and random edits made in the sandbox: taking them over makes the workspace what the sandbox saw, and
//! throwing them away leaves it as it was.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use launcher::changes::{Change, Kept, State};

use crate::changes::{Run, snapshot};
use crate::support::{Box, as_each_user};

#[test]
fn what_the_sandbox_saw_is_what_taking_over_makes() {
    as_each_user(
        "reproduces::what_the_sandbox_saw_is_what_taking_over_makes",
        || {
            for seed in 0..CASES {
                let mut random = Random(seed);
                let mut run = Run::over(random_tree(&mut random, Box::shell("")));
                let mut saw = BTreeMap::new();
                for _ in 0..1 + random.below(3) {
                    let line = random_edits(&mut random);
                    saw = as_seen(&run.step(&format!("{line}\n{LOOK}")));
                }
                run.apply(&[])
                    .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                assert_eq!(as_found(&run.work()), saw, "seed {seed}");
                assert!(matches!(run.state(), State::Applied { .. }), "seed {seed}");
            }
        },
    );
}

#[test]
fn what_the_sandbox_saw_in_copies_is_what_taking_over_makes() {
    as_each_user(
        "reproduces::what_the_sandbox_saw_in_copies_is_what_taking_over_makes",
        || {
            for seed in 2000..2000 + CASES / 2 {
                let mut random = Random(seed);
                let sandbox = random_tree(&mut random, Box::shell(""));
                let mut run = Run::over(sandbox);
                let mut saw = BTreeMap::new();
                for _ in 0..1 + random.below(3) {
                    // Also above a layer that the kernel wrote, and below one: it is the same format.
                    run.in_a_copy(random.below(4) > 0);
                    let line = random_edits(&mut random);
                    saw = as_seen(&run.step(&format!("{line}\n{LOOK}")));
                }
                run.apply(&[])
                    .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                assert_eq!(as_found(&run.work()), saw, "seed {seed}");
            }
        },
    );
}

#[test]
fn merged_layers_show_the_sandbox_and_the_owner_what_they_showed_before() {
    as_each_user(
        "reproduces::merged_layers_show_the_sandbox_and_the_owner_what_they_showed_before",
        || {
            for seed in 3000..3000 + CASES / 2 {
                let mut random = Random(seed);
                let mut run = Run::over(random_tree(&mut random, Box::shell("")));
                for _ in 0..2 + random.below(5) {
                    run.in_a_copy(random.below(6) == 0);
                    run.step(&random_edits(&mut random));
                }
                run.in_a_copy(false);
                let saw = as_seen(&run.step(LOOK));
                let told = run.changes();
                let layers = run.layers();
                let count = 2 + random.below(layers as u64 - 1) as usize;
                run.merge(count);
                assert_eq!(run.layers(), layers - count + 1);
                let same: Vec<_> = run.changes().into_iter().map(public).collect();
                let told: Vec<_> = told.into_iter().map(public).collect();
                assert_eq!(same, told, "seed {seed}");
                assert_eq!(as_seen(&run.step(LOOK)), saw, "seed {seed}");
                // And steps go on over it, as if it had been one layer from the beginning.
                let mut saw = saw;
                for _ in 0..2 {
                    let line = random_edits(&mut random);
                    saw = as_seen(&run.step(&format!("{line}\n{LOOK}")));
                    run.merge(2);
                }
                run.apply(&[])
                    .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                assert_eq!(as_found(&run.work()), saw, "seed {seed}");
            }
        },
    );
}

#[test]
fn folders_that_lie_at_their_own_place_again_are_merged_without_what_was_hidden() {
    as_each_user(
        "reproduces::folders_that_lie_at_their_own_place_again_are_merged_without_what_was_hidden",
        || {
            let sandbox = Box::shell("").file("a/x/old", "1").file("b/old", "2");
            let mut run = Run::over(sandbox);
            run.step("rm -r a b; echo file > a; mkdir -p b/in; echo > b/in/two; chmod 555 b/in");
            run.step("rm a; mkdir -p a/x; echo > a/x/new; chmod 755 b/in; rm b/in/two");
            run.step("mkdir b/in/three; chmod 500 b/in/three a/x; touch -d 2001-01-01 a");
            run.merge(3);
            assert_eq!(run.layers(), 1);
            let seen = run.step("find a b | sort; stat -c '%a %n' b/in/three a/x; ls -A b/in | wc -l; stat -c %.4y a; rm -r b");
            assert_eq!(
                seen,
                "a\na/x\na/x/new\nb\nb/in\nb/in/three\n500 b/in/three\n500 a/x\n1\n2001\n"
            );
            run.merge(2);
            assert_eq!(run.step("ls"), "a\nprobe\n");
            assert!(
                run.told().contains(&"deleted b/old".to_owned()),
                "{:?}",
                run.told()
            );
            assert!(
                run.told().contains(&"deleted a/x/old".to_owned()),
                "{:?}",
                run.told()
            );
        },
    );
}

#[test]
fn throwing_away_leaves_the_workspace_as_it_was() {
    as_each_user(
        "reproduces::throwing_away_leaves_the_workspace_as_it_was",
        || {
            for seed in 0..CASES / 4 {
                let mut random = Random(seed);
                let mut run = Run::over(random_tree(&mut random, Box::shell("")));
                let before = snapshot(&run.work(), true);
                for _ in 0..1 + random.below(3) {
                    run.step(&random_edits(&mut random));
                }
                Kept::discard(&run.folder()).unwrap();
                assert_eq!(snapshot(&run.work(), true), before, "seed {seed}");
            }
        },
    );
}

#[test]
fn taking_over_path_by_path_comes_to_the_same() {
    as_each_user(
        "reproduces::taking_over_path_by_path_comes_to_the_same",
        || {
            for seed in 1000..1000 + CASES / 4 {
                let mut random = Random(seed);
                let mut run = Run::over(random_tree(&mut random, Box::shell("")));
                let line = random_edits(&mut random);
                let saw = as_seen(&run.step(&format!("{line}\n{LOOK}")));
                // The first of what is left, until nothing is.
                while let Some(first) = run.changes().first().map(|change| change.path.clone()) {
                    run.apply(&[first.to_str().unwrap()])
                        .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
                }
                assert_eq!(as_found(&run.work()), saw, "seed {seed}");
            }
        },
    );
}

/// All of a change but where the run's side of it lies.
fn public(change: Change) -> String {
    let Change {
        path,
        was,
        now,
        conflict,
        refused,
        ..
    } = change;
    format!("{path:?} {was:?} {now:?} {conflict:?} {refused:?}")
}

/// A generator whose cases can be told by their seeds.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }

    /// A path of few names, so that edits meet.
    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        let names: Vec<&str> = (0..depth).map(|_| self.of(NAMES)).collect();
        names.join("/")
    }
}

fn random_tree(random: &mut Random, sandbox: Box) -> Box {
    let work = sandbox.work();
    for _ in 0..12 {
        let path = work.join(random.path());
        let parent = path.parent().unwrap();
        if fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match random.below(5) {
            0 => fs::create_dir(&path).unwrap(),
            1 => symlink(random.of(TARGETS), &path).unwrap(),
            _ => {
                fs::write(&path, random.next().to_string()).unwrap();
                let mode = [0o644, 0o755, 0o600, 0o444][random.below(4) as usize];
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                if random.below(6) == 0 {
                    let _ = fs::hard_link(&path, work.join(random.path()));
                }
            }
        }
    }
    sandbox
}

/// Lines of shell, each of which may fail.
fn random_edits(random: &mut Random) -> String {
    let mut lines = String::new();
    for _ in 0..4 + random.below(12) {
        let (one, other) = (random.path(), random.path());
        let number = random.below(100);
        let mode = random.of(&["644", "755", "600", "444", "400", "711"]);
        let folder_mode = random.of(&["755", "700", "750"]);
        let target = random.of(TARGETS);
        let line = match random.below(14) {
            0 => format!("rm -f '{one}'"),
            1 => format!("rm -rf '{one}'"),
            2 => format!("mkdir -p '{one}'"),
            3 => format!("mkdir -p \"$(dirname '{one}')\" && echo {number} > '{one}'"),
            4 => format!("echo {number} >> '{one}'"),
            5 => format!("mv '{one}' '{other}'"),
            6 => format!("mv -T '{one}' '{other}'"),
            7 => format!("[ -f '{one}' ] && [ ! -L '{one}' ] && chmod {mode} '{one}'"),
            8 => format!("ln -sfn '{target}' '{one}'"),
            9 => format!("ln '{one}' '{other}'"),
            10 => format!("rm -rf '{one}' && mkdir '{one}' && echo {number} > '{one}/{number}'"),
            11 => format!("cp -a '{one}' '{other}'"),
            12 => format!("touch '{one}'"),
            _ => format!("[ -d '{one}' ] && [ ! -L '{one}' ] && chmod {folder_mode} '{one}'"),
        };
        let _ = writeln!(lines, "{{ {line} ; }} 2>/dev/null");
    }
    lines.push_str("true\n");
    lines
}

/// What the sandbox saw, by path: kind and permissions, and what is in it.
fn as_seen(output: &str) -> BTreeMap<String, String> {
    let entries = output.split('\u{1}').filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (path, rest) = entry.split_once('\u{2}').unwrap();
            (path.to_owned(), rest.trim_end().to_owned())
        })
        .collect()
}

/// The same of a tree on the host.
fn as_found(top: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let whole = top.join(&path);
        let metadata = whole.symlink_metadata().unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let what = if metadata.is_symlink() {
            format!("l {}", fs::read_link(&whole).unwrap().display())
        } else if metadata.is_dir() {
            for entry in fs::read_dir(&whole).unwrap() {
                left.push(path.join(entry.unwrap().file_name()));
            }
            format!("d {mode:o}")
        } else if path == Path::new("probe") {
            continue;
        } else {
            let bytes = fs::read(&whole).unwrap();
            let text = String::from_utf8(bytes).unwrap().replace('\n', " ");
            format!("f {mode:o} {}", text.trim_end())
        };
        // The mount point's own permissions are the layer's.
        if !path.as_os_str().is_empty() {
            found.insert(path.display().to_string(), what.trim_end().to_owned());
        }
    }
    found
}

/// Prints every entry as `\1path\2kind mode contents`.
const LOOK: &str = r#"
find . -mindepth 1 ! -path ./probe | while IFS= read -r path; do
    name=${path#./}
    if [ -L "$path" ]; then what="l $(readlink "$path")"
    elif [ -d "$path" ]; then what="d $(stat -c %a "$path")"
    else what="f $(stat -c %a "$path") $(tr '\n' ' ' < "$path")"; fi
    printf '\001%s\002%s' "$name" "$what"
done
"#;

const NAMES: &[&str] = &["a", "b", "c", "d e", "ü", "x"];
const TARGETS: &[&str] = &["a", "b/c", "c", "nothing", "./a"];
const CASES: u64 = 24;
