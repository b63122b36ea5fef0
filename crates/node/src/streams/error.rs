//! What a client of the node API is told when something cannot be done.
//!
//! Before a stream is open this is an HTTP answer, afterwards it travels on the error channel; in both cases it
//! is a Kubernetes `Status`, because that is what `kubectl` knows how to show.

use std::error::Error;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Value, json};

/// Why the node API could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// There is no such pod or container on this node.
    #[error("{message}")]
    NotFound {
        /// One sentence for a person.
        message: String,
    },
    /// The request contradicts itself, or what it asks for makes no sense in the container's present state.
    #[error("{message}")]
    BadRequest {
        /// One sentence for a person.
        message: String,
    },
    /// The node itself failed.
    #[error("{doing}")]
    Internal {
        /// What the node was doing.
        doing: String,
        /// What stood in the way.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl StreamError {
    /// No such pod or container.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::NotFound { message: message.into() }
    }

    /// A request that cannot be meant.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::BadRequest { message: message.into() }
    }

    /// A failure of the node while `doing` something, because of `source`.
    pub fn internal(doing: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Internal { doing: doing.into(), source: Some(source.into()) }
    }

    /// The HTTP status code of this error.
    pub fn code(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Self::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The error and all its causes, as one sentence.
    pub fn sentence(&self) -> String {
        supervision::error_chain(self)
    }

    /// The error as a Kubernetes `Status`.
    pub fn status(&self) -> Value {
        let reason = match self {
            Self::NotFound { .. } => "NotFound",
            Self::BadRequest { .. } => "BadRequest",
            Self::Internal { .. } => "InternalError",
        };
        let sentence = self.sentence();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": sentence, "reason": reason,
            "details": { "causes": [{ "message": sentence }] },
            "code": self.code().as_u16(),
        })
    }
}

impl IntoResponse for StreamError {
    fn into_response(self) -> Response {
        (self.code(), [(header::CONTENT_TYPE, "application/json")], self.status().to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_the_whole_chain_of_causes() {
        let error = StreamError::internal("cannot read the log", std::io::Error::other("the disk is gone"));
        let status = error.status();
        assert_eq!(status["message"], "cannot read the log: the disk is gone");
        assert_eq!(status["reason"], "InternalError");
        assert_eq!(status["code"], 500);
    }

    #[test]
    fn each_kind_has_its_code_and_reason() {
        for (error, code, reason) in
            [(StreamError::not_found("x"), 404, "NotFound"), (StreamError::bad_request("x"), 400, "BadRequest")]
        {
            assert_eq!(error.status()["code"], code);
            assert_eq!(error.status()["reason"], reason);
            assert_eq!(error.status()["message"], "x");
        }
    }
}
