//! The published JSON Schema of the policy file.

/// The schema (draft 2020-12), as `valetkey policy schema` prints it.
pub const TEXT: &str = include_str!("../schema/valetkey.schema.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::grammar;

    fn schema() -> Value {
        serde_json::from_str(TEXT).expect("the schema is JSON")
    }

    #[test]
    fn the_schema_has_the_keys_that_the_reader_knows() {
        let schema = schema();
        let tables: &[(&str, &[&str])] = &[
            ("", grammar::FILE),
            ("/$defs/allow", grammar::ALLOW),
            ("/$defs/deny", grammar::DENY),
            ("/$defs/when", grammar::WHEN),
            ("/$defs/graphql", grammar::GRAPHQL),
            ("/$defs/mcp", grammar::MCP),
            ("/$defs/rule_budget", grammar::RULE_BUDGET),
            ("/$defs/budget", grammar::BUDGET),
            ("/$defs/sandbox", grammar::SANDBOX),
            ("/$defs/workspace", grammar::WORKSPACE),
            ("/$defs/limits", grammar::LIMITS),
            ("/$defs/step", grammar::STEP),
            ("/$defs/test", grammar::TEST),
        ];
        for (pointer, keys) in tables {
            let table = schema.pointer(pointer).unwrap();
            let written = table["properties"].as_object().unwrap().keys();
            let written: BTreeSet<&str> = written.map(String::as_str).collect();
            let known: BTreeSet<&str> = keys.iter().copied().collect();
            assert_eq!(written, known, "{pointer}");
            assert_eq!(
                table["additionalProperties"],
                Value::Bool(false),
                "{pointer}"
            );
        }
        let defined = schema["$defs"].as_object().unwrap().len();
        // All of them but `values`, and the file itself.
        assert_eq!(defined, tables.len());
    }

    #[test]
    fn the_schema_takes_what_the_reader_takes() {
        let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
        for text in [
            include_str!("../defaults.toml"),
            include_str!("../presets/quiet.toml"),
            include_str!("../presets/github-read.toml"),
            EXAMPLE,
        ] {
            let value: Value = toml::from_str(text).unwrap();
            let errors: Vec<_> = validator
                .iter_errors(&value)
                .map(|e| e.to_string())
                .collect();
            assert!(errors.is_empty(), "{errors:?}");
        }
    }

    #[test]
    fn the_schema_refuses_what_the_reader_refuses() {
        let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
        for text in [
            "",
            "version = 2",
            "version = 1\nalow = []",
            "version = 1\n[[allow]]\nhots = \"a\"",
            "version = 1\n[[allow]]\nhost = 1",
            "version = 1\n[[allow]]\nhost = \"a\"\nports = [0]",
            "version = 1\n[[allow]]\nhost = \"a\"\nmethods = [\"get\"]",
            "version = 1\n[limits]\nmemory = 512",
            "version = 1\n[limits]\nwall = \"5\"",
        ] {
            let value: Value = toml::from_str(text).unwrap();
            assert!(!validator.is_valid(&value), "{text}");
        }
    }

    const EXAMPLE: &str = r#"
version = 1
extends = ["preset:python-packages"]
[[allow]]
use = "openai"
secret = "openai-dev"
only = ["POST /v1/responses", "GET /v1/models"]
budget = { requests = 500, upload = "20MiB", llm_tokens = 2_000_000, llm_cost = "5 USD" }
[[allow]]
host = "api.internal.example"
ports = [8443]
methods = ["GET"]
paths = ["/v2/orders/{id}", "/v2/items/**"]
query = { tenant = "acme" }
when.json = { "/model" = ["small", "large"] }
ask = true
mode = "inspect"
[[allow]]
name = "orders database"
postgres = "db.internal.example:5432"
secret = "pg-orders"
statements = ["select"]
[[deny]]
host = "api.github.com"
paths = ["/gists/**"]
reason = "gists are public; return the text instead"
[budget]
ttl = "15m"
requests = 5000
[sandbox]
workspace = { path = ".", mode = "overlay" }
read = []
hide = ["secrets/**"]
network = "proxy"
env = { LANG = "C.UTF-8" }
[limits]
memory = "512MiB"
cpus = 1.5
cpu_time = "60s"
[steps.publish]
allow = ["openai"]
[[test]]
request = "POST https://api.openai.com/v1/files"
expect = "deny"
"#;
}
