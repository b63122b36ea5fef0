//! What a person types, and what they read back.
//!
//! [`Cli`] is the whole command line. Commands that need no running parts (`image`, `plan`) are done here; `up`,
//! `server`, `node`, `down`, `status` and `store` are `app`'s, which has the parts. `verbs`, `demo` and `drill` talk to a cluster.

pub mod cluster;
pub mod demo;
pub mod drill;
pub mod image;
mod load;
pub mod plan;
pub mod pod_end;
mod progress;
pub mod reference;
pub mod status;
mod table;
pub mod timeline;
pub mod ui;
pub mod verbs;
pub mod why;
mod xml;

pub use progress::Screen;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// Kubernetes starts pods. Adieu finishes them.
#[derive(Parser, Debug)]
#[command(name = "adieu", version, about, long_about = None, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start everything in this process: API server, scheduler, node. Stop it with Ctrl-C; pods keep running
    Up(UpArgs),
    /// Start the API server and the controllers, without a node. Needs no root
    Server(ServerArgs),
    /// Start a node that joins a server elsewhere. Stop it with Ctrl-C; pods keep running
    Node(NodeArgs),
    /// End every pod gracefully, then remove network, mounts and rules. Stored objects stay
    Down(DownArgs),
    /// Tell whether an instance is up, and how its pods are. Exits with 3 if none is
    Status(StatusArgs),
    /// Check, back up, restore and repair the stored objects
    Store(StoreArgs),
    /// Look after the images that pods run
    Image(ImageArgs),
    /// Show how the pods of a manifest will leave, without running them
    Plan(plan::PlanArgs),
    /// Tell what keeps a pod where it is, until when, and what to do: alive, Terminating or gone. On any cluster
    Why(why::WhyArgs),
    /// Make the pods of a workload leave under real requests, count those that are lost, and tell what to fix. On any cluster
    Drill(drill::DrillArgs),
    /// Draw how a pod ended, or how far its end is. On any cluster
    Timeline(timeline::TimelineArgs),
    /// Print a one-time link that opens the web timeline of an instance in a browser
    Ui(ui::UiArgs),
    /// What people do with a cluster every day.
    #[command(flatten)]
    Verb(verbs::Verb),
    /// Start a throwaway platform, replace, delete and crash things under load, and count the requests that were lost
    Demo(demo::DemoArgs),
    /// Print what completes this command line in a shell: bash, zsh, fish
    Completion(reference::CompletionArgs),
    /// Write the man pages to a folder.
    #[command(hide = true)]
    Man(reference::ManArgs),
    /// Serve or send the requests of `adieu demo` and `adieu drill`, in their pods.
    #[command(hide = true)]
    DemoApp(demo::app::DemoAppArgs),
}

/// An address and port to listen on. Of names only `localhost` is one that means the same everywhere.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let of_localhost = || {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    };
    text.parse().ok().or_else(of_localhost).ok_or_else(|| {
        "write an IP address and a port: 127.0.0.1:6443, [::1]:6443, 0.0.0.0:6443 for every address; localhost:6443 works, too"
            .to_owned()
    })
}

/// Where Adieu keeps everything it owns.
#[derive(Args, Clone, Debug)]
pub struct DataDir {
    /// The folder that holds everything this instance owns
    #[arg(long = "data-dir", value_name = "DIR", default_value = "/var/lib/adieu", global = true)]
    pub path: PathBuf,
}

/// What Kubernetes sets, too.
const EVICTION_HARD: &str = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,\
                             imagefs.inodesFree<5%";

/// `adieu up`.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443", value_parser = listen_address)]
    pub api: SocketAddr,
    /// The node.
    #[command(flatten)]
    pub node: NodeSettings,
    /// What is written down and kept.
    #[command(flatten)]
    pub records: RecordSettings,
    /// The controllers.
    #[command(flatten)]
    pub controllers: ControllerSettings,
    /// Say more: once for what happens, twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What of requests is written down, and how objects are kept.
#[derive(Args, Clone, Debug)]
pub struct RecordSettings {
    /// Write who asked for what to this file, a line of JSON each (audit.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Which requests are written down and with how much of them: a Policy of audit.k8s.io/v1 [default: all, level Metadata]
    #[arg(long, value_name = "FILE", requires = "audit_log")]
    pub audit_policy_file: Option<PathBuf>,
    /// Encrypt Secrets on disk by an EncryptionConfiguration: the first key encrypts, all decrypt
    #[arg(long, value_name = "FILE", alias = "encryption-provider-config")]
    pub encryption_config: Option<PathBuf>,
}

/// What the controllers may be told.
#[derive(Args, Clone, Debug)]
pub struct ControllerSettings {
    /// How long a node may say nothing before it counts as unreachable
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub node_monitor_grace_period: u64,
}

