//! Which variables tell the programs of a run about its proxy, its certificate authority and its placeholders.

use std::collections::BTreeMap;

use broker::Run;
use policies::StepName;

/// Where the things are that the variables name, as the run sees them.
#[derive(Clone, Debug)]
pub struct Places<'p> {
    /// The URL of the proxy, `http://host:port`, with the token in it where the door is shared.
    pub proxy_url: &'p str,
    /// The file with the system's roots and the run's own, in PEM.
    pub ca_bundle: &'p str,
    /// The folder with the same in OpenSSL's hashed form, if there is one.
    pub ca_folder: Option<&'p str>,
    /// A `wgetrc` that names the bundle, if there is one.
    pub wgetrc: Option<&'p str>,
    /// A JVM trust store with the run's authority, if there is one.
    pub java_trust_store: Option<&'p str>,
    /// The token, where the run has to know it; a door of its own needs none.
    pub token: Option<&'p str>,
    /// The URL of the gateway, if there is one.
    pub gateway: Option<&'p str>,
    /// The step it is for: it is given placeholders only of the secrets that are left to it.
    pub step: Option<&'p StepName>,
}

/// The environment of a run. Clients read different names; none is read by all.
pub fn environment(run: &Run, places: &Places<'_>) -> BTreeMap<String, String> {
    let mut all = run.environment_of(places.step);
    let mut set = |name: &str, value: &str| {
        all.insert(name.to_owned(), value.to_owned());
    };
    for name in PROXY {
        set(name, places.proxy_url);
        set(&name.to_ascii_lowercase(), places.proxy_url);
    }
    for name in ["NO_PROXY", "no_proxy"] {
        // Exact names: most clients do not understand address ranges here.
        set(name, "localhost,127.0.0.1,::1");
    }
    for name in BUNDLE {
        set(name, places.ca_bundle);
    }
    // Node reads neither the proxy's variables nor the system's roots unless it is told to.
    set("NODE_USE_ENV_PROXY", "1");
    set("NODE_USE_SYSTEM_CA", "1");
    // git sends nothing before it is asked; this saves it a round trip.
    set("GIT_HTTP_PROXY_AUTHMETHOD", "basic");
    // ssh cannot pass a proxy for HTTP, https can.
    set("GIT_CONFIG_COUNT", &GIT_REWRITES.len().to_string());
    for (place, (from, to)) in GIT_REWRITES.iter().enumerate() {
        set(
            &format!("GIT_CONFIG_KEY_{place}"),
            &format!("url.{to}.insteadOf"),
        );
        set(&format!("GIT_CONFIG_VALUE_{place}"), from);
    }
    for (name, value) in [
        ("SSL_CERT_DIR", places.ca_folder),
        ("WGETRC", places.wgetrc),
        ("VALETKEY_TOKEN", places.token),
        ("VALETKEY_GATEWAY", places.gateway),
    ] {
        if let Some(value) = value {
            set(name, value);
        }
    }
    if let Some(store) = places.java_trust_store {
        set(
            "JAVA_TOOL_OPTIONS",
            &format!("-Djavax.net.ssl.trustStore={store}"),
        );
    }
    set("VALETKEY_RUN", run.id().as_str());
    all
}

// Always an `http://` URL: clients need extra packages for SOCKS.
const PROXY: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY"];

const BUNDLE: [&str; 16] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "DENO_CERT",
    "NIX_SSL_CERT_FILE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    // A `cafile` in npmrc silently cancels NODE_EXTRA_CA_CERTS; this one wins over it.
    "npm_config_cafile",
    "YARN_CAFILE",
    "PGSSLROOTCERT",
];

const GIT_REWRITES: [(&str, &str); 4] = [
    ("git@github.com:", "https://github.com/"),
    ("ssh://git@github.com/", "https://github.com/"),
    ("git@gitlab.com:", "https://gitlab.com/"),
    ("ssh://git@gitlab.com/", "https://gitlab.com/"),
];
