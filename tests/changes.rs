//! Does what a run changed reach the project only when its owner says so, and is it told truly?

mod killed;

use std::fs;

use serde_json::Value;

use crate::support::World;

/// A project of some files whose runs have no network.
fn project() -> World {
    let world = World::new();
    world.policy("[sandbox]\nnetwork = \"none\"");
    world.file("src/main.rs", "fn main() {\n    old();\n}\n");
    world.file("notes.txt", "one\n");
    world.file("gone.txt", "gone\n");
    world
}

/// The paths of one kind of change, as `changes show --json` tells them.
fn paths(told: &Value, change: &str) -> Vec<String> {
    let all = told["changes"].as_array().unwrap();
    all.iter()
        .filter(|one| one["change"] == change)
        .map(|one| one["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_a_run_changed_is_told_and_reaches_the_project_when_it_is_applied() {
    let world = project();
    let line = "sed -i s/old/new/ src/main.rs; rm gone.txt; mkdir made; echo x > made/file";
    world
        .run(&["sh", "-c", line])
        .passed()
        .says("valetkey changes");
    let told = world
        .valetkey(&["changes", "show", "--json"])
        .passed()
        .json();
    assert_eq!(paths(&told, "deleted"), ["gone.txt"]);
    assert_eq!(paths(&told, "changed"), ["src/main.rs"]);
    assert_eq!(paths(&told, "added"), ["made", "made/file"]);
    assert_eq!(told["state"], "kept");
    assert!(world.path("project/gone.txt").exists());

    world
        .valetkey(&["changes", "apply", "last"])
        .passed()
        .says("4 changes");
    assert!(!world.path("project/gone.txt").exists());
    let text = fs::read_to_string(world.path("project/src/main.rs")).unwrap();
    assert!(text.contains("new();"), "{text}");
    let run = told["run"].as_str().unwrap();
    let after = world
        .valetkey(&["changes", "show", run, "--json"])
        .passed()
        .json();
    assert_eq!(after["state"], "applied");
    world
        .valetkey(&["changes", "show", run])
        .passed()
        .says("4 changes taken over at");
}

#[test]
fn deletions_are_told_first_and_all_of_them() {
    let world = project();
    for number in 0..200 {
        world.file(&format!("many/{number:03}"), "x");
    }
    let line = "rm -r many; echo a > added; echo b >> notes.txt";
    world.run(&["sh", "-c", line]).passed();
    let told = world.valetkey(&["changes", "show", "last"]).passed().stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 203);
    let (first, rest) = lines.split_at(201);
    assert!(first.iter().all(|line| line.starts_with("deleted ")));
    assert!(
        rest.iter().all(|line| !line.starts_with("deleted ")),
        "{rest:?}"
    );
}

#[test]
fn what_leads_out_of_a_project_or_gives_rights_gets_there_only_where_a_layer_is_copied() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let world = project();
    let line =
        "echo x > tool; chmod 4755 tool; mkfifo pipe; ln -s /etc/passwd leads-out; echo x > plain";
    world.run(&["sh", "-c", line]).passed();
    let copied = tempfile::tempdir().unwrap();
    let mut folders = vec![world.path("state")];
    let mut layer = None;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().ends_with("upper") {
                layer = Some(entry.path());
            } else if entry.file_type().unwrap().is_dir() && entry.file_name() != "work" {
                folders.push(entry.path());
            }
        }
    }
    let layer = layer.unwrap();
    let done = std::process::Command::new("cp")
        .args(["-a", "--"])
        .arg(layer.join("."))
        .arg(copied.path())
        .status()
        .unwrap();
    assert!(done.success());
    world.valetkey(&["changes", "apply", "last"]);
    let is_there = |folder: &std::path::Path| {
        let of = |name: &str| folder.join(name).symlink_metadata();
        [
            of("tool").is_ok_and(|found| found.permissions().mode() & 0o4000 != 0),
            of("pipe").is_ok_and(|found| found.file_type().is_fifo()),
            of("leads-out").is_ok_and(|found| found.is_symlink()),
        ]
    };
    assert!(world.path("project").join("plain").exists());
    assert_eq!(is_there(&world.path("project")), [false; 3]);
    assert_eq!(is_there(copied.path()), [true; 3]);
}

#[test]
fn files_that_this_machine_would_run_later_are_told() {
    let world = project();
    let line = "mkdir -p .vscode .github/workflows; echo x > .vscode/tasks.json; echo x > Makefile; \
                echo x > package.json; echo x > .github/workflows/ci.yml; echo x > plain.txt";
    world.run(&["sh", "-c", line]).passed();
    let told = world.valetkey(&["changes", "show"]).passed().stdout;
    for (path, who) in [
        (".vscode/tasks.json", "! editors"),
        ("Makefile", "! builds"),
        ("package.json", "! package clients"),
        (".github/workflows/ci.yml", "! continuous integration"),
    ] {
        let line = told.lines().find(|line| line.contains(path)).unwrap();
        assert!(line.contains(who), "{line}");
    }
    let plain = told
        .lines()
        .find(|line| line.contains("plain.txt"))
        .unwrap();
    assert!(!plain.contains('!'), "{plain}");
}

