//! What the broker promises as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use policies::Policy;
use zeroize::Zeroizing;

use crate::{Broker, CreateRunSpec, Durability, Error, NewRun, NewSecret, Settings};

mod crash;
mod release;
mod restart;
mod runs;

/// An installation in a folder of its own, with a project.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config", "project"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.path().join("project")
    }

    /// A broker of this installation, as another process would have one.
    pub(crate) fn broker(&self) -> Arc<Broker> {
        Broker::open(settings(self.path())).unwrap()
    }

    pub(crate) fn spec(&self) -> CreateRunSpec {
        let policy = Arc::new(Policy::default_for_no_file());
        CreateRunSpec {
            approved: Some(*policy.digest()),
            policy,
            project: self.project(),
            ttl: Some(Duration::from_secs(600)),
            step: None,
        }
    }

    pub(crate) async fn run(&self, broker: &Arc<Broker>) -> Result<NewRun, Error> {
        broker.create_run(self.spec()).await
    }

    pub(crate) fn adds_secret(&self, broker: &Broker, name: &str) {
        let new = NewSecret {
            hosts: vec!["api.example.com".to_owned()],
            slot: Some(policies::Slot::bearer()),
            provider: None,
        };
        let value = Zeroizing::new(format!("test-secret-{name}-0123456789"));
        broker
            .secrets()
            .add(name, &new, value, crate::Existing::Keep)
            .unwrap();
    }
}

pub(crate) fn settings(folder: &Path) -> Settings {
    Settings {
        state_dir: folder.join("state"),
        config_dir: folder.join("config"),
        durability: Some(Durability::Process),
    }
}
