//! What a request's path and query are, in their one canonical spelling.

/// The path and query of a request. What is judged is what is sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestPath {
    sent: String,
    path_length: usize,
}

/// Why a text is not a path that we would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
    /// A character stands in it that has no place there.
    #[error("the path has a character that paths cannot have")]
    Character,
}

impl RequestPath {
    /// Reads the path and query of a request target.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if !text.starts_with('/') {
            return Err(PathError::NotAbsolute);
        }
        Ok(Self {
            sent: text.to_owned(),
            path_length: text.find('?').unwrap_or(text.len()),
        })
    }

    /// The path and query, exactly as they are to be sent.
    pub fn sent(&self) -> &str {
        &self.sent
    }

    /// The path.
    pub fn path(&self) -> &str {
        &self.sent[..self.path_length]
    }

    /// What stands after the `?`.
    pub fn query(&self) -> Option<&str> {
        self.sent.get(self.path_length + 1..)
    }

    /// The names of the query's parameters, decoded, in their order.
    pub fn query_names(&self) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
        self.query()
            .unwrap_or("")
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split('=').next().unwrap_or(pair).into())
    }
}
