//! pip and npm install through the proxy; npm opens hundreds of tunnels.

use super::Way;
use crate::support::origin::Origin;
use crate::support::stand_in::{npm, pypi};
use crate::support::{Place, World, tools};

struct Setting {
    place: Place,
    npm: Origin,
    forbidden: Origin,
}

fn setting(way: Way) -> Setting {
    let mut world = World::new();
    world.origin_with("pypi.example", &["http/1.1"], pypi::behaviour());
    let npm = world.origin_with(
        "npm.example",
        &["h2", "http/1.1"],
        npm::behaviour("npm.example"),
    );
    let forbidden = world.forbidden("elsewhere.example");
    world.policy(
        "[[allow]]\nhost = \"pypi.example\"\nmethods = [\"GET\", \"HEAD\"]\n\
         [[allow]]\nhost = \"npm.example\"\nmethods = [\"GET\", \"HEAD\"]\n",
    );
    Setting {
        place: way.place(world),
        npm,
        forbidden,
    }
}

fn pip(setting: &Setting, index: &str) -> crate::support::process::Finished {
    let python = tools::python();
    let line = format!(
        "export HOME=$PWD/home; mkdir -p home
{python} -m pip install --quiet --disable-pip-version-check --no-cache-dir --retries 0 --target installed \
         --index-url https://{index}/simple/ {}
PYTHONPATH=installed {python} -c 'import valetkey_tiny; print(\"answer\", valetkey_tiny.ANSWER)'",
        pypi::PACKAGE
    );
    setting.place.run(&["sh", "-ec", &line])
}

fn npm_install(setting: &Setting, registry: &str) -> crate::support::process::Finished {
    let line = format!(
        "export HOME=$PWD/home; mkdir -p home app; cd app; echo '{{}}' >package.json
npm install --registry https://{registry} --fetch-retries 0 --no-audit --no-fund --no-update-notifier {}
ls node_modules | wc -l",
        npm::ROOT
    );
    setting.place.run(&["sh", "-ec", &line])
}

fn pip_installs(way: Way) {
    pip(&setting(way), "pypi.example")
        .passed()
        .says("answer 42");
}

fn npm_installs(way: Way) {
    let setting = setting(way);
    let finished = npm_install(&setting, "npm.example").passed();
    finished.says(&(npm::LEAVES + 1).to_string());
    assert!(setting.npm.seen().len() > 2 * npm::LEAVES);
}

#[test]
fn pip_installs_by_environment() {
    pip_installs(Way::Sidecar);
}

#[test]
fn pip_installs_in_a_sandbox() {
    pip_installs(Way::Sandbox);
}

#[test]
fn pip_is_refused_elsewhere() {
    let setting = setting(Way::Sidecar);
    let finished = pip(&setting, "elsewhere.example");
    assert_ne!(finished.code(), 0);
    assert_eq!(setting.forbidden.connections(), 0);
}

#[test]
fn npm_installs_by_environment() {
    npm_installs(Way::Sidecar);
}

#[test]
fn npm_installs_in_a_sandbox() {
    npm_installs(Way::Sandbox);
}

#[test]
fn npm_is_refused_elsewhere() {
    let setting = setting(Way::Sidecar);
    let finished = npm_install(&setting, "elsewhere.example");
    assert_ne!(finished.code(), 0);
    assert_eq!(setting.forbidden.connections(), 0);
}
