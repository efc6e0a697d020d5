//! Reads a `.env` file: names and values, without running anything.

use zeroize::Zeroizing;

/// One variable of a `.env` file. Its value has no `Debug`.
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: Zeroizing<String>,
}

/// Every variable of a text; the line of the first thing that is none otherwise.
///
/// Understood: `NAME=value`, `export NAME=value`, single and double quotes on one line, and comments. Nothing is
/// substituted.
pub(crate) fn parse(text: &str) -> Result<Vec<Variable>, usize> {
    let mut variables = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        variables.push(variable(line).ok_or(at + 1)?);
    }
    Ok(variables)
}

fn variable(line: &str) -> Option<Variable> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        return None;
    }
    Some(Variable {
        name: name.to_owned(),
        value: Zeroizing::new(value_of(value.trim())?),
    })
}

fn value_of(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix('\'') {
        let (value, after) = rest.split_once('\'')?;
        return is_nothing(after).then(|| value.to_owned());
    }
    if let Some(rest) = text.strip_prefix('"') {
        return double_quoted(rest);
    }
    // A comment begins with a space before it: a `#` may be part of a key.
    let value = text.split_once(" #").map_or(text, |(value, _)| value);
    Some(value.trim_end().to_owned())
}

fn double_quoted(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => match characters.next()? {
                'n' => value.push('\n'),
                escaped @ ('"' | '\\' | '$' | '`') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    is_nothing(characters.as_str()).then_some(value)
}

fn is_nothing(after: &str) -> bool {
    let after = after.trim();
    after.is_empty() || after.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Result<Vec<(String, String)>, usize> {
        let variables = parse(text)?;
        Ok(variables
            .into_iter()
            .map(|variable| (variable.name, variable.value.to_string()))
            .collect())
    }

    #[test]
    fn the_usual_spellings_are_read() {
        let text =
            "# keys\n\nA=one\nexport B = \"two # 2\" # really\nC='th$ree'\nD=fo#ur # no\nE=\n";
        let expected = [
            ("A", "one"),
            ("B", "two # 2"),
            ("C", "th$ree"),
            ("D", "fo#ur"),
            ("E", ""),
        ];
        let found = values(text).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| (&name[..], &value[..]))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_variable_is_named_by_its_line() {
        for text in [
            "A=1\nnonsense",
            "A=1\nB='open",
            "A=1\nB=\"x\" y",
            "A=1\nA B=2",
        ] {
            assert_eq!(values(text), Err(2), "{text}");
        }
    }
}
