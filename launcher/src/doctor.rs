//! What this machine can do, found by trying.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use sdk::report::Outcome;

use crate::answer::Check;
use crate::cgroup::Cgroup;
use crate::error::Error;
use crate::prepare::prepare;
use crate::spec::{Isolation, Limits, NetworkMode, Spec, Workspace, WorkspaceMode};

/// Tries everything the launcher needs, for real, and says what to do about what does not work.
///
/// Each attempt is a sandbox that runs `true`, or a process that does the one thing. Nothing is left behind. Layers of
/// workspaces are tried in `folder`, where they will be.
pub fn doctor(folder: &Path) -> Vec<Check> {
    let by_root = rustix::process::geteuid().is_root();
    let mut checks = vec![kernel()];
    checks.extend(crate::facilities::check());
    checks.push(attempt(
        "sandbox",
        "namespaces, mounts by descriptor, proc, system call filter",
        &plain(),
    ));
    let mut captured = plain();
    captured.network = NetworkMode::ProxyOnly;
    checks.push(attempt(
        "network capture",
        "every connection ends at the run's listeners (nf_tables, tproxy)",
        &captured,
    ));
    checks.push(workspace(
        folder,
        "writable workspace",
        if by_root {
            "shown as the sandbox's user's (id-mapped mount)"
        } else {
            "shown as your own"
        },
        |_| WorkspaceMode::ReadWrite,
    ));
    checks.push(workspace(
        folder,
        "overlay workspace",
        "changes are kept apart from the folder (overlayfs)",
        |layers| WorkspaceMode::Overlay {
            upper: layers.join("upper"),
            work: layers.join("work"),
            below: Vec::new(),
        },
    ));
    checks.push(crate::landlock::check());
    let mut landlocked = plain();
    landlocked.isolation = Isolation::Landlock;
    landlocked.network = NetworkMode::ProxyOnly;
    checks.push(Check {
        optional: true,
        ..attempt(
            WITHOUT_NAMESPACES,
            "Landlock and questions to the supervisor (`--isolation landlock`)",
            &landlocked,
        )
    });
    checks.extend(groups());
    checks
}

fn kernel() -> Check {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let version = (
        numbers.next().and_then(Result::ok).unwrap_or(0),
        numbers.next().and_then(Result::ok).unwrap_or(0),
    );
    let ok = version >= OLDEST;
    Check {
        name: "kernel",
        ok,
        optional: false,
        detail: format!("Linux {release}"),
        advice: if ok {
            String::new()
        } else {
            format!("Linux {}.{} or newer is needed", OLDEST.0, OLDEST.1)
        },
    }
}

fn plain() -> Spec {
    let mut spec = Spec::new(["true"], "/home/user");
    spec.limits = Limits {
        wall: Some(std::time::Duration::from_secs(30)),
        ..Limits::default()
    };
    spec
}

fn workspace(
    folder: &Path,
    name: &'static str,
    what: &str,
    mode: impl FnOnce(&Path) -> WorkspaceMode,
) -> Check {
    match Scratch::new(folder) {
        Ok(scratch) => {
            let mut spec = plain();
            spec.view.workspace = Some(Workspace {
                host: scratch.0.join("workspace"),
                mode: mode(&scratch.0.join("layers")),
                hide: Vec::new(),
                protect: Vec::new(),
            });
            attempt(name, what, &spec)
        }
        Err(error) => Check {
            name,
            ok: false,
            optional: true,
            detail: format!("no folder to try it in could be made: {error}"),
            advice: "make /var/tmp or /tmp writable".into(),
        },
    }
}

fn attempt(name: &'static str, what: &str, spec: &Spec) -> Check {
    let tried = match run(spec) {
        // As a run does it.
        Err(Error::NoOverlay { why }) => run(&Spec {
            no_overlay: Some(why),
            ..spec.clone()
        }),
        tried => tried,
    };
    let (detail, advice) = match tried {
        Ok((Outcome::Passed, copied)) => {
            return Check {
                name,
                ok: true,
                optional: false,
                detail: copied.unwrap_or_else(|| what.into()),
                advice: String::new(),
            };
        }
        Ok((outcome, _)) => (
            format!("`true` did not pass in it: {outcome:?}"),
            "see whether /usr/bin/true works outside; otherwise report this".into(),
        ),
        Err(Error::Machine {
            part,
            advice,
            source,
        }) => (format!("{part}: {source}"), advice),
        Err(error) => (error.to_string(), "report this".into()),
    };
    Check {
        name,
        ok: false,
        optional: false,
        detail,
        advice,
    }
}

