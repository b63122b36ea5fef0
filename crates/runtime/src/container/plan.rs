//! What the agent hands to the shim for one container: image and specification merged, nothing left to look up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use crate::contract::ContainerSpec;
use crate::image::ImageConfig;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything a shim needs to make a container; stored as `plan.json` before the shim is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerPlan {
    /// As the node asked for it.
    pub(crate) spec: ContainerSpec,
    /// Unpacked layers of the image, topmost first.
    pub(crate) layers: Vec<PathBuf>,
    /// What is below them.
    #[serde(default)]
    pub(crate) base: PathBuf,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Complete but for `HOME`, which depends on the container's own `/etc/passwd`.
    pub(crate) env: Vec<(String, String)>,
    /// `USER[:GROUP]`, by name or number.
    pub(crate) user: String,
    /// Working directory.
    pub(crate) cwd: String,
    /// Capabilities of a root process; the most any other can gain.
    pub(crate) capabilities: Capabilities,
    /// Compiled seccomp filters, in the order they are installed; none for a privileged container.
    pub(crate) seccomp: Vec<PathBuf>,
}

impl ContainerPlan {
    /// Merges what the image says with what the node asks for.
    pub(crate) fn merge(spec: &ContainerSpec, config: &ImageConfig, layers: &[PathBuf], hostname: &str) -> Self {
        let user = match spec.user {
            Some(user) => user.to_string(),
            None => config.user.clone().filter(|user| !user.is_empty()).unwrap_or_else(|| "0".to_owned()),
        };
        Self {
            spec: spec.clone(),
            layers: layers.to_vec(),
            base: PathBuf::new(),
            argv: argv(spec, config),
            env: environment(spec, config, hostname),
            user,
            cwd: [spec.working_dir.as_deref(), config.working_dir.as_deref()]
                .into_iter()
                .flatten()
                .find(|dir| !dir.is_empty())
                .unwrap_or("/")
                .to_owned(),
            capabilities: Capabilities::of(spec),
            seccomp: Vec::new(),
        }
    }
}

/// `command` replaces entrypoint and command of the image, `args` only the command.
fn argv(spec: &ContainerSpec, config: &ImageConfig) -> Vec<String> {
    let (program, arguments) = match (spec.command.is_empty(), spec.args.is_empty()) {
        (true, true) => (&config.entrypoint, &config.cmd),
        (true, false) => (&config.entrypoint, &spec.args),
        (false, _) => (&spec.command, &spec.args),
    };
    program.iter().chain(arguments).cloned().collect()
}

fn environment(spec: &ContainerSpec, config: &ImageConfig, hostname: &str) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => value.clone_into(old),
        None => env.push((name.to_owned(), value.to_owned())),
    };
    set("PATH", DEFAULT_PATH);
    set("HOSTNAME", hostname);
    if spec.tty {
        set("TERM", "xterm");
    }
    for (name, value) in config.env.iter().chain(&spec.env) {
        set(name, value);
    }
    env
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::contract::ContainerId;

    pub(crate) fn spec() -> ContainerSpec {
        ContainerSpec { id: ContainerId { name: "app".into(), attempt: 0 }, ..ContainerSpec::default() }
    }

    fn image() -> ImageConfig {
        ImageConfig {
            entrypoint: vec!["/entry".into()],
            cmd: vec!["serve".into()],
            env: vec![("A".into(), "image".into()), ("PATH".into(), "/only".into())],
            user: Some("www-data".into()),
            working_dir: Some("/srv".into()),
            stop_signal: None,
        }
    }

    #[test]
    fn command_drops_the_images_words_and_args_only_its_command() {
        let plan = |spec: &ContainerSpec| ContainerPlan::merge(spec, &image(), &[], "pod").argv;
        assert_eq!(plan(&spec()), ["/entry", "serve"]);
        assert_eq!(plan(&ContainerSpec { args: vec!["x".into()], ..spec() }), ["/entry", "x"]);
        assert_eq!(plan(&ContainerSpec { command: vec!["sh".into()], ..spec() }), ["sh"]);
        assert_eq!(
            plan(&ContainerSpec { command: vec!["sh".into()], args: vec!["-c".into()], ..spec() }),
            ["sh", "-c"]
        );
    }

    #[test]
    fn later_environment_wins_in_place() {
        let env = vec![("A".to_owned(), "pod".to_owned())];
        let plan = ContainerPlan::merge(&ContainerSpec { env, ..spec() }, &image(), &[], "web-0");
        let pairs: Vec<_> = plan.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("PATH", "/only"), ("HOSTNAME", "web-0"), ("A", "pod")]);
        assert_eq!((plan.user.as_str(), plan.cwd.as_str()), ("www-data", "/srv"));
    }
}
