//! The one who is asked: it puts runs, tokens, secrets, approvals and the log together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use policies::{Digest, Host, Policy, Rule, Scheme, StepName};
use sdk::RunId;
use sdk::api::RunInfo;
use sdk::audit::{Event, EventKind};
use sdk::report::Report;

use crate::audit::{self, Opening, Record, Verification, VerificationKey};
use crate::create::{self, CreateRunSpec, Lasting, NewRun};
use crate::live::{Live, usable};
use crate::owner::{self, Home, Readers};
use crate::secrets::Secrets;
use crate::state::Folder;
use crate::store::{Store, StoredRun, VERIFICATION_KEY_FILE};
use crate::token::{ALIAS_PREFIX, Keyring, TokenError};
use crate::watcher::{Watched, Watcher, ended};
use crate::{
    Audit, Config, Credential, CredentialError, Durability, Error, Grant, Probe, Run, Settings,
    approval, hex, release, resume,
};

/// The broker of one state folder, in this process. Many processes may have one on the same folder.
pub struct Broker {
    // Dropped first: it writes to the log, which is closed when it is dropped.
    _watcher: Watcher,
    pub(crate) live: Arc<Live>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) store: Arc<Store>,
    pub(crate) secrets: Secrets,
    pub(crate) folder: Folder,
    config_dir: PathBuf,
    config: Config,
}

impl Broker {
    /// Opens the state folder, makes it if it is not there, and tidies up after processes that were killed.
    ///
    /// # Errors
    /// If `config.toml` is wrong, or the state cannot be used or is open to others.
    pub fn open(settings: Settings) -> Result<Arc<Self>, Error> {
        let config = read_config(&settings.config_dir)?;
        let durability = settings
            .durability
            .or(config.durability)
            .unwrap_or(Durability::Process);
        let folder = Folder::open(&settings.state_dir)?;
        let store = Store::open(&folder, durability)?;
        let now = Timestamp::now();
        let keyring = Arc::new(Keyring::open(Arc::clone(&store), now)?);
        let audit = Arc::new(Audit::open(Opening {
            folder: folder.audit(),
            store: Arc::clone(&store),
            durability,
        })?);
        tidy_up(&folder, &store, &audit, now)?;
        let live = Arc::new(Live::default());
        let watcher = Watcher::start(Watched {
            live: Arc::clone(&live),
            store: Arc::clone(&store),
            keyring: Arc::clone(&keyring),
            audit: Arc::clone(&audit),
        })?;
        let home = Home(std::env::home_dir().filter(|home| home.is_absolute()));
        Ok(Arc::new(Self {
            _watcher: watcher,
            live,
            keyring,
            audit,
            secrets: Secrets::new(Arc::clone(&store), &settings.config_dir, home),
            store,
            folder,
            config_dir: settings.config_dir,
            config,
        }))
    }

    /// Creates a run: checks the approval, freezes the grants, signs a token, and writes that down.
    ///
    /// # Errors
    /// If the policy is not approved, or asks for what the owner does not allow.
    pub async fn create_run(self: &Arc<Self>, spec: CreateRunSpec) -> Result<NewRun, Error> {
        create::create(self, spec, Lasting::InMemory).await
    }

    /// The same, for a run that another process can go on with when this one is gone: what it needs is sealed in the store.
    ///
    /// # Errors
    /// As [`create_run`](Self::create_run), and if it cannot be kept.
    pub async fn create_lasting_run(
        self: &Arc<Self>,
        spec: CreateRunSpec,
    ) -> Result<NewRun, Error> {
        create::create(self, spec, Lasting::Sealed).await
    }

    /// Takes over the lasting runs of processes that are gone. They are what they were: token, placeholders, grants,
    /// authority and policy, whatever the owner's and the project's files say by now.
    ///
    /// A run that has ended or whose time is over does not come back. One that this version cannot go on with ends.
    ///
    /// # Errors
    /// If the state cannot be read, or the log not be written.
    pub async fn resume_runs(self: &Arc<Self>) -> Result<Vec<NewRun>, Error> {
        resume::resume(self).await
    }

    /// Every reason for which no run begins under this policy in this project, approval aside; none if one would begin.
    ///
    /// A run is created by the same answer. No secret's value is read.
    ///
    /// # Errors
    /// If the owner's files or the state cannot be used.
    pub fn foresee(&self, policy: &Policy, project: &Path) -> Result<Vec<Error>, Error> {
        let project = approval::canonical(project)?;
        create::foresee(self, policy, &project).map(|foreseen| foreseen.refusals)
    }

