//! Who the controllers are to the server: all read as one, each acts as itself.

use std::sync::Arc;

/// Makes clients.
#[derive(Clone)]
pub struct Clients {
    read: kube::Client,
    act: Arc<dyn Fn(&str) -> kube::Client + Send + Sync>,
}

impl Clients {
    /// `read` follows what the controllers share; `act` answers the client of a service account of `kube-system`.
    pub fn new(read: kube::Client, act: impl Fn(&str) -> kube::Client + Send + Sync + 'static) -> Self {
        Self { read, act: Arc::new(act) }
    }

    /// For what all of them read.
    pub(crate) fn read(&self) -> kube::Client {
        self.read.clone()
    }

    /// For what the controller with this account does.
    pub(crate) fn act(&self, account: &str) -> kube::Client {
        (self.act)(account)
    }
}
