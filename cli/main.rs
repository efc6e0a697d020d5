//! The command line: it reads arguments and puts the crates together.

#![forbid(unsafe_code)]

mod api_steps;
mod approval;
mod args;
mod audit;
mod changes;
mod check;
mod check_files;
mod console;
mod cutoff;
mod demo;
mod diagnostics;
mod doctor;
mod engine;
mod env;
mod events;
mod failure;
mod folders;
mod foresee;
mod interruption;
mod limit;
mod output;
mod packages;
mod plain;
mod policy;
mod privacy;
mod problem;
mod project;
mod providers;
mod raw;
mod report;
mod run;
mod runs;
mod sandbox;
mod secret;
mod sequences;
mod serve;
mod steps;
mod summary;
mod terminal;
mod trust;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use failure::Failure;
use folders::Folders;

// Requests allocate on one thread and free on another, where glibc's allocator spends a tenth of the proxy's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::told(&error),
    };
    let json = cli.folders.json;
    begin_early(&cli.command);
    let done = privacy::close_memory().and_then(|()| {
        diagnostics::begin();
        dispatch(cli)
    });
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::failure(&failure, json);
            ExitCode::from(failure.code())
        }
    }
}

/// Makes the process that sandboxes are born of while there are no threads and no secrets, and for a run the first
/// sandbox's own process, which takes as long as everything else here. What is wrong with them the run tells.
fn begin_early(command: &Command) {
    match command {
        Command::Run(_) => launcher::expect(),
        Command::Serve(_) | Command::Demo => drop(launcher::begin()),
        _ => {}
    }
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let json = cli.folders.json;
    let folders = || Folders::locate(&cli.folders);
    match cli.command {
        Command::Run(asked) => run::run(asked, &folders()?, json),
        Command::Serve(asked) => serve::serve(asked, &folders()?, json),
        Command::Check(asked) => check::check(&asked, &folders()?, json),
        Command::Policy(asked) => policy::policy(asked, &folders()?, json),
        Command::Secret(asked) => secret::secret(asked, &folders()?, json),
        Command::Audit(asked) => audit::audit(asked, &folders()?, json),
        Command::Changes(asked) => changes::changes(asked, &folders()?, json),
        Command::Runs(asked) => runs::runs(asked, &folders()?, json),
        Command::Report(asked) => report::report(&asked, &folders()?, json),
        Command::Env(asked) => env::env(asked, &folders()?, json),
        Command::Providers(asked) => providers::providers(&asked, json),
        Command::Doctor => doctor::doctor(&folders()?, json),
        Command::Demo => demo::demo(),
        Command::Completions { shell } => {
            // Not straight to standard output: the generator panics when its reader has gone.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "valetkey", &mut script);
            output::data(String::from_utf8_lossy(&script).trim_end());
            Ok(0)
        }
    }
}
