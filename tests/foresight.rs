//! What is said before a run? Whatever the run would be refused for, where it stands, and what to do about it.

use serde_json::Value;

use crate::support::World;
use crate::support::process::Finished;

const WITH_SECRET: &str = "[[allow]]\nhost = \"shop.example\"\nsecret = \"orders\"\n";
const REQUEST: &str = "GET https://shop.example/x";

fn bound(world: &mut World, binding: &str) {
    world.secret("orders", binding);
}

/// The codes of the problems that a command told in JSON.
fn codes(finished: &Finished) -> Vec<String> {
    let told: Value = finished.json();
    let problems = match told.get("error") {
        Some(error) => &error["problems"],
        None => &told["problems"],
    };
    let problems = problems.as_array().expect("problems");
    problems
        .iter()
        .map(|problem| problem["code"].as_str().unwrap().to_owned())
        .collect()
}

/// Checks that `check` and `approve` say what a run is refused for, with the same code and the same words.
#[track_caller]
fn refused_everywhere(world: &World, code: &str, words: &str) {
    let checked = world.valetkey(&["check", "--json"]).exited(78);
    assert!(
        codes(&checked).iter().any(|told| told == code),
        "{}",
        checked.stdout
    );
    let digest = checked.json()["digest"].as_str().unwrap().to_owned();
    world
        .valetkey(&["check"])
        .exited(78)
        .says(words)
        .says("hint: ");
    let approve = ["policy", "approve", "--digest", &digest, "--json"];
    let approved = world.valetkey(&approve).exited(78);
    assert!(
        codes(&approved).iter().any(|told| told == code),
        "{}",
        approved.stdout
    );
    world
        .valetkey(&["run", "--approved", &digest, "--", "echo", "it ran"])
        .exited(78)
        .says(words)
        .says_nothing_of("it ran\n");
    // Nothing was approved by the attempt.
    world.run(&["true"]).exited(77);
}

#[track_caller]
fn welcome_everywhere(world: &World) {
    world.valetkey(&["check"]).passed().says("valid: ");
    world.approve();
    world.run(&["true"]).passed();
}

#[test]
fn a_secret_that_the_owner_does_not_have_is_told_before_a_run() {
    let mut world = World::new();
    world.write_policy(WITH_SECRET);
    refused_everywhere(
        &world,
        "unknown-secret",
        "uses secret `orders`, which the owner does not have",
    );
    bound(
        &mut world,
        "hosts = [\"shop.example\"]\ninject = \"bearer\"",
    );
    welcome_everywhere(&world);
}

#[test]
fn a_secret_that_is_bound_elsewhere_is_told_before_a_run() {
    let mut world = World::new();
    bound(
        &mut world,
        "hosts = [\"elsewhere.example\"]\ninject = \"bearer\"",
    );
    world.write_policy(WITH_SECRET);
    refused_everywhere(
        &world,
        "outside-binding",
        "where its owner does not let it go",
    );
    bound(
        &mut world,
        "hosts = [\"shop.example\"]\ninject = \"bearer\"",
    );
    welcome_everywhere(&world);
}

#[test]
fn a_key_of_another_provider_is_told_before_a_run() {
    let mut world = World::new();
    bound(&mut world, "provider = \"anthropic\"");
    world.write_policy("[[allow]]\nuse = \"openai\"\nsecret = \"orders\"\n");
    refused_everywhere(&world, "provider-mismatch", "but it is for `anthropic`");
    bound(&mut world, "provider = \"openai\"");
    welcome_everywhere(&world);
}

#[test]
fn a_secret_of_another_project_is_told_before_a_run() {
    let mut world = World::new();
    let binding = |folder: &str| {
        format!("hosts = [\"shop.example\"]\ninject = \"bearer\"\nprojects = [{folder:?}]")
    };
    let (theirs, ours) = (world.path("elsewhere"), world.path("project"));
    bound(&mut world, &binding(theirs.to_str().unwrap()));
    world.write_policy(WITH_SECRET);
    refused_everywhere(&world, "not-for-project", "is not for the project");
    bound(&mut world, &binding(ours.to_str().unwrap()));
    welcome_everywhere(&world);
}

#[test]
fn a_policy_that_is_not_approved_yet_is_told_before_a_run() {
    let world = World::new();
    world.write_policy("[[allow]]\nhost = \"shop.example\"\n");
    world.valetkey(&["check"]).passed().says("not approved yet");
    assert_eq!(
        world.valetkey(&["check", "--json"]).json()["approved"],
        false
    );
    world.approve();
    world
        .valetkey(&["check"])
        .passed()
        .says_nothing_of("not approved yet");
    assert_eq!(
        world.valetkey(&["check", "--json"]).json()["approved"],
        true
    );
}

#[test]
fn everything_that_is_wrong_is_told_at_once_with_its_line() {
    let mut world = World::new();
    bound(
        &mut world,
        "hosts = [\"elsewhere.example\"]\ninject = \"bearer\"",
    );
    world.write_policy(&format!(
        "{WITH_SECRET}[[allow]]\nhost = \"more.example\"\nsecret = \"missing\"\n"
    ));
    let checked = world.valetkey(&["check", "--json"]).exited(78);
    assert_eq!(codes(&checked), ["outside-binding", "unknown-secret"]);
    let told = checked.json();
    assert_eq!(told["valid"], true);
    assert_eq!(told["can_run"], false);
    assert_eq!(told["problems"][0]["file"], "valetkey.toml");
    assert_eq!(told["problems"][0]["line"], 2);
    assert_eq!(told["problems"][1]["line"], 5);
}

