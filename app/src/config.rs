//! What was written on the command line, resolved and typed; every mistake is reported at once.

use std::fs::DirBuilder;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cli::NodeSettings;
use cli::image::Images;
use lifecycle::ShutdownBudgets;
use node::pressure::{EvictionConfig, ImageCollection, ThresholdError, threshold};
use node::sysctls::AllowedSysctls;
use runtime::image::ImageStore;
use runtime::network::PodCidr;
use serde_json::{Value, json};
use server::ServiceRange;

use crate::data_dir;

/// Where pods get their addresses if nobody says otherwise.
const DEFAULT_POD_CIDR: &str = "10.86.0.0/16";

/// Where the settings of the last instance on a folder are kept.
const REMEMBERED: &str = "config.json";

/// Where the range of Services is kept if it is not the default.
const SERVICE_RANGE: &str = "service-cidr";

/// What this build calls itself where Kubernetes asks: its own version behind the API version it serves.
pub(crate) const VERSION: &str = concat!("v1.36.4+adieu.", env!("CARGO_PKG_VERSION"));

/// Everything an instance needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The folder that holds all it owns.
    pub data_dir: PathBuf,
    /// Where the API of this process listens; `None` if it has none.
    pub api: Option<SocketAddr>,
    /// Whether it takes on pods and serves people; not in `adieu down` without a running instance.
    pub serves: bool,
    /// Of a node that joins a server elsewhere: its address as that server sees it.
    pub member: Option<IpAddr>,
    /// Where pods get their addresses.
    pub pod_cidr: PodCidr,
    /// Where Services get their addresses.
    pub service_range: ServiceRange,
    /// The node's name.
    pub node_name: String,
    /// How long pods have when the machine goes down; `None` when nobody waits for them.
    pub shutdown: Option<ShutdownBudgets>,
    /// When pods have to go because the node is short of something.
    pub eviction: EvictionConfig,
    /// When images have to go because their disk is filling up.
    pub images_kept: ImageCollection,
    /// How patient the controllers of this process are.
    pub controllers: controllers::Settings,
    /// Where pods find a cluster DNS that others serve; empty if this process does.
    pub cluster_dns: Vec<IpAddr>,
    /// How many pods the node takes on.
    pub pods_max: u32,
    /// How many processes a pod may have; `None` for as many as the machine.
    pub pod_pids_max: Option<u64>,
    /// Which kernel parameters pods may set beside the safe ones.
    pub allowed_sysctls: AllowedSysctls,
    /// In which networks Services may have `externalIPs`.
    pub external_ips: Vec<proxy::Network>,
}

impl Config {
    /// Resolves what was said of an instance that has an API of its own at `api`, or says everything that is wrong with it.
    pub(crate) fn resolve(dir: &Path, api: SocketAddr, settings: &NodeSettings) -> Result<Self> {
        Self::resolve_as(dir, Some(api), None, settings)
    }

    /// The same for a node that joins a server elsewhere.
    pub(crate) fn resolve_member(dir: &Path, address: IpAddr, settings: &NodeSettings) -> Result<Self> {
        Self::resolve_as(dir, None, Some(address), settings)
    }

