//! What does `changes apply` leave when it is killed in the middle, and does the same command do the rest?

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::World;

/// How far it has come when it is killed.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// So many pieces are made beside their places.
    Made(usize),
    /// So many files have their new contents.
    Put(usize),
    /// So many files are gone.
    Gone(usize),
}

/// The project: `changed/N` and `gone/N` are there before; `changed/N` and the folder `added` with N files after.
struct Files {
    count: usize,
}

impl Files {
    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(|number| number.to_string())
    }

    fn text(&self, word: &str, name: &str) -> String {
        format!("{word} {name}\n").repeat(300)
    }

    /// How many names of ours, new contents and removed files there are. A file that is neither old nor new, or a new folder
    /// that is not whole, fails.
    fn look(&self, project: &Path) -> (usize, usize, usize) {
        let read = |path: String| fs::read_to_string(project.join(path)).ok();
        let mut seen = (0, 0, 0);
        for name in self.names() {
            let text = read(format!("changed/{name}")).expect("a changed file is there");
            if text == self.text("new", &name) {
                seen.1 += 1;
            } else {
                assert!(text == self.text("old", &name), "changed/{name} is neither");
            }
            match read(format!("gone/{name}")) {
                None => seen.2 += 1,
                Some(text) => assert!(text == self.text("old", &name), "gone/{name} is neither"),
            }
            let added = read(format!("added/{name}"));
            let is_there = project.join("added").exists();
            // Looked at in this order: the folder may appear in between.
            assert!(
                !is_there || added.is_none() || added == Some(self.text("new", &name)),
                "added/{name} is not whole"
            );
        }
        seen.0 = ["", "changed", "gone"]
            .iter()
            .filter_map(|folder| fs::read_dir(project.join(folder)).ok())
            .flatten()
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                name.to_string_lossy().starts_with(".valetkey-apply-")
            })
            .count();
        seen
    }

    /// Kills it once it has come so far. Whether it was killed.
    fn kill_at(&self, point: Point, apply: &mut Child, project: &Path) -> bool {
        loop {
            if apply.try_wait().unwrap().is_some() {
                return false;
            }
            let (made, put, gone) = self.look(project);
            let is_there = match point {
                Point::Made(count) => made >= count,
                Point::Put(count) => put >= count,
                Point::Gone(count) => gone >= count,
            };
            if is_there {
                apply.kill().unwrap();
                return !apply.wait().unwrap().success();
            }
        }
    }
}

/// Takes the changes over, killed at each of these points, and once more to the end.
fn killed_at(count: usize, points: &[Point]) {
    let world = World::new();
    world.policy("[sandbox]\nnetwork = \"none\"");
    let files = Files { count };
    for name in files.names() {
        for folder in ["changed", "gone"] {
            world.file(&format!("{folder}/{name}"), &files.text("old", &name));
        }
    }
    let line = "sed -i s/old/new/ changed/*; rm gone/*; cp -r changed added";
    world.run(&["sh", "-c", line]).passed();
    let project = world.path("project");
    let mut killed = 0;
    for point in points {
        let mut command = world.command(&["changes", "apply", "last"]);
        command.stdin(Stdio::null());
        let mut apply = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        killed += usize::from(files.kill_at(*point, &mut apply, &project));
        files.look(&project);
        if project.join("added").exists() {
            let whole = fs::read_dir(project.join("added")).unwrap().count();
            assert_eq!(whole, count, "the new folder is not whole");
        }
    }
    // Each of them may be missed on its own, when it is through before it is looked at.
    assert!(killed >= points.len() / 2, "killed {killed} times");
    world.valetkey(&["changes", "apply", "last"]).passed();
    assert_eq!(files.look(&project), (0, count, count));
    let told: Value = world
        .valetkey(&["changes", "show", "last", "--json"])
        .passed()
        .json();
    assert_eq!(told["state"], "applied");
}

#[test]
fn killed_at_any_point_it_leaves_each_file_old_or_new_and_once_more_does_the_rest() {
    // So few that each is written to the disk by itself.
    killed_at(
        20,
        &[
            Point::Made(1),
            Point::Made(12),
            Point::Put(1),
            Point::Put(7),
            Point::Put(15),
            Point::Gone(3),
        ],
    );
}

#[test]
fn killed_among_many_files_it_leaves_each_old_or_new_and_once_more_does_the_rest() {
    killed_at(
        300,
        &[
            Point::Made(3),
            Point::Made(250),
            Point::Put(1),
            Point::Put(150),
            Point::Gone(2),
            Point::Gone(200),
        ],
    );
}
