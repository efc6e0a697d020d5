//! How a policy, a run and this machine become the sandbox that the launcher builds.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use launcher::{
    CaBundle, Isolation, MadeUp, Spec, Stdin, View, WindowSize, Workspace, WorkspaceMode,
};
use policies::Limits;

use crate::failure::Failure;
use crate::folders::{self, Folders};
use crate::project::Project;
use crate::steps::Layer;
use crate::trust;

/// What the sandbox is to be built from.
pub(crate) struct Wanted<'a> {
    /// The installation.
    pub(crate) folders: &'a Folders,
    /// The project and its policy.
    pub(crate) project: &'a Project,
    /// How the workspace is shown, where the policy asks for an overlay.
    pub(crate) layer: Option<WorkspaceMode>,
    /// Whether there is a way out.
    pub(crate) network: policies::NetworkMode,
    /// Proxy and trust variables, and placeholders.
    pub(crate) environment: BTreeMap<String, String>,
    /// The step's own variables, on top of the policy's.
    pub(crate) env: BTreeMap<String, String>,
    /// What bounds the step.
    pub(crate) limits: &'a Limits,
    /// What the command's standard input is.
    pub(crate) stdin: Stdin,
    /// The size of the terminal that it is to have, if any.
    pub(crate) terminal: Option<WindowSize>,
    /// The certificate authorities that programs inside shall trust beside the system's, in PEM.
    pub(crate) ca_bundle: Vec<u8>,
    /// Files made up for clients that read no variable.
    pub(crate) files: Vec<MadeUp>,
    /// Host paths that no view may show, such as the files of secrets.
    pub(crate) mask: Vec<PathBuf>,
    /// The command.
    pub(crate) command: Vec<OsString>,
    /// What keeps it apart from the machine: the owner's word, no policy's.
    pub(crate) isolation: Isolation,
}