    fn resolve_as(dir: &Path, api: Option<SocketAddr>, member: Option<IpAddr>, args: &NodeSettings) -> Result<Self> {
        let mut mistakes = Vec::new();
        // Pods of an earlier start may still run under its name and on its addresses.
        let before = Self::recall(dir).ok();
        let kept_cidr = before.as_ref().map_or_else(|| DEFAULT_POD_CIDR.to_owned(), |b| b.pod_cidr.to_string());
        let pod_cidr = args.pod_cidr.clone().unwrap_or(kept_cidr);
        let pod_cidr = pod_cidr.parse::<PodCidr>().map_err(|error| mistakes.push(format!("--pod-cidr: {error}")));
        let kept_range = before.as_ref().map(|b| b.service_range);
        let service_range = service_range(args.service_cidr.as_deref(), kept_range, dir);
        if let (Ok(services), Ok(pods)) = (&service_range, &pod_cidr)
            && services.overlaps(pods.network(), pods.prefix_length())
        {
            mistakes.push(format!(
                "--service-cidr: {services} overlaps with the range of pods, {pods}; choose another for one of them"
            ));
        }
        let service_range = service_range.map_err(|error| mistakes.push(error));
        let kept_name = before.as_ref().map(|b| b.node_name.clone());
        let node_name = args.node_name.clone().or(kept_name).map_or_else(host_name, Ok);
        let node_name =
            node_name.and_then(valid_name).map_err(|error| mistakes.push(format!("--node-name: {error:#}")));
        let data_dir = std::path::absolute(dir).map_err(|error| mistakes.push(format!("--data-dir: {error}")));
        let (total, critical) = (args.shutdown_grace, args.shutdown_grace_critical);
        let shutdown = ShutdownBudgets::from_totals(Duration::from_secs(total), Duration::from_secs(critical));
        if critical > total {
            mistakes.push(format!(
                "--shutdown-grace-critical: {critical} s are more than all of --shutdown-grace, {total} s"
            ));
        }
        let eviction = eviction(args).map_err(|error| mistakes.push(error));
        let images_kept = ImageCollection {
            high_percent: args.image_gc_high_threshold,
            low_percent: args.image_gc_low_threshold,
            unused_for: Duration::from_secs(args.minimum_image_ttl),
        };
        if images_kept.low_percent >= images_kept.high_percent {
            mistakes.push("--image-gc-low-threshold: must be lower than --image-gc-high-threshold".to_owned());
        }
        let pod_pids_max = match args.pod_max_pids {
            -1 => None,
            most => u64::try_from(most).ok().filter(|most| *most > 0).or_else(|| {
                mistakes.push("--pod-max-pids: must be at least 1, or -1 for no limit".to_owned());
                None
            }),
        };
        let allowed_sysctls = AllowedSysctls::new(args.allowed_unsafe_sysctls.split(','))
            .map_err(|error| mistakes.push(format!("--allowed-unsafe-sysctls: {error}")));
        let external_ips = args.allow_external_ips.split(',').filter(|network| !network.trim().is_empty());
        let external_ips = external_ips.filter_map(|network| {
            let parsed = proxy::parse_network(network);
            if parsed.is_none() {
                mistakes.push(format!("--allow-external-ips: {network:?} is not a network such as 203.0.113.0/24"));
            }
            parsed
        });
        let external_ips = external_ips.collect();
        match (pod_cidr, service_range, node_name, data_dir) {
            (Ok(pod_cidr), Ok(service_range), Ok(node_name), Ok(data_dir)) if mistakes.is_empty() => {
                if let Some(before) = &before {
                    before.stays(member.is_some(), &node_name, pod_cidr, service_range)?;
                }
                let eviction = eviction.unwrap_or_default();
                let controllers = controllers::Settings::default();
                Ok(Self {
                    data_dir,
                    api,
                    serves: true,
                    member,
                    pod_cidr,
                    service_range,
                    node_name,
                    shutdown,
                    eviction,
                    images_kept,
                    controllers,
                    cluster_dns: args.cluster_dns.clone(),
                    pods_max: args.max_pods,
                    pod_pids_max,
                    allowed_sysctls: allowed_sysctls.unwrap_or_default(),
                    external_ips,
                })
            }
            _ => bail!("{}", mistakes.join("; ")),
        }
    }

    /// Refuses what would leave pods of an earlier start behind.
    fn stays(&self, member: bool, node_name: &str, pod_cidr: PodCidr, service_range: ServiceRange) -> Result<()> {
        let place = self.data_dir.display();
        if self.member.is_some() != member {
            let command = self.command();
            bail!(
                "{place} was last used by `{command}`, and its pods may still run; use that again, or run `adieu down` on it first"
            );
        }
        if self.node_name != node_name || self.pod_cidr != pod_cidr {
            bail!(
                "{place} was last used with --node-name {} --pod-cidr {}, and its pods may still run; use these again, \
                 or run `adieu down` on it first",
                self.node_name,
                self.pod_cidr
            );
        }
        if self.service_range != service_range {
            bail!(
                "{place} was last used with --service-cidr {}, and its pods may still run; use that again, or run `adieu down` on it first",
                self.service_range
            );
        }
        Ok(())
    }

