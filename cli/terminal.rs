//! Where a run's output goes: a terminal gets what may be shown there, files and pipes get it as it is.

use std::io::{self, IsTerminal, Write};

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
}

impl<W: Write + IsTerminal> Shown<W> {
    /// What is `allowed`, if it is a terminal.
    pub(crate) fn allowing(to: W, allowed: Allowed) -> Self {
        let filter = to.is_terminal().then(|| Filter::new(allowed));
        Self { to, filter }
    }
}

impl<W: Write> Shown<W> {
    /// Passes output on at once.
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => self.to.write_all(&filter.clean(bytes))?,
            None => self.to.write_all(bytes)?,
        }
        self.to.flush()
    }

    /// Ends the output: what follows is ours, in our colours.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match &mut self.filter {
            Some(filter) => self.to.write_all(&filter.end())?,
            None => return Ok(()),
        }
        self.to.flush()
    }
}