/// What a node may be told, with or without a server in the same process.
#[derive(Args, Clone, Debug)]
pub struct NodeSettings {
    /// The range pods get their addresses from [default: as last time on this folder, else 10.86.0.0/16]
    #[arg(long, value_name = "CIDR")]
    pub pod_cidr: Option<String>,
    /// The range Services get their addresses from; on a node that joins, that of its server [default: as last time on this folder,
    /// else 10.87.0.0/16]
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Option<String>,
    /// The node's name [default: as last time on this folder, else the host's name]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// In which networks the externalIPs of Services are served, separated by commas [default: in none]
    #[arg(long, value_name = "CIDRS", default_value = "", hide_default_value = true)]
    pub allow_external_ips: String,
    /// How many seconds pods have when the machine goes down (SIGPWR); 0 leaves them to the machine
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub shutdown_grace: u64,
    /// How many of these are kept for critical pods, which leave last
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub shutdown_grace_critical: u64,
    /// When a pod is evicted at once: how little may be left of memory, disks, inodes and process ids
    #[arg(long, value_name = "THRESHOLDS", default_value = EVICTION_HARD)]
    pub eviction_hard: String,
    /// When a pod is evicted with grace, once that has lasted for --eviction-soft-grace
    #[arg(long, value_name = "THRESHOLDS", default_value = "")]
    pub eviction_soft: String,
    /// How many seconds each soft threshold may be passed, e.g. memory.available=90
    #[arg(long, value_name = "SECONDS", default_value = "")]
    pub eviction_soft_grace: String,
    /// The longest grace of a soft eviction; negative for the pod's own [default: 60]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub eviction_max_grace: Option<i64>,
    /// How many seconds a pressure is said to last after it was last seen
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub eviction_linger: u64,
    /// Where pods find the cluster DNS, if not this program's own
    #[arg(long, value_name = "ADDRS", value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// How many pods the node takes on
    #[arg(long, value_name = "N", default_value_t = 110, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_pods: u32,
    /// How many processes and threads each pod may have; -1 for as many as the machine
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub pod_max_pids: i64,
    /// Which kernel parameters pods may set beside the safe ones, e.g. kernel.msg*,net.core.somaxconn
    #[arg(long, value_name = "NAMES", default_value = "")]
    pub allowed_unsafe_sysctls: String,
    /// How full the disk of images may be, in percent, before those that nobody uses make room; 100 for never
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_high_threshold: u8,
    /// How full it may stay then
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub image_gc_low_threshold: u8,
    /// How many seconds an image must have been unused
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub minimum_image_ttl: u64,
}

/// `adieu node`.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// How it is let in, made by `adieu server add-node` [default: as last time on this folder]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the API server is, if not where the kubeconfig says
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// Where the node listens for the API server (logs, exec) [default: port 10250 at the address that leads to the server]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub node_api: Option<SocketAddr>,
    /// The node.
    #[command(flatten)]
    pub node: NodeSettings,
    /// Say more: once for what happens, twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// `adieu server`.
#[derive(Args, Clone, Debug)]
pub struct ServerArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Where the API listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:6443", value_parser = listen_address)]
    pub api: SocketAddr,
    /// A further name or address by which nodes and people reach the API; may be given several times
    #[arg(long, value_name = "NAME")]
    pub api_name: Vec<String>,
    /// The range Services get their addresses from [default: as last time on this folder, else 10.87.0.0/16]
    #[arg(long, value_name = "CIDR")]
    pub service_cidr: Option<String>,
    /// What is written down and kept.
    #[command(flatten)]
    pub records: RecordSettings,
    /// The controllers.
    #[command(flatten)]
    pub controllers: ControllerSettings,
    /// Say more: once for what happens, twice for everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// What else to do than to serve.
    #[command(subcommand)]
    pub command: Option<ServerCommand>,
}

