//! Can it be used, by people and by programs? Help, JSON, completions, variables for other sandboxes, exit codes.

use serde_json::Value;

use crate::support::World;
use crate::support::world::greeting;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["run"],
    &["serve"],
    &["check"],
    &["policy", "approve"],
    &["policy", "explain"],
    &["policy", "schema"],
    &["policy", "init"],
    &["secret", "add"],
    &["secret", "list"],
    &["secret", "remove"],
    &["secret", "import"],
    &["secret", "test"],
    &["audit", "show"],
    &["audit", "verify"],
    &["runs", "create"],
    &["runs", "list"],
    &["runs", "show"],
    &["runs", "revoke"],
    &["env"],
    &["doctor"],
    &["demo"],
];

#[test]
fn every_command_explains_itself() {
    let world = World::new();
    for command in COMMANDS {
        world
            .valetkey(&[command, &["--help"][..]].concat())
            .passed()
            .says("Usage: valetkey");
    }
}

#[test]
fn an_unknown_command_is_an_error_of_use() {
    World::new()
        .valetkey(&["frobnicate"])
        .exited(2)
        .says("Usage");
}

#[test]
fn the_version_is_told() {
    World::new()
        .valetkey(&["--version"])
        .passed()
        .says(env!("CARGO_PKG_VERSION"));
}

#[test]
fn completions_are_there_for_each_shell() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        world
            .valetkey(&["completions", shell])
            .passed()
            .says("valetkey");
    }
}

#[test]
fn what_is_printed_for_a_pipe_has_no_colour() {
    let world = World::new();
    for command in [&["--help"][..], &["run", "--", "false"], &["frobnicate"]] {
        world.valetkey(command).says_nothing_of("\u{1b}[");
    }
}

#[test]
fn every_reading_command_has_json() {
    let mut world = World::new();
    world.secret("openai", "provider = \"openai\"");
    world.write_policy("[[allow]]\nhost = \"shop.example\"\n");
    world.approve();
    world.run(&["true"]).passed();
    for command in [
        &["check"][..],
        &["check", "GET https://shop.example/"],
        &["policy", "explain"],
        &["secret", "list"],
        &["secret", "test", "openai"],
        &["audit", "show"],
        &["audit", "verify"],
        &["runs", "list"],
    ] {
        let finished = world.valetkey(&[command, &["--json"]].concat()).passed();
        let parsed: Result<Value, _> = serde_json::from_str(&finished.stdout);
        assert!(parsed.is_ok(), "{command:?}: {}", finished.stdout);
    }
}

#[test]
fn the_schema_is_json() {
    let schema = World::new().valetkey(&["policy", "schema"]).passed();
    let value: Value = serde_json::from_str(&schema.stdout).unwrap();
    assert!(value["properties"]["allow"].is_object());
}

#[test]
fn doctor_tells_each_thing_it_tried() {
    let finished = World::new().valetkey(&["doctor"]);
    assert!(finished.stdout.lines().count() >= 3, "{}", finished.stdout);
    assert!(
        finished.code() == 0 || finished.stdout.contains("FAIL"),
        "{}",
        finished.stdout
    );
}

#[test]
fn a_secret_is_added_listed_tested_and_removed() {
    let mut world = World::new();
    let value = world.plant("added");
    let add = world.command(&["secret", "add", "mine", "--host", "shop.example"]);
    world.finish(add, &value).passed();
    world
        .valetkey(&["secret", "list"])
        .passed()
        .says("mine")
        .says("shop.example");
    world.valetkey(&["secret", "test", "mine"]).passed();
    world.valetkey(&["secret", "remove", "mine"]).passed();
    world
        .valetkey(&["secret", "list"])
        .passed()
        .says_nothing_of("shop.example");
    let finished = world.valetkey(&["secret", "test", "mine"]);
    assert_ne!(finished.code(), 0);
}

#[test]
fn a_dotenv_file_is_imported() {
    let mut world = World::new();
    let value = world.plant("imported");
    let file = world.path("config/keys/dotenv");
    std::fs::write(&file, format!("OPENAI_API_KEY={value}\nUNKNOWN_THING=1\n")).unwrap();
    let file = file.display().to_string();
    world
        .valetkey(&["secret", "import", &file])
        .passed()
        .says("openai")
        .says("UNKNOWN_THING");
    world.valetkey(&["secret", "test", "openai"]).passed();
}

#[test]
fn a_secret_is_replaced_only_when_asked_and_that_is_told() {
    let mut world = World::new();
    let (long, short) = (world.plant("imported"), "sk-short");
    let file = world.path("config/keys/dotenv");
    let import = |value: &str, more: &[&str]| {
        std::fs::write(&file, format!("OPENAI_API_KEY={value}\n")).unwrap();
        let file = file.display().to_string();
        world.valetkey(&[&["secret", "import", &file], more].concat())
    };
    import(&long, &[]).passed().says_nothing_of("replaced");
    let refused = import(short, &[]).exited(78);
    refused.says("`openai`").says("--replace");
    let told = import(short, &["--replace"]).passed();
    told.says("replaced what was kept before: openai")
        .says("warning: `openai` has only");
    let told = import(&long, &["--replace", "--json"]).passed().json();
    assert_eq!(told["replaced"][0], "openai");
    let add = |more: &[&str]| {
        let words = ["secret", "add", "openai", "--provider", "openai"];
        world.finish(world.command(&[&words, more].concat()), "sk-short")
    };
    add(&[]).exited(78).says("`openai`").says("--replace");
    add(&["--replace"]).passed().says("replaced");
}