    /// What starts such an instance.
    pub(crate) fn command(&self) -> &'static str {
        if self.member.is_some() { "adieu node" } else { "adieu up" }
    }

    /// Keeps what a later `adieu down` must know if this process is gone by then.
    fn remember(&self) -> Result<()> {
        let mut text = json!({
            "podCidr": self.pod_cidr.to_string(), "serviceCidr": self.service_range.to_string(), "nodeName": self.node_name,
        });
        if let Some(address) = self.member {
            text["memberAt"] = json!(address);
        }
        let text = text.to_string();
        let (temporary, path) = (self.data_dir.join(".config.json"), self.data_dir.join(REMEMBERED));
        // A full disk takes no second file, and need not.
        if std::fs::read_to_string(&path).is_ok_and(|remembered| remembered == text) {
            return Ok(());
        }
        std::fs::write(&temporary, text)
            .and_then(|()| std::fs::rename(&temporary, path))
            .with_context(|| format!("cannot write to {}", self.data_dir.display()))
    }

    /// Keeps it for a start, and forgets it again if that was the first one and failed: it has left nothing then, and its
    /// settings are not worth keeping.
    pub(crate) async fn remember_during<T>(&self, dir: &Path, start: impl Future<Output = Result<T>>) -> Result<T> {
        let first = !Self::is_remembered(dir);
        self.remember()?;
        let started = start.await;
        if first && started.is_err() {
            Self::forget(dir)?;
        }
        started
    }

    /// Nothing of the instance is on the machine any more: the next one may choose anew.
    pub(crate) fn forget(dir: &Path) -> Result<()> {
        match std::fs::remove_file(dir.join(REMEMBERED)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot write to {}", dir.display()))
            }
            _ => Ok(()),
        }
    }

    /// True if an instance on `dir` may have left something on the machine.
    pub(crate) fn is_remembered(dir: &Path) -> bool {
        dir.join(REMEMBERED).exists()
    }

    /// What the last instance on `dir` was started with; it is not to serve anyone.
    pub(crate) fn recall(dir: &Path) -> Result<Self> {
        let path = dir.join(REMEMBERED);
        let doing = || format!("cannot read {}; start Adieu on the folder once more", path.display());
        let text = std::fs::read(&path).with_context(doing)?;
        let values: Value = serde_json::from_slice(&text).with_context(doing)?;
        let field = |name: &str| values[name].as_str().with_context(doing);
        let member = values["memberAt"].as_str().map(str::parse).transpose().with_context(doing)?;
        Ok(Self {
            data_dir: dir.to_owned(),
            api: None,
            serves: false,
            member,
            pod_cidr: field("podCidr")?.parse().map_err(anyhow::Error::new).with_context(doing)?,
            // Those who started it before this could be chosen had the default.
            service_range: match values["serviceCidr"].as_str() {
                Some(text) => text.parse().map_err(anyhow::Error::new).with_context(doing)?,
                None => ServiceRange::default(),
            },
            node_name: field("nodeName")?.to_owned(),
            shutdown: None,
            eviction: EvictionConfig::default(),
            images_kept: ImageCollection::default(),
            controllers: controllers::Settings::default(),
            cluster_dns: Vec::new(),
            pods_max: 110,
            pod_pids_max: None,
            allowed_sysctls: AllowedSysctls::default(),
            external_ips: Vec::new(),
        })
    }

    /// The node's address: as a server elsewhere sees it, or where the API listens if others can reach that, else the one by
    /// which this machine reaches the world. Pods are told it as their `hostIP`, and loopback would be theirs. A machine without
    /// any is known by its own address in the pod network.
    pub(crate) fn node_address(&self) -> IpAddr {
        if let Some(address) = self.member {
            return address;
        }
        match self.api {
            Some(address) if !address.ip().is_unspecified() && !address.ip().is_loopback() => address.ip(),
            _ => address_to_the_world().unwrap_or_else(|| self.inside_address()),
        }
    }

    /// Where pods reach the node, and nobody else does: the first address of their range.
    pub(crate) fn inside_address(&self) -> IpAddr {
        self.pod_cidr.node_address().into()
    }

    /// Where pods find the API that listens at `api`: there, if pods of other nodes can reach that, else at the node's address
    /// inside.
    pub(crate) fn advertised(&self, api: SocketAddr) -> SocketAddr {
        let address = if api.ip().is_loopback() {
            self.inside_address()
        } else if api.ip().is_unspecified() {
            self.node_address()
        } else {
            api.ip()
        };
        SocketAddr::new(address, api.port())
    }

    /// What certificates of the API name beside where it listens: everything that pods and people may call it by.
    pub(crate) fn api_names(&self) -> Vec<String> {
        vec![self.node_name.clone(), self.inside_address().to_string(), self.node_address().to_string()]
    }
}

/// The address that packets of this machine to the outside come from. Nothing is sent: the kernel only looks up the route.
pub(crate) fn address_to_the_world() -> Option<IpAddr> {
    // Kept for documentation: nobody has it.
    const SOMEBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SOMEBODY).ok()?;
    let found = socket.local_addr().ok()?.ip();
    (!found.is_loopback() && !found.is_unspecified()).then_some(found)
}

/// The range that Services get their addresses from: as it is asked for, as an instance that may still run has it, as the store was
/// last served with, or the default.
pub(crate) fn service_range(
    asked: Option<&str>,
    running: Option<ServiceRange>,
    dir: &Path,
) -> Result<ServiceRange, String> {
    match (asked, running) {
        (Some(asked), _) => asked.parse().map_err(|error| format!("--service-cidr: {error}")),
        (None, Some(running)) => Ok(running),
        (None, None) => {
            let path = dir.join(SERVICE_RANGE);
            match std::fs::read_to_string(&path) {
                Ok(kept) => kept.trim().parse().map_err(|error| format!("{}: {error}", path.display())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ServiceRange::default()),
                Err(error) => Err(format!("cannot read {}: {error}", path.display())),
            }
        }
    }
}

