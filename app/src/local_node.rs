//! The way from the API server to nodes: to the one in the same process a pipe in memory that speaks HTTP/1.1, to others
//! whatever leads there.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use node::streams::{Containers, serve_connection};
use server::{Dialing, NodeDialer, Stream};

/// How much may be under way in the pipe.
const PIPE: usize = 64 * 1024;

/// Dials the one node of this process, once it runs, and others.
pub(crate) struct LocalNode<C> {
    name: String,
    containers: OnceLock<Arc<C>>,
    others: Option<Box<dyn NodeDialer>>,
}

impl<C: Containers> LocalNode<C> {
    /// A dialer for the node called `name`, which does not run yet; `others` leads to every other node.
    pub(crate) fn new(name: String, others: Option<Box<dyn NodeDialer>>) -> Self {
        Self { name, containers: OnceLock::new(), others }
    }

    /// The node runs.
    pub(crate) fn set(&self, containers: Arc<C>) {
        // A second node in one process would be a mistake of the wiring; the first one stays.
        let _ = self.containers.set(containers);
    }
}

impl<C: Containers> NodeDialer for LocalNode<C> {
    fn dial<'a>(&'a self, node: &'a str, at: Option<SocketAddr>) -> Dialing<'a> {
        let known = node == self.name;
        if let Some(others) = self.others.as_ref().filter(|_| !known) {
            return others.dial(node, at);
        }
        Box::pin(async move {
            let containers = self
                .containers
                .get()
                .filter(|_| known)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the node does not answer"))?;
            let (near, far) = tokio::io::duplex(PIPE);
            tokio::spawn(serve_connection(far, containers.clone()));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}
