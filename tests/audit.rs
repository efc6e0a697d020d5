//! What did it reach? Every request is in the log, the log cannot be changed unseen, and it survives being killed.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use crate::support::World;
use crate::support::world::greeting;

fn shop() -> World {
    let mut world = World::new();
    world.origin("shop.example", greeting());
    world.policy("[[allow]]\nhost = \"shop.example\"\npaths = [\"/orders/**\"]\n");
    world
}

/// One run with one request carried and two refused.
fn after_a_run() -> World {
    let world = shop();
    let line = "curl -sS 'https://shop.example/orders/1?tenant=query-value' -H 'X-Note: field-value' -d body-value
curl -sS https://shop.example/users/1; curl -sS https://elsewhere.example/";
    world.run(&["sh", "-c", line]).passed();
    world
}

fn events(world: &World) -> Vec<Value> {
    let shown = world.valetkey(&["audit", "show", "--json"]).passed().json();
    let events = shown["events"].as_array().unwrap().iter();
    events
        .map(|event| {
            if event["event"].is_object() {
                &event["event"]
            } else {
                event
            }
        })
        .cloned()
        .collect()
}

/// The log's files, oldest first.
fn segments(world: &World) -> Vec<PathBuf> {
    let mut open = vec![world.path("state")];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "jsonl")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no segment of the log was found");
    found
}

/// The segment with the most lines.
fn largest(world: &World) -> PathBuf {
    segments(world)
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap()
}

#[test]
fn show_tells_what_was_reached_and_refused() {
    let finished = after_a_run().valetkey(&["audit", "show"]).passed();
    finished
        .says("reached 1 host; refused 2")
        .says("shop.example")
        .says("elsewhere.example")
        .says("host-not-allowed");
}

#[test]
fn every_request_has_exactly_one_final_record() {
    let world = after_a_run();
    let mut finals = std::collections::BTreeMap::new();
    for event in events(&world) {
        let Some(id) = event["request"]["id"].as_str() else {
            continue;
        };
        let count: &mut (usize, usize) = finals.entry(id.to_owned()).or_default();
        match event["event"].as_str().unwrap() {
            "request.started" => count.0 += 1,
            "request.finished" | "request.denied" => count.1 += 1,
            _ => {}
        }
    }
    assert!(finals.len() >= 3, "{finals:?}");
    assert!(
        finals
            .values()
            .all(|(started, ended)| *ended == 1 && *started <= 1),
        "{finals:?}"
    );
}

#[test]
fn the_log_names_the_query_and_never_its_values() {
    let world = after_a_run();
    let text: String = segments(&world)
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert!(text.contains("tenant"));
    for value in ["query-value", "field-value", "body-value"] {
        assert!(!text.contains(value), "{value} is in the log");
    }
}

#[test]
fn verify_passes_on_an_untouched_log() {
    after_a_run()
        .valetkey(&["audit", "verify"])
        .passed()
        .says("whole");
}

#[test]
fn verify_finds_a_changed_byte() {
    let world = after_a_run();
    let path = largest(&world);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("shop.example", "chop.example", 1)).unwrap();
    let finished = world.valetkey(&["audit", "verify"]);
    assert_ne!(finished.code(), 0, "{}", finished.stdout);
}

#[test]
fn verify_finds_a_line_left_out() {
    let world = after_a_run();
    let path = largest(&world);
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text
        .lines()
        .enumerate()
        .filter(|(n, _)| *n != 1)
        .map(|(_, l)| l)
        .collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    assert_ne!(world.valetkey(&["audit", "verify"]).code(), 0);
}

#[test]
fn verify_finds_two_lines_changed_round() {
    let world = after_a_run();
    let path = largest(&world);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.swap(1, 2);
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    assert_ne!(world.valetkey(&["audit", "verify"]).code(), 0);
}

#[test]
fn verify_finds_the_end_cut_off() {
    let world = after_a_run();
    let path = largest(&world);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    fs::write(&path, lines[..lines.len() - 2].join("\n") + "\n").unwrap();
    assert_ne!(world.valetkey(&["audit", "verify"]).code(), 0);
}

#[test]
fn verify_finds_a_segment_taken_away() {
    let world = after_a_run();
    fs::remove_file(largest(&world)).unwrap();
    assert_ne!(world.valetkey(&["audit", "verify"]).code(), 0);
}

#[test]
fn a_torn_last_line_is_repaired_and_told() {
    let world = after_a_run();
    // As if the machine had lost power in the middle of a line of a writer that is gone.
    let mut file = OpenOptions::new()
        .append(true)
        .open(largest(&world))
        .unwrap();
    file.write_all(b"{\"v\":1,\"seq\":99").unwrap();
    let finished = world.valetkey(&["audit", "verify"]);
    assert!(finished.code() != 0 || finished.all().contains("whole"));
    world.run(&["true"]).passed();
}

#[test]
fn two_runs_at_once_share_one_state_folder() {
    let world = shop();
    let start = || {
        let mut command = world.command(&[
            "run",
            "--quiet",
            "--",
            "sh",
            "-c",
            "echo ready; cat; curl -sS https://shop.example/orders/1",
        ]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, stdout)
    };
    // Both are running before either goes on.
    let both = [start(), start()];
    for (mut child, mut stdout) in both {
        drop(child.stdin.take());
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(rest, "hello\n");
    }
    world.valetkey(&["audit", "verify"]).passed();
    let runs = world.valetkey(&["runs", "list", "--json"]).passed().json();
    let project = world.path("project").display().to_string();
    let ours = runs
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| run["project"] == project.as_str());
    assert_eq!(ours.count(), 2);
}

#[test]
fn fifty_runs_killed_half_way_leave_everything_usable() {
    let world = shop();
    for number in 0..50 {
        let mut command = world.command(&[
            "run",
            "--quiet",
            "--",
            "sh",
            "-c",
            "curl -sS https://shop.example/orders/1; echo ready; cat",
        ]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if number % 2 == 0 {
            // Half way: after the first request was carried.
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            while lines.next().unwrap().unwrap() != "ready" {}
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    world
        .run(&["curl", "-sS", "https://shop.example/orders/2"])
        .passed()
        .says("hello");
    world.valetkey(&["audit", "verify"]).passed();
    world
        .valetkey(&["audit", "show"])
        .passed()
        .says("reached 1 host");
}

#[test]
fn nothing_of_a_killed_run_lives_on() {
    let world = World::new();
    world.policy("[sandbox]\nworkspace = { path = \".\", mode = \"read-write\" }\n");
    // The grandchild holds a pipe of its own making open for writing as long as it lives.
    let line = "mkfifo pipe; sh -c 'echo held; exec sleep 600' >pipe & echo ready; wait";
    let mut command = world.command(&["run", "--quiet", "--", "sh", "-c", line]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut text).unwrap();
    assert_eq!(text, "ready\n");
    let pipe = fs::File::open(world.path("project/pipe")).unwrap();
    let mut pipe = BufReader::new(pipe);
    text.clear();
    pipe.read_line(&mut text).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // It ends only when the last process that holds the pipe has ended.
    pipe.read_to_string(&mut text).unwrap();
    assert_eq!(text, "held\n");
}

#[test]
fn verify_finds_a_line_that_was_added() {
    let world = shop();
    world
        .run(&["curl", "-sS", "https://shop.example/orders/1"])
        .passed()
        .says("hello");
    let mut file = OpenOptions::new()
        .append(true)
        .open(largest(&world))
        .unwrap();
    file.write_all(b"{}\n").unwrap();
    assert_ne!(world.valetkey(&["audit", "verify"]).code(), 0);
}
