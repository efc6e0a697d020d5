//! From what is asked for to the plan of a sandbox: everything is parsed, opened and checked here.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::cgroup::Cgroup;
use crate::copied::Copy;
use crate::error::Error;
use crate::landlock::{self, Rules};
use crate::layout::{Access, Layout, Ownership, c_string};
use crate::listing::Listing;
use crate::netlink::{everything_is_local, loopback_up};
use crate::owner::Owner;
use crate::plan::{Bounded, Command, First, Network, Plan, Rest, Texts};
use crate::spec::{Isolation, Limits, NetworkMode, Spec, View, WorkspaceMode};
use crate::turn::Turn;
use crate::uncovered::Uncovered;
use crate::weaken::{Layer, Weaken};
use crate::zygote::{self, Newborn};
use crate::{etc, given, nft, seccomp, system, toolchains, within_reach, workspace};

/// A sandbox that has been checked against the host, with everything opened and allocated.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) plan: Plan,
    /// The first process, which has got the first part of the plan.
    pub(crate) newborn: Option<Newborn>,
    /// The rest's trees that were made here, in their order.
    pub(crate) trees: Vec<OwnedFd>,
    /// Landlock's set of rules, if the plan has any.
    pub(crate) rules: Option<OwnedFd>,
    pub(crate) owner: Owner,
    pub(crate) limits: Limits,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) stdin: crate::Stdin,
    pub(crate) upper: Option<PathBuf>,
    pub(crate) already: u64,
    pub(crate) work: Option<PathBuf>,
    pub(crate) notes: Vec<String>,
    pub(crate) workdir: PathBuf,
    pub(crate) home: PathBuf,
    /// The sandbox's `PATH`.
    pub(crate) path: OsString,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) listed: Vec<(&'static str, PathBuf, Access)>,
    pub(crate) covered: Vec<PathBuf>,
    pub(crate) uncovered: Option<Uncovered>,
    pub(crate) copy: Option<Copy>,
    pub(crate) not_isolated: &'static [&'static str],
    pub(crate) fallback: Option<Box<crate::fallback::Fallback>>,
}

impl Prepared {
    /// What the caller should tell the owner: dropped `PATH` entries, limits that are kept by supervision only.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where the command will start, as a path inside.
    pub fn workdir(&self) -> &Path {
        &self.workdir
    }

    /// The sandbox's home, as a path inside.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What this sandbox does not keep apart from the machine, a sentence each; nothing where it has namespaces.
    pub fn not_isolated(&self) -> &'static [&'static str] {
        self.not_isolated
    }

    /// Files and folders of the workspace that are hidden, relative to it.
    pub fn hidden(&self) -> &[PathBuf] {
        &self.hidden
    }

    /// What the command will see of the host's files, and what not; `view` is what this was prepared from.
    pub fn listing(&self, view: &View) -> Listing {
        Listing::of(&self.listed, &self.covered, view)
    }
}

/// Checks `spec` against the host and opens what it names.
///
/// Fails where something it names is missing, leads through a symbolic link or may not be shown, and where the
/// machine cannot do what is asked for.
pub fn prepare(spec: &Spec) -> Result<Prepared, Error> {
    let limited = spec.weaken.limited(spec);
    let spec = limited.as_ref();
    match spec.isolation {
        Isolation::Namespaces => namespaces(spec),
        Isolation::Landlock => crate::fallback::prepare(spec),
        Isolation::Either => match crate::doctor::namespaces_work(spec.network) {
            Ok(()) => namespaces(spec),
            Err(error) => {
                let mut prepared = crate::fallback::prepare(spec)?;
                prepared.notes.insert(
                    0,
                    format!("namespaces are refused here, so Landlock is used: {error}"),
                );
                Ok(prepared)
            }
        },
    }
}

