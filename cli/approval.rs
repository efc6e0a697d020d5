//! Whether the owner said yes to a policy, and asking for it.

use broker::Broker;
use policies::Digest;

use crate::engine::Engine;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::foresee::foresee;
use crate::output::{data, is_interactive, sanitised, say};
use crate::project::Project;
use crate::{engine, output};

/// Lets the run go on only under a policy that the owner approved, or named by its digest.
pub(crate) fn require(
    broker: &Broker,
    project: &Project,
    named: Option<&Digest>,
) -> Result<(), Failure> {
    let digest = project.policy.digest();
    if let Some(named) = named {
        if named == digest {
            return Ok(());
        }
        return Err(Failure::not_approved(format!(
            "the policy's digest is `{digest}`, not the one given with --approved"
        ))
        .hint("see what changed with `valetkey policy explain`, and give the new digest"));
    }
    if is_given(broker, project)? {
        return Ok(());
    }
    let file = project
        .file
        .as_deref()
        .map_or_else(String::new, |file| format!(" `{}`", file.display()));
    Err(Failure::not_approved(format!(
        "the policy{file} is new or has changed since you approved it; nothing ran"
    ))
    .hint("read it with `valetkey policy explain`, then say yes with `valetkey policy approve`"))
}

/// Whether the owner said yes to the policy as it is now, or it asks for nothing that needs one.
pub(crate) fn is_given(broker: &Broker, project: &Project) -> Result<bool, Failure> {
    if !project.policy.needs_approval() {
        return Ok(true);
    }
    broker
        .is_approved(&project.folder, project.policy.digest())
        .map_err(|error| Failure::ours("cannot read the approvals").because(error))
}

/// Shows what the policy allows and records the owner's yes.
pub(crate) fn approve(
    folders: &Folders,
    project: &Project,
    named: Option<&Digest>,
    json: bool,
) -> Result<u8, Failure> {
    let engine = Engine::open(engine::runtime()?, folders, Vec::new())?;
    let outlook = foresee(&engine, folders, project)?;
    if !outlook.is_clear() {
        // A yes to what cannot run would be a yes in advance to what it becomes once somebody adds the rest.
        return Err(Failure::bad_policy(
            "no run would begin under this policy here; nothing was approved",
        )
        .named("cannot-run")
        .with_problems(outlook.problems));
    }
    if !json {
        outlook.warn();
    }
    let digest = project.policy.digest();
    match named {
        Some(named) if named == digest => {}
        Some(_) => {
            return Err(Failure::not_approved(format!(
                "the policy's digest is `{digest}`, not the one given with --digest"
            ))
            .hint("read the policy with `valetkey policy explain`; it may have changed since you looked"));
        }
        None => ask(project)?,
    }
    engine
        .broker
        .approve(&project.folder, digest)
        .map_err(|error| Failure::ours("cannot record the approval").because(error))?;
    if json {
        output::json(
            &serde_json::json!({"approved": digest.to_string(), "project": project.folder}),
        );
    } else {
        data(format_args!(
            "approved {digest} for {}",
            project.folder.display()
        ));
    }
    Ok(0)
}

/// Asks on the terminal; the answer is the digest's short code, so that a yes typed ahead is none.
fn ask(project: &Project) -> Result<(), Failure> {
    if !is_interactive() {
        return Err(Failure::not_approved("there is no terminal to ask on")
            .hint("give --digest with what `valetkey check --json` prints as `digest`"));
    }
    for line in project.policy.effective_toml().lines() {
        say(sanitised(line));
    }
    let code = broker::short_code(project.policy.digest());
    say("");
    say(format_args!(
        "Runs in {} will be allowed this until the policy changes.",
        project.folder.display()
    ));
    say(format_args!(
        "Type {code} to approve, anything else to leave it:"
    ));
    rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush)
        .map_err(|error| Failure::ours("cannot read from the terminal").because(error))?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| Failure::ours("cannot read from the terminal").because(error))?;
    if answer.trim().eq_ignore_ascii_case(&code) {
        Ok(())
    } else {
        Err(Failure::not_approved("not approved"))
    }
}
