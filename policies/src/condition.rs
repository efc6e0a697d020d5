//! What a rule asks of a request beyond its endpoint.

use crate::decide::Fields;
use crate::path::{RequestPath, decode_query};

/// A condition on one header field or query parameter: it is there once and has one of the values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    pub(crate) subject: Subject,
    /// In order, each once.
    pub(crate) values: Vec<String>,
}

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A header field, by its name in lower case.
    Header(String),
    /// A parameter of the query, by its decoded name.
    Query(String),
}

/// What became of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It holds.
    Holds,
    /// It does not.
    Fails,
    /// Nobody can say: the value stands twice or cannot be read. An allow takes this for no, a deny for yes.
    Unknown,
}

impl Condition {
    /// Whether the condition holds for a request.
    pub(crate) fn evaluate(&self, target: &RequestPath, headers: &dyn Fields) -> Outcome {
        match &self.subject {
            Subject::Header(name) => match headers.values(name).as_slice() {
                [] => Outcome::Fails,
                [value] => self.judge(value.trim_ascii()),
                [_, _, ..] => Outcome::Unknown,
            },
            Subject::Query(name) => self.evaluate_query(name, target.query().unwrap_or("")),
        }
    }

    fn evaluate_query(&self, name: &str, query: &str) -> Outcome {
        // Some servers take `;` for `&`. Where the two readings differ in this parameter, nobody can say.
        let mut found = None;
        for pair in query.split('&') {
            for (at, part) in pair.split(';').enumerate() {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                let Some(key) = decode_query(key) else {
                    return Outcome::Unknown;
                };
                if key != name {
                    continue;
                }
                if at > 0 || pair.contains(';') || found.is_some() {
                    return Outcome::Unknown;
                }
                found = Some(value);
            }
        }
        match found.map(decode_query) {
            None => Outcome::Fails,
            Some(None) => Outcome::Unknown,
            Some(Some(value)) => self.judge(value.as_bytes()),
        }
    }

    fn judge(&self, value: &[u8]) -> Outcome {
        if self.values.iter().any(|wanted| wanted.as_bytes() == value) {
            Outcome::Holds
        } else {
            Outcome::Fails
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::NoFields;

    fn tenant(query: &str) -> Outcome {
        let condition = Condition {
            subject: Subject::Query("tenant".into()),
            values: vec!["acme".into()],
        };
        let target = RequestPath::parse(&format!("/?{query}")).unwrap();
        condition.evaluate(&target, &NoFields)
    }

    #[test]
    fn a_parameter_with_the_value_holds() {
        for query in [
            "tenant=acme",
            "a=1&tenant=acme",
            "ten%61nt=%61cme",
            "a;b=1&tenant=acme",
        ] {
            assert_eq!(tenant(query), Outcome::Holds, "{query}");
        }
    }

    #[test]
    fn another_value_or_none_fails() {
        for query in [
            "",
            "tenant=evil",
            "tenant",
            "Tenant=acme",
            "tenant=acme2",
            "tenants=acme",
        ] {
            assert_eq!(tenant(query), Outcome::Fails, "{query}");
        }
    }

    #[test]
    fn what_servers_read_in_two_ways_is_unknown() {
        for query in [
            "tenant=acme&tenant=evil",
            "tenant=acme;tenant=evil",
            "a=1;tenant=evil&tenant=acme",
            "tenant=%zz",
            "tenant=acme&%zz=1",
            "tenant=%ff",
        ] {
            assert_eq!(tenant(query), Outcome::Unknown, "{query}");
        }
    }
}
