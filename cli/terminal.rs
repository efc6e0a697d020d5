//! Where a run's output goes: a terminal gets what may be shown there, files and pipes get it as it is.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags};

use crate::sequences::{Allowed, Filter};

/// Whether what we say there ourselves may have colours: on a terminal, unless the owner wants none (no-color.org).
pub(crate) fn has_colours(to: impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|kind| kind == "dumb");
    to.is_terminal() && !is_set("NO_COLOR") && !is_dumb
}

/// One stream of ours that a run's output goes to.
pub(crate) struct Shown<W: Write> {
    to: W,
    filter: Option<Filter>,
    /// Its place among what is to be undone.
    number: u64,
}

impl<W: Write + IsTerminal> Shown<W> {
    /// What is `allowed`, if it is a terminal.
    pub(crate) fn allowing(to: W, allowed: Allowed) -> Self {
        let filter = to.is_terminal().then(|| Filter::new(allowed));
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { to, filter, number }
    }
}

impl<W: Write> Shown<W> {
    /// Passes output on at once.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => {
                let clean = filter.clean(bytes);
                remember(self.number, filter.undoing());
                self.to.write_all(&clean)?;
            }
            None => self.to.write_all(bytes)?,
        }
        self.to.flush()
    }

    /// Ends the output: what follows is ours, in our colours.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => {
                self.to.write_all(&filter.end())?;
                remember(self.number, Vec::new());
            }
            None => return Ok(()),
        }
        self.to.flush()
    }
}

/// Puts the terminal back where nobody comes to [`Shown::end`] any more. Does not wait for a terminal that takes nothing.
pub(crate) fn undo() {
    let left: Vec<u8> = left().values().flatten().copied().collect();
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if !left.is_empty()
        && let Ok(terminal) = rustix::fs::open("/dev/tty", flags, Mode::empty())
    {
        // What nobody has read would leave no room.
        let _ = rustix::termios::tcflush(&terminal, rustix::termios::QueueSelector::OFlush);
        let _ = rustix::io::write(terminal, &left);
    }
}

/// Notes what puts the terminal back of what one stream changed.
fn remember(number: u64, undoing: Vec<u8>) {
    let mut left = left();
    match undoing.is_empty() {
        true => left.remove(&number),
        false => left.insert(number, undoing),
    };
}

fn left() -> MutexGuard<'static, BTreeMap<u64, Vec<u8>>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

static LEFT: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());