    /// Why the secret of a rule would not be released for a request that the rule allows; none if it would be.
    ///
    /// # Errors
    /// If the owner's files or the state cannot be used.
    pub fn foresee_release(
        &self,
        rule: &Rule,
        secret: &str,
        (scheme, host, port): (Scheme, &Host, u16),
    ) -> Result<Option<Error>, Error> {
        let bindings = self.secrets.bindings()?;
        Ok(match bindings.get(secret) {
            None => Some(Error::UnknownSecret {
                secret: secret.to_owned(),
                rule: rule.origin(),
            }),
            Some(binding) if binding.covers(scheme, host, port) => None,
            Some(_) => Some(Error::OutsideBinding {
                secret: secret.to_owned(),
                rule: rule.origin(),
                destination: format!("{scheme}://{}:{port}", host.uri()),
            }),
        })
    }

    /// A run that may do nothing, to ask whether that holds.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn probe(&self) -> Result<Probe, Error> {
        Probe::new()
    }

    /// The run that a token or alias names.
    ///
    /// # Errors
    /// If it names none of this process's runs, or one that may do nothing any more.
    pub fn authenticate(&self, presented: &[u8]) -> Result<Arc<Run>, TokenError> {
        if let Some(known) = self.live.find(presented) {
            return known;
        }
        if presented.starts_with(ALIAS_PREFIX.as_bytes()) {
            return Err(TokenError::Invalid);
        }
        let claims = self.keyring.verify(presented)?;
        let id: RunId = claims.sub.parse().map_err(|_| TokenError::Invalid)?;
        let Some(run) = self.live.run(&id) else {
            // A token of ours whose run is not here: it has ended, or belongs to another process.
            let has_ended = self
                .store
                .run(&id)
                .is_ok_and(|stored| stored.is_some_and(|run| run.ended.is_some()));
            return Err(match u64::try_from(Timestamp::now().as_second()) {
                Ok(now) if claims.exp > now && has_ended => TokenError::Ended,
                Ok(now) if claims.exp > now => TokenError::Invalid,
                Ok(_) | Err(_) => TokenError::Expired,
            });
        };
        let is_same_step = claims.step.as_deref() == run.token_step().map(StepName::as_str);
        if claims.jti != run.jti || !is_same_step || claims.pol != run.policy().digest().to_string()
        {
            return Err(TokenError::Invalid);
        }
        self.live.remember(presented, &run);
        usable(&run)
    }

    /// Releases a secret for one request, after checking again that it may go there.
    ///
    /// # Errors
    /// If the run has ended, the grant is not its own, the destination is not the owner's, or the value cannot be read.
    pub async fn credential(
        &self,
        run: &Run,
        grant: &Grant,
        scheme: Scheme,
        host: &Host,
        port: u16,
    ) -> Result<Arc<Credential>, CredentialError> {
        release::release(&self.store, &self.audit, run, grant, (scheme, host, port)).await
    }

    /// Ends a run: its token is revoked and its secrets are forgotten, in this process at once and for good.
    ///
    /// It waits for the state's database, not for the log; call [`Audit::flush`] for that.
    ///
    /// # Errors
    /// If the end cannot be kept. In this process the run has ended all the same.
    pub fn end_run(&self, run: &Run) -> Result<(), Error> {
        if self.live.end(run) {
            self.audit.note(&ended(run, "ended"));
        }
        let now = Timestamp::now().as_millisecond();
        self.store.end_run(run.id(), now, self.audit.segment())?;
        Ok(())
    }

    /// Ends a run of whichever process; that process sees it within a second.
    ///
    /// # Errors
    /// If there is no such run. One that has ended already is no error.
    pub fn revoke(&self, id: &RunId) -> Result<(), Error> {
        if let Some(run) = self.live.run(id) {
            return self.end_run(&run);
        }
        let stored = self
            .store
            .run(id)?
            .ok_or_else(|| Error::UnknownRun(id.to_string()))?;
        let now = Timestamp::now().as_millisecond();
        if self.store.end_run(id, now, self.audit.segment())? {
            let mut event = Event::new(EventKind::RunEnded);
            event.run = Some(id.clone());
            event.policy = Some(stored.policy.into());
            event.detail = Some("revoked".to_owned());
            self.audit.note(&event);
        }
        Ok(())
    }

    /// A run of this process that has not ended.
    pub fn run(&self, id: &RunId) -> Option<Arc<Run>> {
        self.live.run(id)
    }

    /// The newest runs of every process, newest first.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn runs(&self) -> Result<Vec<RunInfo>, Error> {
        let now = Timestamp::now().as_millisecond();
        let runs = self.store.runs(MOST_RUNS)?;
        Ok(runs.into_iter().filter_map(|run| info(run, now)).collect())
    }

    /// What is known of a run.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn run_info(&self, id: &RunId) -> Result<Option<RunInfo>, Error> {
        let now = Timestamp::now().as_millisecond();
        Ok(self.store.run(id)?.and_then(|run| info(run, now)))
    }

    /// Every event of a run, oldest first; empty if there is no such run.
    ///
    /// # Errors
    /// If the state or a segment cannot be read.
    pub fn events(&self, id: &RunId) -> Result<Vec<Record>, Error> {
        Ok(audit::show(&self.folder.audit(), &self.store, id)?.unwrap_or_default())
    }

    /// Checks the whole log: its chains, signatures and heads, and its MACs if the verification key is still here.
    ///
    /// # Errors
    /// If the state cannot be read. What is wrong with the log is a finding, not an error.
    pub fn verify_audit(&self) -> Result<Verification, Error> {
        let text = self.folder.read_small(VERIFICATION_KEY_FILE)?;
        let key = text
            .as_deref()
            .and_then(|text| std::str::from_utf8(text).ok())
            .and_then(|text| hex::decode(text.trim_end()))
            .map(VerificationKey);
        audit::verify(&self.folder.audit(), &self.store, key)
    }

    /// Records the owner's yes to a policy, in the place of an earlier one for this project.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub fn approve(&self, project: &Path, digest: &Digest) -> Result<(), Error> {
        let project = approval::canonical(project)?;
        let now = Timestamp::now().as_millisecond();
        self.store.approve(&project, &digest.to_string(), now)?;
        let mut event = Event::new(EventKind::PolicyApproved);
        event.policy = Some(digest.to_string().into());
        self.audit.note(&event);
        Ok(())
    }

    /// Whether this is the policy that the owner approved last for this project.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn is_approved(&self, project: &Path, digest: &Digest) -> Result<bool, Error> {
        let approved = self.store.approved(&approval::canonical(project)?)?;
        Ok(approved == Some(digest.to_string()))
    }

    /// Keeps the report of a run.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub fn save_report(&self, report: &Report) -> Result<(), Error> {
        self.store.put_report(report)
    }

    /// The report of a run, once it has one.
    ///
    /// # Errors
    /// If the state cannot be read.
    pub fn report(&self, id: &RunId) -> Result<Option<Report>, Error> {
        self.store.report(id)
    }

    /// Makes a new key that signs run tokens from now on. Tokens that were signed before stay good.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub fn rotate_keys(&self) -> Result<(), Error> {
        self.keyring.rotate(Timestamp::now())
    }

    /// The log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The owner's secrets, without their values.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The owner's settings for this machine.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The files and folders of this machine that no sandbox may see.
    ///
    /// # Errors
    /// If `secrets.toml` cannot be used: then nobody knows where the secrets are.
    pub fn secret_files(&self) -> Result<Vec<PathBuf>, Error> {
        let mut paths = vec![self.config_dir.clone(), self.folder.path().to_owned()];
        paths.extend(self.secrets.files()?);
        Ok(paths)
    }

    /// Ends every run of this process, when the process is about to end.
    ///
    /// # Errors
    /// As [`end_run`](Self::end_run); the others are ended all the same.
    pub fn end_all(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for run in self.live.all() {
            if let Err(error) = self.end_run(&run) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Checks whether a policy may be used in a project, by the owner's newest approval.
    pub(crate) fn check_approval(
        &self,
        policy: &Policy,
        project: &Path,
        named: Option<&Digest>,
    ) -> Result<(), Error> {
        let approved = self.store.approved(project)?;
        approval::check(policy, project, named, approved.as_deref())
    }
}

/// Closes segments of processes that were killed, and ends their runs, but those that may go on.
fn tidy_up(folder: &Folder, store: &Store, audit: &Audit, now: Timestamp) -> Result<(), Error> {
    // Whoever repairs a segment holds its lock, and a server that looks for runs to go on with would take its writer for
    // alive.
    let _lock = folder.lock()?;
    for repaired in audit::repair(&folder.audit(), store)? {
        store.end_runs_of(&repaired.segment, now.as_millisecond())?;
        if repaired.cut > 0 {
            let mut event = Event::new(EventKind::LogRepaired);
            event.detail = Some(format!(
                "segment {}: {} bytes of a torn last line were cut off",
                repaired.segment, repaired.cut
            ));
            audit.note(&event);
        }
    }
    store.forget_runs(now.as_millisecond())
}

fn read_config(config_dir: &Path) -> Result<Config, Error> {
    let path = config_dir.join("config.toml");
    match owner::read(&path, Readers::Everybody)? {
        Some(text) => owner::parse_config(&path.display().to_string(), &text).map_err(Error::Owner),
        None => Ok(Config::default()),
    }
}

/// A run for people; none if the state holds what is no run.
fn info(run: StoredRun, now: i64) -> Option<RunInfo> {
    let time = |at: i64| {
        Timestamp::from_millisecond(at)
            .ok()
            .map(|at| at.to_string())
    };
    // A run whose process was killed before it could end it ends with its time.
    let ended = run.ended.or((run.expires <= now).then_some(run.expires));
    Some(RunInfo {
        run: run.id.parse().ok()?,
        state: if ended.is_some() { "ended" } else { "active" }.to_owned(),
        policy: run.policy,
        project: run.project.to_string_lossy().into_owned(),
        created: time(run.created)?,
        expires: time(run.expires)?,
        ended: ended.and_then(time),
    })
}

/// The most runs that are listed at once.
const MOST_RUNS: u32 = 1000;
