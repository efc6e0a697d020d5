//! Does the first command work? `valetkey demo` sets everything up, runs the quickstart, and all of it is contained.

use crate::support::process::Finished;
use crate::support::stand_in::openai;
use crate::support::{World, root, tools};

/// The demo as on a bare system: it finds the system's Python, and no package index.
fn demo(world: &World) -> Finished {
    let mut command = world.command(&["demo"]);
    command
        .env("PATH", "/usr/bin:/bin")
        .env("PIP_NO_INDEX", "1");
    world.finish(command, "").passed()
}

#[test]
fn the_demo_contains_everything() {
    let finished = demo(&World::new());
    finished
        .says("DONE")
        .says("CONTAINED")
        .says("0 leaked")
        .says_nothing_of("LEAKED");
}

#[test]
fn the_demo_works_twice_and_leaves_nothing_behind() {
    let world = World::new();
    demo(&world);
    demo(&world);
    let left = std::fs::read_dir(world.path("state")).unwrap().count();
    assert_eq!(left, 0, "the demo used the owner's state folder");
}

/// The quickstart in a project of its own, with the owner's real things beside it.
fn quickstart(python: &str) -> Finished {
    let mut world = World::new();
    let key = world.secret("openai-demo", "provider = \"openai\"");
    let origin = world.origin("api.openai.com", openai::behaviour(&key, None));
    let elsewhere = world.forbidden("collector.example");
    for (name, path) in [
        ("ssh", "home/.ssh/id_ed25519"),
        ("aws", "home/.aws/credentials"),
    ] {
        let text = world.plant(name);
        std::fs::create_dir_all(world.path(path).parent().unwrap()).unwrap();
        std::fs::write(world.path(path), text).unwrap();
    }
    let example = root().join("examples/quickstart");
    for name in ["agent.py", "sales.csv", "valetkey.toml"] {
        let text = std::fs::read_to_string(example.join(name)).unwrap();
        let tools = tools::folder().display().to_string();
        // The test's own Python is not one that the sandbox shows by itself.
        let text = text.replace("[sandbox]\n", &format!("[sandbox]\nread = [{tools:?}]\n"));
        world.file(name, &text);
    }
    world.file(".env", "DATABASE_PASSWORD=value-in-dot-env\n");
    world.approve();
    let finished = world.run(&[python, "agent.py"]);
    assert_eq!(elsewhere.connections(), 0);
    assert_eq!(origin.seen().len(), 1);
    finished.says_nothing_of("value-in-dot-env")
}

#[test]
fn the_quickstart_with_the_openai_package_is_contained() {
    let finished = quickstart(&tools::python()).passed();
    finished
        .says("DONE       by openai")
        .says(openai::ANSWER)
        .says("0 leaked")
        .says("refused");
}

#[test]
fn the_quickstart_with_the_standard_library_is_contained() {
    let finished = quickstart("/usr/bin/python3").passed();
    finished
        .says("DONE       by urllib")
        .says(openai::ANSWER)
        .says("0 leaked");
}
