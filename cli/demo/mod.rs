//! `valetkey demo`: sets everything up in a temporary folder, runs a hostile program, and shows what became of it.

mod provider;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::output::{count, data, say};
use provider::Provider;

/// Shows the main job, end to end.
pub(crate) fn demo() -> Result<u8, Failure> {
    let python = find_python()?;
    let folder = Folder::create()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::ours("cannot start the demo's server").because(error))?;
    let provider = runtime.block_on(Provider::start(HOST, REAL_KEY))?;

    data(
        "1. A project with a program that an agent wrote, a policy, a .env with a key in it; and a provider that answers",
    );
    data("   401 unless exactly the real key arrives.");
    folder.lay_out(&provider)?;
    data("");
    data("2. You say yes to the policy:   valetkey policy approve");
    folder.valetkey(&["policy", "approve", "--digest", &folder.digest()?])?;
    let python = folder.environment(&python)?;
    data("");
    data("3. The program runs:            valetkey run -- python3 agent.py");
    data("");
    let status = folder.run(python)?;
    data("");
    data("4. What it reached:             valetkey audit show");
    data("");
    let shown = folder.valetkey(&["audit", "show"])?;
    for line in shown.lines() {
        data(format_args!("   {line}"));
    }
    folder.valetkey(&["audit", "verify"])?;
    data("");
    verdict(&provider, status)
}

fn verdict(provider: &Provider, status: ExitStatus) -> Result<u8, Failure> {
    let (real, other) = (provider.seen.with_real_key(), provider.seen.without());
    data(format_args!(
        "The provider got {} with the real key and {other} without. The program never had the key.",
        count(real, "call")
    ));
    if status.success() && real > 0 && other == 0 {
        data("Contained. Next, in a project of yours:   valetkey policy init --allow openai");
        return Ok(0);
    }
    Err(Failure::ours(format!(
        "the demo did not go as it should: the program ended with {status}"
    ))
    .hint("`valetkey doctor` says what this machine is missing"))
}

/// The demo's folder, gone when the demo is.
struct Folder {
    at: PathBuf,
}

impl Folder {
    fn create() -> Result<Self, Failure> {
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let at = std::env::temp_dir().join(format!("valetkey-demo-{}-{nanos}", std::process::id()));
        // Fails if somebody made it before us.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&at)
            .map_err(|error| {
                Failure::ours(format!("cannot make the folder `{}`", at.display())).because(error)
            })?;
        Ok(Self { at })
    }

    fn project(&self) -> PathBuf {
        self.at.join("project")
    }

    fn lay_out(&self, provider: &Provider) -> Result<(), Failure> {
        self.make("project")?;
        self.make("config")?;
        self.make("state")?;
        self.write("project/agent.py", AGENT)?;
        self.write("project/sales.csv", SALES)?;
        self.write("project/valetkey.toml", POLICY)?;
        self.write("project/.env", &format!("OPENAI_API_KEY={REAL_KEY}\n"))?;
        self.write("openai.key", REAL_KEY)?;
        self.write("provider-ca.pem", &provider.ca_pem)?;
        self.write(
            "config/secrets.toml",
            &format!(
                "[openai-demo]\nprovider = \"openai\"\nsource = {{ file = {:?} }}\n",
                self.at.join("openai.key")
            ),
        )?;
        self.write(
            "config/config.toml",
            &format!(
                "[upstream]\nroots = [{:?}]\n\n[upstream.connect]\n\"{HOST}:443\" = \"{}\"\n\n[upstream.addresses]\n\"{HOST}\" = [\"127.0.0.0/8\"]\n",
                self.at.join("provider-ca.pem"),
                provider.address,
            ),
        )
    }

