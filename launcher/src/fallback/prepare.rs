//! From what is asked for to a sandbox without namespaces: everything is opened, copied and checked here.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::copy::{self, Copied};
use super::rules::{self, Right, Rules};
use super::{NOT_ISOLATED, Scratch, filter};
use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::layout::{is_dir, open, refused};
use crate::owner::Owner;
use crate::plan::{Bounded, Files, First, Network, Plan, Rest};
use crate::prepare::{Prepared, command, limit_notes};
use crate::search::Search;
use crate::spec::{NetworkMode, Spec, Workspace, WorkspaceMode};
use crate::sys::Instruction;
use crate::{etc, system, toolchains, workspace};

/// What a sandbox without namespaces needs beside the plan.
#[derive(Debug)]
pub(crate) struct Fallback {
    /// The guard's rules.
    pub(super) own_signals: OwnedFd,
    /// The command's rules.
    pub(super) view: OwnedFd,
    /// The filter that asks.
    pub(super) filter: Vec<Instruction>,
    /// Where the command may write.
    pub(super) writable: Vec<PathBuf>,
    /// Whether there are connections.
    pub(super) network: NetworkMode,
    /// The copy of the workspace whose changes are kept.
    pub(super) layer: Option<Layer>,
    /// The sandbox's own folder.
    pub(super) scratch: Scratch,
}

/// A copy of the workspace, what was copied, and where its changes are written to.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) copy: PathBuf,
    pub(super) copied: Copied,
    pub(super) upper: PathBuf,
}

/// Checks `spec` against the host and opens what it names, as [`crate::prepare`].
pub(crate) fn prepare(spec: &Spec) -> Result<Prepared, Error> {
    crate::advice::can_ask()?;
    if spec.terminal.is_some() {
        let why = "a terminal needs namespaces, which are not to be had here; leave `-t` out";
        return Err(Error::Request(why.into()));
    }
    if let Some(file) = spec.view.files.first() {
        let why = "nothing can be made up for the sandbox without namespaces";
        return Err(refused("made-up file", &file.path, why));
    }
    let scratch = Scratch::new()?;
    let mut building = Building {
        spec,
        masks: masks(&spec.view.mask)?,
        rules: Rules::new()?,
        scratch: &scratch,
        writable: Vec::new(),
        notes: Vec::new(),
    };
    building.system()?;
    let path = building.toolchains()?;
    for place in &spec.view.read {
        building.read(place)?;
    }
    let (shown, layer, hidden) = match &spec.view.workspace {
        Some(asked) => building.workspace(asked)?,
        None => (None, None, Vec::new()),
    };
    let env = building.environment()?;
    let home = scratch.path().join("home");
    let workdir = workdir(spec, shown.as_deref(), &home);
    let Building {
        rules,
        writable,
        mut notes,
        ..
    } = building;

    let cgroup = Cgroup::create(&spec.limits);
    notes.extend(limit_notes(&spec.limits, cgroup.as_ref()));
    let mut inside = spec.clone();
    inside.env = env;
    if let Some(workspace) = &mut inside.view.workspace {
        // What is written lies on the host.
        workspace.mode = WorkspaceMode::ReadWrite;
    }
    let mut command = command(&inside, &home, &workdir, path.clone(), cgroup.as_ref())?;
    for (resource, value) in &mut command.rlimits {
        if *resource == Bounded::Processes {
            // The kernel counts all of this user's.
            *value = value.saturating_add(crate::usage::tasks_of_user());
        }
    }
    let already = layer.as_ref().map_or(0, |layer| layer.copied.bytes);
    let fallback = Fallback {
        own_signals: rules::own_signals()?,
        view: rules.into_set()?,
        filter: filter::filter(spec.network),
        writable,
        network: spec.network,
        layer,
        scratch,
    };
    Ok(Prepared {
        newborn: None,
        trees: Vec::new(),
        rules: None,
        plan: Plan {
            first: First {
                stage: c"/".into(),
                started_by_root: false,
                network: Network::None { up: Vec::new() },
                weaken: spec.weaken,
                files: Files::default(),
            },
            rest: Rest {
                files: Files::default(),
                terminal: None,
                landlock: None,
            },
            command,
        },
        owner: Owner::new(),
        limits: spec.limits.clone(),
        cgroup,
        stdin: spec.stdin,
        upper: Some(fallback.scratch.path().to_owned()),
        already,
        work: None,
        notes,
        path,
        workdir,
        home,
        copy: None,
        listed: Vec::new(),
        covered: Vec::new(),
        uncovered: None,
        hidden,
        not_isolated: NOT_ISOLATED,
        fallback: Some(Box::new(fallback)),
    })
}

struct Building<'a> {
    spec: &'a Spec,
    masks: Vec<PathBuf>,
    rules: Rules,
    scratch: &'a Scratch,
    writable: Vec<PathBuf>,
    notes: Vec<String>,
}

