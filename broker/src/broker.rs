//! The one who is asked: it puts runs, tokens, secrets, approvals and the log together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use policies::{Host, Policy, Scheme};

use crate::token::{Alias, RunToken, TokenError};
use crate::{Audit, Config, Credential, CredentialError, Error, Grant, Run, Settings};

/// The broker of one state folder, in this process.
pub struct Broker {
    audit: Audit,
    config: Config,
}

/// What a run is created from.
pub struct CreateRunSpec {
    /// The effective policy.
    pub policy: Arc<Policy>,
    /// The project's folder; approvals are kept by it.
    pub project: PathBuf,
    /// How long the run may live at most; the policy's own bound is never exceeded.
    pub ttl: Option<Duration>,
}

/// A run that was just created, with what it proves itself with.
pub struct NewRun {
    /// The run.
    pub run: Arc<Run>,
    /// Its token.
    pub token: RunToken,
    /// The short form of its token.
    pub alias: Alias,
}

impl Broker {
    /// Opens the state folder, and makes it if it is not there.
    pub fn open(settings: Settings) -> Result<Arc<Self>, Error> {
        let _ = settings;
        Err(Error::NoEntropy)
    }

    /// Creates a run: checks the approval, freezes the grants, signs a token, and writes that down.
    pub async fn create_run(&self, spec: CreateRunSpec) -> Result<NewRun, Error> {
        let _ = spec;
        Err(Error::NoEntropy)
    }

    /// The run that a token or alias names.
    pub fn authenticate(&self, presented: &[u8]) -> Result<Arc<Run>, TokenError> {
        let _ = presented;
        Err(TokenError::Invalid)
    }

    /// Releases a secret for one request, after checking again that it may go there.
    pub async fn credential(
        &self,
        run: &Run,
        grant: &Grant,
        scheme: Scheme,
        host: &Host,
        port: u16,
    ) -> Result<Arc<Credential>, CredentialError> {
        let _ = (run, grant, scheme, host, port);
        Err(CredentialError::RunEnded)
    }

    /// Ends a run: its token is revoked and its secrets are forgotten.
    pub async fn end_run(&self, run: &Run) -> Result<(), Error> {
        run.end();
        Ok(())
    }

    /// The log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The owner's settings for this machine.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
