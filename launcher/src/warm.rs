//! A sandbox that was built before it is known what runs in it.
//!
//! It serves one command and never a second one. What a sandbox is built from is compared when the command comes: what it
//! may see, its limits, its network, and what is hidden in the workspace now. If any of that is another, it is thrown away.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::prepare::{command, prepare};
use crate::search::{Found, Search};
use crate::spec::{Isolation, Spec, Stdin, View};
use crate::start::Started;
use crate::weaken::Weaken;
use crate::workspace;

/// A sandbox that stands and waits for its command. Dropping it ends it.
#[derive(Debug)]
pub struct Warm {
    started: Started,
    spec: Spec,
    seen: Seen,
    home: PathBuf,
    path: OsString,
    /// Whether the workspace is a copy.
    is_copied: bool,
    notes: Vec<String>,
}

/// What a view depends on beside what was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    found: Option<Found>,
    masks: Vec<Option<PathBuf>>,
    read: Vec<Found>,
}

impl Warm {
    /// Builds the sandbox of `spec`, whose command, variables and working directory do not matter.
    ///
    /// # Errors
    /// As [`prepare`] and [`crate::Prepared::start`]; and where its standard input, a terminal or another kind of
    /// isolation would have to be known beforehand.
    pub fn build(spec: &Spec) -> Result<Self, Error> {
        if spec.isolation != Isolation::Namespaces
            || spec.stdin != Stdin::Null
            || spec.terminal.is_some()
        {
            return Err(Error::Request(
                "only a sandbox of namespaces without input can be built beforehand".into(),
            ));
        }
        let mut spec = spec.clone();
        spec.argv = vec!["/".into()];
        spec.env.clear();
        spec.workdir = None;
        let before = Seen::now(&spec.view, spec.weaken)?;
        let mut prepared = prepare(&spec)?;
        let (home, path) = (prepared.home.clone(), std::mem::take(&mut prepared.path));
        let notes = std::mem::take(&mut prepared.notes);
        let started = prepared.start()?;
        let seen = Seen::now(&spec.view, spec.weaken)?;
        if before != seen {
            return Err(Error::Request(
                "what is hidden changed while the sandbox was built".into(),
            ));
        }
        Ok(Self {
            is_copied: started.copy.is_some(),
            started,
            spec,
            seen,
            home,
            path,
            notes,
        })
    }

    /// What the caller should tell the owner, as [`crate::Prepared::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The sandbox of `spec`, ready to be released. `None` if this is not what would be built for it now.
    pub fn dispatch(self, spec: &Spec) -> Option<Started> {
        if !self.started.is_standing() || !is_built_alike(&self.spec, spec) {
            return None;
        }
        if Seen::now(&spec.view, spec.weaken).ok()? != self.seen {
            return None;
        }
        if (self.started.uncovered.as_ref()).is_some_and(|uncovered| uncovered.seen().is_some()) {
            return None;
        }
        let workspace = spec.view.workspace.as_ref();
        let workdir = (spec.workdir.clone())
            .or_else(|| workspace.map(|workspace| workspace.host.clone()))
            .unwrap_or_else(|| self.home.clone());
        let mut started = self.started;
        let inside = crate::prepare::as_written(spec, self.is_copied);
        let cgroup = started.cgroup.as_ref();
        started.plan.command = command(&inside, &self.home, &workdir, self.path, cgroup).ok()?;
        Some(started)
    }
}

impl Seen {
    fn now(view: &View, weaken: Weaken) -> Result<Self, Error> {
        let found = match &view.workspace {
            Some(asked) => {
                let (place, globs) = workspace::open_folder(asked, &view.home, weaken)?;
                Some(Search::run(&asked.host, &place, &globs)?.into_found())
            }
            None => None,
        };
        let read = |host: &PathBuf| workspace::search_to_read(host, weaken);
        Ok(Self {
            found,
            masks: view.mask.iter().map(|mask| real(mask)).collect(),
            read: view.read.iter().map(read).collect::<Result<_, _>>()?,
        })
    }
}

fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Whether two sandboxes differ in nothing but what runs in them.
fn is_built_alike(one: &Spec, other: &Spec) -> bool {
    let Spec {
        argv: _,
        env: _,
        workdir: _,
        view,
        network,
        limits,
        stdin,
        weaken,
        terminal,
        isolation,
        no_overlay,
    } = one;
    *view == other.view
        && *network == other.network
        && *limits == other.limits
        && *stdin == other.stdin
        && *weaken == other.weaken
        && *terminal == other.terminal
        && *isolation == other.isolation
        && *no_overlay == other.no_overlay
}