/// Where the workspace is shown, what is kept of it, and what in it is hidden.
type Shown = (Option<PathBuf>, Option<Layer>, Vec<PathBuf>);

impl Building<'_> {
    fn system(&mut self) -> Result<(), Error> {
        for folder in SYSTEM.iter().map(Path::new) {
            self.refuse_masks_below("system folder", folder)?;
            self.rules.allow_system(folder, Right::Read)?;
        }
        for place in etc::readable() {
            self.rules.allow_system(&place, Right::Read)?;
        }
        for name in ["null", "zero", "full", "random", "urandom"] {
            self.rules
                .allow_system(&Path::new("/dev").join(name), Right::Device)?;
        }
        for name in ["tmp", "home"] {
            self.write(&self.scratch.path().join(name))?;
        }
        Ok(())
    }

    /// Shows the tool chains and returns the sandbox's `PATH`.
    fn toolchains(&mut self) -> Result<OsString, Error> {
        let view = &self.spec.view;
        let folder = view.workspace.as_ref().map(|asked| asked.host.as_path());
        let found = toolchains::find(&view.path, &view.home, folder);
        for part in &found.shown {
            let Ok(real) = part.canonicalize() else {
                continue;
            };
            self.refuse_masks_below("tool chain", &real)?;
            self.rules.allow_system(&real, Right::Read)?;
        }
        if !found.dropped.is_empty() {
            let dropped: Vec<_> = found
                .dropped
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            self.notes.push(format!(
                "left out of PATH, because only known tool chains and system folders are shown: {}",
                dropped.join(", ")
            ));
        }
        std::env::join_paths(&found.path)
            .map_err(|error| Error::Request(format!("`PATH`: {error}")))
    }

    fn read(&mut self, host: &Path) -> Result<(), Error> {
        const READ: &str = "path to read";
        workspace::refuse_to_read(host)?;
        let (place, found) = open(READ, host, self.spec.weaken)?;
        self.refuse_masks_below(READ, host)?;
        if is_dir(&found) {
            let found = Search::run(host, &place, &[])?;
            if let Some(hidden) = first_hidden(host, &found) {
                return Err(refused(READ, host, &cannot_hide(&hidden)));
            }
        }
        self.rules.allow(&place, Right::Read)
    }

    fn workspace(&mut self, asked: &Workspace) -> Result<Shown, Error> {
        let host = &asked.host;
        let (place, globs) =
            workspace::open_folder(asked, &system::home(&self.spec.view.home), self.spec.weaken)?;
        if self.scratch.path().starts_with(host) {
            let why = "the sandbox's own folder would lie in it; work in a folder of your own";
            return Err(refused(workspace::WHAT, host, why));
        }
        let mut found = Search::run(host, &place, &globs)?;
        for mask in &self.masks {
            if let Ok(below) = mask.strip_prefix(host) {
                found.hidden.push((below.to_owned(), mask.is_dir()));
            }
        }
        self.refuse_masked(workspace::WHAT, host)?;
        let hidden: Vec<PathBuf> = found.hidden.iter().map(|(path, _)| path.clone()).collect();
        let right = match &asked.mode {
            WorkspaceMode::ReadWrite => {
                self.refuse_protection(asked, &found)?;
                self.rules.allow(&place, Right::Write)?;
                self.writable.push(host.clone());
                return Ok((Some(host.clone()), None, hidden));
            }
            WorkspaceMode::ReadOnly if first_hidden(host, &found).is_none() => {
                self.rules.allow(&place, Right::Read)?;
                return Ok((Some(host.clone()), None, hidden));
            }
            WorkspaceMode::ReadOnly => Right::Read,
            WorkspaceMode::Overlay { .. } => Right::Write,
        };
        let name = host
            .file_name()
            .unwrap_or(std::ffi::OsStr::new("workspace"));
        std::fs::create_dir(self.scratch.path().join("copy"))
            .map_err(|error| refused(workspace::WHAT, host, &error.to_string()))?;
        let copy = self.scratch.path().join("copy").join(name);
        let below = match &asked.mode {
            WorkspaceMode::Overlay { below, .. } => below.as_slice(),
            WorkspaceMode::ReadOnly | WorkspaceMode::ReadWrite => &[],
        };
        let most = self.spec.limits.disk;
        let copied = copy::copy(host, (&place, &found), &asked.protect, below, &copy, most)?;
        let (place, _) = open(workspace::WHAT, &copy, self.spec.weaken)?;
        self.rules.allow(&place, right)?;
        self.notes.push(format!(
            "the command works on a copy of `{}`, at `{}`",
            host.display(),
            copy.display()
        ));
        let layer = match &asked.mode {
            WorkspaceMode::Overlay { upper, .. } => {
                self.writable.push(copy.clone());
                Some(Layer {
                    copy: copy.clone(),
                    copied,
                    upper: upper.clone(),
                })
            }
            WorkspaceMode::ReadOnly | WorkspaceMode::ReadWrite => None,
        };
        Ok((Some(copy), layer, hidden))
    }

    /// Nothing in a folder that may be written can be kept from being read or written.
    fn refuse_protection(&self, asked: &Workspace, found: &Search<'_>) -> Result<(), Error> {
        let host = &asked.host;
        let protected = asked
            .protect
            .iter()
            .map(|path| host.join(path))
            .find(|path| path.symlink_metadata().is_ok());
        match first_hidden(host, found).or(protected) {
            Some(path) => Err(refused(workspace::WHAT, host, &cannot_hide(&path))),
            None => Ok(()),
        }
    }

    /// Allows writing to a folder of the sandbox's own.
    fn write(&mut self, folder: &Path) -> Result<(), Error> {
        let (place, _) = open("folder of the sandbox", folder, self.spec.weaken)?;
        self.rules.allow(&place, Right::Write)?;
        self.writable.push(folder.to_owned());
        Ok(())
    }

    /// The variables, with what the sandbox has at another place.
    fn environment(&mut self) -> Result<std::collections::BTreeMap<OsString, OsString>, Error> {
        let mut env = self.spec.env.clone();
        let tmp = self.scratch.path().join("tmp");
        for name in ["TMPDIR", "TMP", "TEMP"] {
            env.entry(name.into()).or_insert_with(|| tmp.clone().into());
        }
        if self.spec.network == NetworkMode::ProxyOnly {
            // Questions over TCP reach the run's resolver; there is no UDP (resolv.conf(5)).
            env.insert("RES_OPTIONS".into(), "use-vc attempts:1".into());
        }
        let Some(bundle) = &self.spec.view.ca else {
            return Ok(env);
        };
        let place = self.scratch.path().join("ca-bundle.pem");
        let whole = match &bundle.system {
            Some(system) => std::fs::read(system),
            None => Ok(Vec::new()),
        };
        whole
            .and_then(|whole| std::fs::write(&place, [&whole[..], &bundle.pem].concat()))
            .map_err(|error| refused("certificate bundle", &place, &error.to_string()))?;
        self.rules.allow_system(&place, Right::Read)?;
        let (from, to) = (
            bundle.at.as_os_str().as_bytes(),
            place.as_os_str().as_bytes(),
        );
        for value in env.values_mut() {
            *value = OsString::from_vec(replaced(value.as_bytes(), from, to));
        }
        Ok(env)
    }

    fn refuse_masks_below(&self, what: &'static str, tree: &Path) -> Result<(), Error> {
        self.refuse_masked(what, tree)?;
        match self.masks.iter().find(|mask| mask.starts_with(tree)) {
            Some(mask) => Err(refused(what, tree, &cannot_hide(mask))),
            None => Ok(()),
        }
    }

    fn refuse_masked(&self, what: &'static str, tree: &Path) -> Result<(), Error> {
        match self.masks.iter().find(|mask| tree.starts_with(mask)) {
            Some(_) => {
                let why = "this holds the owner's secrets or settings, which no sandbox may see";
                Err(refused(what, tree, why))
            }
            None => Ok(()),
        }
    }
}

