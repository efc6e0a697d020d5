//! What we take for a host or a path means to every browser what it means to us.
//!
//! The examiner is the WHATWG URL test data. We may refuse more than a browser; we may never read something else.

use policies::{Host, RequestPath};
use serde_json::Value;

struct Case {
    input: String,
    /// `None`: a browser refuses the whole URL.
    read: Option<Read>,
}

struct Read {
    hostname: String,
    pathname: String,
}

fn cases() -> Vec<Case> {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("data/urltestdata.json")).expect("the data is JSON");
    let text = |case: &Value, key: &str| case[key].as_str().map(str::to_owned);
    all.iter()
        .filter_map(|case| {
            let read = (case["failure"] != Value::Bool(true)).then(|| {
                Some(Read {
                    hostname: text(case, "hostname")?,
                    pathname: text(case, "pathname")?,
                })
            });
            Some(Case {
                input: text(case, "input")?,
                read: match read {
                    None => None,
                    Some(read) => Some(read?),
                },
            })
        })
        .collect()
}

/// The host and the rest of a URL that is written plainly: `http://host/rest` with nothing that a browser strips,
/// and no user or port.
fn split(input: &str) -> Option<(&str, &str)> {
    let rest = input
        .strip_prefix("http://")
        .or_else(|| input.strip_prefix("https://"))?;
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (host, rest) = rest.split_at(end);
    let has_port = host.rfind(':') > host.rfind(']');
    let is_stripped = input.contains(['\t', '\n', '\r']) || input.trim() != input;
    (!has_port && !host.contains('@') && !is_stripped).then_some((host, rest))
}

#[test]
fn a_host_that_we_take_is_the_host_that_a_browser_reads() {
    let (mut taken, mut refused) = (0, 0);
    for case in cases() {
        let Some((host, rest)) = split(&case.input) else {
            continue;
        };
        match (Host::parse(host), case.read) {
            (Ok(ours), Some(theirs)) => {
                // We drop the dot of the root, and a mapped address is the IPv4 address that it is.
                let theirs = theirs
                    .hostname
                    .strip_suffix('.')
                    .unwrap_or(&theirs.hostname)
                    .to_owned();
                let theirs = Host::parse(&theirs).unwrap_or_else(|e| panic!("{theirs}: {e}"));
                assert_eq!(ours, theirs, "{}", case.input);
                taken += 1;
            }
            (Ok(ours), None) => assert!(
                !rest.is_empty() && rest != "/",
                "{} is refused by browsers and {ours} to us",
                case.input
            ),
            (Err(_), _) => refused += 1,
        }
    }
    // Else the examiner was not asked.
    assert!(
        taken >= 80 && refused > 80,
        "{taken} taken, {refused} refused"
    );
}

#[test]
fn a_host_that_a_browser_prints_is_canonical_or_refused() {
    let mut canonical = 0;
    for case in cases() {
        let Some(read) = case.read.filter(|read| !read.hostname.is_empty()) else {
            continue;
        };
        if !case.input.starts_with("http") {
            continue;
        }
        if let Ok(host) = Host::parse(&read.hostname) {
            let is_same = host.uri() == read.hostname.strip_suffix('.').unwrap_or(&read.hostname);
            assert!(
                is_same || read.hostname.starts_with("[::ffff:"),
                "{} {host}",
                read.hostname
            );
            canonical += 1;
        }
    }
    assert!(canonical > 100, "{canonical}");
}

#[test]
fn a_path_that_we_send_is_read_unchanged_by_a_browser() {
    let (mut sent, mut same) = (0, 0);
    for case in cases() {
        let Some(read) = &case.read else {
            continue;
        };
        let raw = split(&case.input).map(|(_, rest)| rest.split('#').next().unwrap_or(rest));
        for path in raw.into_iter().chain([read.pathname.as_str()]) {
            let Ok(ours) = RequestPath::parse(path) else {
                continue;
            };
            let url = url::Url::parse(&format!("http://h{}", ours.sent())).unwrap();
            assert_eq!(url.path(), ours.path(), "{path}");
            sent += 1;
        }
        // Without percent-encoding there is one right answer.
        if let Some(Ok(ours)) = raw.map(RequestPath::parse)
            && !case.input.contains('%')
            && !read.pathname.contains('%')
        {
            assert_eq!(ours.path(), read.pathname, "{}", case.input);
            same += 1;
        }
    }
    assert!(sent > 300 && same > 50, "{sent} sent, {same} the same");
}
