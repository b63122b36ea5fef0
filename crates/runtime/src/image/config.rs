//! An image's configuration: the document its id is the digest of, and what of it a container needs.

use oci_spec::image::ImageConfiguration;

use super::digest::Digest;
use super::error::ImageError;
use crate::ids::{id_in_range, is_number};
use crate::signals::signal_from_name;

/// What an image says about the process to run.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ImageConfig {
    /// Program and first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments after the entrypoint, or the program itself if there is no entrypoint.
    pub cmd: Vec<String>,
    /// Environment, in the order it was written.
    pub env: Vec<(String, String)>,
    /// `user`, `uid`, `user:group`, …; unparsed, because names are looked up in the image's own files.
    pub user: Option<String>,
    /// Where the process starts.
    pub working_dir: Option<String>,
    /// The signal that asks it to exit; `None` means TERM.
    pub stop_signal: Option<u8>,
}

/// A configuration document, read once.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) id: Digest,
    pub(super) raw: Vec<u8>,
    pub(super) config: ImageConfig,
    /// Lowest first.
    pub(super) diff_ids: Vec<Digest>,
    /// `os/architecture`.
    pub(super) platform: String,
}

impl Document {
    pub(super) fn read(raw: Vec<u8>) -> Result<Self, ImageError> {
        let broken = |why: String| ImageError::Broken { why };
        let parsed: ImageConfiguration = serde_json::from_slice(&raw)
            .map_err(|error| broken(format!("its configuration does not read as JSON ({error})")))?;
        let diff_ids = parsed
            .rootfs()
            .diff_ids()
            .iter()
            .map(|id| id.parse::<Digest>().map_err(|error| broken(format!("a diff id of its configuration: {error}"))))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            id: Digest::of(&raw),
            config: config_of(&parsed)?,
            diff_ids,
            platform: format!("{}/{}", parsed.os(), parsed.architecture()),
            raw,
        })
    }
}

fn config_of(parsed: &ImageConfiguration) -> Result<ImageConfig, ImageError> {
    let Some(config) = parsed.config() else { return Ok(ImageConfig::default()) };
    let not_empty = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let stop_signal = match not_empty(config.stop_signal()) {
        None => None,
        Some(name) => Some(signal_from_name(&name).ok_or_else(|| ImageError::Broken {
            why: format!("its stop signal {name:?} is not a signal of this system"),
        })?),
    };
    let user = not_empty(config.user());
    check_numbers(user.as_deref().unwrap_or_default())?;
    Ok(ImageConfig {
        entrypoint: config.entrypoint().clone().unwrap_or_default(),
        cmd: config.cmd().clone().unwrap_or_default(),
        env: config.env().iter().flatten().filter_map(|line| variable(line)).collect(),
        user,
        working_dir: not_empty(config.working_dir()),
        stop_signal,
    })
}

/// Refuses a user or group whose number cannot be anybody's. Names are looked up, and checked, when a container starts.
fn check_numbers(user: &str) -> Result<(), ImageError> {
    let (user, group) = user.split_once(':').unwrap_or((user, ""));
    for (of, text) in [("user", user), ("group", group)] {
        if is_number(text) {
            id_in_range(of, text).map_err(|why| ImageError::Broken { why: format!("its {why}") })?;
        }
    }
    Ok(())
}

/// `NAME=VALUE`; a line without a name sets nothing, one without `=` sets the empty value.
fn variable(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(json: &str) -> Result<Document, ImageError> {
        Document::read(json.as_bytes().to_vec())
    }

    #[test]
    fn a_full_configuration_is_understood() {
        let document = read(
            r#"{"architecture":"amd64","os":"linux","config":{"User":"www-data","Env":["A=1","B=x=y","=z","C"],
                "Entrypoint":["/bin/sh","-c"],"Cmd":["true"],"WorkingDir":"/srv","StopSignal":"SIGQUIT",
                "ExposedPorts":{"80/tcp":{}},"Volumes":null,"Labels":null},
                "rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}"#,
        )
        .unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            document.config,
            ImageConfig {
                entrypoint: vec!["/bin/sh".into(), "-c".into()],
                cmd: vec!["true".into()],
                env: vec![pair("A", "1"), pair("B", "x=y"), pair("C", "")],
                user: Some("www-data".into()),
                working_dir: Some("/srv".into()),
                stop_signal: Some(3),
            }
        );
        assert_eq!((document.platform.as_str(), document.diff_ids.len()), ("linux/amd64", 1));
    }

    #[test]
    fn absent_empty_and_null_mean_the_same() {
        for config in [
            "",
            r#""config":null,"#,
            r#""config":{},"#,
            r#""config":{"User":"","Env":null,"Cmd":null,"WorkingDir":"","StopSignal":""},"#,
        ] {
            let json = format!(
                r#"{{"architecture":"amd64","os":"linux",{config}"rootfs":{{"type":"layers","diff_ids":[]}}}}"#
            );
            assert_eq!(read(&json).unwrap().config, ImageConfig::default(), "{json}");
        }
    }

    #[test]
    fn a_stop_signal_that_does_not_exist_is_refused() {
        let json = r#"{"architecture":"amd64","os":"linux","config":{"StopSignal":"SIGNOPE"},
            "rootfs":{"type":"layers","diff_ids":[]}}"#;
        assert!(read(json).unwrap_err().to_string().contains("SIGNOPE"));
    }

    /// [SE-1] [SE-3]
    #[test]
    fn user_or_group_whose_number_is_out_of_range_is_refused() {
        let with = |user: &str| {
            read(&format!(
                r#"{{"architecture":"amd64","os":"linux","config":{{"User":"{user}"}},
                "rootfs":{{"type":"layers","diff_ids":[]}}}}"#
            ))
        };
        for (user, named) in [
            ("4294967295", "user 4294967295"),
            ("4294967296", "user 4294967296"),
            ("2147483648:0", "user 2147483648"),
            ("-1", "user -1"),
            ("1000:4294967295", "group 4294967295"),
            ("app:4294967295", "group 4294967295"),
        ] {
            let refused = with(user).unwrap_err().to_string();
            assert!(refused.contains(&format!("its {named} must be between 0 and 2147483647")), "{refused}");
        }
        for user in ["0", "2147483647:2147483647", "app", "app:staff", ":", "-", "1000:staff"] {
            assert_eq!(with(user).unwrap().config.user.as_deref(), Some(user));
        }
    }
}
