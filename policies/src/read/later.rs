//! What the grammar has and this version does not enforce: checked for its types, then refused.

use crate::amount;
use crate::authority::Authority;
use crate::grammar;
use crate::reader::{Item, Section};
use crate::units::{parse_money, parse_rate};

/// Keys of an `[[allow]]`.
pub(super) fn read_rule(section: &Section<'_>) {
    for key in ["postgres", "redis", "ssh", "tcp"] {
        if let Some(item) = section.item(key)
            && let Some(text) = item.text()
        {
            match Authority::parse(text.value, None) {
                Ok(_) => item.not_supported_yet(),
                Err(error) => item.refuse(error.to_string(), Some("write `host:port`".into())),
            }
        }
    }
    if let Some(item) = section.item("statements")
        && item.texts().is_some()
    {
        item.not_supported_yet();
    }
    for key in ["ask", "websocket"] {
        if let Some(item) = section.item(key) {
            // `false` asks for what is so anyway.
            if item.boolean().is_some_and(|boolean| boolean.value) {
                item.not_supported_yet();
            }
        }
    }
    if let Some(budget) = section.section("budget", grammar::RULE_BUDGET) {
        read_budget(&budget);
        if let Some(item) = budget.item("connections")
            && item.integer(1..=65_536).is_some()
        {
            item.not_supported_yet();
        }
    }
}

/// Keys of a `budget` but for `ttl` and `connections`.
pub(super) fn read_budget(budget: &Section<'_>) {
    for key in ["requests", "llm_tokens"] {
        refuse(budget, key, |item| item.integer(0..=i64::MAX).map(drop));
    }
    for key in ["upload", "download"] {
        refuse(budget, key, |item| amount::bytes(item).map(drop));
    }
    refuse(budget, "rate", |item| {
        amount::with_unit(item, "`50/s`", parse_rate).map(drop)
    });
    refuse(budget, "llm_cost", |item| {
        amount::with_unit(item, "`5 USD`", parse_money).map(drop)
    });
}

/// Keys of `when` but for `header` and `query`.
pub(super) fn read_when(when: &Section<'_>) {
    refuse(when, "json", |item| {
        let pointers = item.map();
        let is_pointer = |item: &Item<'_, '_>| {
            let pointer = &item.key().text;
            let is_right = pointer.is_empty() || pointer.starts_with('/');
            if !is_right {
                item.refuse(
                    "the key is not a JSON pointer",
                    Some("it begins with `/`".into()),
                );
            }
            is_right
        };
        let mut items = pointers.items();
        items.all(|item| is_pointer(&item)).then_some(())
    });
    refuse(when, "graphql", |item| {
        let section = item.section(grammar::GRAPHQL);
        let operations = section.item("operations").map(|item| item.texts());
        let fields = section.item("fields").map(|item| item.texts());
        (operations != Some(None) && fields != Some(None)).then_some(())
    });
    refuse(when, "mcp", |item| {
        let section = item.section(grammar::MCP);
        let tools = section.item("tools").map(|item| item.texts());
        section.map("args");
        (tools != Some(None)).then_some(())
    });
}

/// Refuses a key whose value has the right type.
fn refuse(section: &Section<'_>, key: &str, check: impl Fn(&Item<'_, '_>) -> Option<()>) {
    if let Some(item) = section.item(key)
        && check(&item).is_some()
    {
        item.not_supported_yet();
    }
}
