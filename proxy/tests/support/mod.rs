//! A small world for tests: an owner, a provider that wants the real key, and a proxy between them.

pub(crate) mod client;
pub(crate) mod frames;
pub(crate) mod provider;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use broker::{Broker, CreateRunSpec, NewRun, Settings};
use policies::{Document, Origin, Sources};
use proxy::{DoorsOfRun, Listener, Proxy, ProxyLimits, ProxySettings};
use sdk::audit::{Event, EventKind};
use tempfile::TempDir;
use tokio::net::TcpListener;

use provider::{Authority, Provider};

/// The key that providers want.
pub(crate) const KEY: &str = "test-secret-real-key";

/// What a world is made of.
pub(crate) struct Plan<'p> {
    pub(crate) policy: &'p str,
    /// `[name]` sections of `secrets.toml`; `{KEY}` is the path of a file with the key.
    pub(crate) secrets: &'p str,
    /// Hosts that lead to the provider over TLS, each with its port.
    pub(crate) hosts: &'p [&'p str],
    /// More lines for `config.toml`, in front of its tables.
    pub(crate) upstream: &'p str,
    pub(crate) provider: Provider,
    pub(crate) limits: ProxyLimits,
    /// Where the hosts lead instead of to the provider.
    pub(crate) elsewhere: Option<SocketAddr>,
}

/// The usual: one host with a bearer key.
pub(crate) const POLICY: &str = r#"
version = 1
[[allow]]
host = "api.test"
secret = "api"
ports = [443]
[[deny]]
host = "api.test"
paths = ["/denied"]
reason = "because a test says so"
"#;

pub(crate) const SECRETS: &str = r#"
[api]
hosts = ["api.test"]
inject = "bearer"
source = { file = "{KEY}" }
"#;

impl Default for Plan<'_> {
    fn default() -> Self {
        Self {
            policy: POLICY,
            secrets: SECRETS,
            hosts: &["api.test:443"],
            upstream: "",
            provider: Provider::default(),
            limits: ProxyLimits::default(),
            elsewhere: None,
        }
    }
}

