//! Which methods and paths a rule means.

use std::sync::Arc;

use crate::path_pattern::PathPattern;
use crate::reader::{At, Section};
use crate::rule::{Endpoint, Refused};
use crate::slot::is_token;

/// Reads `methods` with `paths`, or `only`. `refusals`: what the catalogue refuses unless an endpoint names it.
pub(super) fn read(section: &Section<'_>, refusals: &[Refused]) -> Vec<Endpoint> {
    let methods = read_methods(section);
    let paths = read_paths(section);
    let mut pairs = Vec::new();
    if let Some(only) = section.texts("only") {
        for key in ["methods", "paths"] {
            if let Some(item) = section.item(key) {
                let hint = "`only` says both: `only = [\"GET /v1/models\"]`".to_owned();
                item.refuse(
                    format!("a rule has `only` or `{key}`, not both"),
                    Some(hint),
                );
            }
        }
        if only.is_empty() {
            section.refuse(section.span(), "`only` names no endpoint", None);
        }
        pairs.extend(only.iter().filter_map(|text| read_only(section, text)));
    } else if methods.is_some() || paths.is_some() || !refusals.is_empty() {
        let everywhere = || PathPattern::parse("/**").into_iter().collect();
        let methods = methods.unwrap_or_else(|| vec![None]);
        for path in paths.unwrap_or_else(everywhere) {
            pairs.extend(methods.iter().map(|method| (method.clone(), path.clone())));
        }
    }
    let everything: Arc<[Refused]> = refusals.into();
    let mut endpoints: Vec<Endpoint> = pairs
        .into_iter()
        .map(|(method, path)| {
            let mut endpoint = Endpoint {
                method,
                path,
                refused: Arc::clone(&everything),
            };
            if refusals.iter().any(|refused| endpoint.names(refused)) {
                let kept = refusals.iter().filter(|refused| !endpoint.names(refused));
                endpoint.refused = kept.cloned().collect();
            }
            endpoint
        })
        .collect();
    endpoints.sort();
    endpoints.dedup();
    endpoints
}

fn read_methods(section: &Section<'_>) -> Option<Vec<Option<String>>> {
    let texts = section.texts("methods")?;
    if texts.is_empty() {
        section.refuse(section.span(), "`methods` names no method", None);
    }
    let read =
        |text: &At<&str>| is_method(section, text, text.value).then(|| Some(text.value.to_owned()));
    Some(texts.iter().filter_map(read).collect())
}

fn read_paths(section: &Section<'_>) -> Option<Vec<PathPattern>> {
    let texts = section.texts("paths")?;
    if texts.is_empty() {
        section.refuse(section.span(), "`paths` names no path", None);
    }
    let read = |text: &At<&str>| read_path(section, text, text.value);
    Some(texts.iter().filter_map(read).collect())
}

fn read_only(section: &Section<'_>, text: &At<&str>) -> Option<(Option<String>, PathPattern)> {
    let Some((method, path)) = text.value.split_once(' ') else {
        let hint = "write a method and a path, such as `GET /v1/models` or `* /v1/**`".to_owned();
        section.refuse(&text.span, "an endpoint is a method and a path", Some(hint));
        return None;
    };
    let path = read_path(section, text, path);
    if method == "*" {
        return Some((None, path?));
    }
    is_method(section, text, method).then_some((Some(method.to_owned()), path?))
}

fn read_path(section: &Section<'_>, text: &At<&str>, path: &str) -> Option<PathPattern> {
    match PathPattern::parse(path) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            section.refuse(&text.span, error.to_string(), None);
            None
        }
    }
}

/// Methods are case-sensitive, and no method in use has lower-case letters.
fn is_method(section: &Section<'_>, text: &At<&str>, method: &str) -> bool {
    let shown: String = method
        .chars()
        .filter(|c| !c.is_control())
        .take(40)
        .collect();
    if !is_token(method) || method.contains('*') {
        section.refuse(&text.span, format!("`{shown}` is not a method"), None);
        return false;
    }
    if method.bytes().any(|b| b.is_ascii_lowercase()) {
        let hint = format!("write `{}`", shown.to_ascii_uppercase());
        let message = format!("method `{shown}` is not in capitals");
        section.refuse(&text.span, message, Some(hint));
        return false;
    }
    if matches!(method, "CONNECT" | "TRACE" | "TRACK") {
        let message = format!("`{method}` is never carried, whatever a rule says");
        section.refuse(&text.span, message, None);
        return false;
    }
    true
}
