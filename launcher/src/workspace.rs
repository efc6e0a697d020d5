//! How the workspace is shown, and what in it is hidden.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::changes;
use crate::copied::{self, Copy};
use crate::error::Error;
use crate::glob::Glob;
use crate::layout::{Access, Layout, Ownership, c_string, is_dir, open, refused, relative};
use crate::mount_table;
use crate::plan::Op;
use crate::search::{Found, Search};
use crate::spec::{MAX_LAYERS_BELOW, Workspace, WorkspaceMode};
use crate::weaken::Weaken;

/// Shows the workspace and covers what it hides; returns the hidden paths, relative to it.
///
/// The owner's `home` must not lie in it: a policy in the home that asks for nothing needs nobody's yes.
pub(crate) fn show(
    layout: &mut Layout,
    workspace: &Workspace,
    home: &Path,
    most: Option<u64>,
) -> Result<(Vec<PathBuf>, Option<Copy>), Error> {
    let host = &workspace.host;
    let (place, globs) = open_folder(workspace, home, layout.weaken)?;
    let found = Search::run(host, &place, &globs)?;
    let mut copy = None;
    match &workspace.mode {
        WorkspaceMode::Overlay { upper, work, below } => {
            let layers = Layers::of(upper, work, below)?;
            let why = match layout.no_overlay(host, upper, work) {
                None => match overlay(layout, host, &layers) {
                    Err(error) if is_not_mapped(&error) => Some(NOT_MAPPED.into()),
                    laid => laid.map(|()| None)?,
                },
                why => why,
            };
            if let Some(why) = why {
                let from = (&place, &found);
                copy = Some(copied::show(
                    layout,
                    workspace,
                    from,
                    (upper, below),
                    most,
                    &why,
                )?);
            }
        }
        WorkspaceMode::ReadOnly => {
            layout.show(WHAT, host, Access::ReadOnly, Ownership::ReaderIfPossible)?
        }
        WorkspaceMode::ReadWrite => {
            layout.show(WHAT, host, Access::Writable, Ownership::Sandbox)?
        }
    }
    if matches!(workspace.mode, WorkspaceMode::ReadWrite) {
        let hidden = found.hidden.iter().map(|(path, _)| host.join(path));
        let shown = found.git_configs.iter().map(|(path, _)| host.join(path));
        let protected = workspace.protect.iter().map(|path| host.join(path));
        layout.pin_above(host, hidden.chain(shown).chain(protected))?;
    }
    for (path, is_dir) in &found.hidden {
        layout.cover(&host.join(path), *is_dir)?;
    }
    for (path, bytes) in found.git_configs {
        layout.git_config(host.join(path), bytes)?;
    }
    for path in &workspace.protect {
        if path
            .components()
            .any(|part| !matches!(part, Component::Normal(_)))
        {
            return Err(refused(
                "protected file",
                path,
                "give a path below the workspace",
            ));
        }
        layout.protect(&host.join(path))?;
    }
    let hidden = found.hidden.into_iter().map(|(path, _)| path).collect();
    Ok((hidden, copy))
}

/// Whether root's folder cannot be shown as the sandbox's user's.
fn is_not_mapped(error: &Error) -> bool {
    let Error::Machine { source, .. } = error else {
        return false;
    };
    rustix::process::geteuid().is_root()
        && matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// Opens the workspace, if it may be one, and reads the patterns of what it hides.
pub(crate) fn open_folder(
    workspace: &Workspace,
    home: &Path,
    weaken: Weaken,
) -> Result<(OwnedFd, Vec<Glob>), Error> {
    let host = &workspace.host;
    let (place, stat) = open(WHAT, host, weaken)?;
    if !is_dir(&stat) {
        return Err(refused(WHAT, host, "it is not a folder"));
    }
    refuse_system_folders(host)?;
    if home.starts_with(host) {
        let why =
            "your home lies in it, which no run may see; work in a folder of the project's own";
        return Err(refused(WHAT, host, why));
    }
    Ok((place, parse_globs(&workspace.hide)?))
}

/// Shows a host path that the policy's `read` names, and covers credentials in it.
pub(crate) fn show_to_read(layout: &mut Layout, host: &Path) -> Result<(), Error> {
    refuse_to_read(host)?;
    layout.show(READ, host, Access::ReadOnly, Ownership::ReaderIfPossible)?;
    let (place, stat) = open(READ, host, layout.weaken)?;
    if !is_dir(&stat) {
        return Ok(());
    }
    let found = Search::run(host, &place, &[])?;
    for (path, is_dir) in &found.hidden {
        layout.cover(&host.join(path), *is_dir)?;
    }
    for (path, bytes) in found.git_configs {
        layout.git_config(host.join(path), bytes)?;
    }
    Ok(())
}

/// What is hidden in a host path that the policy's `read` names.
pub(crate) fn search_to_read(host: &Path, weaken: Weaken) -> Result<Found, Error> {
    let (place, stat) = open(READ, host, weaken)?;
    match is_dir(&stat) {
        true => Ok(Search::run(host, &place, &[])?.into_found()),
        false => Ok(Found::default()),
    }
}

/// Refuses paths that no sandbox may read, whatever the policy says.
pub(crate) fn refuse_to_read(host: &Path) -> Result<(), Error> {
    let is_whole = ["/", "/etc", "/run", "/var", "/var/run"]
        .iter()
        .any(|whole| host == Path::new(whole));
    if is_whole {
        return Err(refused(
            READ,
            host,
            "the sandbox has one of its own; name what is needed in it",
        ));
    }
    // They tell about, and lead to, the host's processes and devices.
    if ["/proc", "/sys", "/dev", "/.sandbox"]
        .iter()
        .any(|system| host.starts_with(system))
    {
        return Err(refused(READ, host, "no sandbox may see the host's"));
    }
    Ok(())
}

/// An overlay's layers: a folder that holds them all, and where each is in it.
struct Layers<'a> {
    folder: &'a Path,
    upper: &'a Path,
    work: PathBuf,
    below: Vec<&'a Path>,
    scratch: &'a Path,
}

