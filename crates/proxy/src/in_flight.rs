//! Waits for packets that were judged by rules which are no longer in force, and have not arrived yet.
//!
//! A commit decides about packets that are yet to be judged. One that was judged before may still wait to be delivered, in the queue
//! of the processor that judged it, for as long as that processor is busy with programs. Such a queue keeps its order, and packets to
//! oneself pass through it too: when one that was sent on each processor has come back, whatever was before it has arrived.
//!
//! What is not covered: processors on which this process may not run, and network cards with queues of their own behind the rules.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long one packet to oneself may take, and all of them.
const ONE_WITHIN: Duration = Duration::from_millis(50);
const ALL_WITHIN: Duration = Duration::from_millis(200);
/// Where they do not arrive (a firewall, no loopback), they are not sent again for so long.
const REST: Duration = Duration::from_secs(60);

/// Sends packets to itself on every processor.
#[derive(Default, Debug)]
pub(crate) struct InFlight {
    socket: Option<UdpSocket>,
    sent: u64,
    rests_until: Option<Instant>,
}

impl InFlight {
    /// Returns when every packet that was judged before the call has arrived where it was sent to; whether that is certain.
    pub(crate) fn await_delivery(&mut self) -> bool {
        let now = Instant::now();
        if self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        let passed = self.pass_all(now + ALL_WITHIN);
        if let Err(error) = &passed {
            tracing::debug!(%error, "packets to this machine itself do not arrive: those on their way are not waited for");
            (self.socket, self.rests_until) = (None, Some(now + REST));
        }
        passed.is_ok()
    }

    fn pass_all(&mut self, deadline: Instant) -> io::Result<()> {
        let allowed = Affinity::read()?;
        for processor in (0..CpuSet::MAX_CPU).filter(|number| allowed.0.is_set(*number)) {
            let mut only = CpuSet::new();
            only.set(processor);
            // One that was taken away meanwhile judges nothing.
            if sched_setaffinity(None, &only).is_ok() {
                self.pass(deadline)?;
            }
        }
        Ok(())
    }

    /// Sends one packet and waits for it.
    fn pass(&mut self, deadline: Instant) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => open()?,
        };
        self.sent += 1;
        let number = self.sent.to_ne_bytes();
        socket.send(&number)?;
        let mut read = [0; 8];
        // One that came too late last time is before it.
        while read != number {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.recv(&mut read)?;
        }
        self.socket = Some(socket);
        Ok(())
    }
}

/// A socket that is connected to itself, so that nobody else reaches it.
fn open() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(ONE_WITHIN))?;
    Ok(socket)
}

/// Where this thread may run; it may again when this is dropped.
struct Affinity(CpuSet);

impl Affinity {
    fn read() -> io::Result<Self> {
        Ok(Self(sched_getaffinity(None)?))
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // What the thread was allowed before cannot be refused.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn packets_in_flight_are_awaited_on_every_processor_and_the_thread_runs_where_it_did() {
        let before = sched_getaffinity(None).unwrap();
        let mut in_flight = InFlight::default();
        assert!(in_flight.await_delivery());
        assert!(in_flight.await_delivery());
        assert_eq!(in_flight.sent, 2 * u64::from(before.count()));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    /// A new network namespace has a loopback that is down.
    #[test]
    fn packets_in_flight_are_not_awaited_where_none_arrive() {
        std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let before = sched_getaffinity(None).unwrap();
            let mut in_flight = InFlight::default();
            assert!(!in_flight.await_delivery());
            assert!(in_flight.rests_until.is_some());
            let sent = in_flight.sent;
            assert!(!in_flight.await_delivery());
            assert_eq!(in_flight.sent, sent, "it rests");
            assert_eq!(sched_getaffinity(None).unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
