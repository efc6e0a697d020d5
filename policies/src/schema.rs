//! The published JSON Schema of the policy file.

/// The schema (draft 2020-12), as `valetkey policy schema` prints it.
pub const TEXT: &str = include_str!("../schema/valetkey.schema.json");
