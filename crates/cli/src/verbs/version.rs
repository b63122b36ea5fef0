//! `adieu version`: of this program, and of the server that it talks to.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::format::Format;
use super::requests::Call;
use crate::cluster::{ClusterArgs, Environment};

/// `adieu version`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu version
  adieu version --client -o json")]
pub struct VersionArgs {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Of this program only
    #[arg(long)]
    pub client: bool,
    /// json or yaml
    #[arg(short, long, value_name = "FORMAT", default_value = "table", hide_default_value = true)]
    pub output: Format,
}

/// What this program is.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Its own version behind the one of the API it serves.
    pub git_version: &'static str,
}

/// Shows them. A server that does not answer is a failure, after what is known was shown.
pub(crate) async fn run(
    args: &VersionArgs,
    environment: &Environment,
    build: Build,
    out: &mut dyn Write,
) -> Result<()> {
    let client = client(build);
    let server = match args.client {
        true => None,
        false => Some(server(args, environment).await),
    };
    let mut all = json!({ "clientVersion": client });
    let mut place = String::new();
    let failed = match server {
        None => None,
        Some(Ok((version, address))) => {
            all["serverVersion"] = version;
            place = address;
            None
        }
        Some(Err(error)) => Some(error),
    };
    match args.output.is_table() {
        true => out.write_all(text(&all, &place).as_bytes())?,
        false => out.write_all(args.output.print(&all)?.as_bytes())?,
    }
    failed.map_or(Ok(()), Err)
}

fn client(build: Build) -> Value {
    let of_api = build.git_version.trim_start_matches('v');
    let mut parts = of_api.split('.');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (major, minor) = (part(), part());
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    json!({ "major": major, "minor": minor, "gitVersion": build.git_version, "platform": platform })
}

async fn server(args: &VersionArgs, environment: &Environment) -> Result<(Value, String)> {
    let cluster = args.cluster.connect(environment).await?;
    let answer = cluster.ask(&Call::get("/version", "ask for the server's version")).await?;
    Ok((answer.value, cluster.server))
}

fn text(all: &Value, place: &str) -> String {
    let version = |of: &str| crate::table::plain(all[of]["gitVersion"].as_str().unwrap_or("unknown"));
    let mut text = format!("client   {}\n", version("clientVersion"));
    if all["serverVersion"].is_object() {
        text.push_str(&format!("server   {} at {place}\n", version("serverVersion")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_the_program_is_told_in_the_words_of_the_api() {
        let client = client(Build { git_version: "v1.36.4+adieu.0.1.0" });
        assert_eq!((client["major"].as_str(), client["minor"].as_str()), (Some("1"), Some("36")));
        let mut all = json!({ "clientVersion": client });
        assert_eq!(text(&all, ""), "client   v1.36.4+adieu.0.1.0\n");
        all["serverVersion"] = json!({ "gitVersion": "v1.33.0" });
        assert!(text(&all, "https://a:6443").ends_with("server   v1.33.0 at https://a:6443\n"));
    }
}
