//! Who may ask how much: a client that floods is the only one to notice.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Questions a second of one client, and how many of them at once.
const QUERIES_RATE: f64 = 2000.0;
const QUERIES_BURST: f64 = 4000.0;
/// The same of those that others have to be asked.
const FORWARDS_RATE: f64 = 200.0;
const FORWARDS_BURST: f64 = 400.0;
const FORWARDS_AT_ONCE: usize = 100;
/// Those of all clients together.
const ALL_FORWARDS_AT_ONCE: usize = 1000;
const CONNECTIONS: usize = 64;
const ALL_CONNECTIONS: usize = 1024;
/// Which part of the process's descriptors questions under way may take, each of them several sockets, and which part connections: the
/// rest of the process ends pods with what is left.
const FORWARDS_PART: usize = 32;
const CONNECTIONS_PART: usize = 16;

/// How much may be under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bounds {
    forwards: usize,
    all_forwards: usize,
    connections: usize,
    all_connections: usize,
}

impl Bounds {
    fn of(descriptors: usize) -> Self {
        let all_forwards = (descriptors / FORWARDS_PART).clamp(2, ALL_FORWARDS_AT_ONCE);
        let all_connections = (descriptors / CONNECTIONS_PART).clamp(2, ALL_CONNECTIONS);
        Self {
            forwards: FORWARDS_AT_ONCE.min(all_forwards / 2),
            all_forwards,
            connections: CONNECTIONS.min(all_connections / 2),
            all_connections,
        }
    }
}

/// How many clients are remembered before those that rest are forgotten.
const REMEMBERED: usize = 1024;
/// Long enough at rest to have all of its tokens again.
const REST: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn full(burst: f64, now: Instant) -> Self {
        Self { tokens: burst, at: now }
    }

    fn take(&mut self, (rate, burst): (f64, f64), now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(burst);
        self.at = now;
        let is_allowed = self.tokens >= 1.0;
        if is_allowed {
            self.tokens -= 1.0;
        }
        is_allowed
    }
}

#[derive(Debug)]
struct Client {
    queries: Bucket,
    forwards: Bucket,
    forwards_under_way: usize,
    connections: usize,
}

#[derive(Debug)]
struct Table {
    bounds: Bounds,
    clients: HashMap<IpAddr, Client>,
    forwards_under_way: usize,
    connections: usize,
    forgot_at: Option<Instant>,
}

impl Table {
    fn client(&mut self, address: IpAddr, now: Instant) -> &mut Client {
        // Now and then: to look at all of them for each new one would take longer than to answer it.
        if self.clients.len() >= REMEMBERED
            && self.forgot_at.is_none_or(|at| now.saturating_duration_since(at) >= REST / 2)
        {
            self.forgot_at = Some(now);
            self.clients.retain(|_, client| {
                let is_busy = client.forwards_under_way > 0 || client.connections > 0;
                is_busy || now.saturating_duration_since(client.queries.at.max(client.forwards.at)) < REST
            });
        }
        self.clients.entry(address).or_insert_with(|| Client {
            queries: Bucket::full(QUERIES_BURST, now),
            forwards: Bucket::full(FORWARDS_BURST, now),
            forwards_under_way: 0,
            connections: 0,
        })
    }
}

/// What all clients have under way.
#[derive(Clone, Debug)]
pub(crate) struct Clients(Arc<Mutex<Table>>);

/// What a client has under way, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Seat {
    clients: Clients,
    address: IpAddr,
    is_connection: bool,
}

