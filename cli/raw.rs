//! The owner's terminal while a run's keys go to the sandbox: every key is passed on, and it is put back in every case.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use launcher::WindowSize;
use rustix::termios::{
    OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};

/// While it is held, keys are passed on as they are. Dropping it puts the terminal back.
#[derive(Debug)]
pub(crate) struct Raw(());

impl Raw {
    /// Begins. In the background this waits until the terminal is ours.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        *saved() = Some(before);
        apply()?;
        Ok(Self(()))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back for good. What is left of the input is thrown away: it may be a late answer to a question of the
/// run's.
pub(crate) fn restore() {
    let before = saved().take();
    put_back(before.as_ref());
}

/// Puts the terminal back for as long as this process is stopped.
pub(crate) fn pause() {
    put_back(saved().as_ref());
}

/// Has keys passed on again, if they were and the terminal is ours.
pub(crate) fn resume() {
    if is_foreground() {
        let _ = apply();
    }
}

/// Whether reading from the terminal would not stop us: it is ours at the moment, or nobody shares it.
pub(crate) fn is_foreground() -> bool {
    match tcgetpgrp(io::stdin()) {
        Ok(group) => group == rustix::process::getpgrp(),
        Err(_) => true,
    }
}

/// Whether standard input is a terminal.
pub(crate) fn is_there() -> bool {
    isatty(io::stdin())
}

/// How large the terminal is; the size that programs take for granted where it cannot be told.
pub(crate) fn size() -> WindowSize {
    match tcgetwinsize(io::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => WindowSize {
            rows: size.ws_row,
            columns: size.ws_col,
        },
        Ok(_) | Err(_) => WindowSize {
            rows: 24,
            columns: 80,
        },
    }
}

fn apply() -> io::Result<()> {
    let Some(mut modes) = saved().clone() else {
        return Ok(());
    };
    modes.make_raw();
    Ok(tcsetattr(io::stdin(), OptionalActions::Drain, &modes)?)
}

fn put_back(before: Option<&Termios>) {
    // In the background it would stop us; there the shell has put it back.
    if let Some(before) = before
        && is_foreground()
    {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
    }
}

/// How the terminal was; none while it is as it was.
fn saved() -> MutexGuard<'static, Option<Termios>> {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

static SAVED: Mutex<Option<Termios>> = Mutex::new(None);
