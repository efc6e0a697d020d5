//! Which keys a policy file may have. The JSON Schema has the same; a test compares them.

pub(crate) const FILE: &[&str] = &[
    "version", "extends", "locked", "allow", "deny", "budget", "sandbox", "limits", "steps", "test",
];

pub(crate) const ALLOW: &[&str] = &[
    "name",
    "use",
    "host",
    "postgres",
    "redis",
    "ssh",
    "tcp",
    "secret",
    "scheme",
    "ports",
    "methods",
    "paths",
    "only",
    "query",
    "when",
    "mode",
    "budget",
    "ask",
    "websocket",
    "statements",
];

pub(crate) const DENY: &[&str] = &[
    "name", "use", "host", "scheme", "ports", "methods", "paths", "only", "query", "when", "reason",
];

pub(crate) const WHEN: &[&str] = &["header", "query", "json", "graphql", "mcp"];

pub(crate) const GRAPHQL: &[&str] = &["operations", "fields"];

pub(crate) const MCP: &[&str] = &["tools", "args"];

pub(crate) const RULE_BUDGET: &[&str] = &[
    "requests",
    "upload",
    "download",
    "rate",
    "connections",
    "llm_tokens",
    "llm_cost",
];

pub(crate) const BUDGET: &[&str] = &[
    "ttl",
    "requests",
    "upload",
    "download",
    "rate",
    "connections",
    "llm_tokens",
    "llm_cost",
];

pub(crate) const SANDBOX: &[&str] = &["workspace", "read", "hide", "network", "env"];

pub(crate) const WORKSPACE: &[&str] = &["path", "mode"];

pub(crate) const LIMITS: &[&str] = &[
    "memory",
    "cpus",
    "cpu_time",
    "wall",
    "processes",
    "disk",
    "output",
    "file_size",
    "open_files",
];

pub(crate) const STEP: &[&str] = &["allow", "network"];

pub(crate) const TEST: &[&str] = &["request", "expect"];