impl Clients {
    /// Of a process that may have that many descriptors.
    pub(crate) fn new(descriptors: usize) -> Self {
        Self(Arc::new(Mutex::new(Table {
            bounds: Bounds::of(descriptors),
            clients: HashMap::new(),
            forwards_under_way: 0,
            connections: 0,
            forgot_at: None,
        })))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client may ask one thing more.
    pub(crate) fn may_ask(&self, address: IpAddr, now: Instant) -> bool {
        self.table().client(address, now).queries.take((QUERIES_RATE, QUERIES_BURST), now)
    }

    /// Room for a question that others have to be asked.
    pub(crate) fn forward(&self, address: IpAddr, now: Instant) -> Option<Seat> {
        let mut table = self.table();
        let bounds = table.bounds;
        if table.forwards_under_way >= bounds.all_forwards {
            return None;
        }
        let client = table.client(address, now);
        if client.forwards_under_way >= bounds.forwards || !client.forwards.take((FORWARDS_RATE, FORWARDS_BURST), now) {
            return None;
        }
        client.forwards_under_way += 1;
        table.forwards_under_way += 1;
        Some(Seat { clients: self.clone(), address, is_connection: false })
    }

    /// Room for a connection.
    pub(crate) fn connect(&self, address: IpAddr, now: Instant) -> Option<Seat> {
        let mut table = self.table();
        let bounds = table.bounds;
        if table.connections >= bounds.all_connections {
            return None;
        }
        let client = table.client(address, now);
        if client.connections >= bounds.connections {
            return None;
        }
        client.connections += 1;
        table.connections += 1;
        Some(Seat { clients: self.clone(), address, is_connection: true })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.clients.table();
        let Table { clients, forwards_under_way, connections, .. } = &mut *table;
        let Some(client) = clients.get_mut(&self.address) else { return };
        if self.is_connection {
            client.connections -= 1;
            *connections -= 1;
        } else {
            client.forwards_under_way -= 1;
            *forwards_under_way -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 86, 0, last].into()
    }

    /// [DN-34] The other client is asked nothing for it.
    #[test]
    fn client_that_floods_is_held_back_and_others_are_not() {
        let (clients, start) = (Clients::new(1 << 20), Instant::now());
        let taken = (0..100_000).filter(|_| clients.may_ask(address(7), start)).count();
        assert_eq!(taken, 4000);
        assert!(clients.may_ask(address(8), start));
        let later = start + Duration::from_secs(1);
        assert_eq!((0..100_000).filter(|_| clients.may_ask(address(7), later)).count(), 2000);
    }

    /// [DN-35]
    #[test]
    fn client_has_only_so_many_forwarded_questions_under_way() {
        let (clients, start) = (Clients::new(1 << 20), Instant::now());
        let seats: Vec<Seat> = (0..10_000).filter_map(|_| clients.forward(address(7), start)).collect();
        assert_eq!(seats.len(), FORWARDS_AT_ONCE);
        assert!(clients.forward(address(8), start).is_some());
        drop(seats);
        assert!(clients.forward(address(7), start).is_some());
        let all: Vec<Seat> = (0..u8::MAX)
            .flat_map(|n| (0..50).map(move |_| n))
            .filter_map(|n| clients.forward(address(n), start))
            .collect();
        assert_eq!(all.len(), ALL_FORWARDS_AT_ONCE);
    }

    #[test]
    fn process_with_few_descriptors_keeps_most_of_them() {
        let of = Bounds::of(1024);
        assert_eq!((of.forwards, of.all_forwards, of.connections, of.all_connections), (16, 32, 32, 64));
        assert!(Bounds::of(0).forwards > 0);
    }

    #[test]
    fn client_has_only_so_many_connections() {
        let (clients, start) = (Clients::new(1 << 20), Instant::now());
        let seats: Vec<Seat> = (0..1000).filter_map(|_| clients.connect(address(7), start)).collect();
        assert_eq!(seats.len(), CONNECTIONS);
        assert!(clients.connect(address(8), start).is_some());
    }

    #[test]
    fn clients_at_rest_are_forgotten() {
        let (clients, start) = (Clients::new(1 << 20), Instant::now());
        for second in 0..100 {
            for n in 0..1000_u32 {
                let address = std::net::Ipv4Addr::from_bits(0x0a56_0000 + second * 1000 + n);
                clients.may_ask(address.into(), start + Duration::from_secs(second.into()));
            }
        }
        assert!(clients.table().clients.len() <= 4 * REMEMBERED);
    }
}
