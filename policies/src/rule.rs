//! What one `[[allow]]` or `[[deny]]` says.

/// A rule of an effective policy.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) name: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) provider: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) file: String,
    pub(crate) line: usize,
}

impl Rule {
    /// Where the rule was written, as `file:line`.
    pub fn origin(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }

    /// The rule's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The owner's name of the secret that it uses.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// The catalogue provider that it uses.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// What a `[[deny]]` tells the code that asked.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}
