//! git over https: clone and push, the password swapped inside Basic.

use super::Way;
use crate::support::origin::Origin;
use crate::support::stand_in::git;
use crate::support::{Place, World};

struct Setting {
    place: Place,
    origin: Origin,
    forbidden: Origin,
}

fn setting(way: Way) -> Setting {
    let mut world = World::new();
    let password = world.secret(
        "git",
        "hosts = [\"git.example\"]\ninject = { basic = \"agent\" }",
    );
    let served = world.path("elsewhere");
    git::repository(&served);
    let origin = world.origin("git.example", git::behaviour(&served, "agent", &password));
    let forbidden = world.forbidden("elsewhere.example");
    world.policy(
        "[[allow]]\nhost = \"git.example\"\nsecret = \"git\"\nmethods = [\"GET\", \"POST\"]\n",
    );
    Setting {
        place: way.place(world),
        origin,
        forbidden,
    }
}

const CLONE_AND_PUSH: &str = "set -e
export HOME=$PWD/home GIT_TERMINAL_PROMPT=0; mkdir -p home
git clone --quiet https://git.example/project.git copy
cat copy/README
cd copy
echo second >second
git add second
git -c user.name=Agent -c user.email=agent@example.com commit --quiet -m Second
git push --quiet origin HEAD:main
git ls-remote https://git.example/project.git
";

fn clones_and_pushes(way: Way) {
    let setting = setting(way);
    setting
        .place
        .run(&["sh", "-c", CLONE_AND_PUSH])
        .passed()
        .says("the first commit");
    let bare = setting.place.world.path("elsewhere/project.git");
    let log = std::process::Command::new("git")
        .args(["-c", "safe.directory=*", "log", "--format=%s", "main"])
        .current_dir(bare)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&log.stdout), "Second\nFirst\n");
    assert!(
        setting
            .origin
            .seen()
            .iter()
            .any(|seen| seen.path().ends_with("git-receive-pack"))
    );
}

fn is_refused(way: Way) {
    let setting = setting(way);
    let line =
        "HOME=$PWD GIT_TERMINAL_PROMPT=0 git clone https://elsewhere.example/project.git copy";
    setting
        .place
        .run(&["sh", "-c", line])
        .exited(128)
        .says("403");
    assert_eq!(setting.forbidden.connections(), 0);
}

#[test]
fn clones_and_pushes_by_environment() {
    clones_and_pushes(Way::Sidecar);
}

#[test]
fn clones_and_pushes_from_a_sandbox() {
    clones_and_pushes(Way::Sandbox);
}

#[test]
fn is_refused_by_environment() {
    is_refused(Way::Sidecar);
}

#[test]
fn is_refused_in_a_sandbox() {
    is_refused(Way::Sandbox);
}

#[test]
fn a_placeholder_in_the_url_is_swapped_inside_basic() {
    let setting = setting(Way::Sidecar);
    // The run's variables name the placeholder; which variable it is, is the run's to say.
    let line = "set -e; export HOME=$PWD GIT_TERMINAL_PROMPT=0
git clone --quiet \"https://agent:$GIT_PASSWORD@git.example/project.git\" copy; cat copy/README";
    let placeholder = setting.place.placeholder("git");
    let environment = [("GIT_PASSWORD", placeholder.as_str())];
    let finished = setting
        .place
        .run_with(&environment, &["sh", "-c", line])
        .passed();
    finished.says("the first commit");
}
