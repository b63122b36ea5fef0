//! The way from the API server to the node in the same process: a pipe in memory that speaks HTTP/1.1.

use std::io;
use std::sync::{Arc, OnceLock};

use node::streams::{Containers, serve_connection};
use server::{Dialing, NodeDialer, Stream};

/// How much may be under way in the pipe.
const PIPE: usize = 64 * 1024;

/// Dials the one node of this process, once it runs.
pub struct LocalNode<C> {
    name: String,
    containers: OnceLock<Arc<C>>,
}

impl<C: Containers> LocalNode<C> {
    /// A dialer for the node called `name`, which does not run yet.
    pub fn new(name: String) -> Self {
        Self { name, containers: OnceLock::new() }
    }

    /// The node runs.
    pub fn set(&self, containers: Arc<C>) {
        // A second node in one process would be a mistake of the wiring; the first one stays.
        let _ = self.containers.set(containers);
    }
}

impl<C: Containers> NodeDialer for LocalNode<C> {
    fn dial<'a>(&'a self, node: &'a str) -> Dialing<'a> {
        let known = node == self.name;
        Box::pin(async move {
            let containers = self.containers.get().filter(|_| known).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotConnected, "the node does not answer")
            })?;
            let (near, far) = tokio::io::duplex(PIPE);
            tokio::spawn(serve_connection(far, containers.clone()));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}
