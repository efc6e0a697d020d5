//! `valetkey serve`: the proxy and the control API, for sandboxes of any kind.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use broker::control::{self, Projects};
use broker::{Alias, Run, RunToken};
use policies::Policy;
use proxy::Listener;
use sdk::api::CreatedRun;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_steps::{Files, Sandboxes};
use crate::args::{self, Listen};
use crate::engine::{self, Engine};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::output::{self, say};
use crate::project::Project;
use crate::{env, trust};

/// Serves until it is asked to end.
pub(crate) fn serve(asked: args::Serve, folders: &Folders, json: bool) -> Result<u8, Failure> {
    let runtime = engine::runtime()?;
    let doors = {
        let _inside = runtime.enter();
        Doors::open(&asked.listen)?
    };
    let engine = Arc::new(Engine::open(runtime, folders, doors.addresses.clone())?);
    engine.require_roots()?;
    let socket = asked.control.unwrap_or_else(|| folders.control_socket());
    let served = engine.runtime().block_on(until_told(
        &engine, folders, doors, &socket, asked.warm, json,
    ));
    for place in &asked.listen {
        if let Listen::Unix(path) = place {
            let _ = fs::remove_file(path);
        }
    }
    served
}

/// Where sandboxes find the proxy.
struct Doors {
    listeners: Vec<Listener>,
    addresses: Vec<SocketAddr>,
    names: Vec<String>,
}

impl Doors {
    fn open(places: &[Listen]) -> Result<Self, Failure> {
        let mut doors = Self {
            listeners: Vec::new(),
            addresses: Vec::new(),
            names: Vec::new(),
        };
        for place in places {
            match place {
                Listen::Tcp(wanted) => {
                    let cannot = |error: std::io::Error| {
                        Failure::ours(format!("cannot listen on `{wanted}`")).because(error)
                    };
                    let listener = tcp(*wanted).map_err(cannot)?;
                    let at = listener.local_addr().map_err(cannot)?;
                    if !at.ip().is_loopback() {
                        say(format_args!(
                            "note: tokens on {at} cross the network in the clear; keep that network to yourself"
                        ));
                    }
                    doors.addresses.push(at);
                    doors.names.push(format!("http://{at}"));
                    doors.listeners.push(Listener::Tcp(listener));
                }
                Listen::Unix(path) => {
                    doors.names.push(format!("unix:{}", path.display()));
                    doors.listeners.push(Listener::Unix(unix(path, ANYONE)?));
                }
            }
        }
        Ok(doors)
    }
}

