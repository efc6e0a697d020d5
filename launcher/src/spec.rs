//! What the caller asks for: one command and the sandbox around it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use sdk::report::Limit;
use serde::{Deserialize, Serialize};

use crate::weaken::Weaken;

/// One command and the sandbox it runs in.
///
/// A plain value: nothing is opened or checked before [`crate::prepare`].
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The command and its arguments. A command without `/` is looked up in the sandbox's `PATH`.
    pub argv: Vec<OsString>,
    /// The whole environment of the command, apart from `PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL` and `TMPDIR`,
    /// which the launcher sets where they are not given here. Nothing is inherited.
    pub env: BTreeMap<OsString, OsString>,
    /// Where the command starts, as a path inside the sandbox; the workspace, or else the home, when absent.
    pub workdir: Option<PathBuf>,
    /// What the command sees of the file system.
    pub view: View,
    /// What it can connect to.
    pub network: NetworkMode,
    /// What bounds it.
    pub limits: Limits,
    /// What its standard input is, unless it has a terminal.
    pub stdin: Stdin,
    /// What a test has switched off. Nothing, in every build but those of tests.
    #[doc(hidden)]
    pub weaken: Weaken,
    /// The size of a terminal of the sandbox's own that stands in the place of all three standard streams; `None` for
    /// none. What the command writes to it arrives as [`crate::Stream::Stdout`].
    pub terminal: Option<WindowSize>,
    /// What keeps it apart from the machine. Never anything weaker than the owner asked for.
    pub isolation: Isolation,
    /// Why the kernel laid no overlay over the workspace ([`crate::Error::NoOverlay`]): the command then works on a copy.
    pub no_overlay: Option<String>,
}

impl Spec {
    /// A command with no workspace, no network, no limits and nothing of the owner's home.
    pub fn new<A: Into<OsString>>(
        argv: impl IntoIterator<Item = A>,
        home: impl Into<PathBuf>,
    ) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            workdir: None,
            view: View {
                home: home.into(),
                path: OsString::from("/usr/local/bin:/usr/bin:/bin"),
                workspace: None,
                read: Vec::new(),
                mask: Vec::new(),
                ca: None,
                files: Vec::new(),
            },
            network: NetworkMode::None,
            limits: Limits::default(),
            stdin: Stdin::Null,
            weaken: Weaken::default(),
            terminal: None,
            isolation: Isolation::Namespaces,
            no_overlay: None,
        }
    }
}

/// What keeps the command apart from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces, or the sandbox is not built.
    Namespaces,
    /// Landlock and a system call filter, for machines that refuse namespaces. What that does not keep apart is in
    /// [`crate::Prepared::not_isolated`].
    Landlock,
    /// Namespaces where a sandbox of them can be built here, which is tried; else Landlock.
    Either,
}

/// What the command sees of the file system, beside the system directories.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The owner's home. The sandbox has an empty one of its own at the same path.
    pub home: PathBuf,
    /// The owner's `PATH`: tool chains in the home that are named there are shown read-only, other entries below the
    /// home are dropped and listed in [`crate::Prepared::notes`].
    pub path: OsString,
    /// The workspace, shown at the same path; `None` for no workspace.
    pub workspace: Option<Workspace>,
    /// Further host paths, shown read-only at the same path.
    pub read: Vec<PathBuf>,
    /// Host paths that no view may show: the owner's configuration and state folders, the files of secrets. Inside
    /// anything that is shown they are covered; a path of the view that lies inside one of them is refused.
    pub mask: Vec<PathBuf>,
    /// The certificate bundle that replaces the system's.
    pub ca: Option<CaBundle>,
    /// Files made up for the sandbox, such as client settings. Each stands at its path, read-only.
    pub files: Vec<MadeUp>,
}

/// The folder the command works on.
#[derive(Clone, Debug, PartialEq)]
pub struct Workspace {
    /// The folder on the host, absolute. It must not lead through a symbolic link (the caller resolves the project's
    /// folder, the policy's part must not be a link).
    pub host: PathBuf,
    /// How it is shown.
    pub mode: WorkspaceMode,
    /// The policy's patterns of files to hide, relative to the workspace (`secrets/**`, `*.sqlite`), on top of the
    /// built-in ones.
    pub hide: Vec<String>,
    /// Paths relative to the workspace that are read-only whatever the mode, such as the policy file.
    pub protect: Vec<PathBuf>,
}

/// How many earlier layers an overlay shows at most: their names, three bytes each, must fit into the 255 bytes of one
/// mount option.
pub const MAX_LAYERS_BELOW: usize = 80;

/// How the workspace is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkspaceMode {
    /// Writable; what is written lands in `upper`, the folder itself stays as it is.
    Overlay {
        /// Where changes are kept: an empty or earlier used folder on a disk file system, outside of every view.
        upper: PathBuf,
        /// The overlay's scratch folder, empty, on the same file system as `upper`.
        work: PathBuf,
        /// The `upper` folders of earlier layers that are shown between the folder and this layer, newest first; each
        /// `LAYERS/NAME/upper`, as `upper` itself is then. At most [`MAX_LAYERS_BELOW`].
        below: Vec<PathBuf>,
    },
    /// As it is, not writable.
    ReadOnly,
    /// As it is, writable.
    ReadWrite,
}

/// A certificate bundle, laid over every place where clients look for one.
#[derive(Clone, Debug, PartialEq)]
pub struct CaBundle {
    /// A file of the host, the system's bundle, that it begins with.
    pub system: Option<PathBuf>,
    /// What follows, in PEM.
    pub pem: Vec<u8>,
    /// Where it stands inside, for the variables that name it.
    pub at: PathBuf,
    /// Host paths of bundle files that it covers where the view shows them.
    pub over: Vec<PathBuf>,
}

/// A file that exists in the sandbox only.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeUp {
    /// Its absolute path inside. It is laid over what is there, or made where the view is ours.
    pub path: PathBuf,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// What the command can connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// Its own loopback only.
    None,
    /// The run's listeners, which take every TCP connection to any address, and name questions.
    ProxyOnly,
}

/// What bounds the command and everything it starts. `None` means not bounded by the launcher.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory of the whole process tree.
    pub memory: Option<u64>,
    /// Processors' worth of time per second.
    pub cpus: Option<f64>,
    /// Processor time of the whole process tree.
    pub cpu_time: Option<Duration>,
    /// Time on the clock.
    pub wall: Option<Duration>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes written to the workspace's upper layer, and to `/tmp` with the home.
    pub disk: Option<u64>,
    /// Bytes on standard output and standard error together.
    pub output: Option<u64>,
    /// Bytes in one file.
    pub file_size: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
}

impl Limits {
    /// The largest file that can be written, and the limit that says so: no file may take much more room than all.
    pub(crate) fn largest_file(&self) -> Option<(Limit, u64)> {
        // A little more, so that a full `/tmp` answers as a full disk does, and not with a signal.
        let disk = self.disk.map(|bytes| bytes.saturating_add(1 << 20));
        match (self.file_size, disk) {
            (Some(size), Some(disk)) if disk < size => Some((Limit::Disk, disk)),
            (Some(size), _) => Some((Limit::FileSize, size)),
            (None, disk) => disk.map(|bytes| (Limit::Disk, bytes)),
        }
    }
}

/// What the command's standard input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// The caller's, unless that is a terminal; then empty.
    InheritUnlessTerminal,
    /// The caller's, terminal or not.
    Inherit,
    /// Empty.
    Null,
    /// What is written to [`crate::Started::input`].
    Piped,
}

/// A terminal's size in characters.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}