fn namespaces(spec: &Spec) -> Result<Prepared, Error> {
    let view = &spec.view;
    let _turn = Turn::take();
    // Before there is a process that would not be alone in our group.
    let cgroup = Cgroup::create(&spec.limits);
    let group = cgroup.as_ref().and_then(Cgroup::folder);
    let (owner, newborn) = zygote::next(spec.weaken, group.as_ref().map(AsFd::as_fd))?;
    let started_by_root = owner.is_started_by_root();
    let mut layout = Layout::new(owner, &view.mask, spec.weaken)?;
    layout.overlay_refused.clone_from(&spec.no_overlay);
    let home = system::home(&view.home);

    system::folders(&mut layout)?;
    etc::build(&mut layout, &home)?;
    let scratch = spec.limits.disk.unwrap_or(DEFAULT_SCRATCH);
    system::devices(&mut layout, spec.terminal.is_some())?;
    system::scratch(&mut layout, &home, scratch)?;
    system::processes(&mut layout)?;
    let (files, trees) = layout.take_part();
    let first = First {
        stage: stage()?,
        started_by_root,
        network: network(spec.network, spec.weaken),
        weaken: spec.weaken,
        files,
    };
    let trees: Vec<_> = trees.iter().map(AsFd::as_fd).collect();
    // If it is gone, or was never born, that is told when it is to be started.
    let _ = given::hand_over(newborn.control()?, &first, &trees);

    let folder = view
        .workspace
        .as_ref()
        .map(|workspace| workspace.host.as_path());
    if spec.weaken.is_off(Layer::View) {
        for place in [view.home.as_path(), Path::new("/run")] {
            layout.show("host's folder", place, Access::Writable, Ownership::Host)?;
        }
    }
    let path = show_toolchains(&mut layout, spec, folder)?;
    within_reach::cover(&mut layout)?;
    for place in &view.read {
        workspace::show_to_read(&mut layout, place)?;
    }
    let (hidden, copy) = match &view.workspace {
        Some(asked) => workspace::show(&mut layout, asked, &home, spec.limits.disk)?,
        None => (Vec::new(), None),
    };
    if let Some(bundle) = &view.ca {
        etc::certificates(&mut layout, bundle)?;
    }
    for file in &view.files {
        layout.file(&file.path, file.bytes.clone())?;
    }
    layout.cover_masks()?;

    let workdir = spec
        .workdir
        .clone()
        .unwrap_or_else(|| folder.map_or(home.clone(), Path::to_owned));
    let notes = limit_notes(&spec.limits, cgroup.as_ref());
    layout.notes.extend(notes);
    let is_written_through = view
        .workspace
        .as_ref()
        .is_some_and(|workspace| matches!(workspace.mode, WorkspaceMode::ReadWrite));
    if spec.limits.disk.is_some() && is_written_through {
        layout.notes.push(
            "limits.disk bounds /tmp, the home and each file, and not all that is written to a read-write workspace"
                .into(),
        );
    }
    let inside = as_written(spec, copy.is_some());
    let command = command(&inside, &home, &workdir, path.clone(), cgroup.as_ref())?;
    let (upper, work) = match view.workspace.as_ref().map(|workspace| &workspace.mode) {
        Some(WorkspaceMode::Overlay { upper, work, .. }) => {
            (Some(upper.clone()), Some(work.clone()))
        }
        Some(WorkspaceMode::ReadOnly | WorkspaceMode::ReadWrite) | None => (None, None),
    };
    let place = copy.as_ref().map(Copy::place);
    let (upper, already) = place.map_or((upper, 0), |(place, bytes)| (Some(place), bytes));
    let (landlock, rules) = landlock(view, &home, spec.weaken)?.unzip();
    let uncovered = Uncovered::watch(&mut layout, view);
    let (files, trees) = layout.take_part();
    Ok(Prepared {
        newborn: Some(newborn),
        trees,
        rules,
        plan: Plan {
            first,
            rest: Rest {
                files,
                landlock,
                terminal: spec.terminal,
            },
            command,
        },
        owner: layout.owner,
        limits: spec.limits.clone(),
        cgroup,
        stdin: spec.stdin,
        upper,
        already,
        work,
        listed: layout.listed,
        covered: layout.covered,
        uncovered,
        notes: layout.notes,
        path,
        workdir,
        home,
        hidden,
        not_isolated: &[],
        copy,
        fallback: None,
    })
}

/// What is asked for, with the workspace as it is written to.
pub(crate) fn as_written(spec: &Spec, is_copied: bool) -> Spec {
    let mut inside = spec.clone();
    if let (true, Some(workspace)) = (is_copied, &mut inside.view.workspace) {
        // What is written lies on the host.
        workspace.mode = WorkspaceMode::ReadWrite;
    }
    inside
}