async fn until_told(
    engine: &Arc<Engine>,
    folders: &Folders,
    doors: Doors,
    socket: &Path,
    warm: usize,
    json: bool,
) -> Result<u8, Failure> {
    let cannot = |error| Failure::ours("cannot listen for signals").because(error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    // Before any door is served: a token of theirs must not be refused.
    let resumed = engine.broker.resume_runs().await;
    let resumed = resumed.map_err(engine::broker_failure)?;
    if !resumed.is_empty() {
        let runs = output::count(resumed.len() as u64, "run");
        say(format_args!(
            "note: {runs} of the server before this one go on"
        ));
    }
    let shutdown = CancellationToken::new();
    let mut serving = JoinSet::new();
    for listener in doors.listeners {
        let (proxy, told) = (engine.proxy.clone(), shutdown.clone());
        serving.spawn(async move {
            proxy.serve_shared(listener, told.cancelled_owned()).await;
        });
    }
    let files = Arc::new(Files::default());
    let sandboxes = Sandboxes::new(
        Arc::clone(engine),
        folders.clone(),
        Arc::clone(&files),
        warm,
    );
    let sandboxes = Arc::new(sandboxes);
    let projects = Arc::new(Here {
        files,
        folders: folders.clone(),
        address: doors.addresses.first().copied(),
    });
    let api = control::serve(
        unix(socket, OWNER_ONLY)?,
        Arc::clone(&engine.broker),
        projects,
        Some(Arc::clone(&sandboxes) as _),
        resumed,
        shutdown.clone(),
    );
    serving.spawn(api);

    if json {
        output::json(&serde_json::json!({"proxy": doors.names, "control": socket}));
    } else {
        for door in &doors.names {
            say(format_args!("proxy    {door}"));
        }
        say(format_args!("control  {}", socket.display()));
        say("create a run with `valetkey runs create`; end this with Ctrl-C");
    }
    let is_over = tokio::select! {
        _ = interrupt.recv() => true,
        // What restarts services sends this: the runs are left to the server that follows.
        _ = terminate.recv() => false,
    };
    // The steps end before the calls that wait for them.
    sandboxes.end();
    shutdown.cancel();
    while serving.join_next().await.is_some() {}
    if is_over {
        engine.broker.end_all().map_err(engine::broker_failure)?;
    }
    engine
        .broker
        .audit()
        .flush()
        .await
        .map_err(|error| Failure::ours("the audit log cannot be written").because(error))?;
    // Nobody else's socket: it was bound by this process.
    let _ = fs::remove_file(socket);
    Ok(0)
}

/// A listening socket with a long queue: clients such as npm connect hundreds of times at once.
fn tcp(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match at {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

/// Listens at a path, in the place of a socket that a dead process left.
fn unix(path: &Path, mode: u32) -> Result<UnixListener, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::ours(format!("cannot listen on `{}`", path.display())).because(error)
    };
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            if StdUnixStream::connect(path).is_ok() {
                return Err(Failure::ours(format!(
                    "somebody listens on `{}` already",
                    path.display()
                ))
                .hint("is `valetkey serve` running? give another path"));
            }
            fs::remove_file(path).map_err(cannot)?;
        }
        Ok(_) => {
            return Err(Failure::ours(format!(
                "`{}` is there and is not a socket",
                path.display()
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(cannot(error)),
    }
    let listener = UnixListener::bind(path).map_err(cannot)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot)?;
    Ok(listener)
}

/// How the control API finds projects on this machine, and tells where the proxy is.
struct Here {
    folders: Folders,
    files: Arc<Files>,
    address: Option<SocketAddr>,
}

impl Projects for Here {
    fn open(
        &self,
        policy: &Path,
        project: Option<&Path>,
    ) -> Result<(Arc<Policy>, PathBuf), String> {
        let folder = project.or(policy.parent()).unwrap_or(Path::new("/"));
        let project = Project::open_in(folder, policy).map_err(|failure| failure.told())?;
        self.files.remember(&project);
        Ok((project.policy, project.folder))
    }

    fn access(&self, run: &Run, token: &RunToken, alias: &Alias) -> Result<CreatedRun, String> {
        let token = token.danger_expose();
        let proxy = self
            .address
            .map(|at| env::with_token(&format!("http://{at}"), token))
            .transpose()
            .map_err(|failure| failure.told())?;
        let ca_pem = run.authority().ca_pem().to_owned();
        let bundle = trust::write_bundle(&self.folders.run(run.id()), &ca_pem)
            .map_err(|failure| failure.told())?;
        let ca_bundle = bundle.to_string_lossy().into_owned();
        let url = proxy.as_deref().unwrap_or(NO_PROXY_URL);
        Ok(CreatedRun {
            run: run.id().clone(),
            env: engine::environment(run, url, &ca_bundle, Some(token), run.token_step()),
            token: token.to_owned(),
            alias: alias.danger_expose().to_owned(),
            proxy,
            gateway: None,
            ca_pem,
            ca_bundle,
            expires: run.expires_at().to_string(),
        })
    }
}

/// Stands in the variables where the proxy has no address that could be told.
pub(crate) const NO_PROXY_URL: &str = "http://proxy.invalid:3128";

/// A sandbox runs under another uid; the token is what counts there.
const ANYONE: u32 = 0o666;
const OWNER_ONLY: u32 = 0o600;
const BACKLOG: u32 = 4096;
