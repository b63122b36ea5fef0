//! Which cluster a command talks to: the kubeconfig, the client made from it, the namespace, and how objects are named.
//!
//! Commands that talk to a cluster take [`ClusterArgs`] and connect with what `app` has read of the environment. They work
//! on any Kubernetes cluster; without a kubeconfig they look for the instance on this machine.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Where an instance keeps everything, unless it is told otherwise.
pub const DATA_DIR: &str = "/var/lib/adieu";
/// The file with which an instance lets its administrator in.
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
/// How long a cluster may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// More is no name.
const NAME_MOST: usize = 253;

/// Which cluster, as whom, and in which namespace.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterArgs {
    /// Of any Kubernetes cluster [default: $KUBECONFIG, else the instance's in --data-dir, else ~/.kube/config]
    #[arg(long, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
    /// The folder of an instance on this machine, whose kubeconfig is used [default: /var/lib/adieu]
    #[arg(long = "data-dir", value_name = "DIR", conflicts_with = "kubeconfig", help_heading = "Cluster")]
    pub data_dir: Option<PathBuf>,
    /// The namespace [default: as the kubeconfig says, else default]
    #[arg(short, long, value_name = "NAME", help_heading = "Cluster")]
    pub namespace: Option<String>,
}

/// What the environment says of clusters; `app` reads it.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `$KUBECONFIG`.
    pub kubeconfig: Option<OsString>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

/// A cluster to talk to.
#[derive(Clone)]
pub struct Cluster {
    /// Speaks to its API.
    pub client: kube::Client,
    /// Where objects are looked for that are named without a namespace.
    pub namespace: String,
    /// Where its API is, for messages.
    pub server: String,
    /// What brought us there, for messages.
    pub kubeconfig: String,
    /// Who has to vouch for the server; nothing if nobody in particular has to.
    authority: Option<Authority>,
}

/// The certificates of a cluster's authority.
type Authority = Vec<Vec<u8>>;

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &self.server).field("namespace", &self.namespace).finish()
    }
}

/// An instance of this machine, in whose folder this user may look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalInstance {
    /// Its folder.
    pub dir: PathBuf,
    /// Its node, if it has one.
    pub node: Option<String>,
}

impl LocalInstance {
    /// The instance that a cluster is, if it is one of this machine: its own kubeconfig leads to the same API.
    pub async fn of(cluster: &Cluster, args: &ClusterArgs) -> Option<Self> {
        let beside = Path::new(&cluster.kubeconfig).parent().map(Path::to_owned);
        let folders = [args.data_dir.clone(), beside, Some(PathBuf::from(DATA_DIR))];
        for dir in folders.into_iter().flatten() {
            if let Some(instance) = Self::at(&dir, cluster).await {
                return Some(instance);
            }
        }
        None
    }

    async fn at(dir: &Path, cluster: &Cluster) -> Option<Self> {
        let own = Kubeconfig::read_from(dir.join(ADMIN_KUBECONFIG)).ok()?;
        let own = kube::Config::from_custom_kubeconfig(own, &KubeConfigOptions::default()).await.ok()?;
        // While the instance is down anybody may answer at its address; nobody else has a certificate of its authority.
        let is_same =
            server(&own) == cluster.server && cluster.authority.is_some() && authority(&own) == cluster.authority;
        if !dir.join("instance").exists() || !is_same {
            return None;
        }
        let config = std::fs::read(dir.join("config.json")).ok();
        let config: Option<serde_json::Value> = config.and_then(|text| serde_json::from_slice(&text).ok());
        let node = config.and_then(|config| config["nodeName"].as_str().map(str::to_owned));
        Some(Self { dir: dir.to_owned(), node })
    }
}

impl ClusterArgs {
    /// A client for that cluster. Nothing is sent yet: whether anybody answers shows at the first request.
    pub async fn connect(&self, environment: &Environment) -> Result<Cluster> {
        let source = self.source(environment)?;
        let kubeconfig = source.read()?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let mut config = config.with_context(|| format!("cannot use the kubeconfig {source}"))?;
        config.connect_timeout = Some(CONNECT);
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        if !is_name(&namespace) {
            bail!("{namespace:?} cannot be the name of a namespace");
        }
        let (server, authority) = (server(&config), authority(&config));
        let client = kube::Client::try_from(config).with_context(|| format!("cannot use the kubeconfig {source}"))?;
        Ok(Cluster { client, namespace, server, kubeconfig: source.to_string(), authority })
    }

