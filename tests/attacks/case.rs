//! One hostile request, and what must not come of it.

use serde_json::Value;

/// A case of the catalogue.
pub(super) struct Case {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) input: Input,
    pub(super) oracle: Value,
    /// Why it is not played yet.
    pub(super) later: Option<String>,
}

/// What is sent.
pub(super) enum Input {
    /// These bytes, on one connection to the proxy.
    Raw(Vec<u8>),
    /// A tunnel, and something inside it.
    Tunnel {
        connect: String,
        sni: String,
        inside: Inside,
    },
}

/// What is sent inside a tunnel.
pub(super) enum Inside {
    /// These bytes, without TLS.
    Plain(Vec<u8>),
    /// These bytes, inside TLS with HTTP/1.1.
    Http1(Vec<u8>),
    /// These fields as the head of one HTTP/2 request.
    Http2(Vec<(Vec<u8>, Vec<u8>)>),
}

impl Case {
    /// Whether the oracle names this.
    pub(super) fn expects(&self, key: &str) -> bool {
        !self.oracle[key].is_null()
    }
}

/// The whole catalogue.
pub(super) fn all() -> Vec<Case> {
    include_str!("../data/attacks.jsonl")
        .lines()
        .map(parse)
        .collect()
}

fn parse(line: &str) -> Case {
    let value: Value = serde_json::from_str(line).unwrap();
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let tunnel = &value["tunnel"];
    let input = if tunnel.is_null() {
        let parts = value["raw"].as_array().unwrap().iter();
        Input::Raw(
            parts
                .flat_map(|part| bytes(part.as_str().unwrap()))
                .collect(),
        )
    } else {
        let string = |name: &str| tunnel[name].as_str().unwrap().to_owned();
        let inside = if let Some(plain) = tunnel["plain"].as_str() {
            Inside::Plain(bytes(plain))
        } else if let Some(inner) = tunnel["inner"].as_str() {
            Inside::Http1(bytes(inner))
        } else {
            let fields = tunnel["h2"].as_array().unwrap().iter();
            let pair = |field: &Value| {
                (
                    bytes(field[0].as_str().unwrap()),
                    bytes(field[1].as_str().unwrap()),
                )
            };
            Inside::Http2(fields.map(pair).collect())
        };
        Input::Tunnel {
            connect: string("connect"),
            sni: string("sni"),
            inside,
        }
    };
    Case {
        id: text("id").unwrap(),
        title: text("title").unwrap(),
        input,
        oracle: value["oracle"].clone(),
        later: text("later"),
    }
}

// The catalogue writes each byte as the character of the same number, and `{a*N}` for N letters `a`.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{a*") {
        let (count, left) = after.split_once('}').unwrap();
        out.extend(before.chars().map(byte));
        out.resize(out.len() + count.parse::<usize>().unwrap(), b'a');
        rest = left;
    }
    out.extend(rest.chars().map(byte));
    out
}

fn byte(character: char) -> u8 {
    u8::try_from(u32::from(character)).expect("a byte")
}
