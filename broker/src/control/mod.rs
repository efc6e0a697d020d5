//! The control API.
