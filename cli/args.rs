//! What can be asked for on the command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// Runs code that an agent wrote without handing it your keys.
///
/// A run gets one token that dies with the run. All it sends goes through a proxy that lets through what `valetkey.toml`
/// allows and puts the real keys in on the way out.
#[derive(Debug, Parser)]
#[command(name = "valetkey", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) folders: Folders,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where an installation keeps its things.
#[derive(Args, Clone, Debug)]
pub(crate) struct Folders {
    /// The owner's folder: secrets.toml and config.toml [default: ~/.config/valetkey]
    #[arg(long, global = true, env = "VALETKEY_CONFIG_DIR", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) config_dir: Option<PathBuf>,
    /// The folder for runs, approvals and the audit log [default: ~/.local/state/valetkey]
    #[arg(long, global = true, env = "VALETKEY_STATE_DIR", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Print JSON for programs instead of text for people; what goes wrong, too, as {"error": {"code", "message", "hint", …}}
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a sandbox whose only way out is the proxy
    Run(Run),
    /// Serve the proxy and the control API to sandboxes of any kind
    Serve(Serve),
    /// Say whether a policy is valid, and what it decides for a request
    Check(Check),
    /// Approve, explain, or begin a policy
    #[command(subcommand)]
    Policy(Policy),
    /// Say where your keys are and which hosts they may ever be sent to
    #[command(subcommand)]
    Secret(Secret),
    /// Read and verify the record of what runs reached
    #[command(subcommand)]
    Audit(Audit),
    /// See what a run changed in the workspace, and take it over or throw it away
    #[command(subcommand)]
    Changes(Changes),
    /// Create, list, show and revoke runs
    #[command(subcommand)]
    Runs(Runs),
    /// Tell what became of a run: which step failed, why, and what it left
    Report(Report),
    /// Print the variables that a sandbox of your own needs for a run
    Env(Env),
    /// The providers that policies and secrets can name
    #[command(subcommand)]
    Providers(Providers),
    /// Try what this machine can do, and say what to do about the rest
    Doctor,
    /// Set everything up in a temporary folder and watch a hostile program be contained
    Demo,
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
#[command(after_help = RUN_EXIT_CODES)]
pub(crate) struct Run {
    /// The policy file [default: the nearest valetkey.toml, from this folder upwards; with none: no network]. It does not change which project this is: the folder of the nearest valetkey.toml, else this folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// Run although the policy was not approved on this machine, if it has exactly this digest
    #[arg(long, value_name = "DIGEST")]
    pub(crate) approved: Option<policies::Digest>,
    /// Give the command a terminal of its own inside the sandbox, as a shell or an editor needs; never without asking. Ctrl-C, Ctrl-Z and Ctrl-D then go to it. Needs a terminal as standard input. Without this a command gets the lines that are typed, or the file or pipe that is standard input
    #[arg(long, short, conflicts_with = "steps")]
    pub(crate) tty: bool,
    /// Exit with 3 if the command passed but something was refused
    #[arg(long)]
    pub(crate) fail_on_deny: bool,
    /// What keeps the command apart from this machine. Only `namespaces` isolates all that Valetkey promises; `landlock` works where namespaces are refused, as in most containers, and the run says what it leaves open; `either` takes the first that works
    #[arg(long, value_enum, default_value = "namespaces", value_name = "KIND")]
    pub(crate) isolation: IsolationChoice,
    /// Print no summary at the end
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Write what happens, as it happens, to this file or pipe: a line of JSON for each thing (docs/steps.md). /dev/fd/3 is what the caller has opened as 3; `-`, with --json, is standard output, where the report stays the last line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) events: Option<PathBuf>,
    /// Run the steps of this file, one after another or side by side as they need each other, instead of one command
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "command")]
    pub(crate) steps: Option<PathBuf>,
    /// Go on with an earlier run of these steps from the first that did not pass, over what the others left: the run, the beginning of its name, or `last`. Its changes become this run's; those of steps that did not pass are dropped
    #[arg(long, value_name = "RUN", requires = "steps")]
    pub(crate) resume: Option<String>,
    /// Drop what a step that failed wrote to the workspace; without this it is kept with the rest
    #[arg(long)]
    pub(crate) rollback_failed: bool,
    /// The command and its arguments
    #[arg(required_unless_present = "steps", trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// What keeps a command apart from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IsolationChoice {
    /// Namespaces, or nothing runs
    Namespaces,
    /// Landlock and a system call filter
    Landlock,
    /// Namespaces if this machine allows them, else Landlock
    Either,
}