#[test]
fn runs_are_listed_shown_and_revoked() {
    let mut world = World::new();
    world.origin("shop.example", greeting());
    world.policy("[[allow]]\nhost = \"shop.example\"\n");
    let serving = world.serve();
    let run = serving.create_run(&world).run;
    world.valetkey(&["runs", "list"]).passed().says(&run);
    world
        .valetkey(&["runs", "show", &run])
        .passed()
        .says("active");
    world
        .valetkey(&["runs", "revoke", &run])
        .passed()
        .says("ended");
    world
        .valetkey(&["runs", "show", &run])
        .passed()
        .says("ended");
    let unknown = "run_0000000000000000000";
    assert_ne!(world.valetkey(&["runs", "show", unknown]).code(), 0);
}

#[test]
fn a_run_for_another_sandbox_is_of_the_project_one_stands_in() {
    let mut world = World::new();
    world.origin("shop.example", greeting());
    world.policy("[[allow]]\nhost = \"shop.example\"\n");
    let serving = world.serve();
    let strict = world.path("elsewhere/strict.toml");
    std::fs::write(&strict, "version = 1\n").unwrap();
    let strict = strict.display().to_string();
    let create = ["runs", "create", "--json", "--policy", &strict];
    let run = world.valetkey_unkept(&create).passed().json()["run"].clone();
    let shown = world.valetkey(&["runs", "show", "--json", run.as_str().unwrap()]);
    let project = world.path("project").canonicalize().unwrap();
    assert_eq!(shown.json()["project"], project.to_str().unwrap());
    assert_eq!(serving.stop(), 0);
}

#[test]
fn the_variables_of_a_run_come_in_every_form() {
    let mut world = World::new();
    world.origin("shop.example", greeting());
    world.policy("[[allow]]\nhost = \"shop.example\"\n");
    let serving = world.serve();
    let run = serving.create_run(&world).run;
    for (format, sign) in [
        ("sh", "export HTTPS_PROXY="),
        ("docker", "HTTPS_PROXY=http://"),
        ("json", "\"HTTPS_PROXY\""),
        ("k8s", "name: HTTPS_PROXY"),
    ] {
        world
            .valetkey_unkept(&["env", &run, "--format", format])
            .passed()
            .says(sign);
    }
}

#[test]
fn a_server_that_is_asked_to_end_ends_well() {
    let world = World::new();
    assert_eq!(world.serve().stop(), 0);
}

#[test]
fn without_a_server_creating_a_run_says_so() {
    let world = World::new();
    world.policy("[[allow]]\nhost = \"shop.example\"\n");
    world
        .valetkey(&["runs", "create"])
        .exited(125)
        .says("valetkey serve");
}

#[test]
fn a_mistake_in_the_settings_is_told_once_and_where_it_stands() {
    let world = World::new();
    world.write_policy("[[allow]]\nhost = \"shop.example\"\n");
    let settings = std::fs::read_to_string(world.path("config/config.toml")).unwrap();
    std::fs::write(world.path("config/config.toml"), "[upstream]\nrots = []\n").unwrap();
    for (command, code) in [
        (&["doctor"][..], 1),
        (&["check"], 78),
        (&["run", "--", "true"], 78),
    ] {
        world
            .valetkey(command)
            .exited(code)
            .says("config.toml:2:1")
            .says("did you mean `roots`?")
            .says_nothing_of("error: error:")
            .says_nothing_of(": error:");
    }
    std::fs::write(world.path("config/config.toml"), settings).unwrap();
    world
        .valetkey(&["doctor"])
        .says_nothing_of("config.toml:2:1");
    world.valetkey(&["check"]).passed();
}

#[test]
fn with_json_standard_output_holds_the_report_only() {
    let world = World::new();
    let finished = world
        .valetkey(&["run", "--json", "--", "echo", "from the step"])
        .passed();
    let report: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report["outcome"], "passed");
    assert!(finished.stderr.contains("from the step"));
}

#[test]
fn a_revoked_run_ends_its_command() {
    let world = World::new();
    let mut command = world.command(&["run", "--", "sh", "-c", "echo ready; exec sleep 600"]);
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let listed = world.valetkey(&["runs", "list", "--json"]).passed();
    let runs: Value = serde_json::from_str(&listed.stdout).unwrap();
    let run = runs[0]["run"].as_str().unwrap().to_owned();
    world.valetkey(&["runs", "revoke", &run]).passed();
    // It ends by itself, long before the command would have.
    assert!(!child.wait().unwrap().success());
    let mut told = String::new();
    let mut errors = child.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut errors, &mut told).unwrap();
    assert!(told.contains("stopped: the run was revoked"), "{told}");
}
