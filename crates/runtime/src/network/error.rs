//! Why the pod network could not do what it was asked.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::cidr::PodCidr;

/// Why the pod network could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant tells what its fields are")]
pub enum NetworkError {
    /// Something on this machine already uses part of the range.
    #[error(
        "pod range {range} is not free: {taken} belongs to {holder}; choose another range with --pod-cidr, \
         or remove that if nothing needs it"
    )]
    RangeTaken { range: PodCidr, taken: String, holder: String },
    /// Pods still hold addresses of another range.
    #[error(
        "pod range is {asked}, but {pods} pods still hold addresses of {held}; start with --pod-cidr {held}, \
         or end them first with `adieu down`"
    )]
    RangeChanged { asked: PodCidr, held: PodCidr, pods: usize },
    /// Every address is held by a pod.
    #[error("all addresses of pod range {range} are in use; remove pods, or choose a larger range with --pod-cidr")]
    Exhausted { range: PodCidr },
    /// Only IPv4 is routed.
    #[error("{address} cannot be used: only IPv4 addresses are routed")]
    NotRouted { address: IpAddr },
    /// Two cannot be reached by one port.
    #[error("host port {port} is taken by {holder}")]
    PortTaken { port: String, holder: String },
    /// The record of addresses cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    LeaseLog { doing: &'static str, path: PathBuf, source: io::Error },
    /// The record of addresses makes no sense.
    #[error("{} is damaged at line {line}; remove it when no pod is running", path.display())]
    BookDamaged { path: PathBuf, line: usize },
    /// The pod's network namespace cannot be entered.
    #[error("cannot enter network namespace {}", path.display())]
    Namespace { path: PathBuf, source: io::Error },
    /// The kernel refused a request.
    #[error("cannot {doing}")]
    Kernel { doing: String, source: io::Error },
    /// The kernel refused packet rules.
    #[error("cannot {doing}")]
    Rules { doing: &'static str, source: nft::Error },
    /// A setting that routing depends on cannot be made.
    #[error("cannot set {setting}; set it by hand, or run where /proc/sys can be written")]
    Setting { setting: String, source: io::Error },
    /// The pod's address cannot be reached, whatever was done.
    #[error("link {link} for {address} keeps being changed by someone else")]
    Contested { link: String, address: Ipv4Addr },
    /// The network's own thread cannot be started, or is gone.
    #[error("the pod network is not running")]
    NotRunning,
    /// Some things could not be removed; the rest was.
    #[error("not everything of the pod network could be removed: {}", failures.iter().map(whole).collect::<Vec<_>>().join("; "))]
    TearDown { failures: Vec<NetworkError> },
}

/// A list has no single source to hang the causes on.
fn whole(error: &NetworkError) -> String {
    supervision::error_chain(error)
}

/// Names what was being asked of the kernel, and keeps its answer as an ordinary system error.
pub(super) fn kernel(doing: impl Into<String>) -> impl FnOnce(rtnetlink::Error) -> NetworkError {
    let doing = doing.into();
    move |error| NetworkError::Kernel { doing, source: as_io(error) }
}

fn as_io(error: rtnetlink::Error) -> io::Error {
    match errno(&error) {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(error),
    }
}

/// The kernel's answer as an error number.
pub(super) fn errno(error: &rtnetlink::Error) -> Option<i32> {
    let rtnetlink::Error::NetlinkError(message) = error else { return None };
    message.code.map(|code| code.get().abs())
}

/// Takes some answers of the kernel for success: what was asked for is already so.
pub(super) fn settled(result: Result<(), rtnetlink::Error>, already: &[i32]) -> Result<(), rtnetlink::Error> {
    match result {
        Err(error) if errno(&error).is_some_and(|code| already.contains(&code)) => Ok(()),
        other => other,
    }
}