impl From<IsolationChoice> for launcher::Isolation {
    fn from(choice: IsolationChoice) -> Self {
        match choice {
            IsolationChoice::Namespaces => Self::Namespaces,
            IsolationChoice::Landlock => Self::Landlock,
            IsolationChoice::Either => Self::Either,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Where sandboxes find the proxy: an address such as 127.0.0.1:3128, or unix:PATH. May be repeated
    #[arg(long, value_name = "ADDR|unix:PATH", default_value = "127.0.0.1:3128")]
    pub(crate) listen: Vec<Listen>,
    /// Where the control API listens [default: control.sock in the state folder]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,
    /// How many sandboxes may stand ready for the next steps of runs; a step that finds one starts at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) warm: usize,
}

/// An address to listen on.
#[derive(Clone, Debug)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("`unix:` needs a path behind it".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                "neither an address such as `127.0.0.1:3128` nor `unix:PATH`".to_owned()
            }),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct Check {
    /// A request to decide, such as "GET https://api.example.com/v1/items"; without one, the policy is checked and its own tests run
    pub(crate) request: Option<String>,
    /// The policy file [default: the nearest valetkey.toml, from this folder upwards]. The project stays the folder of that one, else this folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// A header field of the request, such as "X-Tier: small". May be repeated
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// List what a run here would see of this machine's files and what not, before it starts
    #[arg(long, conflicts_with_all = ["request", "headers"])]
    pub(crate) files: bool,
    /// Decide by what the policy leaves to this step
    #[arg(long, value_name = "NAME", requires = "request")]
    pub(crate) step: Option<policies::StepName>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Allow runs of this project under its policy as it is now
    Approve {
        /// The policy file [default: the nearest valetkey.toml, from this folder upwards]. The project stays the folder of that one, else this folder
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        policy: Option<PathBuf>,
        /// Approve without asking, if the policy has exactly this digest (`valetkey check --json` prints it)
        #[arg(long, value_name = "DIGEST")]
        digest: Option<policies::Digest>,
    },
    /// Print the policy that is in force, and the file and line each rule comes from
    Explain {
        /// The policy file [default: the nearest valetkey.toml, from this folder upwards]. The project stays the folder of that one, else this folder
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        policy: Option<PathBuf>,
        /// Only what is left to this step
        #[arg(long, value_name = "NAME")]
        step: Option<policies::StepName>,
    },
    /// Print the JSON Schema of valetkey.toml, for editors
    Schema,
    /// Write a first valetkey.toml into this folder
    Init {
        /// Allow reading from this host, or this provider of the catalogue, or what this preset allows. May be repeated
        #[arg(long, value_name = "HOST|PROVIDER|PRESET")]
        allow: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Secret {
    /// Seal a secret in the encrypted store; its value is read from the terminal or standard input, never from an argument
    Add {
        /// Your name for it
        name: String,
        /// The provider of the catalogue it belongs to: hosts, header and placeholder come from there
        #[arg(long, value_name = "ID", conflicts_with_all = ["host", "inject"])]
        provider: Option<String>,
        /// A host it may be sent to. May be repeated
        #[arg(long, value_name = "HOST", required_unless_present = "provider")]
        host: Vec<String>,
        /// How it is attached: bearer, header:NAME, basic:USER, query:NAME, cookie:NAME or path:TEMPLATE
        #[arg(long, value_name = "HOW", default_value = "bearer")]
        inject: String,
        /// Put it in the place of one of the same name; without this, nothing is changed then
        #[arg(long)]
        replace: bool,
    },
    /// List the secrets: names, sources and hosts, never values
    List,
    /// Forget a secret of the encrypted store
    Remove {
        /// Your name for it
        name: String,
    },
    /// Seal the keys of a .env file that the catalogue knows: all of them, or none
    Import {
        /// The file
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Put them in the place of those of the same names; without this, nothing is changed then
        #[arg(long)]
        replace: bool,
    },
    /// Read a secret from its source and say whether that works, without showing it
    Test {
        /// Your name for it
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Providers {
    /// List the providers of the catalogue
    List,
    /// Show one: its hosts, its variables, and how a key is attached
    Show {
        /// The provider
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Say what a run reached and what it was refused
    Show {
        /// The run [default: the latest]
        run: Option<sdk::RunId>,
        /// List every request
        #[arg(long)]
        all: bool,
    },
    /// Check that no record was changed, moved, left out or cut off
    Verify,
}

#[derive(Debug, Subcommand)]
#[command(after_help = CHANGES_EXAMPLES)]
pub(crate) enum Changes {
    /// List what was deleted, changed and added, and which of it this machine would run later
    Show {
        /// The run, the beginning of its name, or `last`: the last one over this folder
        #[arg(default_value = "last")]
        run: String,
    },
    /// Print the changes as a diff that `git apply` and `patch -p1` read
    Diff {
        /// The run, the beginning of its name, or `last`: the last one over this folder
        #[arg(default_value = "last")]
        run: String,
        /// Only what is at these paths and below them
        #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
        paths: Vec<PathBuf>,
    },
    /// Take the changes over into the workspace; nothing that changed there since the run began is written over
    Apply {
        /// The run, the beginning of its name, or `last`: the last one over this folder
        run: String,
        /// Only what is at these paths and below them
        #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
        paths: Vec<PathBuf>,
    },
    /// Throw the changes away; the workspace stays as it is
    Discard {
        /// The run, the beginning of its name, or `last`: the last one over this folder
        run: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
    /// Create a run for a sandbox of your own; `valetkey serve` must be running
    Create {
        /// The policy file [default: the nearest valetkey.toml, from this folder upwards]. The project stays the folder of that one, else this folder
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        policy: Option<PathBuf>,
        /// How long the token lives at most, such as 15m
        #[arg(long, value_name = "DURATION")]
        ttl: Option<String>,
        /// Create it only if the approved policy has exactly this digest
        #[arg(long, value_name = "DIGEST")]
        approved: Option<policies::Digest>,
        /// Make the token good for this step only, with what the policy leaves to it
        #[arg(long, value_name = "NAME")]
        step: Option<policies::StepName>,
        /// The control socket of `valetkey serve` [default: control.sock in the state folder]
        #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
        control: Option<PathBuf>,
    },
    /// List the runs, newest first
    List,
    /// Show one run
    Show {
        /// The run
        run: sdk::RunId,
    },
    /// End a run now: its token is dead within a second, wherever it is used
    Revoke {
        /// The run
        run: sdk::RunId,
    },
}

#[derive(Args, Debug)]
#[command(after_help = REPORT_EXAMPLES)]
pub(crate) struct Report {
    /// The run, the beginning of its name, or `last`: the last one of this project that has a report
    #[arg(default_value = "last")]
    pub(crate) run: String,
    /// Only this step, with all that is kept of its output
    #[arg(long, value_name = "NAME|N")]
    pub(crate) step: Option<String>,
}

#[derive(Args, Debug)]
#[command(after_help = ENV_EXAMPLES)]
pub(crate) struct Env {
    /// The run, as `valetkey runs create` printed it
    pub(crate) run: sdk::RunId,
    /// For a shell, `docker --env-file`, programs, or a Kubernetes pod
    #[arg(long, value_enum, default_value = "sh")]
    pub(crate) format: EnvFormat,
    /// Where the sandbox will find the certificates [default: the file that this command writes]
    #[arg(long, value_name = "PATH")]
    pub(crate) ca_path: Option<PathBuf>,
    /// The proxy's URL as the sandbox sees it, without the token, such as http://host.docker.internal:3128
    #[arg(long, value_name = "URL")]
    pub(crate) proxy_url: Option<String>,
    /// The control socket of `valetkey serve` [default: control.sock in the state folder]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    Sh,
    Docker,
    Json,
    K8s,
}

const EXAMPLES: &str = "\
Examples:
  valetkey demo                               see it work, in one minute
  valetkey run -- python3 script.py           no policy file: no network, your files are safe
  valetkey policy init --allow openai         begin a policy that may call one provider
  valetkey secret add openai --provider openai
  valetkey policy approve                     say yes to the policy as it is now
  valetkey run -- python3 agent.py            the program holds a placeholder, the provider gets the key
  valetkey audit show                         what did that run reach?";

const RUN_EXIT_CODES: &str = "\
Exit codes: the command's own, or the first failed step's; 124 wall clock or `budget.ttl`, 137 memory, 152 CPU time, 153 disk or file size, 154 processes,
155 output, 128+n other signals; 125 valetkey itself failed and nothing ran, 126 not executable, 127 not found;
3 something was refused (with --fail-on-deny); 77 the policy is not approved; 78 a policy or settings file is wrong.";

const CHANGES_EXAMPLES: &str = "\
Examples:
  valetkey changes show                       what did the last run here change?
  valetkey changes diff last src/
  valetkey changes apply last                 all of it, or nothing if a file of yours changed meanwhile
  valetkey changes apply last src/main.rs
  valetkey changes discard last
Each file appears at once and whole; set-id bits are left out; FIFOs, sockets and devices are never taken over, links out
of the workspace only by name. What is taken over gets the time of taking over, so that builds see it.
Exit codes: 0 done; 3 not done, because of a conflict, or because there is no such change or run; 125 it could not be done.";

const CHECK_EXAMPLES: &str = "\
Examples:
  valetkey check
  valetkey check 'POST https://api.openai.com/v1/responses'
  valetkey check --files                      what would a run here see, and what not?
  valetkey check --step publish 'POST https://api.openai.com/v1/responses'
Beside the policy it asks what `valetkey run` would ask: the owner's secrets and where they may go, the sandbox, the
settings. No secret is read and nothing is sent.
Exit codes: 0 valid, or allowed; 3 the request would be refused, or a [[test]] failed; 78 the policy is wrong, or no
run would begin under it here.";

const REPORT_EXAMPLES: &str = "\
Examples:
  valetkey report                            the last run of this project
  valetkey report RUN --step 6               one step, by its number or its name
  valetkey report RUN --json                 the report, for programs";

const ENV_EXAMPLES: &str = "\
Examples:
  env=$(valetkey env RUN) && eval \"$env\"
  valetkey env RUN --format docker --proxy-url http://host.docker.internal:3128 --ca-path /valetkey-ca.pem > run.env";
