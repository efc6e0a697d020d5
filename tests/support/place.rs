//! Where a client runs: outside any sandbox with the run's environment, or inside `valetkey run` with no proxy variable.

use super::World;
use super::process::Finished;
use super::serving::{Serving, Sidecar};

/// A world whose policy is in force, and a way to run programs in it.
pub(crate) struct Place {
    door: Door,
    pub(crate) world: World,
}

enum Door {
    Sidecar(Serving, Sidecar),
    Sandbox,
}

impl Place {
    /// Programs find the proxy by their environment.
    pub(crate) fn sidecar(world: World) -> Self {
        let serving = world.serve();
        let run = serving.create_run(&world);
        Self {
            door: Door::Sidecar(serving, run),
            world,
        }
    }

    /// Programs know of no proxy; all they send is captured.
    pub(crate) fn sandbox(world: World) -> Self {
        Self {
            door: Door::Sandbox,
            world,
        }
    }

    /// Runs a program in the project's folder, with `environment` added.
    pub(crate) fn run_with(&self, environment: &[(&str, &str)], command: &[&str]) -> Finished {
        match &self.door {
            Door::Sidecar(_, run) => {
                let mut started = run.command(&self.world, command[0]);
                started
                    .args(&command[1..])
                    .envs(environment.iter().copied());
                self.world.finish(started, "")
            }
            Door::Sandbox => {
                let mut line = vec!["env".to_owned()];
                for name in PROXY_VARIABLES {
                    line.push("-u".to_owned());
                    line.push((*name).to_owned());
                }
                line.extend(
                    environment
                        .iter()
                        .map(|(name, value)| format!("{name}={value}")),
                );
                line.extend(command.iter().map(ToString::to_string));
                let line: Vec<&str> = line.iter().map(String::as_str).collect();
                self.world.run(&line)
            }
        }
    }

    /// Runs a program in the project's folder.
    pub(crate) fn run(&self, command: &[&str]) -> Finished {
        self.run_with(&[], command)
    }

    /// The placeholder that the run holds for a secret, found by its variable's value.
    pub(crate) fn placeholder(&self, secret: &str) -> String {
        let variable = format!("{}_TOKEN", secret.to_uppercase());
        let Door::Sidecar(_, run) = &self.door else {
            panic!("only a sidecar's environment is known outside");
        };
        run.environment
            .get(&variable)
            .unwrap_or_else(|| panic!("no {variable}"))
            .clone()
    }

    /// The proxy's URL as a program without a token would write it.
    pub(crate) fn proxy_without_token(&self) -> String {
        self.sidecar_parts().0.proxy().to_owned()
    }

    /// Ends the run while the server goes on.
    pub(crate) fn revoke(&self) {
        let run = self.sidecar_parts().1.run.clone();
        self.world.valetkey(&["runs", "revoke", &run]).passed();
    }

    fn sidecar_parts(&self) -> (&Serving, &Sidecar) {
        match &self.door {
            Door::Sidecar(serving, run) => (serving, run),
            Door::Sandbox => panic!("only a sidecar's run is known outside"),
        }
    }

    /// Runs Python with the client packages.
    pub(crate) fn python(&self, program: &str) -> Finished {
        self.world.file("client.py", program);
        self.run(&[&super::tools::python(), "client.py"])
    }

    /// Runs Node with the client packages.
    pub(crate) fn node(&self, program: &str) -> Finished {
        self.world.file("client.cjs", program);
        let packages = super::tools::node_modules();
        self.run_with(&[("NODE_PATH", &packages)], &["node", "client.cjs"])
    }
}

const PROXY_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "GRPC_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "grpc_proxy",
    "NODE_USE_ENV_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
];
