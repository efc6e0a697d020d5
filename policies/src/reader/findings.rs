//! What was found wrong with the files that were read.

use std::cell::RefCell;

use crate::diagnostic::Diagnostic;

/// What was found wrong so far.
#[derive(Debug, Default)]
pub struct Findings(RefCell<Vec<Diagnostic>>);

impl Findings {
    /// Adds one. After a hundred, a file is wrong enough: later ones are dropped.
    pub fn add(&self, diagnostic: Diagnostic) {
        let mut found = self.0.borrow_mut();
        if found.len() < MAX_FINDINGS {
            found.push(diagnostic);
        }
    }

    /// Whether nothing was found wrong.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The value if nothing was found wrong; else what was, by file and line.
    pub fn into_result<T>(self, value: T) -> Result<T, Vec<Diagnostic>> {
        let mut found = self.0.into_inner();
        if found.is_empty() {
            return Ok(value);
        }
        found.sort_by(|a, b| {
            (&a.file, a.line, a.column, &a.message).cmp(&(&b.file, b.line, b.column, &b.message))
        });
        found.dedup();
        Err(found)
    }
}

/// How many findings are kept.
const MAX_FINDINGS: usize = 100;
