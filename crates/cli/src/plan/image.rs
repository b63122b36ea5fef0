//! What the name of an image tells: images themselves are not looked into.

use lifecycle::Signal;
use runtime::signals::signal_from_name;

use super::command::{self, base};

/// Images of the Docker library that name another stop signal than SIGTERM: name, a part of the tag, signal. The first
/// that fits counts.
const SIGNALS: [(&str, &str, &str); 9] = [
    ("nginx", "", "SIGQUIT"),
    ("httpd", "", "SIGWINCH"),
    ("postgres", "", "SIGINT"),
    ("haproxy", "", "SIGUSR1"),
    ("php", "fpm", "SIGQUIT"),
    ("php", "apache", "SIGWINCH"),
    ("wordpress", "fpm", "SIGQUIT"),
    ("wordpress", "cli", "SIGTERM"),
    ("wordpress", "", "SIGWINCH"),
];
/// Where the Docker library is found.
const LIBRARY: [&str; 6] =
    ["", "library/", "docker.io/", "docker.io/library/", "public.ecr.aws/docker/library/", "mirror.gcr.io/library/"];
/// Images that hold a program and nothing else, by the end of their names; beside those that say so (`distroless`).
const BARE: [&str; 7] = [
    "scratch",
    "/pause",
    "coredns/coredns",
    "traefik/whoami",
    "hashicorp/http-echo",
    "chainguard/static",
    "kube-state-metrics/kube-state-metrics",
];
/// Images of the Docker library that run what they are told, and a shell if they are told nothing.
const SHELLS: [(&str, &str); 10] = [
    ("busybox", "sh"),
    ("alpine", "sh"),
    ("debian", "bash"),
    ("ubuntu", "bash"),
    ("fedora", "bash"),
    ("centos", "bash"),
    ("rockylinux", "bash"),
    ("almalinux", "bash"),
    ("amazonlinux", "bash"),
    ("archlinux", "bash"),
];
/// Tools that an image with nothing but its program does not have.
const TOOLS: [&str; 14] =
    ["sleep", "echo", "cat", "touch", "rm", "kill", "pkill", "killall", "curl", "wget", "nc", "env", "true", "test"];

/// The name of the image and the stop signal that it is known to name.
pub(super) fn stop_signal(image: &str) -> Option<(&'static str, Signal)> {
    let (repository, tag) = split(image);
    // That of nginx did not always.
    if is_library(repository, "nginx") && is_before(tag, (1, 19)) {
        return None;
    }
    let known = SIGNALS.iter().find(|(name, part, _)| is_library(repository, name) && tag.contains(part));
    known.and_then(|(name, _, signal)| Some((*name, Signal(signal_from_name(signal)?))))
}

/// What an image runs that runs whatever it is told to: its usual command.
pub(super) fn command(image: &str) -> Option<&'static str> {
    let (repository, _) = split(image);
    let known = SHELLS.iter().find(|(name, _)| is_library(repository, name));
    known.map(|(_, command)| *command)
}

fn is_library(repository: &str, name: &str) -> bool {
    repository.strip_suffix(name).is_some_and(|home| LIBRARY.contains(&home))
}

/// Whether a tag is of a version before that one. One that tells no version is not.
fn is_before(tag: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = tag.split(['.', '-']).map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(a), Some(b)) => (a, b) < (major, minor),
        (Some(a), None) => a < major,
        (None, _) => false,
    }
}

/// `registry:5000/team/app:v1@sha256:…` without its tag and digest, and the tag.
fn split(image: &str) -> (&str, &str) {
    let image = image.split('@').next().unwrap_or(image);
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        Some(_) | None => (image, ""),
    }
}

/// Whether an image is known to hold no such program, because it holds nothing but its own.
pub(super) fn lacks(image: &str, program: &str) -> bool {
    let (repository, tag) = split(image);
    let bare = repository.contains("distroless") || BARE.iter().any(|name| repository.ends_with(name));
    let tool = command::is_shell(program) || base(program) == "busybox" || TOOLS.contains(&base(program));
    bare && tool && !tag.contains("debug") && !repository.contains("debug")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_images_that_are_meant_name_a_signal() {
        for (image, signal) in [
            ("nginx", Some("SIGQUIT")),
            ("docker.io/library/nginx:1.29@sha256:00", Some("SIGQUIT")),
            ("nginx:1.14.2", None),
            ("nginx:1.27-alpine", Some("SIGQUIT")),
            ("localhost:5000/nginx", None),
            ("bitnami/nginx", None),
            ("php:8.3-fpm-alpine", Some("SIGQUIT")),
            ("php:8.3-cli", None),
            ("php", None),
            ("postgres:16", Some("SIGINT")),
            ("haproxy:3.0-alpine", Some("SIGUSR1")),
            ("redis", None),
        ] {
            assert_eq!(stop_signal(image).map(|(_, signal)| signal.to_string()).as_deref(), signal, "{image}");
        }
    }

    #[test]
    fn bare_images_hold_no_tools() {
        assert!(lacks("gcr.io/distroless/java17", "/bin/sh") && lacks("scratch", "sleep"));
        assert!(!lacks("gcr.io/distroless/java17:debug", "sh") && !lacks("gcr.io/distroless/java17", "java"));
        assert!(!lacks("debian", "sh") && lacks("registry.k8s.io/pause:3.10", "sh"));
    }
}