/// Writes down what the launcher shall build.
pub(crate) fn spec(wanted: Wanted<'_>) -> Result<Spec, Failure> {
    let policy = &wanted.project.policy;
    let workspace = workspace(&wanted)?;
    let here = std::env::current_dir()
        .and_then(|here| here.canonicalize())
        .map_err(|error| Failure::ours("cannot tell which folder this is").because(error))?;
    let workdir = workspace
        .as_ref()
        .filter(|workspace| here.starts_with(&workspace.host))
        .map(|_| here);
    let mut mask = vec![wanted.folders.config.clone(), wanted.folders.state.clone()];
    mask.extend(wanted.mask);

    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    env.insert("LANG".into(), "C.UTF-8".into());
    if let Some(term) = std::env::var_os("TERM") {
        env.insert("TERM".into(), term);
    }
    for (name, value) in wanted.environment {
        env.insert(name.into(), value.into());
    }
    for (name, value) in policy.sandbox().env.iter().chain(&wanted.env) {
        env.insert(name.into(), value.into());
    }

    let limits = wanted.limits;
    let home = folders::home()?;
    Ok(Spec {
        env,
        workdir,
        view: View {
            home: home.clone(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            workspace,
            read: policy
                .sandbox()
                .read
                .iter()
                .map(|path| absolute(&wanted.project.folder, path))
                .collect::<Result<_, _>>()?,
            mask,
            ca: Some(CaBundle {
                system: trust::system(),
                pem: wanted.ca_bundle,
                at: CA_BUNDLE.into(),
                over: BUNDLES.iter().map(PathBuf::from).collect(),
            }),
            files: wanted.files,
        },
        network: network(wanted.network),
        limits: launcher::Limits {
            memory: limits.memory,
            cpus: limits.cpus,
            cpu_time: limits.cpu_time,
            wall: limits.wall,
            processes: limits.processes,
            disk: limits.disk,
            output: limits.output,
            file_size: limits.file_size,
            open_files: limits.open_files,
        },
        stdin: wanted.stdin,
        terminal: wanted.terminal,
        isolation: wanted.isolation,
        ..Spec::new(wanted.command, home)
    })
}

fn workspace(wanted: &Wanted<'_>) -> Result<Option<Workspace>, Failure> {
    let asked = &wanted.project.policy.sandbox().workspace;
    let mode = match asked.mode {
        policies::WorkspaceMode::None => return Ok(None),
        policies::WorkspaceMode::ReadOnly => WorkspaceMode::ReadOnly,
        policies::WorkspaceMode::ReadWrite => WorkspaceMode::ReadWrite,
        policies::WorkspaceMode::Overlay => wanted
            .layer
            .clone()
            .ok_or_else(|| Failure::ours("the workspace's overlay has no layer"))?,
    };
    let folder = &wanted.project.folder;
    let host = absolute(folder, &asked.path)?;
    // The policy is the owner's word; what runs under it may read it and not change it.
    let protect = wanted
        .project
        .files()
        .iter()
        .filter_map(|file| file.strip_prefix(&host).ok())
        .map(Path::to_owned)
        .collect();
    Ok(Some(Workspace {
        host,
        mode,
        hide: wanted.project.policy.sandbox().hide.clone(),
        protect,
    }))
}

/// The policy's word for the launcher.
pub(crate) fn network(mode: policies::NetworkMode) -> launcher::NetworkMode {
    match mode {
        policies::NetworkMode::None => launcher::NetworkMode::None,
        policies::NetworkMode::ProxyOnly => launcher::NetworkMode::ProxyOnly,
    }
}

/// The workspace's folder on this machine.
pub(crate) fn workspace_folder(project: &Project) -> Result<PathBuf, Failure> {
    absolute(&project.folder, &project.policy.sandbox().workspace.path)
}

/// Builds nothing and says for what reason no sandbox would be built; none if one would.
///
/// It goes the way of a run up to where the first process would start.
pub(crate) fn foresee(
    folders: &Folders,
    project: &Project,
    mask: Vec<PathBuf>,
) -> Result<Foreseen, Failure> {
    let unbuilt = unbuilt(folders, project, mask)?;
    match unbuilt.prepared {
        Ok(_) => Ok(Foreseen::Built),
        Err(error @ (launcher::Error::View { .. } | launcher::Error::Request(_))) => {
            Ok(Foreseen::Refused(cannot_build(project, error)))
        }
        // What this machine cannot do is no mistake of the policy; `valetkey doctor` is about that.
        Err(error) => Ok(Foreseen::NotHere(cannot_build(project, error))),
    }
}

/// A sandbox as it would be prepared for a run, and is not built.
pub(crate) struct Unbuilt {
    /// What the launcher says to it.
    pub(crate) prepared: Result<launcher::Prepared, launcher::Error>,
    /// What it was asked to show.
    pub(crate) view: View,
}

/// Goes the way of a run up to where the first process would start.
pub(crate) fn unbuilt(
    folders: &Folders,
    project: &Project,
    mask: Vec<PathBuf>,
) -> Result<Unbuilt, Failure> {
    let scratch = Scratch::new(folders)?;
    let layer = Layer::make(&scratch.0.join("001"), &[])?;
    let spec = spec(Wanted {
        folders,
        project,
        layer: Some(layer.mode()),
        network: project.policy.sandbox().network,
        environment: BTreeMap::new(),
        env: BTreeMap::new(),
        limits: project.policy.limits(),
        stdin: Stdin::Null,
        terminal: None,
        ca_bundle: Vec::new(),
        files: Vec::new(),
        mask,
        command: vec!["true".into()],
        isolation: Isolation::Namespaces,
    })?;
    Ok(Unbuilt {
        prepared: launcher::prepare(&spec),
        view: spec.view,
    })
}

/// What would become of a sandbox.
pub(crate) enum Foreseen {
    /// It would be built.
    Built,
    /// It would be refused.
    Refused(Failure),
    /// This machine builds none.
    NotHere(Failure),
}

/// How a sandbox that cannot be built is told: by who has to act.
pub(crate) fn cannot_build(project: &Project, error: launcher::Error) -> Failure {
    const MESSAGE: &str = "the sandbox cannot be built as the policy says; nothing ran";
    let failure = match (&error, &project.file) {
        // Without a policy nobody wrote anything wrong: one stands in a folder that cannot be shown.
        (launcher::Error::View { .. } | launcher::Error::Request(_), Some(_)) => {
            Failure::bad_policy(MESSAGE)
                .named("sandbox-refused")
                .hint("correct `[sandbox]` in the policy")
        }
        _ => Failure::ours(MESSAGE).named("sandbox-unavailable"),
    };
    failure.because(error)
}

/// A folder as a run's own, for as long as is looked.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folders: &Folders) -> Result<Self, Failure> {
        let at = folders
            .state
            .join("runs")
            .join(format!("check-{}", std::process::id()));
        let _ = fs::remove_dir_all(&at);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&at)
            .map_err(|error| {
                Failure::ours(format!("cannot make the folder `{}`", at.display())).because(error)
            })?;
        Ok(Self(at))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Some empty folders at most are left over, and the next check by this name removes them.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A path of the policy, from the project's folder or the owner's home.
///
/// Links are not resolved: the policy was approved for what stands in it, and the launcher refuses a path that leads
/// through a link, which somebody may have put there since.
fn absolute(folder: &Path, path: &str) -> Result<PathBuf, Failure> {
    let joined = match path.strip_prefix("~/") {
        Some(rest) => folders::home()?.join(rest),
        None => folder.join(path),
    };
    let mut plain = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                return Err(Failure::bad_policy(format!(
                    "`{path}`, which the policy names, leads upwards with `..`"
                ))
                .hint("write the path itself, from `/` or from `~/`"));
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                plain.push(component);
            }
        }
    }
    Ok(plain)
}

/// Where the sandbox has the certificates.
pub(crate) const CA_BUNDLE: &str = "/etc/ssl/valetkey/ca-bundle.pem";

// Where distributions keep the bundle that programs read without being told.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