/// Shows the tool chains and returns the sandbox's `PATH`.
fn show_toolchains(
    layout: &mut Layout,
    spec: &Spec,
    workspace: Option<&Path>,
) -> Result<OsString, Error> {
    let view = &spec.view;
    let real_home = view
        .home
        .canonicalize()
        .unwrap_or_else(|_| view.home.clone());
    let found = toolchains::find(&view.path, &view.home, workspace);
    for part in &found.shown {
        // The home itself may be reached through a link; a tool chain elsewhere is not followed.
        let real = match part.strip_prefix(&view.home) {
            Ok(below) => real_home.join(below),
            Err(_) => part.clone(),
        };
        let shown = layout.show(
            "tool chain",
            &real,
            Access::ReadOnly,
            Ownership::ReaderIfPossible,
        );
        match shown {
            Ok(()) => {}
            Err(error @ Error::View { .. }) => layout.notes.push(format!("not shown: {error}")),
            Err(error) => return Err(error),
        }
    }
    if real_home != view.home && !found.shown.is_empty() && !layout.is_shown(&view.home) {
        layout.link(&view.home, &real_home)?;
    }
    if !found.dropped.is_empty() {
        let dropped: Vec<_> = found
            .dropped
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        layout.notes.push(format!(
            "left out of PATH, because only known tool chains and system folders are shown: {}",
            dropped.join(", ")
        ));
    }
    std::env::join_paths(&found.path).map_err(|error| Error::Request(format!("`PATH`: {error}")))
}

pub(crate) fn command(
    spec: &Spec,
    home: &Path,
    workdir: &Path,
    path: OsString,
    cgroup: Option<&Cgroup>,
) -> Result<Command, Error> {
    let Some(program) = spec.argv.first().filter(|program| !program.is_empty()) else {
        return Err(Error::Request("there is no command to run".into()));
    };
    let mut environment: BTreeMap<OsString, OsString> = spec.env.clone();
    let mut standard = |name: &str, value: OsString| {
        environment.entry(name.into()).or_insert(value);
    };
    standard("PATH", path);
    standard("HOME", home.into());
    standard("USER", "user".into());
    standard("LOGNAME", "user".into());
    standard("SHELL", "/bin/sh".into());
    standard("TMPDIR", "/tmp".into());

    let candidates = if program.as_bytes().contains(&b'/') {
        vec![c_text(program)?]
    } else {
        let path = environment
            .get(OsStr::new("PATH"))
            .cloned()
            .unwrap_or_default();
        std::env::split_paths(&path)
            // An empty entry would mean the working directory, where the agent's files are.
            .filter(|folder| folder.is_absolute())
            .map(|folder| c_string(folder.join(program)))
            .collect::<Result<_, _>>()?
    };
    let mut variables = Vec::new();
    let hosts = if spec.weaken.is_off(Layer::Environment) {
        std::env::vars_os().collect()
    } else {
        Vec::new()
    };
    for (name, value) in hosts.into_iter().chain(environment) {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(Error::Request(format!(
                "`{}` cannot be the name of a variable",
                name.display()
            )));
        }
        let mut text = name.into_vec();
        text.push(b'=');
        text.extend(value.as_bytes());
        variables.push(c_text(&OsString::from_vec(text))?);
    }
    let arguments = spec
        .argv
        .iter()
        .map(|argument| c_text(argument))
        .collect::<Result<_, _>>()?;
    let processors = match (spec.limits.cpus, cgroup) {
        (Some(_), Some(cgroup)) if cgroup.bounds_cpus() => None,
        (Some(cpus), _) => Some(cpus.ceil().max(1.0) as usize),
        (None, _) => None,
    };
    let also = seccomp::Also {
        processors: processors.is_some(),
        set_id: matches!(
            spec.view
                .workspace
                .as_ref()
                .map(|workspace| &workspace.mode),
            Some(WorkspaceMode::ReadWrite)
        ),
        unseen_memory: spec.limits.memory.is_some() && !cgroup.is_some_and(Cgroup::bounds_memory),
    };
    Ok(Command {
        candidates,
        arguments: Texts(arguments),
        environment: Texts(variables),
        workdir: c_string(workdir)?,
        rlimits: rlimits(&spec.limits, cgroup, spec.weaken),
        processors,
        filter: seccomp::filter(also, spec.weaken),
    })
}

