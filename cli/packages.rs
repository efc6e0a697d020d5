//! Where the owner's package managers get their packages, asked of their own settings.

use std::process::{Command, Stdio};

use policies::{Authority, Origin, Scheme};

/// The origins behind a package preset, such as `python-packages`.
pub(crate) fn origins(preset: &str) -> Result<Vec<Origin>, String> {
    let urls = match preset {
        "python-packages" => python()?,
        "node-packages" => node()?,
        "go-packages" => go()?,
        "debian-packages" => debian()?,
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
fn python() -> Result<Vec<String>, String> {
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
    let mut urls = lines("python3", &["-I", "-c", ASK], "pip's settings")?;
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

fn node() -> Result<Vec<String>, String> {
    lines("npm", &["config", "get", "registry"], "npm's settings")
}

fn go() -> Result<Vec<String>, String> {
    let answer = lines("go", &["env", "GOPROXY", "GOSUMDB"], "Go's settings")?;
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

fn debian() -> Result<Vec<String>, String> {
    let urls = lines(
        "apt-get",
        &["indextargets", "--format", "$(SITE)"],
        "apt's sources",
    )?;
    Ok(urls
        .into_iter()
        .filter(|url| url.starts_with("http"))
        .collect())
}

/// What a client says of itself, a line each.
fn lines(program: &str, arguments: &[&str], what: &str) -> Result<Vec<String>, String> {
    let answer = Command::new(program)
        .args(arguments)
        // Not in the project: its files are the agent's, and none of them may run or steer a program of the owner's here.
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
