//! Network namespaces for tests: one that stands for the host, one per pod. All vanish with their threads.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use runtime::PodUid;
use runtime::network::Network;
use rustix::thread::UnshareFlags;

/// Gives the calling thread, and every thread it starts from now on, a network namespace of its own.
fn leave_network() {
    #[allow(unsafe_code, reason = "unshare is unsafe only for shared file descriptor tables")]
    // SAFETY: the descriptor table stays shared; only the network namespace of this thread changes.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
}

/// Runs a test on a host of its own.
pub fn on_a_host<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let host = std::thread::spawn(|| {
        leave_network();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = host.join() {
        std::panic::resume_unwind(panic);
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// A thread that lives in a namespace of its own and does there what it is asked.
pub struct PodNamespace {
    path: PathBuf,
    ask: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl PodNamespace {
    pub fn new() -> Self {
        let (ask, asked): (Sender<Work>, Receiver<Work>) = channel();
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            leave_network();
            let id = rustix::thread::gettid();
            tell.send(format!("/proc/self/task/{}/ns/net", id.as_raw_nonzero()).into()).unwrap();
            for work in asked {
                work();
            }
        });
        Self { path: told.recv().unwrap(), ask: Some(ask), thread: Some(thread) }
    }

    /// The namespace, as a file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does something inside, and waits for it.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.ask.as_ref().unwrap().send(Box::new(move || _ = tell.send(work()))).unwrap();
        told.recv().expect("work inside the pod panicked")
    }
}

impl Drop for PodNamespace {
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is on a host: names of links, addresses with their labels, routes of the main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inventory {
    pub links: Vec<String>,
    pub addresses: Vec<String>,
    pub routes: Vec<String>,
}

/// Asks the `ip` program, so that the tests do not look with the eyes of what they test.
pub fn ip(arguments: &[&str]) -> String {
    let output = std::process::Command::new("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn inventory() -> Inventory {
    let lines = |arguments: &[&str]| {
        let mut lines: Vec<String> = ip(arguments).lines().map(|line| line.trim().to_owned()).collect();
        lines.sort();
        lines
    };
    let links = lines(&["-br", "link"]).iter().map(|line| line.split(['@', ' ']).next().unwrap().to_owned()).collect();
    // The number of a link changes when it is made anew; its name does not.
    let without_number = |line: &String| line.split_once(": ").map(|(_, rest)| rest.to_owned()).unwrap();
    let addresses = lines(&["-4", "-o", "addr"]).iter().map(without_number).collect();
    let routes = lines(&["-4", "route"]);
    Inventory { links, addresses, routes }
}

/// Attaches a pod, to its one address.
pub async fn attach(network: &Network, pod: &PodUid, netns: &Path) -> Ipv4Addr {
    match network.attach(pod, netns).await.unwrap().as_slice() {
        [IpAddr::V4(address)] => *address,
        other => panic!("{other:?}"),
    }
}