fn rlimits(limits: &Limits, cgroup: Option<&Cgroup>, weaken: Weaken) -> Vec<(Bounded, u64)> {
    // 1, not 0: with 0 the kernel still starts a core helper that a pipe in core_pattern names, as the host's root.
    let mut set = vec![(Bounded::Core, 1)];
    if weaken.is_off(Layer::CoreLimit) {
        set.clear();
    }
    // What the owner may have, for music or games, would let a run keep the processors from everybody.
    set.extend([(Bounded::RealTime, 0), (Bounded::Nice, 0)]);
    let bounds = [
        (
            Bounded::FileSize,
            limits.largest_file().map(|(_, bytes)| bytes),
        ),
        (Bounded::OpenFiles, limits.open_files),
        // A backstop for one process, beyond the limit of the whole tree: the supervision asks before it kills.
        (
            Bounded::CpuTime,
            limits.cpu_time.map(|time| time.as_secs().saturating_add(5)),
        ),
        // One more: the sandbox's first process counts as well. Not beside a group, which counts what it refuses.
        (
            Bounded::Processes,
            limits
                .processes
                .filter(|_| !cgroup.is_some_and(Cgroup::bounds_processes))
                .map(|count| count + 1),
        ),
        // A backstop against one allocation that outruns the supervision. Not the limit itself: programs reserve more
        // than they use.
        (
            Bounded::Data,
            limits
                .memory
                .map(|bytes| bytes.saturating_mul(4).max(2 << 30)),
        ),
    ];
    set.extend(
        bounds
            .into_iter()
            .filter_map(|(resource, value)| Some((resource, value?))),
    );
    set
}

pub(crate) fn limit_notes(limits: &Limits, cgroup: Option<&Cgroup>) -> Vec<String> {
    let mut notes = Vec::new();
    if limits.memory.is_some() && !cgroup.is_some_and(Cgroup::bounds_memory) {
        notes.push(
            "limits.memory is kept by watching, not by the kernel, so it can be overshot for some milliseconds: no \
             cgroup with the memory controller may be made here (see `valetkey doctor`)"
                .into(),
        );
    }
    if limits.cpu_time.is_some() && !cgroup.is_some_and(Cgroup::counts_cpu_time) {
        notes.push(
            "limits.cpu_time is kept by watching: a process whose parent ignores its end is not counted once it ended, \
             because no cgroup may be made here (see `valetkey doctor`)"
                .into(),
        );
    }
    if let Some(cpus) = limits.cpus
        && cpus.fract() != 0.0
        && !cgroup.is_some_and(Cgroup::bounds_cpus)
    {
        notes.push(format!(
            "limits.cpus = {cpus} is kept as {} whole processor(s): no cgroup with the cpu controller may be made here",
            cpus.ceil().max(1.0)
        ));
    }
    notes
}

/// Landlock's rules: what can be written is the home, and the workspace as far as its mode says.
fn landlock(view: &View, home: &Path, weaken: Weaken) -> Result<Option<(Rules, OwnedFd)>, Error> {
    if weaken.is_off(Layer::Landlock) {
        return Ok(None);
    }
    let workspace = view.workspace.as_ref().and_then(|asked| match &asked.mode {
        WorkspaceMode::Overlay { .. } | WorkspaceMode::ReadWrite => Some(asked.host.clone()),
        WorkspaceMode::ReadOnly => None,
    });
    let writable: Vec<PathBuf> = workspace.into_iter().chain([home.to_owned()]).collect();
    landlock::rules(&writable)
}

fn network(mode: NetworkMode, weaken: Weaken) -> Network {
    if weaken.is_off(Layer::NetworkNamespace) {
        return Network::Hosts;
    }
    match mode {
        NetworkMode::None => Network::None { up: loopback_up() },
        NetworkMode::ProxyOnly => {
            // Absent where the kernel was built or booted without IPv6: then nothing can be sent over it either.
            let with_v6 = Path::new("/proc/sys/net/ipv6").exists();
            let mut routes = vec![everything_is_local(INET)];
            if with_v6 {
                routes.push(everything_is_local(INET6));
            }
            Network::Captured {
                up: loopback_up(),
                routes,
                capture: nft::capture(with_v6),
                names: nft::names(),
                with_v6,
            }
        }
    }
}

/// A folder to build the new root on.
fn stage() -> Result<CString, Error> {
    // What lies below it cannot be found any more while the sandbox is built, and trees are opened until then: nothing of
    // the host's `/sys` is ever shown, but a project may well lie in `/tmp`.
    ["/sys", "/mnt", "/var/tmp", "/tmp", "/var"]
        .into_iter()
        .find(|folder| Path::new(folder).is_dir())
        .map(|folder| CString::new(folder).expect("the name holds no NUL"))
        .ok_or_else(|| Error::Request("the host has neither /tmp nor /var/tmp nor /mnt".into()))
}

fn c_text(text: &OsStr) -> Result<CString, Error> {
    CString::new(text.as_bytes())
        .map_err(|_| Error::Request("arguments and variables cannot hold a NUL byte".into()))
}

const INET: u8 = 2;
const INET6: u8 = 10;
const DEFAULT_SCRATCH: u64 = 1 << 30;
