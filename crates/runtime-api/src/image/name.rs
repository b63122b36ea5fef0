//! Image names: what people write, and the one full form that is stored.
//!
//! `busybox` means `docker.io/library/busybox:latest`; `localhost:5000/a/b@sha256:…` is already full.

use std::fmt;
use std::str::FromStr;

use super::digest::Digest;

/// Docker's own bounds: longer names are refused by registries too.
const NAME_LENGTH_MAX: usize = 255;
const TAG_LENGTH_MAX: usize = 128;

/// A fully qualified image name. Two ways to write the same name are equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageName {
    registry: String,
    repository: String,
    version: Version,
}

/// A tag moves, a digest does not; a name that carries both is pinned by its digest, so the tag is only a remark.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Version {
    Tag(String),
    Digest(Digest),
}

impl ImageName {
    /// Host and port of the registry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Path inside the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The digest that pins this name, if one does.
    pub fn digest(&self) -> Option<Digest> {
        match self.version {
            Version::Tag(_) => None,
            Version::Digest(digest) => Some(digest),
        }
    }

    /// The tag or digest, as a registry is asked for it.
    pub fn reference(&self) -> String {
        match &self.version {
            Version::Tag(tag) => tag.clone(),
            Version::Digest(digest) => digest.to_string(),
        }
    }

    /// Whether both name images of one repository.
    pub fn is_same_repository(&self, other: &Self) -> bool {
        self.registry == other.registry && self.repository == other.repository
    }

    /// The same repository, pinned to a manifest.
    pub fn pinned_to(&self, digest: Digest) -> Self {
        Self { version: Version::Digest(digest), ..self.clone() }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.version {
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

/// A name that no registry would take.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("image name {name:?} is not valid: {why}")]
pub struct InvalidImageName {
    /// As it was written.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

impl FromStr for ImageName {
    type Err = InvalidImageName;

    fn from_str(text: &str) -> Result<Self, InvalidImageName> {
        parse(text).map_err(|why| InvalidImageName { name: text.to_owned(), why })
    }
}

fn parse(text: &str) -> Result<ImageName, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > 2 * NAME_LENGTH_MAX + TAG_LENGTH_MAX {
        return Err(format!("it is longer than {NAME_LENGTH_MAX} characters"));
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.parse::<Digest>().map_err(|error| error.to_string())?)),
        None => (text, None),
    };
    // A colon after the last slash starts a tag; one before it belongs to a port.
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, repository) = match path.split_once('/') {
        Some((first, others)) if is_registry(first) => (first, others),
        _ => ("docker.io", path),
    };
    check_registry(registry)?;
    let registry = if registry == "index.docker.io" { "docker.io" } else { registry };
    check_repository(repository)?;
    let repository = match registry == "docker.io" && !repository.contains('/') {
        true => format!("library/{repository}"),
        false => repository.to_owned(),
    };
    if registry.len() + 1 + repository.len() > NAME_LENGTH_MAX {
        return Err(format!("it is longer than {NAME_LENGTH_MAX} characters"));
    }
    let version = match digest {
        Some(digest) => Version::Digest(digest),
        None => Version::Tag(tag.unwrap_or("latest").to_owned()),
    };
    Ok(ImageName { registry: registry.to_owned(), repository, version })
}

/// Whether the first part of a path names a host rather than a folder of Docker Hub.
fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.contains(|c: char| c.is_ascii_uppercase())
}

fn check_registry(registry: &str) -> Result<(), String> {
    let (host, port) = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (registry, None),
    };
    if port.is_some_and(|port| port.is_empty() || !port.bytes().all(|c| c.is_ascii_digit())) {
        return Err(format!("{registry:?} has a port that is not a number"));
    }
    let is_ipv6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    match is_ipv6 || host.split('.').all(is_label) {
        true => Ok(()),
        false => Err(format!("{host:?} is not a host name")),
    }
}

fn check_repository(repository: &str) -> Result<(), String> {
    if Digest::from_hex(repository).is_some() {
        return Err("64 hexadecimal digits name an image by its id; write them as \"sha256:…\"".into());
    }
    match repository.split('/').all(is_path_component) {
        true => Ok(()),
        false => Err(format!(
            "{repository:?} may hold only lower-case letters, digits and single separators (\".\", \"_\", \"__\", \"-\") between them"
        )),
    }
}

/// Letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    component.starts_with(is_word)
        && component.ends_with(is_word)
        && component
            .split(is_word)
            .all(|gap| matches!(gap, "" | "." | "_" | "__") || gap.bytes().all(|separator| separator == b'-'))
}

fn check_tag(tag: &str) -> Result<(), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fits = tag.len() <= TAG_LENGTH_MAX
        && tag.starts_with(is_word)
        && tag.chars().all(|c| is_word(c) || c == '.' || c == '-');
    match fits {
        true => Ok(()),
        false => Err(format!(
            "the tag {tag:?} must be 1 to {TAG_LENGTH_MAX} letters, digits, \"_\", \".\" or \"-\", not starting with \".\" or \"-\""
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn short_names_become_full() {
        let pinned = format!("docker.io/library/busybox@sha256:{HEX}");
        for (written, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.36", "docker.io/library/busybox:1.36"),
            ("docker.io/busybox", "docker.io/library/busybox:latest"),
            ("index.docker.io/library/busybox", "docker.io/library/busybox:latest"),
            ("team/web:v2", "docker.io/team/web:v2"),
            ("localhost/web", "localhost/web:latest"),
            ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
            ("localhost:5000/a/b:1", "localhost:5000/a/b:1"),
            ("quay.io/x/y.z__a--b:T_1", "quay.io/x/y.z__a--b:T_1"),
            ("[::1]:5000/x", "[::1]:5000/x:latest"),
            ("Upper/x", "Upper/x:latest"),
            (&format!("busybox@sha256:{HEX}"), &pinned),
            (&format!("busybox:1.36@sha256:{HEX}"), &pinned),
        ] {
            let name: ImageName = written.parse().unwrap();
            assert_eq!(name.to_string(), full, "{written}");
            assert_eq!(full.parse::<ImageName>().unwrap(), name, "a full name reads back as itself");
        }
    }

    #[test]
    fn malformed_image_name_is_refused_with_a_reason() {
        let long = "a".repeat(300);
        for written in [
            "",
            ":",
            "/",
            "a/",
            "/a",
            "a//b",
            "a:",
            "a:.x",
            "a: ",
            "A",
            "a/B",
            "a..b",
            "a___b",
            "-a",
            "a-",
            "a b",
            "localhost:x/a",
            "exa_mple.com/a",
            "a@sha256:12",
            "a@md5:00",
            "a\n",
            "../a",
            HEX,
            &long,
        ] {
            let error = written.parse::<ImageName>().unwrap_err().to_string();
            assert!(error.starts_with("image name ") && error.len() > 30, "{written:?}: {error}");
        }
    }
}
