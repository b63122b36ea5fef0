//! Host names to addresses, without libc: a static program cannot rely on its resolver.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hickory_resolver::TokioResolver;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::OnceCell;

/// Asks `/etc/hosts`, then the name servers of `/etc/resolv.conf`.
#[derive(Clone, Default)]
pub struct Resolver {
    /// Made when first needed: a machine without name servers can still reach addresses.
    resolver: Arc<OnceCell<TokioResolver>>,
}

impl Resolver {
    /// The addresses of a host.
    pub async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let name: Name =
            host.parse().map_err(|_| io::Error::other(format!("{host:?} cannot be the name of a host")))?;
        Ok(self.clone().resolve(name).await?.into_iter().map(|at| at.ip()).collect())
    }

    async fn resolve(self, name: Name) -> io::Result<Vec<SocketAddr>> {
        let at = |ip: IpAddr| SocketAddr::new(ip, 0);
        // A name of this machine alone, whatever name servers say of it.
        if name.as_str().eq_ignore_ascii_case("localhost") {
            return Ok(vec![at(Ipv4Addr::LOCALHOST.into()), at(Ipv6Addr::LOCALHOST.into())]);
        }
        let make = || async { TokioResolver::builder_tokio()?.build() };
        let resolver = self.resolver.get_or_try_init(make).await.map_err(io::Error::other)?;
        let found = resolver.lookup_ip(name.as_str()).await.map_err(|error| {
            // The library prints its own records of the question; to people it is one thing.
            let why = if error.is_no_records_found() { "no such host".to_owned() } else { error.to_string() };
            io::Error::other(format!("lookup {}: {why}", name.as_str()))
        })?;
        Ok(found.iter().map(at).collect())
    }
}

impl tower::Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolver = self.clone();
        Box::pin(async move { Ok(resolver.resolve(name).await?.into_iter()) })
    }
}
