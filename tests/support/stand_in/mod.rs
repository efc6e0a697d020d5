//! Stand-ins for what runs talk to, each strict about credentials.

pub(crate) mod anthropic;
pub(crate) mod git;
pub(crate) mod npm;
pub(crate) mod openai;
pub(crate) mod pypi;
pub(crate) mod sse;