/// Keeps the range for later starts, with the Services that have addresses of it: both outlive `adieu down`.
pub(crate) fn keep_service_range(dir: &Path, range: ServiceRange) -> Result<()> {
    if service_range(None, None, dir) == Ok(range) {
        return Ok(());
    }
    let (temporary, path) = (dir.join(".service-cidr"), dir.join(SERVICE_RANGE));
    // The addresses of stored Services are durable, and so is the range that they are from.
    let written = std::fs::File::create(&temporary).and_then(|mut file| {
        writeln!(file, "{range}")?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        std::fs::File::open(dir)?.sync_all()
    });
    written.with_context(|| format!("cannot write to {}", dir.display()))
}

/// What pods may be evicted for.
fn eviction(args: &NodeSettings) -> Result<EvictionConfig, String> {
    let named = |flag: &'static str| move |error: ThresholdError| format!("--eviction-{flag}: {error}");
    let hard = threshold::parse(&args.eviction_hard).map_err(named("hard"))?;
    let soft = threshold::parse(&args.eviction_soft).map_err(named("soft"))?;
    let soft = threshold::with_patience(soft, &args.eviction_soft_grace).map_err(named("soft-grace"))?;
    Ok(EvictionConfig {
        thresholds: hard.into_iter().chain(soft).collect(),
        most_grace: args.eviction_max_grace,
        linger: Duration::from_secs(args.eviction_linger),
    })
}

fn host_name() -> Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    Ok(name)
}

/// Node names are DNS subdomains.
pub(crate) fn valid_name(name: String) -> Result<String> {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(label) {
        bail!("{name:?} cannot name a node: use lower-case letters, digits, '-' and '.'");
    }
    Ok(name)
}

/// The images below the data directory, which is made if it may be: whoever only looks leaves nothing.
pub(crate) fn images(path: &Path, makes_it: bool) -> Result<Images> {
    let path = std::path::absolute(path).context("--data-dir")?;
    if !makes_it && !path.try_exists().context("--data-dir")? {
        bail!("there is no folder {}; name the one of an instance with --data-dir", path.display());
    }
    data_dir::secure(&path)?;
    let dir = path.join("images");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.with_context(|| format!("cannot use {}", dir.display()))?;
    Ok(Images { store: ImageStore::open(&dir, Path::new("/proc/self/exe"))?, data_dir: path })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn images_of_an_unknown_folder_are_refused_without_making_it() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("unknown");
        let refused = images(&dir, false).err().unwrap().to_string();
        assert!(refused.contains("--data-dir") && !dir.exists(), "{refused}");
        assert!(images(&dir, true).is_ok() && dir.exists());
    }

    #[test]
    fn service_range_that_overlaps_with_pods_or_changes_under_them_is_refused_with_a_way_out() {
        use clap::Parser as _;
        let dir = tempfile::tempdir().unwrap();
        let resolve = |flags: &str| {
            let words = ["adieu", "up", "--node-name", "n"].into_iter().chain(flags.split_whitespace());
            let cli::Command::Up(args) = cli::Cli::try_parse_from(words).unwrap().command else {
                panic!("another command")
            };
            Config::resolve(dir.path(), args.api, &args.node)
        };
        let refused = |flags: &str| resolve(flags).err().unwrap().to_string();
        assert_eq!(resolve("").unwrap().service_range, ServiceRange::default());
        for flags in ["--service-cidr 10.86.3.0/24", "--service-cidr 10.0.0.0/8", "--pod-cidr 10.87.0.0/24"] {
            let said = refused(flags);
            assert!(said.contains("--service-cidr: ") && said.contains("overlaps"), "{said}");
        }
        let config = resolve("--service-cidr 10.99.0.0/24").unwrap();
        config.remember().unwrap();
        assert_eq!(resolve("").unwrap().service_range, config.service_range, "as last time");
        assert_eq!(Config::recall(dir.path()).unwrap().service_range, config.service_range);
        let said = refused("--service-cidr 10.98.0.0/24");
        assert!(said.contains("--service-cidr 10.99.0.0/24") && said.contains("adieu down"), "{said}");
        // Stored Services keep their addresses when the pods are gone.
        keep_service_range(dir.path(), config.service_range).unwrap();
        Config::forget(dir.path()).unwrap();
        assert_eq!(resolve("").unwrap().service_range, config.service_range);
    }
}