    fn source(&self, environment: &Environment) -> Result<Source> {
        let is_set = |files: &&OsString| !files.is_empty();
        if let Some(file) = &self.kubeconfig {
            if !exists(file)? {
                bail!("there is no kubeconfig {}", file.display());
            }
            return Ok(Source::File(file.clone()));
        }
        if let Some(dir) = &self.data_dir {
            let file = dir.join(ADMIN_KUBECONFIG);
            if !exists(&file)? {
                let dir = dir.display();
                bail!(
                    "no instance has been on {dir}; start one with `adieu up --data-dir {dir}`, or name a --kubeconfig"
                );
            }
            return Ok(Source::File(file));
        }
        if let Some(files) = environment.kubeconfig.as_ref().filter(is_set) {
            return Ok(Source::Files(
                std::env::split_paths(files).filter(|file| !file.as_os_str().is_empty()).collect(),
            ));
        }
        let own = Path::new(DATA_DIR).join(ADMIN_KUBECONFIG);
        let users = environment.home.as_ref().map(|home| home.join(".kube/config"));
        for file in std::iter::once(&own).chain(&users) {
            if exists(file).unwrap_or(false) {
                return Ok(Source::File(file.clone()));
            }
        }
        bail!("no cluster is known here: name a --kubeconfig, set $KUBECONFIG, or start one with `adieu up`")
    }
}

fn server(config: &kube::Config) -> String {
    config.cluster_url.to_string().trim_end_matches('/').to_owned()
}

/// Who has to vouch for the server that this leads to.
fn authority(config: &kube::Config) -> Option<Authority> {
    let is_checked = !config.accept_invalid_certs && config.cluster_url.scheme_str() == Some("https");
    config.root_cert.clone().filter(|own| is_checked && !own.is_empty())
}

impl Cluster {
    /// Says of a refusal by the cluster what was being done and, if nobody answered at all, who was asked.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "of all other errors the client's own words are the best there are"
    )]
    pub fn explain(&self, error: kube::Error, doing: &str) -> anyhow::Error {
        let (server, kubeconfig) = (&self.server, &self.kubeconfig);
        match error {
            kube::Error::Api(status) => match status.code {
                401 => anyhow::anyhow!(
                    "{server} does not know who you are; is the kubeconfig {kubeconfig} its own, and of today?"
                ),
                _ => anyhow::anyhow!("cannot {doing}: {}", one_line(&status.message)),
            },
            error @ (kube::Error::HyperError(_) | kube::Error::Service(_)) => anyhow::Error::new(error)
                .context(format!("cannot {doing}: nobody answers at {server} (from {kubeconfig}); is it up?")),
            error => anyhow::Error::new(error).context(format!("cannot {doing}")),
        }
    }
}

/// Where a kubeconfig comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Source {
    File(PathBuf),
    /// Merged; those that are not there are left out.
    Files(Vec<PathBuf>),
}

impl Source {
    fn read(&self) -> Result<Kubeconfig> {
        let read = |file: &Path| {
            Kubeconfig::read_from(file).with_context(|| format!("cannot read the kubeconfig {}", file.display()))
        };
        match self {
            Self::File(file) => read(file),
            Self::Files(files) => {
                let mut merged: Option<Kubeconfig> = None;
                for file in files.iter().filter(|file| exists(file).unwrap_or(true)) {
                    let next = read(file)?;
                    merged = Some(match merged {
                        Some(before) => {
                            before.merge(next).context("the kubeconfigs of $KUBECONFIG do not fit together")?
                        }
                        None => next,
                    });
                }
                merged.with_context(|| format!("$KUBECONFIG names {self}, which is not there"))
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{}", file.display()),
            Self::Files(files) => {
                let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
                f.write_str(&files.join(":"))
            }
        }
    }
}

fn exists(file: &Path) -> Result<bool> {
    file.try_exists()
        .with_context(|| format!("cannot look for {}; run it as the user who runs the instance", file.display()))
}

/// An object as people name it: `pod/web-1`, `deploy/web`, `deployments.apps/web`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectName {
    /// The resource, as it was written: singular, plural, short, with or without its group. Lower case.
    pub resource: String,
    /// The object's name.
    pub name: String,
}