/// The commands of `adieu server`.
#[derive(Subcommand, Clone, Debug)]
pub enum ServerCommand {
    /// Make the kubeconfig with which `adieu node` joins; it holds a key that is kept nowhere else
    AddNode {
        /// What the node will be called
        #[arg(value_name = "NAME")]
        name: String,
        /// Where the node reaches the API [default: as in the administrator's kubeconfig]
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// Where to write it, readable for its owner only [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// `adieu down`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Ctrl-C stops the waiting, not the pods: those that were asked to leave still do, and `adieu down` again waits for them.

Examples:
  adieu down                                  every pod has the grace it asks for
  adieu down --grace 10                       and none more than ten seconds
  adieu down --now                            none more than is needed to send its signals")]
pub struct DownArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// How many seconds a pod may have at most [default: as many as it asks for]
    #[arg(long, value_name = "SECONDS")]
    pub grace: Option<u32>,
    /// As soon as possible: one second, and two between stop signal and KILL
    #[arg(long, conflicts_with = "grace")]
    pub now: bool,
}

impl ImageCommand {
    /// Whether it brings images, for which the folder is made if it is not there.
    pub fn brings(&self) -> bool {
        matches!(self, Self::Pull { .. } | Self::Load { .. })
    }
}

impl DownArgs {
    /// How long a pod may have at most, if anything is said of that.
    pub fn grace_most(&self) -> Option<Duration> {
        let seconds = if self.now { Some(0) } else { self.grace };
        seconds.map(|seconds| Duration::from_secs(u64::from(seconds)))
    }
}

/// `adieu status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// `json` for programs
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// `adieu store`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  adieu store backup /backup/adieu-$(date +%F).jsonl     while it runs, or not
  adieu store backup - | gzip > adieu.jsonl.gz
  adieu store check                                      after a crash of the disk
  adieu store repair                                     keeps what can be read, names what is lost
  adieu store restore /backup/adieu-2026-11-18.jsonl     what was there before is kept beside it")]
pub struct StoreArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// What to do with the store.
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// The commands of `adieu store`.
#[derive(Subcommand, Clone, Debug)]
pub enum StoreCommand {
    /// Read everything that is stored and tell whether it is whole. Changes nothing; exits with 1 if it is damaged
    Check {
        /// Look into what is encrypted as well, by the keys in this file
        #[arg(long, value_name = "FILE", alias = "encryption-provider-config")]
        encryption_config: Option<PathBuf>,
    },
    /// Write every stored object to a file, from the running instance or from its files. It holds secrets
    Backup {
        /// The file, which must not be there yet, or - for standard output
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Put what a backup has in the place of what is stored. Clients list again. Not while it runs
    Restore {
        /// The backup, or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Keep every object that can be read and name those that are lost. Keeps the damaged files. Not while it runs
    Repair {
        /// Also if objects are lost that nobody can name: the store was cut, emptied or replaced by an older copy
        #[arg(long)]
        accept_loss: bool,
        /// Keep also what is encrypted in a damaged part, if a key in this file opens it
        #[arg(long, value_name = "FILE", alias = "encryption-provider-config")]
        encryption_config: Option<PathBuf>,
    },
}

/// `adieu image`.
#[derive(Args, Clone, Debug)]
pub struct ImageArgs {
    /// Where.
    #[command(flatten)]
    pub data_dir: DataDir,
    /// What to do with images.
    #[command(subcommand)]
    pub command: ImageCommand,
}

/// The commands of `adieu image`.
#[derive(Subcommand, Clone, Debug)]
pub enum ImageCommand {
    /// Pull an image from its registry
    Pull {
        /// Its name: busybox, quay.io/team/web:v1, localhost:5000/app@sha256:…
        #[arg(value_name = "NAME")]
        name: String,
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// Load images from a docker or OCI archive, or from an OCI layout in a folder
    Load {
        /// The archive or folder, or - for standard input
        #[arg(value_name = "FILE")]
        archive: PathBuf,
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// List the images that are present
    Ls {
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// Show everything that is known of an image
    Inspect {
        /// Its name or id
        #[arg(value_name = "IMAGE")]
        name: String,
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// Remove images; those that a pod uses stay
    Rm {
        /// Names or ids
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
    /// Remove images without a name, and what interrupted pulls have left
    Prune {
        /// Every image that no pod uses, also those with a name
        #[arg(short, long)]
        all: bool,
        /// `json` for programs
        #[arg(short, long, value_name = "FORMAT", default_value = "table")]
        output: Output,
    },
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn listen_address_may_be_localhost_and_no_other_name() {
        let address = |text: &str| listen_address(text).map(|address| address.to_string());
        assert_eq!(address("localhost:6443").as_deref(), Ok("127.0.0.1:6443"));
        assert_eq!(address("[::1]:1").as_deref(), Ok("[::1]:1"));
        for odd in ["localhost", "localhost:", "localhost:99999", "example.com:6443", ":6443", "6443", ""] {
            assert!(address(odd).is_err_and(|why| why.contains("127.0.0.1:6443")), "{odd}");
        }
    }

    #[test]
    fn grace_of_down_is_what_is_said_or_as_little_as_possible() {
        let grace = |words: &[&str]| {
            let words = ["adieu", "down"].iter().chain(words);
            match Cli::try_parse_from(words).map(|cli| cli.command) {
                Ok(Command::Down(args)) => Ok(args.grace_most().map(|grace| grace.as_secs())),
                _ => Err(()),
            }
        };
        assert_eq!(grace(&[]), Ok(None));
        assert_eq!(grace(&["--grace", "7"]), Ok(Some(7)));
        assert_eq!(grace(&["--now"]), Ok(Some(0)));
        assert_eq!(grace(&["--now", "--grace", "7"]), Err(()));
        assert_eq!(grace(&["--grace", "-1"]), Err(()));
    }
}