#[test]
fn a_request_whose_secret_the_owner_does_not_have_is_not_said_to_be_allowed() {
    let mut world = World::new();
    world.write_policy(WITH_SECRET);
    let checked = world.valetkey(&["check", REQUEST]).exited(78);
    assert!(!checked.stdout.starts_with("allow"), "{}", checked.stdout);
    checked
        .says("why: unknown-secret")
        .says("valetkey secret add orders");
    let told = world
        .valetkey(&["check", REQUEST, "--json"])
        .exited(78)
        .json();
    assert_eq!(told["allowed"], false);
    assert_eq!(told["policy_allows"], true);
    bound(
        &mut world,
        "hosts = [\"shop.example\"]\ninject = \"bearer\"",
    );
    world.valetkey(&["check", REQUEST]).passed().says("allow: ");
}

#[test]
fn a_request_that_would_carry_a_key_in_the_clear_is_not_said_to_be_allowed() {
    let mut world = World::new();
    let rule = "[[allow]]\nhost = \"shop.example\"\nscheme = \"http\"\nports = [443]\nsecret = \"orders\"\n";
    bound(
        &mut world,
        "hosts = [\"shop.example\"]\ninject = \"bearer\"",
    );
    world.write_policy(rule);
    let request = "GET http://shop.example:443/x";
    let told = world
        .valetkey(&["check", request, "--json"])
        .exited(78)
        .json();
    assert_eq!(told["problems"][0]["code"], "outside-binding");
    bound(
        &mut world,
        "hosts = [\"shop.example\"]\nports = [443]\nplaintext = true\ninject = \"bearer\"",
    );
    world.valetkey(&["check", request]).passed();
}

#[test]
fn a_workspace_that_is_not_there_is_told_before_a_run() {
    let world = World::new();
    let policy = |path: &str| {
        world.write_policy(&format!(
            "[[allow]]\nhost = \"shop.example\"\n[sandbox]\nworkspace = {{ path = {path:?}, mode = \"read-only\" }}\n"
        ));
    };
    policy("missing");
    refused_everywhere(&world, "sandbox-refused", "missing");
    std::fs::create_dir(world.path("project/missing")).unwrap();
    welcome_everywhere(&world);
    policy("../elsewhere");
    refused_everywhere(&world, "invalid", "leads upwards");
}

#[test]
fn a_path_to_read_that_is_not_there_is_told_before_a_run() {
    let world = World::new();
    let policy = |path: &str| {
        let path = world.path(path);
        let path = path.display();
        world.write_policy(&format!("[sandbox]\nread = [\"{path}\"]\n"));
    };
    policy("elsewhere/missing");
    refused_everywhere(&world, "sandbox-refused", "missing");
    policy("elsewhere");
    welcome_everywhere(&world);
}

#[test]
fn roots_that_cannot_be_read_are_the_owners_to_correct() {
    let world = World::new();
    world.write_policy("[[allow]]\nhost = \"shop.example\"\n");
    world.approve();
    std::fs::remove_file(world.path("elsewhere/ca.pem")).unwrap();
    for command in [
        &["check"][..],
        &["run", "--", "true"],
        &["policy", "approve"],
    ] {
        world
            .valetkey(command)
            .exited(78)
            .says("ca.pem")
            .says("config.toml");
    }
    std::fs::write(world.path("elsewhere/ca.pem"), world.authority().pem()).unwrap();
    world.run(&["true"]).passed();
}

#[test]
fn a_check_leaves_nothing_behind_and_reads_no_secret() {
    let mut world = World::new();
    let read = world.path("logs/read");
    world.secret_entry(
        "orders",
        &format!(
            "hosts = [\"shop.example\"]\ninject = \"bearer\"\nvariables = [\"ORDERS_TOKEN\"]\nsource = {{ command = [\"/bin/touch\", {:?}] }}",
            read.display().to_string()
        ),
    );
    world.write_policy(WITH_SECRET);
    world.valetkey(&["check"]).passed();
    world.valetkey(&["check", REQUEST]).passed();
    world.approve();
    assert!(!read.exists());
    let left = std::fs::read_dir(world.path("state/runs"));
    assert_eq!(left.map_or(0, Iterator::count), 0);
}

#[test]
fn a_wall_clock_limit_that_the_run_does_not_live_to_see_is_told() {
    let world = World::new();
    let policy = |wall: &str, ttl: &str| {
        let text = format!("version = 1\n[limits]\nwall = \"{wall}\"\n[budget]\nttl = \"{ttl}\"\n");
        world.file("valetkey.toml", &text);
    };
    policy("5m", "1m");
    world
        .valetkey(&["check"])
        .passed()
        .says("warning: `limits.wall` is 300 s")
        .says("60 s");
    policy("1m", "5m");
    world
        .valetkey(&["check"])
        .passed()
        .says_nothing_of("warning: `limits.wall`");
}