/// A proxy with a run and a provider.
pub(crate) struct World {
    pub(crate) broker: Arc<Broker>,
    pub(crate) proxy: Proxy,
    pub(crate) open: proxy::OpenDoors,
    pub(crate) new: NewRun,
    pub(crate) provider: provider::Running,
    /// The door that all runs share.
    pub(crate) shared: SocketAddr,
    /// The door of the run.
    pub(crate) door: SocketAddr,
    /// The same, for connections that are taken for captured ones.
    pub(crate) captured: u16,
    pub(crate) dns: SocketAddr,
    pub(crate) dns_over_tcp: SocketAddr,
    /// The root of the outside world.
    pub(crate) root: rustls_pki_types::CertificateDer<'static>,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn usual() -> Self {
        Self::new(Plan::default()).await
    }

    pub(crate) async fn new(plan: Plan<'_>) -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new();
        let everywhere = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let captured = everywhere.local_addr().unwrap().port();
        let names: Vec<&str> = plan
            .hosts
            .iter()
            .map(|host| host.rsplit_once(':').unwrap().0)
            .collect();
        let provider = plan.provider.start(&authority, &names).await;
        let config_dir = folder.path().join("config");
        std::fs::create_dir(&config_dir).unwrap();
        let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let shared = own.local_addr().unwrap();
        let ports = (captured.to_string(), shared.port().to_string());
        let fill = |text: &str| {
            text.replace("{CAPTURED}", &ports.0)
                .replace("{SHARED}", &ports.1)
        };
        write_config(
            &config_dir,
            &plan,
            &authority,
            plan.elsewhere.unwrap_or(provider.address),
            &fill,
        );
        let project = folder.path().join("project");
        std::fs::create_dir(&project).unwrap();

        let broker = Broker::open(Settings {
            state_dir: folder.path().join("state"),
            config_dir,
            durability: None,
        })
        .unwrap();
        let settings = ProxySettings {
            upstream: broker.config().upstream.clone(),
            own_addresses: vec![shared],
            limits: plan.limits,
        };
        let proxy = Proxy::new(Arc::clone(&broker), settings).unwrap();
        let new = run(&broker, &fill(plan.policy), &project).await;
        let serving = proxy.clone();
        tokio::spawn(async move {
            serving
                .serve_shared(Listener::Tcp(own), std::future::pending())
                .await;
        });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let dns_udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let dns = dns_udp.local_addr().unwrap();
        let dns_tcp = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let dns_over_tcp = dns_tcp.local_addr().unwrap();
        let door = listener.local_addr().unwrap();
        let doors = DoorsOfRun {
            listeners: vec![listener, everywhere],
            dns_udp: vec![dns_udp],
            dns_tcp: vec![dns_tcp],
        };
        let open = proxy.serve_run(doors, Arc::clone(&new.run), None).unwrap();
        Self {
            broker,
            proxy,
            open,
            new,
            provider,
            shared,
            door,
            captured,
            dns,
            dns_over_tcp,
            root: authority.der,
            _folder: folder,
        }
    }

    /// The placeholder that the run has for a secret.
    pub(crate) fn placeholder(&self, secret: &str) -> String {
        self.new.run.grant(secret).unwrap().placeholder().to_owned()
    }

    /// The events of requests of the run, in their order.
    pub(crate) async fn events(&self) -> Vec<Event> {
        self.broker.audit().flush().await.unwrap();
        let records = self.broker.events(self.new.run.id()).unwrap();
        records
            .into_iter()
            .map(|record| record.event)
            .filter(|event| event.request.is_some())
            .collect()
    }

    /// The final events of the run's requests.
    pub(crate) async fn finals(&self) -> Vec<Event> {
        let is_final = |event: &Event| {
            matches!(
                event.event,
                EventKind::RequestFinished | EventKind::RequestDenied
            )
        };
        self.events().await.into_iter().filter(is_final).collect()
    }

    /// The requests that have ended, one for each final event.
    pub(crate) async fn final_requests(&self) -> Vec<String> {
        let finals = self.finals().await.into_iter();
        finals
            .map(|event| event.request.unwrap().id.to_string())
            .collect()
    }

    /// The one final event of the run's only request, once it is there.
    pub(crate) async fn final_event(&self) -> Event {
        loop {
            let finals = self.finals().await;
            match finals.as_slice() {
                [] => tokio::task::yield_now().await,
                [only] => return only.clone(),
                more => panic!("more than one final event: {more:?}"),
            }
        }
    }
}

/// A run under an approved policy.
pub(crate) async fn run(broker: &Arc<Broker>, policy: &str, project: &Path) -> NewRun {
    let document = Document {
        name: "valetkey.toml".to_owned(),
        text: policy.to_owned(),
    };
    let policy = policies::load(document, &mut Nothing).unwrap_or_else(|errors| {
        panic!(
            "{}",
            errors.iter().map(ToString::to_string).collect::<String>()
        )
    });
    let digest = *policy.digest();
    let spec = CreateRunSpec {
        policy: Arc::new(policy),
        project: project.to_owned(),
        approved: Some(digest),
        ttl: None,
        step: None,
    };
    broker.create_run(spec).await.unwrap()
}

struct Nothing;

impl Sources for Nothing {
    fn document(&mut self, _from: &str, path: &str) -> Result<Document, String> {
        Err(format!("no {path}"))
    }

    fn packages(&mut self, preset: &str) -> Result<Vec<Origin>, String> {
        Err(format!("no {preset}"))
    }
}

fn write_config(
    folder: &Path,
    plan: &Plan<'_>,
    authority: &Authority,
    provider: SocketAddr,
    fill: &dyn Fn(&str) -> String,
) {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = write("key", KEY);
    write("secrets.toml", &fill(plan.secrets).replace("{KEY}", &key));
    let root = write("root.pem", &authority.pem);
    let mut config = format!(
        "[upstream]\nroots = [\"{root}\"]\n{}\n[upstream.addresses]\n",
        plan.upstream
    );
    for host in plan.hosts {
        let (name, _) = host.rsplit_once(':').unwrap();
        if !config.contains(&format!("\"{name}\" =")) {
            config.push_str(&format!("\"{name}\" = [\"127.0.0.0/8\"]\n"));
        }
    }
    config.push_str("[upstream.connect]\n");
    for host in plan.hosts {
        config.push_str(&format!("\"{}\" = \"{provider}\"\n", fill(host)));
    }
    write("config.toml", &config);
}