impl FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, name) =
            text.split_once('/').ok_or_else(|| format!("{text:?} is not of the form RESOURCE/NAME"))?;
        let resource = resource.to_lowercase();
        if !is_name(&resource) {
            return Err(format!("{resource:?} is no resource; write for example pod/web or deploy/web"));
        }
        if !is_name(name) {
            return Err(format!("{name:?} cannot be the name of an object"));
        }
        Ok(Self { resource, name: name.to_owned() })
    }
}

/// A pod as people name it: `pod/web-1`, or its bare name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodName(pub String);

impl FromStr for PodName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = match text.split_once('/') {
            Some(_) => {
                let object: ObjectName = text.parse()?;
                if !["pod", "pods", "po"].contains(&object.resource.as_str()) {
                    return Err(format!("{text} is not a pod; write pod/NAME"));
                }
                object.name
            }
            None => text.to_owned(),
        };
        if is_name(&name) {
            Ok(Self(name))
        } else {
            Err(format!("{name:?} cannot be the name of a pod; write pod/NAME"))
        }
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod/{}", self.0)
    }
}

/// Nothing else may become part of a path of the API. Whether there can be such an object is for the server to say.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !name.is_empty() && name.len() <= NAME_MOST && name.bytes().all(is_plain) && !name.starts_with('.')
}

