//! Where the owner's package managers get their packages, asked of their own settings.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use policies::{Authority, Origin, Scheme};

/// The origins behind a package preset, such as `python-packages`. What lies in the `agents`' folders is not run.
pub(crate) fn origins(preset: &str, agents: &[&Path]) -> Result<Vec<Origin>, String> {
    let clients = Clients::outside(agents);
    let urls = match preset {
        "python-packages" => python(&clients)?,
        "node-packages" => node(&clients)?,
        "go-packages" => go(&clients)?,
        "debian-packages" => debian(&clients)?,
        other => {
            return Err(format!(
                "not supported yet: the hosts of `{other}` cannot be found out"
            ));
        }
    };
    urls.iter().map(|url| origin(url)).collect()
}

/// The origin in a URL of the owner's settings. A user and password in it are the client's own, and left out.
fn origin(url: &str) -> Result<Origin, String> {
    let wrong = |what: &dyn std::fmt::Display| {
        format!("the owner's own settings name a place that cannot be used: {what}")
    };
    let uri: http::Uri = url.parse().map_err(|error| wrong(&error))?;
    let scheme = uri
        .scheme_str()
        .and_then(Scheme::parse)
        .ok_or_else(|| wrong(&"it is neither https nor http"))?;
    let authority = uri.authority().ok_or_else(|| wrong(&"it names no host"))?;
    let place = authority.as_str().rsplit('@').next().unwrap_or_default();
    let place =
        Authority::parse(place, Some(scheme.default_port())).map_err(|error| wrong(&error))?;
    Ok(Origin {
        scheme,
        host: place.host,
        port: place.port,
        path: uri.path().to_owned(),
    })
}

/// pip's indexes, and where its default index keeps the files; uv reads the same ones or its own variables.
fn python(clients: &Clients) -> Result<Vec<String>, String> {
    const ASK: &str = "\
import json
from pip._internal.cli.main_parser import create_main_parser
from pip._internal.commands import create_command
from pip._internal.models.index import PyPI
options, _ = create_command('install').parser.parse_args([])
urls = [options.index_url] + list(options.extra_index_urls)
if options.index_url.rstrip('/') == PyPI.simple_url.rstrip('/'):
    urls.append('https://' + PyPI.file_storage_domain)
print('\\n'.join(urls))";
    let mut urls = clients.lines("python3", &["-I", "-c", ASK], "pip's settings")?;
    for variable in [
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_INDEX",
    ] {
        if let Ok(value) = std::env::var(variable) {
            urls.extend(value.split_whitespace().map(|url| {
                // `UV_INDEX` may name an index: `name=https://…`.
                url.split_once("=http")
                    .map_or(url.to_owned(), |(_, rest)| format!("http{rest}"))
            }));
        }
    }
    Ok(urls)
}

fn node(clients: &Clients) -> Result<Vec<String>, String> {
    clients.lines("npm", &["config", "get", "registry"], "npm's settings")
}

fn go(clients: &Clients) -> Result<Vec<String>, String> {
    let answer = clients.lines("go", &["env", "GOPROXY", "GOSUMDB"], "Go's settings")?;
    let mut urls: Vec<String> = Vec::new();
    for entry in answer.iter().flat_map(|line| line.split([',', '|'])) {
        match entry {
            "" | "off" | "direct" => {}
            url if url.contains("://") => urls.push(url.to_owned()),
            name => urls.push(format!(
                "https://{}",
                name.split(['+', ' ']).next().unwrap_or(name)
            )),
        }
    }
    Ok(urls)
}

fn debian(clients: &Clients) -> Result<Vec<String>, String> {
    let urls = clients.lines(
        "apt-get",
        &["indextargets", "--format", "$(SITE)"],
        "apt's sources",
    )?;
    Ok(urls
        .into_iter()
        .filter(|url| url.starts_with("http"))
        .collect())
}

/// The owner's package clients: those on the `PATH` that are not in the project, whose files are the agent's.
///
/// They run here, outside of any sandbox and before the policy is approved.
struct Clients {
    path: Vec<PathBuf>,
    agents: Vec<PathBuf>,
}

impl Clients {
    fn outside(folders: &[&Path]) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Named with --policy, a policy lies elsewhere than the project one stands in. The home, where a service may
        // stand, is not one.
        let home = std::env::home_dir().unwrap_or_default();
        let here = std::env::current_dir()
            .ok()
            .filter(|here| !home.starts_with(here));
        let agents = here
            .into_iter()
            .chain(folders.iter().map(|folder| (*folder).to_owned()));
        Self {
            // A relative entry would mean whatever folder one is in.
            path: std::env::split_paths(&path)
                .filter(|entry| entry.is_absolute())
                .collect(),
            agents: agents.filter_map(|at| at.canonicalize().ok()).collect(),
        }
    }

    /// Where a client is. An activated virtual environment in the project is passed over, and so is a link into it.
    fn find(&self, program: &str) -> Option<PathBuf> {
        self.path
            .iter()
            .map(|folder| folder.join(program))
            .find(|file| {
                let is_the_agents = |at: &Path| {
                    at.canonicalize()
                        .is_ok_and(|real| self.agents.iter().any(|agent| real.starts_with(agent)))
                };
                // Of a link in the project to a program outside, the project's files still decide what it loads.
                is_executable(file)
                    && !is_the_agents(file)
                    && !file.parent().is_some_and(is_the_agents)
            })
    }

    /// What a client says of itself, a line each.
    fn lines(&self, program: &str, arguments: &[&str], what: &str) -> Result<Vec<String>, String> {
        let found = self.find(program).ok_or_else(|| {
            format!(
                "cannot ask `{program}` for {what}: there is none on the PATH outside of the project, whose own \
                 programs are not run here"
            )
        })?;
        // A client starts helpers by name: `npm` is a script that asks for `node`.
        let path = self.path.iter().filter(|entry| {
            entry
                .canonicalize()
                .is_ok_and(|real| !self.agents.iter().any(|agent| real.starts_with(agent)))
        });
        let path = std::env::join_paths(path).map_err(|error| format!("`PATH`: {error}"))?;
        let answer = Command::new(found)
            .args(arguments)
            .env("PATH", path)
            // Not in the project: its files are the agent's, and none of them may steer a program of the owner's here.
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot ask `{program}` for {what}: {error}"))?;
        if !answer.status.success() {
            return Err(format!(
                "`{program}` did not tell {what}: {}",
                answer.status
            ));
        }
        let mut found: Vec<String> = Vec::new();
        for line in String::from_utf8_lossy(&answer.stdout).lines() {
            let line = line.trim();
            if !line.is_empty() && !found.iter().any(|known| known == line) {
                found.push(line.to_owned());
            }
        }
        if found.is_empty() {
            return Err(format!("`{program}` names no place in {what}"));
        }
        Ok(found)
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
