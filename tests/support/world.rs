//! A small world around the real binary: an owner with secrets, a project with a policy, and upstreams on loopback.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use super::authority::Authority;
use super::leak::{self, Leak, Planted};
use super::origin::{Answer, Behaviour, Origin, answer};
use super::process::{self, Finished};
use super::serving::Serving;
use super::tools;

/// One owner, one project, some upstreams. Dropping it searches all it holds for the owner's secrets.
pub(crate) struct World {
    folder: TempDir,
    authority: Authority,
    planted: Vec<Planted>,
    keys: BTreeMap<String, String>,
    dialled: BTreeMap<String, String>,
    unvetted: BTreeMap<String, String>,
    outputs: AtomicUsize,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("vk-").tempdir().unwrap();
        let world = Self {
            folder,
            authority: Authority::new("stand-in authority"),
            planted: Vec::new(),
            keys: BTreeMap::new(),
            dialled: BTreeMap::new(),
            unvetted: BTreeMap::new(),
            outputs: AtomicUsize::new(0),
        };
        for name in [
            "config",
            "config/keys",
            "state",
            "project",
            "home",
            "elsewhere",
            "logs",
        ] {
            fs::create_dir_all(world.path(name)).unwrap();
            let private = fs::Permissions::from_mode(0o700);
            fs::set_permissions(world.path(name), private).unwrap();
        }
        fs::write(world.path("elsewhere/ca.pem"), world.authority.pem()).unwrap();
        world.write_settings();
        world
    }

    /// A path inside this world.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Starts an upstream that answers for `name` on port 443, with HTTP/2 and HTTP/1.1.
    pub(crate) fn origin(&mut self, name: &str, behaviour: Behaviour) -> Origin {
        self.origin_with(name, &["h2", "http/1.1"], behaviour)
    }

    /// The same, with a choice of protocols.
    pub(crate) fn origin_with(
        &mut self,
        name: &str,
        alpn: &[&str],
        behaviour: Behaviour,
    ) -> Origin {
        let origin = Origin::start(Some(self.authority.server(&[name], alpn)), behaviour);
        self.dial(&format!("{name}:443"), &origin.address().to_string());
        origin
    }

    /// Starts an upstream that answers for `name` on port 80, without TLS.
    pub(crate) fn plain_origin(&mut self, name: &str, behaviour: Behaviour) -> Origin {
        let origin = Origin::start(None, behaviour);
        self.dial(&format!("{name}:80"), &origin.address().to_string());
        origin
    }

    /// Starts an upstream that could be reached, were it allowed: what a refusal must keep apart.
    pub(crate) fn forbidden(&mut self, name: &str) -> Origin {
        self.origin(name, greeting())
    }

    /// Has connections to `authority` dialled at `address`.
    pub(crate) fn dial(&mut self, authority: &str, address: &str) {
        self.unvetted.remove(authority);
        self.dialled
            .insert(authority.to_owned(), address.to_owned());
        self.write_settings();
    }

    /// The same, without the owner's leave to dial special addresses for that host.
    pub(crate) fn dial_unvetted(&mut self, authority: &str, address: &str) {
        self.unvetted
            .insert(authority.to_owned(), address.to_owned());
        self.write_settings();
    }

    /// Plants a secret in a file of the owner's, bound as `binding` says. Returns its value.
    pub(crate) fn secret(&mut self, name: &str, binding: &str) -> String {
        let value = self.plant(name);
        let file = self.path("config/keys").join(name);
        fs::write(&file, &value).unwrap();
        let source = format!("source = {{ file = {:?} }}", file.display().to_string());
        // A provider of the catalogue has its own variables; others are named here, so that tests know them.
        let variable = match binding.contains("provider") {
            true => String::new(),
            false => format!("variables = [\"{}_TOKEN\"]\n", name.to_uppercase()),
        };
        let entry = format!("{binding}\n{variable}{source}\n");
        self.keys.insert(name.to_owned(), entry);
        self.write_secrets();
        value
    }

    /// Makes a value up that no output may hold. The caller puts it where the owner would.
    pub(crate) fn plant(&mut self, name: &str) -> String {
        let planted = Planted::new(name);
        let value = planted.value().to_owned();
        self.planted.push(planted);
        value
    }

    /// Writes an entry of secrets.toml as it is.
    pub(crate) fn secret_entry(&mut self, name: &str, entry: &str) {
        self.keys.insert(name.to_owned(), entry.to_owned());
        self.write_secrets();
    }

    /// Writes the policy and has the owner approve it. The test clients are made readable in the sandbox.
    pub(crate) fn policy(&self, rules: &str) {
        self.write_policy(rules);
        self.approve();
    }

    /// Writes the policy, not approved.
    pub(crate) fn write_policy(&self, rules: &str) {
        let mut text = format!("version = 1\n{rules}\n");
        if !rules.contains("[sandbox]") {
            let tools = tools::folder().display().to_string();
            let _ = writeln!(text, "[sandbox]\nread = [{tools:?}]");
        }
        self.file("valetkey.toml", &text);
    }

    /// The digest of the policy as it is now.
    pub(crate) fn digest(&self) -> String {
        // It is told of policies too that cannot run here.
        let checked = self.valetkey(&["check", "--json"]);
        checked.json()["digest"]
            .as_str()
            .expect("a digest")
            .to_owned()
    }

    /// The owner approves the policy as it is now.
    pub(crate) fn approve(&self) {
        let digest = self.digest();
        self.valetkey(&["policy", "approve", "--digest", &digest])
            .passed();
    }

    /// Writes a file of the project.
    pub(crate) fn file(&self, name: &str, text: &str) {
        let path = self.path("project").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Runs the binary in the project's folder, to its end.
    pub(crate) fn valetkey(&self, arguments: &[&str]) -> Finished {
        self.finish(self.command(arguments), "")
    }

    /// The same, for output that holds a token on purpose.
    pub(crate) fn valetkey_unkept(&self, arguments: &[&str]) -> Finished {
        process::finish(self.command(arguments), "")
    }

    /// `valetkey run -- COMMAND`.
    pub(crate) fn run(&self, command: &[&str]) -> Finished {
        self.valetkey(&[&["run", "--"], command].concat())
    }

    /// Starts `valetkey serve` and waits until it serves.
    pub(crate) fn serve(&self) -> Serving {
        self.serve_on(&["--listen", "127.0.0.1:0"])
    }

    /// The same, with listeners of choice.
    pub(crate) fn serve_on(&self, listen: &[&str]) -> Serving {
        Serving::start(self, listen)
    }

    /// The binary with this world's folders, to be started in the project's folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let binary = std::env::var_os("VALETKEY_TEST_BINARY")
            .unwrap_or_else(|| env!("CARGO_BIN_EXE_valetkey").into());
        let mut command = Command::new(binary);
        command
            .args(arguments)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("LANG", "C.UTF-8")
            .env("VALETKEY_CONFIG_DIR", self.path("config"))
            .env("VALETKEY_STATE_DIR", self.path("state"));
        command
    }

    /// Runs a command to its end and keeps its output for the search.
    pub(crate) fn finish(&self, command: Command, input: &str) -> Finished {
        let finished = process::finish(command, input);
        self.keep(&finished);
        finished
    }

    /// Keeps an output for the search.
    pub(crate) fn keep(&self, finished: &Finished) {
        let number = self.outputs.fetch_add(1, Ordering::SeqCst);
        let text = format!(
            "{}\n{}\n{}",
            finished.program, finished.stdout, finished.stderr
        );
        fs::write(self.path(&format!("logs/{number}")), text).unwrap();
    }

    /// Every planted secret found in what this world holds, but for the owner's own files.
    pub(crate) fn leaks(&self) -> Vec<Leak> {
        let own = [self.path("config/keys"), self.path("home")];
        let except: Vec<&Path> = own.iter().map(PathBuf::as_path).collect();
        leak::search_folder(self.folder.path(), &self.planted, &except)
    }

    #[track_caller]
    pub(crate) fn assert_no_secret_leaked(&self) {
        let leaks: Vec<String> = self.leaks().iter().map(ToString::to_string).collect();
        assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    }

    /// Forgets the planted secrets: for the test of the search itself.
    pub(crate) fn forget_planted(&mut self) {
        self.planted.clear();
    }

    fn write_settings(&self) {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "[upstream]\nroots = [{:?}]",
            self.path("elsewhere/ca.pem")
        );
        text.push_str("[upstream.connect]\n");
        for (authority, address) in self.dialled.iter().chain(&self.unvetted) {
            let _ = writeln!(text, "{authority:?} = {address:?}");
        }
        text.push_str("[upstream.addresses]\n");
        let mut hosts: Vec<&str> = self
            .dialled
            .keys()
            .map(|a| a.rsplit_once(':').unwrap().0)
            .collect();
        hosts.dedup();
        for host in hosts {
            let _ = writeln!(text, "{host:?} = [\"127.0.0.0/8\"]");
        }
        self.write_private("config/config.toml", &text);
    }

    fn write_secrets(&self) {
        let entries = self
            .keys
            .iter()
            .map(|(name, entry)| format!("[{name}]\n{entry}\n"));
        self.write_private("config/secrets.toml", &entries.collect::<String>());
    }

    fn write_private(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_no_secret_leaked();
        }
    }
}

/// Answers every request with `hello`.
pub(crate) fn greeting() -> Behaviour {
    std::sync::Arc::new(|_| -> Answer { answer(200, "text/plain", "hello\n") })
}
