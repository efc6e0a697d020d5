//! The proxies that are compared, each started with a policy of one host and one header put in.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::authority::Authority;
use crate::{load, origin};

/// One running proxy.
pub struct Peer {
    /// What it is called in the table.
    pub name: String,
    /// The way through it.
    pub path: load::Path,
    child: Ended,
}

impl Peer {
    /// The root of its processes.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

/// A process that ends with us.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Asked to end, squid takes its shared memory along.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// What every proxy is given.
pub struct Setting<'s> {
    /// A folder for its files.
    pub folder: &'s Path,
    /// Where the origin listens.
    pub origin: SocketAddr,
    /// Who signed the origin's certificate.
    pub roots: &'s Authority,
    /// Who signs what the proxy shows to programs, for those that do not make their own.
    pub signer: &'s Authority,
    /// The processor to stay on, so that all have the same.
    pub processor: usize,
}

impl Setting<'_> {
    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(self.folder))?;
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("taskset");
        command
            .arg("-c")
            .arg(self.processor.to_string())
            .arg(program);
        command
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::null());
        command
    }
}

/// Ours, with its token, policy, injection and audit log on.
///
/// # Errors
/// When it does not start.
pub fn valetkey(setting: &Setting<'_>, binary: &Path) -> io::Result<Peer> {
    let port = setting.origin.port();
    let roots = setting.write("ours/roots.pem", &setting.roots.certificate_pem)?;
    let key = setting.write("ours/key", origin::KEY)?;
    setting.write(
        "ours/config/secrets.toml",
        &format!("[bench]\nhosts = [\"{HOST}\"]\nports = [{port}]\ninject = \"bearer\"\nvariables = [\"BENCH_TOKEN\"]\nsource = {{ file = {key:?} }}\n"),
    )?;
    setting.write(
        "ours/config/config.toml",
        &format!(
            "[upstream]\nroots = [{roots:?}]\n[upstream.connect]\n\"{HOST}:{port}\" = \"{}\"\n\
             [upstream.addresses]\n\"{HOST}\" = [\"127.0.0.0/8\"]\n",
            setting.origin
        ),
    )?;
    let rule = format!(
        "version = 1\n[[allow]]\nhost = \"{HOST}\"\nports = [{port}]\nmethods = [\"GET\"]\nsecret = \"bench\"\n[budget]\nttl = \"1h\"\n"
    );
    setting.write("ours/project/valetkey.toml", &rule)?;
    let folder = setting.folder.join("ours");
    let us = |arguments: &[&str]| {
        let mut command = Command::new(binary);
        command
            .args(arguments)
            .current_dir(folder.join("project"))
            .env("VALETKEY_CONFIG_DIR", folder.join("config"))
            .env("VALETKEY_STATE_DIR", folder.join("state"));
        command
    };
    let checked = json(us(&["check", "--json"]))?;
    json(us(&[
        "policy",
        "approve",
        "--json",
        "--digest",
        text(&checked, "digest")?,
    ]))?;
    let mut command = setting.command(&binary.to_string_lossy());
    let mut child = command
        .args(["serve", "--listen", "127.0.0.1:0", "--json"])
        .current_dir(folder.join("project"))
        .env("VALETKEY_CONFIG_DIR", folder.join("config"))
        .env("VALETKEY_STATE_DIR", folder.join("state"))
        .stdout(Stdio::piped())
        .spawn()
        .map(Ended)?;
    let mut line = String::new();
    let stdout = child.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    BufReader::new(stdout).read_line(&mut line)?;
    let ready: serde_json::Value = serde_json::from_str(&line)?;
    let proxy = ready["proxy"][0].as_str().unwrap_or_default();
    let proxy = proxy
        .trim_start_matches("http://")
        .parse()
        .map_err(io::Error::other)?;
    let run = json(us(&["runs", "create", "--json"]))?;
    let environment = json(us(&["env", text(&run, "run")?, "--format", "json"]))?;
    let placeholder = environment["BENCH_TOKEN"]
        .as_str()
        .unwrap_or("none")
        .to_owned();
    Ok(Peer {
        name: "valetkey".to_owned(),
        path: load::Path {
            proxy,
            target: format!("{HOST}:{port}"),
            token: Some(format!(
                "Proxy-Authorization: Bearer {}\r\n",
                text(&run, "token")?
            )),
            placeholder,
            roots: roots_of(text(&run, "ca_pem")?)?,
        },
        child,
    })
}

