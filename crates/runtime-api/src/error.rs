//! Why a runtime could not do what it was asked.

/// Why the runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No such image here.
    #[error("image {name:?} is not present")]
    ImageAbsent { name: String },
    /// The image name cannot be read.
    #[error("image name {name:?} is not valid: {why}")]
    ImageName { name: String, why: String },
    /// The registry did not give the image, or it is not one that can be run here.
    #[error(transparent)]
    Pull(Box<dyn std::error::Error + Send + Sync>),
    /// No such sandbox, or its shim does not answer.
    #[error("pod {pod} has no sandbox")]
    NoSandbox { pod: String },
    /// No such container.
    #[error("container {container} is not running")]
    NoContainer { container: String },
    /// The program could not be started: the kernel's answer, in words that name the program.
    #[error("{message}")]
    Start { message: String },
    /// It was asked and did not answer: what was asked for may have been done, may yet be done, or may never be. Whoever has to
    /// know asks again, which does nothing twice.
    #[error("{doing}")]
    Unanswered { doing: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// Anything else that the system refused.
    #[error("{doing}")]
    System { doing: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl From<crate::image::InvalidImageName> for RuntimeError {
    fn from(invalid: crate::image::InvalidImageName) -> Self {
        Self::ImageName { name: invalid.name, why: invalid.why }
    }
}

/// What a runtime answers.
pub type Result<T> = std::result::Result<T, RuntimeError>;
