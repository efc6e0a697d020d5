//! `valetkey serve` in the background, and runs created with it for programs outside any sandbox of ours.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::World;
use super::process::Finished;

/// A running server; it ends with this value.
pub(crate) struct Serving {
    child: Child,
    proxy: String,
}

/// A run of the server's, as a sandbox of somebody else's sees it.
pub(crate) struct Sidecar {
    pub(crate) run: String,
    pub(crate) token: String,
    pub(crate) alias: String,
    /// The authority that programs of this run trust.
    pub(crate) ca_pem: String,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Serving {
    pub(crate) fn start(world: &World, listen: &[&str]) -> Self {
        Self::start_as(
            world,
            world.command(&[&["serve", "--json"], listen].concat()),
        )
    }

    /// The same, by a command that ends as `valetkey serve --json`.
    pub(crate) fn start_as(world: &World, mut command: Command) -> Self {
        let log = File::create(world.path("logs/serve.stderr")).unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = fs::read_to_string(world.path("logs/serve.stderr")).unwrap_or_default();
            let _ = child.kill();
            panic!("`valetkey serve` said `{line}` ({error})\n{log}")
        });
        let mut rest = File::create(world.path("logs/serve.stdout")).unwrap();
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut rest));
        let proxy = ready["proxy"][0]
            .as_str()
            .expect("the proxy's URL")
            .to_owned();
        Self { child, proxy }
    }

    /// The proxy's URL, without any token.
    pub(crate) fn proxy(&self) -> &str {
        &self.proxy
    }

    /// The proxy's address.
    pub(crate) fn address(&self) -> &str {
        self.proxy
            .trim_start_matches("http://")
            .trim_end_matches('/')
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Creates a run under the project's policy.
    pub(crate) fn create_run(&self, world: &World) -> Sidecar {
        self.create_run_with(world, &[])
    }

    /// The same, for a run that lives no longer than this.
    pub(crate) fn create_run_for(&self, world: &World, ttl: &str) -> Sidecar {
        self.create_run_with(world, &["--ttl", ttl])
    }

    fn create_run_with(&self, world: &World, more: &[&str]) -> Sidecar {
        let created = world
            .valetkey_unkept(&[&["runs", "create", "--json"], more].concat())
            .passed()
            .json();
        Sidecar::of(&created)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(self) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        self.wait()
    }

    /// Waits until it has ended.
    pub(crate) fn wait(mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    /// Ends it without asking.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sidecar {
    /// A run as `runs create` tells of it.
    pub(crate) fn of(created: &Value) -> Self {
        let text = |name: &str| {
            created[name]
                .as_str()
                .unwrap_or_else(|| panic!("no {name}"))
                .to_owned()
        };
        let run = text("run");
        Self {
            environment: serde_json::from_value(created["env"].clone()).unwrap(),
            token: text("token"),
            alias: text("alias"),
            ca_pem: text("ca_pem"),
            run,
        }
    }

    /// A program outside any sandbox, with the run's environment and nothing else of ours.
    pub(crate) fn command(&self, world: &World, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(world.path("project"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", world.path("elsewhere"))
            .env("LANG", "C.UTF-8")
            .envs(&self.environment);
        command
    }

    /// Runs such a program to its end.
    pub(crate) fn run(&self, world: &World, command: &[&str]) -> Finished {
        let mut started = self.command(world, command[0]);
        started.args(&command[1..]);
        world.finish(started, "")
    }
}