    fn make(&self, name: &str) -> Result<(), Failure> {
        let path = self.at.join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| {
                Failure::ours(format!("cannot make the folder `{}`", path.display())).because(error)
            })
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.at.join(name);
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| {
                Failure::ours(format!("cannot write `{}`", path.display())).because(error)
            })
    }

    /// A Python with the `openai` package, if that can be had; else one without, and the program does without too.
    ///
    /// It must be one that the sandbox shows: the system's, or one of a tool chain in the owner's home.
    fn environment(&self, python: &Path) -> Result<&'static str, Failure> {
        if !has_openai(python) && self.fetch_openai(python) {
            if self.runs_inside(OWN_PYTHON)? {
                return Ok(OWN_PYTHON);
            }
            // The program must not find a half-usable environment.
            let _ = fs::remove_dir_all(self.project().join(".venv"));
        }
        for python in ["python3", "/usr/bin/python3"] {
            if self.runs_inside(python)? {
                return Ok(python);
            }
        }
        Err(Failure::ours("the sandbox shows no Python that works")
            .hint("`valetkey run -- python3 --version` says more"))
    }

    fn fetch_openai(&self, python: &Path) -> bool {
        say("   (fetching the `openai` package, as this Python has none ...)");
        let venv = self.project().join(".venv");
        let made = finishes(
            Command::new(python).args(["-m", "venv"]).arg(&venv),
            Duration::from_secs(60),
        );
        let fetched = made
            && finishes(
                Command::new(self.project().join(OWN_PYTHON))
                    .args(["-m", "pip", "install", "--quiet", "openai"]),
                Duration::from_secs(180),
            );
        if !fetched {
            say("   (it could not be had; the program makes its call with Python alone)");
        }
        fetched
    }

    fn runs_inside(&self, python: &str) -> Result<bool, Failure> {
        let mut command = self.command(&["run", "--quiet", "--", python, "-c", ""])?;
        Ok(finishes(&mut command, Duration::from_secs(60)))
    }

    fn digest(&self) -> Result<String, Failure> {
        let checked = self.valetkey(&["check", "--json"])?;
        serde_json::from_str::<serde_json::Value>(&checked)
            .ok()
            .and_then(|value| Some(value.get("digest")?.as_str()?.to_owned()))
            .ok_or_else(|| Failure::ours("`valetkey check --json` did not print a digest"))
    }

    /// Runs this very program in the demo's folders.
    fn command(&self, arguments: &[&str]) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::ours("cannot find this program").because(error))?;
        let mut command = Command::new(program);
        command
            .arg("--config-dir")
            .arg(self.at.join("config"))
            .arg("--state-dir")
            .arg(self.at.join("state"))
            .args(arguments)
            .current_dir(self.project());
        Ok(command)
    }

    fn valetkey(&self, arguments: &[&str]) -> Result<String, Failure> {
        let answer = self
            .command(arguments)?
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::ours("cannot start this program again").because(error))?;
        if !answer.status.success() {
            return Err(Failure::ours(format!(
                "`valetkey {}` ended with {}",
                arguments.join(" "),
                answer.status
            )));
        }
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    fn run(&self, python: &str) -> Result<ExitStatus, Failure> {
        self.command(&["run", "--"])?
            .arg(python)
            .arg("agent.py")
            .stdin(Stdio::null())
            .status()
            .map_err(|error| Failure::ours("cannot start this program again").because(error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over is a folder of files without worth, below the system's temporary folder.
        let _ = fs::remove_dir_all(&self.at);
    }
}

fn find_python() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // A relative one would mean whatever folder one is in.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("python3"))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            Failure::ours(
                "the demo's program is written in Python, and there is no `python3` on the PATH",
            )
            .hint("install Python 3; any version from 3.8 on will do")
        })
}

fn has_openai(python: &Path) -> bool {
    finishes(
        Command::new(python)
            .args(["-I", "-c", "import openai"])
            .current_dir("/"),
        Duration::from_secs(30),
    )
}

/// Whether a command ends well in time.
fn finishes(command: &mut Command, within: Duration) -> bool {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let deadline = Instant::now() + within;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

const HOST: &str = "api.openai.com";
// From the project's folder.
const OWN_PYTHON: &str = ".venv/bin/python3";
// Obviously no key; the stand-in provider asks for exactly this.
const REAL_KEY: &str = "demo-only-not-a-real-key-0123456789abcdef";
const AGENT: &str = include_str!("../../examples/quickstart/agent.py");
const SALES: &str = include_str!("../../examples/quickstart/sales.csv");
const POLICY: &str = include_str!("../../examples/quickstart/valetkey.toml");