/// A message of somebody else as part of a sentence.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_named_with_or_without_its_resource() {
        for text in ["pod/web-1", "pods/web-1", "po/web-1", "POD/web-1", "web-1"] {
            assert_eq!(text.parse(), Ok(PodName("web-1".into())), "{text}");
        }
        for text in ["", "pod/", "/web", "deploy/web", "pod/..", "pod/a/b", "../secrets/x", "Web", "pod/a?b", "pod/a b"]
        {
            assert!(text.parse::<PodName>().is_err(), "{text}");
        }
        assert!("a".repeat(254).parse::<PodName>().is_err());
    }

    #[test]
    fn object_is_named_by_resource_and_name() {
        let expected = ObjectName { resource: "deployments.apps".into(), name: "web".into() };
        assert_eq!("Deployments.apps/web".parse(), Ok(expected));
        for text in ["web", "deploy/", "deploy/..", "deploy/a/b", "../x/web"] {
            assert!(text.parse::<ObjectName>().is_err(), "{text}");
        }
    }

    fn of(args: ClusterArgs, kubeconfig: Option<&str>, home: Option<&Path>) -> Result<Source> {
        let environment = Environment { kubeconfig: kubeconfig.map(Into::into), home: home.map(Into::into) };
        args.source(&environment)
    }

    #[test]
    fn kubeconfig_named_on_the_command_line_beats_the_folder_and_the_environment() {
        let dir = tempfile::tempdir().expect("a folder");
        let named = |file: &Path| ClusterArgs { kubeconfig: Some(file.into()), ..ClusterArgs::default() };
        assert_eq!(of(named(dir.path()), Some("a"), None).expect("a source"), Source::File(dir.path().into()));
        let refused = of(named(&dir.path().join("absent")), Some("a"), None).expect_err("it is not there").to_string();
        assert!(refused.contains("there is no kubeconfig"), "{refused}");
        let folder = ClusterArgs { data_dir: Some(dir.path().into()), ..ClusterArgs::default() };
        let refused = of(folder.clone(), Some("a"), None).expect_err("nothing is in it").to_string();
        assert!(refused.contains("adieu up --data-dir"), "{refused}");
        let admin = dir.path().join(ADMIN_KUBECONFIG);
        std::fs::write(&admin, "").expect("a file");
        assert_eq!(of(folder, Some("a"), None).expect("a source"), Source::File(admin));
    }

    #[test]
    fn kubeconfigs_of_the_environment_are_merged_and_absent_ones_left_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str| dir.path().join(name);
        let source = of(ClusterArgs::default(), Some("a::b"), None).expect("a source");
        assert_eq!(source, Source::Files(vec!["a".into(), "b".into()]));
        let of_context = |name: &str| format!("current-context: {name}\ncontexts: []\nclusters: []\nusers: []\n");
        std::fs::write(file("one"), of_context("one")).expect("a file");
        std::fs::write(file("two"), of_context("two")).expect("a file");
        let files = |names: &[&str]| Source::Files(names.iter().map(|name| file(name)).collect());
        let merged = files(&["absent", "one", "two"]).read().expect("two of them");
        assert_eq!(merged.current_context.as_deref(), Some("one"), "the first word stands");
        let refused = files(&["absent"]).read().expect_err("none is there").to_string();
        assert!(refused.contains("is not there"), "{refused}");
    }

    /// An authority that nobody has the key of.
    const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUdpfD/z8C0oGC53T31TW75x7HtiswCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTE5MjExMjU3WhgPMjEyNjEwMjYyMTEyNTda
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEL/sbhdyg
HrdiT9hJ0vslHICANvIG3jopBygDpCtR/PhJhxAfXHdMbGT4wrTt1r8lwTrgiDWy
HEOyM9iETVKVGqNTMFEwHQYDVR0OBBYEFB42OHHAQEWXWmpDTTzrIhYtr7KjMB8G
A1UdIwQYMBaAFB42OHHAQEWXWmpDTTzrIhYtr7KjMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIhAOu93kPtIu/e0kIEiLK6HVssU1+ZaFi592/vc8uX
eRKcAiB0bAIc7zKvcJ6yaLr5a43ZcOjTPuJ81rZ6aUbQzoTI3w==
-----END CERTIFICATE-----
";

    #[tokio::test]
    async fn instance_of_this_machine_is_known_by_the_server_and_the_authority_of_its_own_kubeconfig() {
        let folder = tempfile::tempdir().expect("a folder");
        let (dir, users) = (folder.path().join("data"), folder.path().join("users.kubeconfig"));
        std::fs::create_dir(&dir).expect("a folder");
        let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
        let kubeconfig = |port: u16, trusts: &str| {
            format!(
                "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{port}/', {trusts}}}}}]\n"
            )
        };
        let by = "certificate-authority: ca.crt";
        file("ca.crt", AUTHORITY);
        file("data/ca.crt", AUTHORITY);
        file("data/admin.kubeconfig", &kubeconfig(7443, by));
        let found = async |port: u16, trusts: &str| {
            file("users.kubeconfig", &kubeconfig(port, trusts));
            let args = ClusterArgs { kubeconfig: Some(users.clone()), ..ClusterArgs::default() };
            let cluster = args.connect(&Environment::default()).await.expect("a client");
            LocalInstance::at(&dir, &cluster).await
        };
        assert_eq!(found(7443, by).await, None, "a kubeconfig of that name alone is no instance");
        file("data/instance", "0123abcd\n");
        assert_eq!(found(7443, by).await.expect("an instance").node, None);
        file("data/config.json", r#"{ "nodeName": "n1" }"#);
        assert_eq!(found(7443, by).await.expect("an instance").node.as_deref(), Some("n1"));
        assert_eq!(found(6443, by).await, None);
        // What answers at that address need not be the instance.
        assert_eq!(found(7443, "").await, None);
        assert_eq!(found(7443, &format!("{by}, insecure-skip-tls-verify: true")).await, None);
        file("data/ca.crt", "-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----\n");
        assert_eq!(found(7443, by).await, None);
        file("data/admin.kubeconfig", &kubeconfig(7443, ""));
        assert_eq!(found(7443, "").await, None, "two that trust whomever the system trusts are not the same");
    }

    #[tokio::test]
    async fn namespace_comes_from_the_command_line_then_the_kubeconfig() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("config");
        let text = "current-context: c\n\
                    contexts: [{name: c, context: {cluster: c, user: u, namespace: shop}}]\n\
                    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                    users: [{name: u, user: {}}]\n";
        std::fs::write(&file, text).expect("a file");
        let args = ClusterArgs { kubeconfig: Some(file), ..ClusterArgs::default() };
        let cluster = args.connect(&Environment::default()).await.expect("a client");
        assert_eq!((cluster.namespace.as_str(), cluster.server.as_str()), ("shop", "http://127.0.0.1:1"));
        let named = ClusterArgs { namespace: Some("till".into()), ..args.clone() };
        assert_eq!(named.connect(&Environment::default()).await.expect("a client").namespace, "till");
        let odd = ClusterArgs { namespace: Some("../x".into()), ..args };
        assert!(odd.connect(&Environment::default()).await.is_err());
        let error = cluster.client.apiserver_version().await.expect_err("nobody listens");
        let told = format!("{:#}", cluster.explain(error, "ask for the version"));
        assert!(told.contains("nobody answers at http://127.0.0.1:1"), "{told}");
    }
}