/// What keeps each limit of a run here: the kernel, by a group that is made and removed again, or we, by watching.
pub fn limits_kept_by() -> Vec<(&'static str, &'static str)> {
    let group = Cgroup::create(&Limits {
        memory: Some(1 << 30),
        cpus: Some(1.0),
        cpu_time: Some(std::time::Duration::from_secs(60)),
        processes: Some(128),
        ..Limits::default()
    });
    let kept: Vec<_> = group
        .as_ref()
        .map(Cgroup::keeps)
        .into_iter()
        .flatten()
        .collect();
    let by_group = |name: &str| kept.iter().find(|(other, _)| *other == name)?.1;
    vec![
        ("memory", by_group("memory").unwrap_or("watching")),
        ("cpus", by_group("cpus").unwrap_or("whole processors")),
        (
            "cpu_time",
            match by_group("cpu_time") {
                Some("control group v2") => "watching a control group v2",
                Some(_) => "watching a control group v1",
                None => "watching",
            },
        ),
        (
            "processes",
            by_group("processes").unwrap_or("resource limit"),
        ),
        ("wall", "watching"),
        ("disk", "file system and watching"),
        ("file_size", "resource limit"),
        ("open_files", "resource limit"),
        ("output", "watching"),
    ]
}

/// What is to keep all sandboxes of a run apart, where either kind may, and why if it is the weaker one: decided once,
/// so that one step has not less than another.
///
/// # Errors
/// If it cannot be tried now, which says nothing of what this machine allows.
pub fn isolation_here(
    asked: Isolation,
    network: NetworkMode,
) -> Result<(Isolation, Option<String>), Error> {
    match asked {
        Isolation::Namespaces | Isolation::Landlock => return Ok((asked, None)),
        Isolation::Either => {}
    }
    match namespaces_work(network) {
        Ok(()) => Ok((Isolation::Namespaces, None)),
        Err(error) if is_passing(&error) => Err(error),
        Err(error) => {
            let why = format!("namespaces are refused here, so Landlock is used: {error}");
            Ok((Isolation::Landlock, Some(why)))
        }
    }
}

/// Whether something is used up for the moment, and not refused.
fn is_passing(error: &Error) -> bool {
    let Error::Machine { source, .. } = error else {
        return false;
    };
    let errno = source.raw_os_error();
    [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM]
        .iter()
        .any(|passing| errno == Some(passing.raw_os_error()))
}

/// Tries a sandbox of namespaces with this network, once.
pub(crate) fn namespaces_work(network: NetworkMode) -> Result<(), Error> {
    let mut spec = plain();
    spec.network = network;
    match run(&spec) {
        Err(error @ Error::Machine { .. }) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// How `true` ended, and what is said where it worked on a copy of the workspace.
fn run(spec: &Spec) -> Result<(Outcome, Option<String>), Error> {
    let prepared = prepare(spec)?;
    let copied = prepared
        .copy
        .as_ref()
        .map(|copy| format!("a run works on a copy: {}", copy.why()));
    let mut started = prepared.start()?;
    started.release()?;
    Ok((started.wait(&mut |_, _| {}).outcome, copied))
}

fn groups() -> Vec<Check> {
    let limits = Limits {
        memory: Some(1 << 30),
        cpus: Some(1.0),
        ..Limits::default()
    };
    let group = Cgroup::create(&limits);
    let advice = "run it in a delegated group, for instance with `systemd-run --user --scope -p Delegate=yes valetkey \
                  run …`; without one the limit is kept by watching";
    let found = [
        (
            "memory control group",
            group.as_ref().is_some_and(Cgroup::bounds_memory),
        ),
        (
            "cpu control group",
            group.as_ref().is_some_and(Cgroup::bounds_cpus),
        ),
    ];
    found
        .into_iter()
        .map(|(name, ok)| Check {
            name,
            ok,
            optional: true,
            detail: if ok {
                "the kernel keeps the limit".into()
            } else {
                "no group can be made".into()
            },
            advice: if ok { String::new() } else { advice.into() },
        })
        .collect()
}

/// Folders to try a workspace with, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        // The folder is made when it is first used; until then the one above it says as much.
        let above = folder
            .ancestors()
            .find(|above| above.is_dir())
            .unwrap_or(Path::new("/var/tmp"))
            .canonicalize()?;
        let mut private = std::fs::DirBuilder::new();
        private.mode(0o700);
        for number in 0..100 {
            let folder = above.join(format!("valetkey-doctor-{}-{number}", std::process::id()));
            match private.create(&folder) {
                Ok(()) => {
                    let scratch = Self(folder);
                    for part in ["workspace", "layers", "layers/upper", "layers/work"] {
                        private.create(scratch.0.join(part))?;
                    }
                    return Ok(scratch);
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(std::io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = crate::changes::remove_folder(&self.0);
    }
}

/// What the check of a sandbox without namespaces is called.
pub const WITHOUT_NAMESPACES: &str = "sandbox without namespaces";

/// `mount_setattr` with id-mapped mounts.
const OLDEST: (u32, u32) = (5, 12);
