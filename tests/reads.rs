//! What can it read and change? The workspace as the policy says, the system, and nothing else of mine.

use std::fs;

use crate::support::World;

/// A world whose owner has private things, in the home and in the project.
fn world(sandbox: &str) -> World {
    let mut world = World::new();
    for (name, path) in [
        ("ssh", "home/.ssh/id_ed25519"),
        ("aws", "home/.aws/credentials"),
        ("notes", "home/notes.txt"),
    ] {
        let text = world.plant(name);
        let file = world.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    world.file("data.txt", "the data\n");
    world.file(".env", "SOME_KEY=value-in-dot-env\n");
    world.file("secrets/key.txt", "value-in-secrets\n");
    world.policy(&format!("[sandbox]\n{sandbox}\n"));
    world
}

fn shell(world: &World, line: &str) -> crate::support::process::Finished {
    world.run(&["sh", "-c", line])
}

#[test]
fn the_workspace_can_be_read() {
    shell(&world(""), "cat data.txt").passed().says("the data");
}

#[test]
fn the_owners_home_is_no_workspace_in_any_mode() {
    let world = world("");
    let home = world.path("home");
    for mode in ["overlay", "read-only", "none"] {
        let text =
            format!("version = 1\n[sandbox]\nworkspace = {{ path = \".\", mode = \"{mode}\" }}\n");
        fs::write(home.join("valetkey.toml"), text).unwrap();
        let mut command = world.command(&["run", "--", "ls", "-A", "."]);
        command.current_dir(&home);
        let finished = world.finish(command, "");
        if mode == "none" {
            finished.passed().says_nothing_of("notes.txt");
        } else {
            finished.exited(78).says("your home lies in it");
        }
    }
}

#[test]
fn the_owners_home_is_not_there() {
    let world = world("");
    let home = world.path("home").display().to_string();
    let line = format!(
        "cat {home}/.ssh/id_ed25519 {home}/.aws/credentials {home}/notes.txt ~/.ssh/id_ed25519; ls -la ~ {home}"
    );
    shell(&world, &line)
        .says_nothing_of("test-secret-")
        .says_nothing_of("notes.txt\n");
}

#[test]
fn the_installations_own_folders_are_not_there_even_when_asked_for() {
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    let config = world.path("config").display().to_string();
    let state = world.path("state").display().to_string();
    world.write_policy(&format!("[sandbox]\nread = [{config:?}, {state:?}]\n"));
    // Refusing such a policy is as good as hiding the folders.
    if world.valetkey(&["check"]).code() == 0 {
        world.approve();
        let line = format!("cat {config}/secrets.toml {config}/keys/* ; find {state} -type f");
        let finished = shell(&world, &line);
        finished
            .says_nothing_of("test-secret")
            .says_nothing_of("provider = ")
            .says_nothing_of(".jsonl");
    }
}

#[test]
fn hidden_files_of_the_workspace_read_as_nothing() {
    shell(&world(""), "cat .env; cat data.txt")
        .says("the data")
        .says_nothing_of("value-in-dot-env");
}

#[test]
fn files_that_the_policy_hides_read_as_nothing() {
    let hidden = world("hide = [\"secrets/**\"]");
    shell(&hidden, "cat secrets/key.txt; cat data.txt")
        .says("the data")
        .says_nothing_of("value-in-secrets");
    shell(&world(""), "cat secrets/key.txt").says("value-in-secrets");
}

#[test]
fn hidden_files_are_not_reachable_through_a_link() {
    let world = world("");
    let finished = shell(
        &world,
        "ln -s .env plain; cat plain; ln .env hard; cat hard; mv .env moved; cat moved; true",
    );
    finished.says_nothing_of("value-in-dot-env");
}

#[test]
fn what_a_run_writes_to_an_overlay_stays_out_of_the_project() {
    let world = world("");
    shell(
        &world,
        "echo changed >data.txt; echo new >new.txt; rm -f secrets/key.txt; cat data.txt",
    )
    .passed()
    .says("changed");
    assert_eq!(
        fs::read_to_string(world.path("project/data.txt")).unwrap(),
        "the data\n"
    );
    assert!(!world.path("project/new.txt").exists());
    assert!(world.path("project/secrets/key.txt").exists());
}

#[test]
fn what_a_run_writes_to_a_read_write_workspace_is_there() {
    let world = world("workspace = { path = \".\", mode = \"read-write\" }");
    shell(&world, "echo new >new.txt").passed();
    assert_eq!(
        fs::read_to_string(world.path("project/new.txt")).unwrap(),
        "new\n"
    );
}

#[test]
fn a_read_only_workspace_cannot_be_written() {
    let world = world("workspace = { path = \".\", mode = \"read-only\" }");
    let finished = shell(&world, "cat data.txt; echo new >new.txt");
    assert_ne!(finished.code(), 0);
    assert!(finished.stdout.contains("the data"));
    assert!(!world.path("project/new.txt").exists());
}

#[test]
fn without_a_workspace_the_project_is_not_there() {
    let world = world("workspace = { path = \".\", mode = \"none\" }");
    let project = world.path("project").display().to_string();
    shell(&world, &format!("cat data.txt {project}/data.txt")).says_nothing_of("the data");
}

#[test]
fn a_run_cannot_change_its_own_policy() {
    let world = world("workspace = { path = \".\", mode = \"read-write\" }");
    let before = fs::read_to_string(world.path("project/valetkey.toml")).unwrap();
    shell(
        &world,
        "echo '[[allow]]' >>valetkey.toml; rm -f valetkey.toml; mv valetkey.toml x; true",
    );
    assert_eq!(
        fs::read_to_string(world.path("project/valetkey.toml")).unwrap(),
        before
    );
}

#[test]
fn a_path_that_the_policy_adds_can_be_read_and_not_written() {
    let mut world = World::new();
    let extra = world.path("extra");
    fs::create_dir(&extra).unwrap();
    fs::write(extra.join("more.txt"), "more data\n").unwrap();
    let _ = world.plant("none");
    let path = extra.display().to_string();
    world.policy(&format!("[sandbox]\nread = [{path:?}]\n"));
    let finished = shell(
        &world,
        &format!("cat {path}/more.txt; echo x >{path}/more.txt"),
    );
    assert_ne!(finished.code(), 0);
    assert!(finished.stdout.contains("more data"));
    assert_eq!(
        fs::read_to_string(extra.join("more.txt")).unwrap(),
        "more data\n"
    );
}

#[test]
fn the_system_can_be_read_and_not_written() {
    let finished = shell(
        &world(""),
        "test -x /usr/bin/env && echo there; touch /usr/x /etc/x /x 2>&1; test -e /usr/x -o -e /etc/x || echo unchanged",
    );
    finished.says("there").says("unchanged");
}

#[test]
fn the_machines_passwords_and_processes_are_not_there() {
    let finished = shell(
        &world(""),
        "cat /etc/shadow; ls /proc | grep -c '^[0-9]'; cat /proc/sys/kernel/hostname; true",
    );
    finished
        .passed()
        .says_nothing_of("root:$")
        .says_nothing_of("root:*");
}

#[test]
fn a_run_is_no_root() {
    let finished = shell(
        &world(""),
        "grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)|^NoNewPrivs|^Seccomp:' /proc/self/status; cat /proc/self/uid_map; id -u",
    );
    let finished = finished
        .passed()
        .says("NoNewPrivs:\t1")
        .says("Seccomp:\t2")
        .says("CapEff:\t0000000000000000");
    let map = finished.stdout.lines().rev().nth(1).unwrap_or_default();
    let outside = map.split_whitespace().nth(1);
    assert_ne!(outside, Some("0"), "the host's root is mapped: {map}");
    assert!(
        !finished.stdout.trim_end().ends_with("\n0"),
        "{}",
        finished.stdout
    );
}

#[test]
fn a_run_makes_no_sandbox_of_its_own_with_more_rights() {
    let finished = shell(
        &world(""),
        "unshare -Ur id -u; mount -t tmpfs none /tmp; chroot / true; true",
    );
    finished.says_nothing_of("\n0\n");
}

#[test]
fn nothing_of_the_owners_environment_is_passed() {
    let world = world("env = { GIVEN = \"yes\" }");
    let mut command = world.command(&["run", "--", "env"]);
    command
        .env("AWS_SECRET_ACCESS_KEY", "value-in-environment")
        .env("SSH_AUTH_SOCK", "/tmp/agent");
    let finished = world.finish(command, "").passed();
    finished
        .says("GIVEN=yes")
        .says_nothing_of("value-in-environment")
        .says_nothing_of("SSH_AUTH_SOCK");
}
