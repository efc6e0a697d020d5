//! What a policy says beside its rules, and how a base and the file that extends it are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use crate::amount::Amount;
use crate::limits::{Budget, Limits};
use crate::reader::{Findings, SourceText};
use crate::sandbox::{NetworkMode, Sandbox, Workspace, WorkspaceMode};

/// A value and the place in a file that says so.
#[derive(Clone, Debug)]
pub(crate) struct Placed<T> {
    pub(crate) value: T,
    pub(crate) source: SourceText,
    pub(crate) span: Range<usize>,
}

impl<T> Placed<T> {
    pub(crate) fn refuse(&self, findings: &Findings, message: String, hint: Option<String>) {
        let mut diagnostic = self.source.diagnostic(self.span.clone(), message);
        diagnostic.hint = hint;
        findings.add(diagnostic);
    }

    pub(crate) fn place(&self) -> String {
        format!(
            "{}:{}",
            self.source.name(),
            self.source.line(self.span.start)
        )
    }
}

/// The settings that a file says, with those of its bases once they are put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) amounts: BTreeMap<Amount, Placed<u64>>,
    pub(crate) workspace_path: Option<Placed<String>>,
    pub(crate) workspace_mode: Option<Placed<WorkspaceMode>>,
    pub(crate) network: Option<Placed<NetworkMode>>,
    pub(crate) read: BTreeMap<String, Placed<()>>,
    pub(crate) hide: BTreeSet<String>,
    pub(crate) env: BTreeMap<String, Placed<String>>,
}

impl Settings {
    /// These settings where they say something, else those of an unlocked base; lists are joined.
    pub(crate) fn over(mut self, base: Self) -> Self {
        let Self {
            amounts,
            workspace_path,
            workspace_mode,
            network,
            read,
            hide,
            env,
        } = base;
        for (amount, value) in amounts {
            self.amounts.entry(amount).or_insert(value);
        }
        self.workspace_path = self.workspace_path.or(workspace_path);
        self.workspace_mode = self.workspace_mode.or(workspace_mode);
        self.network = self.network.or(network);
        for (path, place) in read {
            self.read.entry(path).or_insert(place);
        }
        self.hide.extend(hide);
        for (name, value) in env {
            self.env.entry(name).or_insert(value);
        }
        self
    }

    /// Two bases of one file, neither before the other: the narrower says, and what has no narrower must agree.
    pub(crate) fn beside(self, other: Self, findings: &Findings) -> Self {
        let mut both = self.clone().over(other.clone());
        for (amount, value) in &mut both.amounts {
            if let Some(theirs) = other.amounts.get(amount).filter(|o| o.value < value.value) {
                *value = theirs.clone();
            }
        }
        both.workspace_mode = narrower(self.workspace_mode, other.workspace_mode);
        both.network = narrower(self.network, other.network);
        let paths = self.workspace_path.iter().zip(&other.workspace_path);
        let variables = self
            .env
            .iter()
            .filter_map(|(name, mine)| Some((mine, other.env.get(name)?)));
        for (mine, theirs) in paths.chain(variables) {
            if mine.value != theirs.value {
                let message = format!(
                    "{} says something else than {}",
                    theirs.place(),
                    mine.place()
                );
                theirs.refuse(
                    findings,
                    message,
                    Some("say it in the file that extends both".into()),
                );
            }
        }
        both
    }

    /// These settings under a locked base: they may not be wider, and where they say nothing the base says.
    pub(crate) fn within(self, base: Self, findings: &Findings) -> Self {
        let widened = |mine: String, base: String| {
            format!("{mine} is more than the locked base allows ({base})")
        };
        for (amount, mine) in &self.amounts {
            if let Some(most) = base.amounts.get(amount).filter(|b| b.value < mine.value) {
                let (mine_shown, most) = (amount.show(mine.value), amount.show(most.value));
                mine.refuse(findings, widened(mine_shown, most), None);
            }
        }
        if let (Some(mine), Some(most)) = (&self.workspace_mode, &base.workspace_mode)
            && mine.value > most.value
        {
            let (shown, most) = (mine.value.as_str().into(), most.value.as_str().into());
            mine.refuse(findings, widened(shown, most), None);
        }
        if let (Some(mine), Some(most)) = (&self.network, &base.network)
            && mine.value > most.value
        {
            let (shown, most) = (mine.value.as_str().into(), most.value.as_str().into());
            mine.refuse(findings, widened(shown, most), None);
        }
        if let (Some(mine), Some(most)) = (&self.workspace_path, &base.workspace_path)
            && mine.value != most.value
        {
            let (shown, most) = (format!("`{}`", mine.value), format!("`{}`", most.value));
            mine.refuse(findings, widened(shown, most), None);
        }
        for (path, mine) in &self.read {
            if !base.read.contains_key(path) {
                let message = format!("the locked base does not show `{path}`");
                mine.refuse(findings, message, None);
            }
        }
        self.over(base)
    }

    /// What a run may spend.
    pub(crate) fn budget(&self) -> Budget {
        let connections = self.amount(Amount::Connections);
        Budget {
            ttl: self.time(Amount::Ttl),
            connections: connections.and_then(|count| u32::try_from(count).ok()),
        }
    }

    /// What a step may use.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory: self.amount(Amount::Memory),
            cpus: self.amount(Amount::Cpus).map(|cpus| cpus as f64 / 1000.0),
            cpu_time: self.time(Amount::CpuTime),
            wall: self.time(Amount::Wall),
            processes: self.amount(Amount::Processes),
            disk: self.amount(Amount::Disk),
            output: self.amount(Amount::Output),
            file_size: self.amount(Amount::FileSize),
            open_files: self.amount(Amount::OpenFiles),
        }
    }

    /// How the sandbox looks. The least is meant where nothing is said, which the defaults never leave.
    pub(crate) fn sandbox(&self) -> Sandbox {
        let path = self.workspace_path.as_ref().map(|path| path.value.clone());
        let mode = self.workspace_mode.as_ref().map(|mode| mode.value);
        let network = self.network.as_ref().map(|network| network.value);
        let env = self.env.iter();
        Sandbox {
            workspace: Workspace {
                path: path.unwrap_or_else(|| ".".to_owned()),
                mode: mode.unwrap_or(WorkspaceMode::None),
            },
            read: self.read.keys().cloned().collect(),
            hide: self.hide.iter().cloned().collect(),
            network: network.unwrap_or(NetworkMode::None),
            env: env
                .map(|(name, value)| (name.clone(), value.value.clone()))
                .collect(),
        }
    }

    /// Whether nothing in here is more than in the defaults.
    pub(crate) fn is_within_defaults(&self, defaults: &Self) -> bool {
        let amounts = self.amounts.iter().all(|(amount, mine)| {
            let default = defaults.amounts.get(amount);
            default.is_some_and(|default| mine.value <= default.value)
        });
        let sandbox = self.sandbox();
        amounts
            && sandbox.read.is_empty()
            && sandbox.workspace.path == "."
            && sandbox.workspace.mode <= WorkspaceMode::Overlay
    }

    fn amount(&self, amount: Amount) -> Option<u64> {
        self.amounts.get(&amount).map(|placed| placed.value)
    }

    fn time(&self, amount: Amount) -> Option<Duration> {
        self.amount(amount).map(Duration::from_millis)
    }
}

fn narrower<T: PartialOrd>(a: Option<Placed<T>>, b: Option<Placed<T>>) -> Option<Placed<T>> {
    match (a, b) {
        (Some(a), Some(b)) if b.value < a.value => Some(b),
        (Some(a), Some(_) | None) => Some(a),
        (None, b) => b,
    }
}
