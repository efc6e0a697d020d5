//! Where a request wants to go: one canonical scheme, host and port, or a refusal.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Version, header, uri};
use policies::{Authority, Host, RequestPath, Scheme};
use sdk::Code;

use crate::refusal::Refusal;

/// The one place a request is meant for. It drives match, injection, dialling, the name in TLS, and the log.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    scheme: Scheme,
    host: Host,
    /// The canonical host as text.
    name: Arc<str>,
    port: u16,
    /// As it stands in `Host`.
    field: HeaderValue,
    /// As it stands in `:authority`.
    authority: uri::Authority,
}

impl Destination {
    pub(crate) fn new(scheme: Scheme, authority: Authority) -> Result<Self, Refusal> {
        let Authority { host, port } = authority;
        let text = if port == scheme.default_port() {
            host.uri()
        } else {
            format!("{}:{port}", host.uri())
        };
        let field = HeaderValue::try_from(&text).map_err(|_| not_a_host())?;
        Ok(Self {
            scheme,
            name: host.to_string().into(),
            host,
            port,
            field,
            authority: text.parse().map_err(|_| not_a_host())?,
        })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn field(&self) -> &HeaderValue {
        &self.field
    }

    pub(crate) fn authority(&self) -> &uri::Authority {
        &self.authority
    }

    /// Whether another name for it, which may leave the port out, means the same.
    fn is(&self, text: &[u8]) -> Result<bool, Refusal> {
        if text == self.field.as_bytes() {
            return Ok(true);
        }
        let text = std::str::from_utf8(text).map_err(|_| not_a_host())?;
        let named = Authority::parse(text, Some(self.port)).map_err(|_| not_a_host())?;
        Ok(named.host == self.host && named.port == self.port)
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.port == other.port && self.host == other.host
    }
}

impl Eq for Destination {}

impl Hash for Destination {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.scheme, self.port, &self.host).hash(state);
    }
}

/// Reads an absolute-form target, as sent to a forward proxy (RFC 9112, section 3.2.2).
pub(crate) fn of_absolute_form(
    parts: &Parts,
    last: Option<&Arc<Destination>>,
) -> Result<Arc<Destination>, Refusal> {
    let (Some(scheme), Some(authority)) = (parts.uri.scheme_str(), parts.uri.authority()) else {
        return Err(Refusal::ambiguous(
            "a proxy needs the whole URL in the request line",
        ));
    };
    // Most connections go to one place again and again.
    let destination = match last {
        Some(last)
            if last.scheme.as_str() == scheme && last.authority.as_str() == authority.as_str() =>
        {
            Arc::clone(last)
        }
        _ => {
            let scheme = Scheme::parse(&scheme.to_ascii_lowercase())
                .ok_or_else(|| Refusal::ambiguous("only http and https URLs are carried"))?;
            let authority = Authority::parse(authority.as_str(), Some(scheme.default_port()))
                .map_err(|_| not_a_host())?;
            Arc::new(Destination::new(scheme, authority)?)
        }
    };
    confirm_host(&parts.headers, &destination, true)?;
    Ok(destination)
}

/// Checks that a request inside a tunnel names the place the tunnel goes to, and no other.
pub(crate) fn confirm(parts: &Parts, tunnel: &Destination) -> Result<(), Refusal> {
    if parts.version == Version::HTTP_2 {
        if let Some(scheme) = parts.uri.scheme_str()
            && scheme != tunnel.scheme.as_str()
        {
            return Err(Refusal::ambiguous(
                "the scheme is not that of the connection",
            ));
        }
        let Some(authority) = parts.uri.authority() else {
            return confirm_host(&parts.headers, tunnel, false);
        };
        if !tunnel.is(authority.as_str().as_bytes())? {
            return Err(Refusal::new(Code::AuthorityMismatch));
        }
        return confirm_host(&parts.headers, tunnel, true);
    }
    if parts.uri.scheme().is_some() || parts.uri.authority().is_some() {
        return Err(Refusal::ambiguous(
            "a whole URL has no place inside a tunnel",
        ));
    }
    confirm_host(&parts.headers, tunnel, false)
}

/// The place that the only `Host` of an origin-form request names.
pub(crate) fn of_host(parts: &Parts, scheme: Scheme, port: u16) -> Result<Destination, Refusal> {
    if parts.uri.scheme().is_some() || parts.uri.authority().is_some() {
        return Err(Refusal::ambiguous("a whole URL has no place here"));
    }
    let mut values = parts.headers.get_all(header::HOST).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Refusal::ambiguous("exactly one `Host` is needed"));
    };
    let text = value.to_str().map_err(|_| not_a_host())?;
    let authority = Authority::parse(text, Some(port)).map_err(|_| not_a_host())?;
    if authority.port != port {
        return Err(Refusal::new(Code::AuthorityMismatch));
    }
    Destination::new(scheme, authority)
}

/// The canonical path and query.
pub(crate) fn path(parts: &Parts) -> Result<RequestPath, Refusal> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    RequestPath::parse(target)
        .map_err(|_| Refusal::ambiguous("the path cannot be read in one way only"))
}

fn confirm_host(
    fields: &HeaderMap,
    destination: &Destination,
    may_be_absent: bool,
) -> Result<(), Refusal> {
    let mut values = fields.get_all(header::HOST).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if destination.is(value.as_bytes())? => Ok(()),
        (Some(_), None) => Err(Refusal::new(Code::AuthorityMismatch)),
        (None, _) if may_be_absent => Ok(()),
        (None, _) => Err(Refusal::ambiguous("the request names no host")),
        (Some(_), Some(_)) => Err(Refusal::ambiguous("more than one `Host`")),
    }
}

fn not_a_host() -> Refusal {
    Refusal::ambiguous("the host cannot be read in one way only")
}
