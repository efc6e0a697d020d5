//! How a test makes a sandbox and reads what came of it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use launcher::{Finished, NetworkMode, Spec, Started, Workspace, WorkspaceMode, prepare};
use sdk::report::Outcome;

/// A sandbox's folders on the host, and what it is to be.
pub(crate) struct Box {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) spec: Spec,
}

impl Box {
    /// A sandbox for a command, with an overlay workspace that holds the probe.
    pub(crate) fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("valetkey-test-")
            .tempdir_in("/var/tmp")
            .unwrap();
        for name in ["home", "work", "layers/upper", "layers/work"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let program = folder.path().join("work/probe");
        fs::write(&program, probe()).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut spec = Spec::new(argv, folder.path().join("home"));
        spec.view.workspace = Some(Workspace {
            host: folder.path().join("work"),
            mode: WorkspaceMode::Overlay {
                upper: folder.path().join("layers/upper"),
                work: folder.path().join("layers/work"),
                below: Vec::new(),
            },
            hide: Vec::new(),
            protect: Vec::new(),
        });
        Self { folder, spec }
    }

    /// A sandbox that runs a line of shell.
    pub(crate) fn shell(line: &str) -> Self {
        Self::new(["/bin/sh", "-c", line])
    }

    /// A sandbox that runs the probe.
    pub(crate) fn probe(arguments: &[&str]) -> Self {
        Self::new([&["./probe"], arguments].concat())
    }

    /// With the run's own listeners.
    pub(crate) fn with_network(mut self) -> Self {
        self.spec.network = NetworkMode::ProxyOnly;
        self
    }

    /// With another mode of the workspace.
    pub(crate) fn mode(mut self, mode: WorkspaceMode) -> Self {
        self.spec.view.workspace.as_mut().unwrap().mode = mode;
        self
    }

    /// With a change to the request.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        change(&mut self.spec);
        self
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn upper(&self) -> PathBuf {
        self.folder.path().join("layers/upper")
    }

    /// A file of the workspace on the host.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub(crate) fn start(&self) -> Started {
        prepare(&self.spec).unwrap().start().unwrap()
    }

    pub(crate) fn run(&self) -> Finished {
        let mut started = self.start();
        started.release().unwrap();
        started.wait(&mut |_, _| {})
    }

    /// The output of a command that passes.
    pub(crate) fn output(&self) -> String {
        let finished = self.run();
        assert_eq!(finished.outcome, Outcome::Passed, "{finished:?}");
        finished.stdout.text
    }
}

/// Runs a test's body as whoever runs the tests and, if that is root, as an ordinary user too.
pub(crate) fn as_each_user(test: &str, body: impl FnOnce()) {
    body();
    if !rustix::process::geteuid().is_root() || std::env::var_os(ALONE).is_some() {
        return;
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("tests");
    let own = std::env::current_exe().unwrap();
    if fs::hard_link(&own, &copy).is_err() {
        fs::copy(&own, &copy).unwrap();
    }
    let output = Command::new(&copy)
        .args(["--exact", test, "--nocapture"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("RUST_BACKTRACE", "1")
        .envs(std::env::var_os(PROBES).map(|path| (PROBES, path)))
        .current_dir("/")
        .uid(ORDINARY)
        .gid(ORDINARY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "as an ordinary user:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const ORDINARY: u32 = 1001;

/// Names a folder with the probes, built already, for a machine without a compiler.
pub(crate) const PROBES: &str = "VALETKEY_TEST_PROBES";

/// Set where each test is run by each user anyway.
pub(crate) const ALONE: &str = "VALETKEY_TEST_ALONE";

/// The probe: a static program that tries one thing and says what came of it.
pub(crate) fn probe() -> &'static [u8] {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(|| built("probe", include_str!("probes/probe.c")))
}

/// A static program, from its text.
pub(crate) fn built(name: &str, text: &str) -> Vec<u8> {
    if let Some(folder) = std::env::var_os(PROBES) {
        return fs::read(PathBuf::from(folder).join(name)).unwrap();
    }
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let source = folder.path().join(format!("{name}.c"));
    fs::write(&source, text).unwrap();
    let path = folder.path().join(name);
    let built = Command::new("gcc")
        .args(["-static", "-O1", "-w", "-pthread", "-o"])
        .args([&path, &source])
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    fs::read(path).unwrap()
}

/// Another such program, with ways out of a sandbox.
pub(crate) fn escape() -> &'static [u8] {
    static BUILT: OnceLock<Vec<u8>> = OnceLock::new();
    BUILT.get_or_init(|| built("escape", include_str!("probes/escape.c")))
}