impl<'a> Layers<'a> {
    fn of(upper: &'a Path, work: &'a Path, below: &'a [PathBuf]) -> Result<Self, Error> {
        let unusable = || Error::Fault("the layers of an overlay must lie in one folder".into());
        let own = upper.parent().filter(|own| work.parent() == Some(own));
        let folder = match below {
            [] => own,
            _ => own.and_then(Path::parent),
        };
        let folder = folder.ok_or_else(unusable)?;
        let inside = |layer: &'a Path| {
            let name = layer.strip_prefix(folder).map_err(|_| unusable())?;
            simple_names(name)?;
            Ok::<_, Error>(name)
        };
        if below.len() > MAX_LAYERS_BELOW {
            return Err(Error::Fault(format!("more than {MAX_LAYERS_BELOW} layers")));
        }
        Ok(Self {
            folder,
            upper: inside(upper)?,
            work: inside(work)?.to_owned(),
            below: below
                .iter()
                .map(|layer| inside(layer))
                .collect::<Result<_, _>>()?,
            scratch: work,
        })
    }

    /// All lower layers, the newest first, as the kernel takes them: by links with short names, which are made here.
    fn lower(&self, layout: &mut Layout, beside: &Path) -> Result<CString, Error> {
        let links = Path::new("/.sandbox/below");
        if !self.below.is_empty() {
            layout.dir(links, 0o700)?;
        }
        let mut lower = String::new();
        for (number, layer) in self.below.iter().enumerate() {
            let name = format!("{number:02}");
            layout.link(&links.join(&name), &beside.join(layer))?;
            lower.push_str(&name);
            lower.push(':');
        }
        lower.push_str("../lower");
        c_string(lower)
    }
}

fn overlay(layout: &mut Layout, host: &Path, layers: &Layers<'_>) -> Result<(), Error> {
    if layers.folder.starts_with(host) {
        return Err(refused(
            WHAT,
            host,
            &format!(
                "the layer for its changes would lie in the folder itself, at `{}`; work in a project folder rather \
                 than the home, or choose another state folder (`--state-dir`)",
                layers.folder.display()
            ),
        ));
    }
    clear_work(layers.scratch).map_err(|source| Error::Machine {
        part: format!("clearing `{}`", layers.scratch.display()),
        advice: "remove it by hand".into(),
        source,
    })?;
    let (bottom, beside) = (Path::new("/.sandbox/lower"), Path::new("/.sandbox/layers"));
    layout.place(WHAT, host, bottom)?;
    layout.place("layer folder", layers.folder, beside)?;
    layout.dir(host, 0o755)?;
    let lower = layers.lower(layout, Path::new("../layers"))?;
    let from = match layers.below.is_empty() {
        true => beside,
        false => Path::new("/.sandbox/below"),
    };
    let in_layers = |layer: &Path| c_string(Path::new("../layers").join(layer));
    layout.push(Op::Overlay {
        at: relative(host)?,
        from: relative(from)?,
        lower,
        upper: in_layers(layers.upper)?,
        work: in_layers(&layers.work)?,
    });
    layout.note_shown(host);
    Ok(())
}

/// A `volatile` overlay leaves a mark in its work folder that keeps it from being used again.
pub(crate) fn clear_work(work: &Path) -> std::io::Result<()> {
    // The kernel makes these folders without any permission.
    changes::remove_folder(&work.join("work"))
}

/// Names are put into mount options, where some characters mean something.
fn simple_names(path: &Path) -> Result<(), Error> {
    let is_simple = path.components().all(|part| match part {
        Component::Normal(name) => name
            .as_bytes()
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte)),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
            false
        }
    });
    match is_simple && path.components().next().is_some() {
        true => Ok(()),
        false => Err(Error::Fault("layer folders need plain names".into())),
    }
}

fn refuse_system_folders(host: &Path) -> Result<(), Error> {
    let is_system = host == Path::new("/")
        || [
            "/usr",
            "/etc",
            "/dev",
            "/proc",
            "/sys",
            "/boot",
            "/run",
            "/bin",
            "/sbin",
            "/lib",
            "/lib64",
            "/.sandbox",
        ]
        .iter()
        .any(|system| host.starts_with(system))
        || ["/tmp", "/var", "/home", "/opt", "/nix"]
            .iter()
            .any(|system| host == Path::new(system));
    if is_system {
        return Err(refused(
            WHAT,
            host,
            "this is a system folder; work in a folder of your own",
        ));
    }
    Ok(())
}

fn parse_globs(patterns: &[String]) -> Result<Vec<Glob>, Error> {
    patterns
        .iter()
        .map(|pattern| {
            Glob::parse(pattern).map_err(|why| {
                Error::Request(format!("`sandbox.hide`: pattern `{pattern}`: {why}"))
            })
        })
        .collect()
}

/// Mount points below a folder.
pub(crate) fn mounts_below(host: &Path) -> Vec<PathBuf> {
    mount_table::read()
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(host) && point != host)
        .collect()
}

/// Mount tables write space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut path = text.to_owned();
    for (code, character) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        path = path.replace(code, character);
    }
    PathBuf::from(path)
}

/// What a workspace is called in errors.
const NOT_MAPPED: &str =
    "root's folder there cannot be shown as the sandbox's user's (an id-mapped mount)";
pub(crate) const WHAT: &str = "workspace";
const READ: &str = "path to read";
