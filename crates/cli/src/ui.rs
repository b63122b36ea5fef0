//! `adieu ui`: a link that opens the web timeline of an instance, good once and for a minute.
//!
//! It is asked for as whoever the kubeconfig says, and the session that it opens has that user's rights, for reading alone.

use std::io::Write;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use crate::Output;
use crate::cluster::{Cluster, ClusterArgs};
use crate::table::plain;
use crate::verbs::Call;

/// `adieu ui`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
The link opens a session of eight hours that reads what you may read and changes nothing. Whoever may not do everything needs a role
with the verb post on the path /ui/links.

Examples:
  adieu ui                                  a link to the instance on this machine
  adieu ui -n shop                          and there to the pods of one namespace
  adieu ui --kubeconfig FILE                as whoever that file says
  adieu ui -o json | jq -r .link            for programs")]
pub struct UiArgs {
    /// Which instance.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// `json` for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// A link as the server made it.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    url: String,
    seconds: u64,
    fingerprint: Option<String>,
}

/// Asks for a link and prints it.
pub async fn run(cluster: &Cluster, args: &UiArgs, out: &mut dyn Write) -> Result<()> {
    let call = Call::new(Method::POST, "/ui/links", "ask for a link to the web timeline");
    let Some(answer) = cluster.find(&call).await? else {
        bail!("{} has no web timeline: it comes with `adieu up` and `adieu server`", cluster.server);
    };
    let link = Link::read(&cluster.server, &answer.value, args.cluster.namespace.as_deref())?;
    out.write_all(link.shown(args.output).as_bytes())?;
    out.flush().context("cannot write the link")
}

impl Link {
    fn read(server: &str, told: &Value, namespace: Option<&str>) -> Result<Self> {
        let path = told["path"].as_str().filter(|path| is_link(path));
        let path = path.with_context(|| format!("{server} answers something that is no link to a web timeline"))?;
        let place = namespace.map(|namespace| format!("#ns={namespace}")).unwrap_or_default();
        Ok(Self {
            url: format!("{server}{path}{place}"),
            seconds: told["expiresInSeconds"].as_u64().unwrap_or_default(),
            fingerprint: told["certificateSha256"].as_str().map(plain),
        })
    }

    fn shown(&self, output: Output) -> String {
        let Self { url, seconds, fingerprint } = self;
        if output == Output::Json {
            let told = json!({ "link": url, "expiresInSeconds": seconds, "certificateSha256": fingerprint });
            return format!("{told:#}\n");
        }
        let mut text = format!("Open this within {seconds} seconds; it works once:\n\n  {url}\n");
        if let Some(fingerprint) = fingerprint {
            text.push_str(&format!(
                "\nA browser warns of the certificate, because it does not know the authority that this instance made for itself.\n\
                 It is the right one if its SHA-256 fingerprint is\n\n  {fingerprint}\n"
            ));
        }
        text
    }
}

/// Nothing else becomes part of an address that people open.
fn is_link(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    path.strip_prefix("/ui/open?link=").is_some_and(|secret| !secret.is_empty() && secret.bytes().all(is_plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_is_shown_with_its_time_and_the_certificate_to_compare() {
        let told = json!({ "path": "/ui/open?link=aB-_9", "expiresInSeconds": 60, "certificateSha256": "AB:CD" });
        let link = Link::read("https://127.0.0.1:6443", &told, Some("shop")).expect("a link");
        assert_eq!(link.url, "https://127.0.0.1:6443/ui/open?link=aB-_9#ns=shop");
        let text = link.shown(Output::Table);
        assert!(
            text.contains("within 60 seconds") && text.contains("works once") && text.contains("\n  AB:CD\n"),
            "{text}"
        );
        let shown: Value = serde_json::from_str(&link.shown(Output::Json)).expect("JSON");
        assert_eq!(shown["link"], link.url);
    }

    #[test]
    fn answer_of_somebody_else_is_no_link() {
        for odd in [
            "",
            "/ui/open?link=",
            "https://evil.example",
            "/ui/open?link=a b",
            "/ui/open?link=a\u{1b}[2J",
            "/ui/open?link=a#b",
        ] {
            assert!(Link::read("https://a", &json!({ "path": odd }), None).is_err(), "{odd:?}");
        }
        assert!(Link::read("https://a", &Value::Null, None).is_err());
    }
}