/// The first thing that the command must not see as it is.
fn first_hidden(host: &Path, found: &Search<'_>) -> Option<PathBuf> {
    let hidden = found.hidden.first().map(|(path, _)| host.join(path));
    hidden.or_else(|| {
        let changed = found.git_configs.iter().find(|(path, shown)| {
            std::fs::read(host.join(path)).map_or(true, |real| real != *shown)
        });
        changed.map(|(path, _)| host.join(path))
    })
}

fn cannot_hide(path: &Path) -> String {
    format!(
        "`{}` in it cannot be hidden or protected without namespaces; for the workspace, set `workspace.mode` to \
         \"overlay\", which works on a copy",
        path.display()
    )
}

fn masks(asked: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut real = Vec::new();
    for mask in asked {
        match mask.canonicalize() {
            Ok(path) => real.push(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = format!("it cannot be found: {error}");
                return Err(refused("path to hide", mask, &why));
            }
        }
    }
    Ok(real)
}

fn workdir(spec: &Spec, shown: Option<&Path>, home: &Path) -> PathBuf {
    let Some(shown) = shown else {
        return spec.workdir.clone().unwrap_or_else(|| home.to_owned());
    };
    let host = spec
        .view
        .workspace
        .as_ref()
        .map(|asked| asked.host.as_path());
    match (&spec.workdir, host) {
        (Some(asked), Some(host)) => match asked.strip_prefix(host) {
            Ok(below) => shown.join(below),
            Err(_) => asked.clone(),
        },
        (Some(asked), None) => asked.clone(),
        (None, _) => shown.to_owned(),
    }
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        match rest.strip_prefix(from) {
            Some(after) if !from.is_empty() => {
                made.extend(to);
                rest = after;
            }
            _ => {
                made.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    made
}

/// `/proc` is the machine's; Landlock keeps what is private of other processes out of reach.
const SYSTEM: &[&str] = &[
    "/usr",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
];