/// squid with `ssl-bump`, a list of one domain, the header replaced, and its access log on.
///
/// # Errors
/// When it does not start.
pub fn squid(setting: &Setting<'_>) -> io::Result<Peer> {
    let both = format!(
        "{}{}",
        setting.signer.certificate_pem, setting.signer.key_pem
    );
    let signer = setting.write("squid/signer.pem", &both)?;
    let roots = setting.write("squid/roots.pem", &setting.roots.certificate_pem)?;
    let hosts = setting.write("squid/hosts", &format!("127.0.0.1 {HOST}\n"))?;
    let folder = setting.folder.join("squid");
    let database = folder.join("certificates");
    if !database.exists() {
        let made = Command::new(CERTGEN)
            .args(["-c", "-s"])
            .arg(&database)
            .args(["-M", "4MB"])
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(
                String::from_utf8_lossy(&made.stderr).into_owned(),
            ));
        }
    }
    let port = free_port()?;
    let user = user();
    let configuration = setting.write(
        "squid/squid.conf",
        &format!(
            "http_port 127.0.0.1:{port} ssl-bump tls-cert={signer} generate-host-certificates=on dynamic_cert_mem_cache_size=4MB
sslcrtd_program {CERTGEN} -s {database} -M 4MB
sslcrtd_children 2 startup=1 idle=1
tls_outgoing_options cafile={roots}
ssl_bump bump all
acl allowed dstdomain {HOST}
acl bench port {origin}
http_access deny !allowed
http_access allow bench
http_access deny all
request_header_access Authorization deny all
request_header_add Authorization \"Bearer {KEY}\" all
hosts_file {hosts}
cache deny all
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
pinger_enable off
max_filedescriptors 4096
server_persistent_connections on
client_persistent_connections on
shutdown_lifetime 0 seconds
cache_effective_user {user}
",
            signer = signer.display(),
            database = database.display(),
            roots = roots.display(),
            hosts = hosts.display(),
            folder = folder.display(),
            origin = setting.origin.port(),
            KEY = origin::KEY,
        ),
    )?;
    // Started by root, squid wants to be somebody else, who must own its files.
    let open = fs::Permissions::from_mode(0o711);
    fs::set_permissions(setting.folder, open)?;
    Command::new("chown")
        .args(["-R", &user])
        .arg(&folder)
        .stderr(Stdio::null())
        .status()?;
    let mut command = setting.command("squid");
    let mut child = command
        .args(["-N", "-n", &format!("bench{}", std::process::id())])
        .arg("-f")
        .arg(configuration)
        .spawn()
        .map(Ended)?;
    let proxy = await_port(port, &mut child)?;
    Ok(Peer {
        name: "squid".to_owned(),
        path: load::Path {
            proxy,
            target: format!("{HOST}:{}", setting.origin.port()),
            token: None,
            placeholder: "placeholder".to_owned(),
            roots: roots_of(&setting.signer.certificate_pem)?,
        },
        child,
    })
}

/// mitmproxy's `mitmdump`, the header replaced; it keeps no list and no log here.
///
/// # Errors
/// When it does not start.
pub fn mitmproxy(setting: &Setting<'_>) -> io::Result<Peer> {
    let both = format!(
        "{}{}",
        setting.signer.key_pem, setting.signer.certificate_pem
    );
    setting.write("mitmproxy/mitmproxy-ca.pem", &both)?;
    let roots = setting.write("mitmproxy/roots.pem", &setting.roots.certificate_pem)?;
    let port = free_port()?;
    let mut command = setting.command("mitmdump");
    let mut child = command
        .args(["-q", "--listen-host", "127.0.0.1", "-p", &port.to_string()])
        .arg("--set")
        .arg(format!(
            "confdir={}",
            setting.folder.join("mitmproxy").display()
        ))
        .arg("--set")
        .arg(format!(
            "ssl_verify_upstream_trusted_ca={}",
            roots.display()
        ))
        .arg("--set")
        .arg(format!(
            "modify_headers=/~q/Authorization/Bearer {}",
            origin::KEY
        ))
        .args(["--set", "flow_detail=0", "--set", "stream_large_bodies=64k"])
        .spawn()
        .map(Ended)?;
    let proxy = await_port(port, &mut child)?;
    Ok(Peer {
        name: "mitmproxy".to_owned(),
        path: load::Path {
            proxy,
            // It resolves names by the system's own resolver, so it gets the one that every system knows.
            target: format!("localhost:{}", setting.origin.port()),
            token: None,
            placeholder: "placeholder".to_owned(),
            roots: roots_of(&setting.signer.certificate_pem)?,
        },
        child,
    })
}

fn json(mut command: Command) -> io::Result<serde_json::Value> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn text<'v>(value: &'v serde_json::Value, name: &str) -> io::Result<&'v str> {
    value[name]
        .as_str()
        .ok_or_else(|| io::Error::other(format!("there is no `{name}`")))
}

fn roots_of(pem: &str) -> io::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(Arc::new(roots))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn await_port(port: u16, child: &mut Ended) -> io::Result<SocketAddr> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    for _ in 0..300 {
        if TcpStream::connect(address).is_ok() {
            return Ok(address);
        }
        if let Some(status) = child.0.try_wait()? {
            return Err(io::Error::other(format!("it ended with {status}")));
        }
        // These peers say nothing when they are ready.
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(io::Error::other("it does not listen"))
}

fn user() -> String {
    match std::env::var("USER") {
        Ok(user) if user != "root" => user,
        _ => "proxy".to_owned(),
    }
}

/// The name of the origin.
pub const HOST: &str = "api.bench.example";

const CERTGEN: &str = "/usr/lib/squid/security_file_certgen";
