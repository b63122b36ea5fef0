//! What the query of a request asks for: parsed once, into types that cannot be wrong.

use std::time::Duration;

use jiff::Timestamp;
use runtime_api::ExecSpec;

use super::StreamError;

/// The pairs of a query, in order, decoded.
pub(super) type Pairs = Vec<(String, String)>;

fn value<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// True for what Go and therefore every client of Kubernetes writes for true.
fn flag(pairs: &Pairs, name: &str) -> Result<bool, StreamError> {
    match value(pairs, name) {
        None => Ok(false),
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(other) => Err(StreamError::bad_request(format!("{name} is neither true nor false: {other:?}"))),
    }
}

fn number(pairs: &Pairs, name: &str) -> Result<Option<i64>, StreamError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| StreamError::bad_request(format!("{name} is not a whole number: {text:?}")))
    };
    value(pairs, name).map(parse).transpose()
}

/// Reads what is to be run: a kubelet's words (`input=1`) or those of the pod resource (`stdin=true`).
pub(super) fn exec_spec(pairs: &Pairs) -> Result<ExecSpec, StreamError> {
    let spec = attach_spec(pairs)?;
    match spec.command.is_empty() {
        true => Err(StreamError::bad_request("you must specify a command")),
        false => Ok(spec),
    }
}

/// Reads which streams are to be joined.
pub(super) fn attach_spec(pairs: &Pairs) -> Result<ExecSpec, StreamError> {
    let either = |short, long| Ok::<_, StreamError>(flag(pairs, short)? || flag(pairs, long)?);
    let tty = flag(pairs, "tty")?;
    let spec = ExecSpec {
        command: pairs.iter().filter(|(key, _)| key == "command").map(|(_, value)| value.clone()).collect(),
        tty,
        stdin: either("input", "stdin")?,
        stdout: either("output", "stdout")?,
        // A terminal has one output.
        stderr: either("error", "stderr")? && !tty,
        // Whoever hangs up leaves the program to its container.
        tethered: false,
    };
    if !(spec.stdin || spec.stdout || spec.stderr) {
        return Err(StreamError::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(spec)
}

/// Which part of a log is wanted, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogOptions {
    /// Keep sending until the container ends.
    pub(super) follow: bool,
    /// The run before the present one.
    pub(super) previous: bool,
    /// Write each line's time in front of it.
    pub(super) timestamps: bool,
    /// Leave out lines older than this.
    pub(super) since: Option<Timestamp>,
    /// Only the last so many lines.
    pub(super) tail_lines: Option<u64>,
    /// Stop after so many bytes.
    pub(super) limit_bytes: Option<u64>,
}

impl LogOptions {
    /// Reads the options; `now` is what `sinceSeconds` counts back from.
    pub(super) fn parse(pairs: &Pairs, now: Timestamp) -> Result<Self, StreamError> {
        let at_least = |name: &str, least: i64| match number(pairs, name)? {
            Some(number) if number < least => {
                Err(StreamError::bad_request(format!("{name} must be at least {least}, not {number}")))
            }
            other => Ok(other.map(i64::unsigned_abs)),
        };
        let seconds = at_least("sinceSeconds", 1)?;
        let time = value(pairs, "sinceTime")
            .map(|text| {
                text.parse::<Timestamp>()
                    .map_err(|error| StreamError::bad_request(format!("sinceTime {text:?} is not a time: {error}")))
            })
            .transpose()?;
        let since = match (seconds, time) {
            (Some(_), Some(_)) => {
                return Err(StreamError::bad_request("at most one of sinceTime or sinceSeconds may be specified"));
            }
            // Longer ago than time goes back is from the beginning.
            (Some(seconds), None) => now.checked_sub(Duration::from_secs(seconds)).ok(),
            (None, time) => time,
        };
        Ok(Self {
            follow: flag(pairs, "follow")?,
            previous: flag(pairs, "previous")?,
            timestamps: flag(pairs, "timestamps")?,
            since,
            tail_lines: at_least("tailLines", 0)?,
            limit_bytes: at_least("limitBytes", 1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn pairs(text: &str) -> Pairs {
        text.split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn both_dialects_of_exec_are_understood() {
        let kubelet = exec_spec(&pairs("command=ls&command=-l&input=1&output=1&error=1")).unwrap();
        let resource = exec_spec(&pairs("command=ls&command=-l&stdin=true&stdout=true&stderr=true&tty=false")).unwrap();
        assert_eq!(kubelet, resource);
        assert_eq!(kubelet.command, ["ls", "-l"]);
    }

    #[test]
    fn a_terminal_has_no_stderr() {
        let spec = exec_spec(&pairs("command=sh&stdin=true&stdout=true&stderr=true&tty=true")).unwrap();
        assert!(spec.tty && spec.stdout && !spec.stderr);
    }

    #[test]
    fn an_exec_of_nothing_or_without_streams_is_refused() {
        assert!(exec_spec(&pairs("stdout=true")).is_err());
        assert!(exec_spec(&pairs("command=ls")).is_err());
        assert!(exec_spec(&pairs("command=ls&stdout=perhaps")).is_err());
    }

    #[test]
    fn log_options_are_read_and_checked() {
        let now: Timestamp = "2026-08-01T12:00:00Z".parse().unwrap();
        let options = LogOptions::parse(&pairs("follow=true&timestamps=1&tailLines=5&sinceSeconds=60"), now).unwrap();
        assert!(options.follow && options.timestamps && !options.previous);
        assert_eq!(options.tail_lines, Some(5));
        assert_eq!(options.since, Some("2026-08-01T11:59:00Z".parse().unwrap()));
        assert_eq!(LogOptions::parse(&pairs(""), now).unwrap(), LogOptions::default());
        for wrong in [
            "tailLines=-1",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceSeconds=x",
            "sinceTime=yesterday",
            "sinceSeconds=1&sinceTime=2026-08-01T11:59:00Z",
        ] {
            assert!(LogOptions::parse(&pairs(wrong), now).is_err(), "{wrong}");
        }
    }
}
