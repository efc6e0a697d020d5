//! How the control API says that something is wrong (RFC 9457).

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use sdk::api::Problem;

use crate::{AuditUnavailable, Error, ErrorKind};

/// What goes back to the caller instead of an answer.
pub(super) struct Refused(Problem);

impl Refused {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self(Problem {
            title: status
                .canonical_reason()
                .unwrap_or("refused")
                .to_ascii_lowercase(),
            status: status.as_u16(),
            detail: detail.into(),
        })
    }
}

/// The caller or we took too long.
pub(super) fn too_slow() -> Refused {
    Refused::new(StatusCode::REQUEST_TIMEOUT, "the call took too long")
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotApproved => StatusCode::FORBIDDEN,
            ErrorKind::Wrong => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Ours => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut detail = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            detail.push_str(": ");
            detail.push_str(&source.to_string());
            cause = source.source();
        }
        if let Some(hint) = error.hint() {
            detail.push_str("\nhint: ");
            detail.push_str(&hint);
        }
        Self::new(status, detail)
    }
}

impl From<AuditUnavailable> for Refused {
    fn from(error: AuditUnavailable) -> Self {
        Error::from(error).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.0)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        response
    }
}