#[test]
fn the_diff_is_one_that_git_applies() {
    let world = project();
    world.file("tool.sh", "echo one\n");
    world.file("link-to-be", "file\n");
    let line = "sed -i s/old/new/ src/main.rs; printf 'no newline' > notes.txt; rm gone.txt; \
                mkdir 'a b'; echo new > 'a b/ü'; chmod 755 tool.sh; printf '\\000\\001' > binary; \
                rm link-to-be; ln -s notes.txt link-to-be";
    world.run(&["sh", "-c", line]).passed();
    let diff = world.valetkey(&["changes", "diff", "last"]).passed().stdout;
    assert!(diff.contains("-    old();\n+    new();\n"), "{diff}");
    assert!(
        diff.contains("Binary files /dev/null and b/binary differ"),
        "{diff}"
    );
    assert!(diff.contains("old mode 100644\nnew mode 100755"), "{diff}");

    // Without the binary file, which no text can hold.
    let text = world
        .valetkey(&[
            "changes",
            "diff",
            "last",
            "src",
            "notes.txt",
            "gone.txt",
            "a b",
            "tool.sh",
            "link-to-be",
        ])
        .passed()
        .stdout;
    world.file("../elsewhere/changes.diff", &text);
    let mut git = std::process::Command::new("git");
    git.args(["apply", "--unsafe-paths", "../elsewhere/changes.diff"])
        .current_dir(world.path("project"));
    world.finish(git, "").passed();
    let told = world
        .valetkey(&["changes", "show", "--json"])
        .passed()
        .json();
    let left: Vec<&str> = told["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["path"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["binary"]);
}

#[test]
fn a_change_of_the_owners_is_never_written_over() {
    let world = project();
    world
        .run(&["sh", "-c", "echo run > notes.txt; echo run > other.txt"])
        .passed();
    world.file("notes.txt", "mine\n");
    world
        .valetkey(&["changes", "apply", "last"])
        .exited(3)
        .says("notes.txt: it changed in your workspace since the run began");
    assert!(!world.path("project/other.txt").exists());
    let refused = world
        .valetkey(&["changes", "apply", "last", "--json"])
        .exited(3)
        .json();
    assert_eq!(refused["error"]["code"], "changes-conflict");

    world
        .valetkey(&["changes", "apply", "last", "other.txt"])
        .passed();
    assert!(world.path("project/other.txt").exists());
    let notes = fs::read_to_string(world.path("project/notes.txt")).unwrap();
    assert_eq!(notes, "mine\n");
    world
        .valetkey(&["changes", "show"])
        .passed()
        .says("some were taken over")
        .says("CONFLICT");
}

#[test]
fn a_folder_that_was_put_in_anothers_place_is_never_written_over() {
    let world = project();
    for name in ["src", "src.new"] {
        fs::create_dir_all(world.path("project").join(name)).unwrap();
        world.file(&format!("{name}/x"), "mine\n");
    }
    world.run(&["sh", "-c", "echo run > src/x"]).passed();
    let rename = |from: &str, to: &str| {
        let project = world.path("project");
        fs::rename(project.join(from), project.join(to)).unwrap();
    };
    rename("src", "src.old");
    rename("src.new", "src");
    world
        .valetkey(&["changes", "apply", "last"])
        .exited(3)
        .says("src/x: it changed in your workspace since the run began");
    let left = fs::read_to_string(world.path("project/src/x")).unwrap();
    assert_eq!(left, "mine\n");
}

#[test]
fn discarded_changes_are_gone_and_the_record_says_so() {
    let world = project();
    world.run(&["sh", "-c", "echo run > notes.txt"]).passed();
    world
        .valetkey(&["changes", "discard", "last"])
        .passed()
        .says("thrown away");
    world
        .valetkey(&["changes", "show", "last"])
        .passed()
        .says("thrown away at");
    world
        .valetkey(&["changes", "apply", "last"])
        .passed()
        .says("0 changes");
    let notes = fs::read_to_string(world.path("project/notes.txt")).unwrap();
    assert_eq!(notes, "one\n");
}

#[test]
fn a_run_is_found_by_the_beginning_of_its_name_and_never_a_run_over_another_folder() {
    let world = project();
    world.run(&["sh", "-c", "echo run > notes.txt"]).passed();
    let told = world
        .valetkey(&["changes", "show", "--json"])
        .passed()
        .json();
    let run = told["run"].as_str().unwrap();
    world
        .valetkey(&["changes", "show", &run[..14]])
        .passed()
        .says("notes.txt");
    world
        .valetkey(&["changes", "show", &run[4..14]])
        .passed()
        .says("notes.txt");
    world
        .valetkey(&["changes", "show", "run_zzz"])
        .exited(3)
        .says("no run `run_zzz`");
    let mut elsewhere = world.command(&["changes", "apply", "last"]);
    elsewhere.current_dir(world.path("elsewhere"));
    world.finish(elsewhere, "").exited(3).says(run);
    let mut below = world.command(&["changes", "apply", "last", "../notes.txt"]);
    below.current_dir(world.path("project/src"));
    world.finish(below, "").passed();
    world
        .run(&["sh", "-c", "echo run > notes.txt; echo more > more.txt"])
        .passed();
    world
        .valetkey(&["changes", "show", "run_"])
        .exited(3)
        .says("2 runs");
}

#[test]
fn names_that_a_run_chose_command_no_terminal() {
    let world = project();
    let line = "touch \"$(printf 'a\\033[2Jb\\nadded    c')\"";
    world.run(&["sh", "-c", line]).passed();
    let told = world.valetkey(&["changes", "show"]).passed().stdout;
    assert_eq!(told.lines().count(), 1, "{told:?}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
}

#[test]
fn a_run_without_an_overlay_keeps_no_changes() {
    let world = World::new();
    world.policy(
        "[sandbox]\nnetwork = \"none\"\nworkspace = { path = \".\", mode = \"read-only\" }",
    );
    world.run(&["true"]).passed();
    world
        .valetkey(&["changes", "show", "last"])
        .exited(3)
        .says("no run kept changes");
}
