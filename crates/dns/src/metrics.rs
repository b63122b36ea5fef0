//! What the resolver counts, as Prometheus reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hickory_resolver::proto::op::ResponseCode;

use crate::forward::Source;

/// How a question came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Why a question was not answered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Dropped {
    /// It is none.
    Malformed,
    /// Nobody of ours asks.
    Stranger,
    /// The client asks too much.
    TooMany,
    /// The client has too many connections.
    Connections,
    /// The answer could not be sent.
    NotSent,
}

#[derive(Debug, Default)]
struct Counts {
    /// By transport, source and code.
    answered: BTreeMap<(Transport, Source, u16), u64>,
    dropped: BTreeMap<Dropped, u64>,
}

/// Counters that live as long as the resolver.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Counts>);

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn answered(&self, transport: Transport, source: Source, code: ResponseCode) {
        *self.counts().answered.entry((transport, source, code.into())).or_default() += 1;
    }

    pub(crate) fn dropped(&self, why: Dropped) {
        *self.counts().dropped.entry(why).or_default() += 1;
    }

    /// The lines of a page; `is_up` is whether the machine's resolvers answer.
    pub(crate) fn page(&self, is_up: bool) -> String {
        let mut out = String::new();
        let counts = self.counts();
        // Writing to a string cannot fail.
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = writeln!(out, "{text}");
        };
        line(format_args!("# HELP adieu_dns_requests_total Questions that the cluster DNS answered."));
        line(format_args!("# TYPE adieu_dns_requests_total counter"));
        for ((transport, source, code), count) in &counts.answered {
            let transport = match transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            };
            let source = match source {
                Source::Local => "local",
                Source::Forward => "forward",
                Source::Cache => "cache",
            };
            let code = name(*code);
            line(format_args!(
                "adieu_dns_requests_total{{proto=\"{transport}\",source=\"{source}\",rcode=\"{code}\"}} {count}"
            ));
        }
        line(format_args!("# HELP adieu_dns_dropped_total Packets and connections that were not answered."));
        line(format_args!("# TYPE adieu_dns_dropped_total counter"));
        for (why, count) in &counts.dropped {
            let why = match why {
                Dropped::Malformed => "malformed",
                Dropped::Stranger => "stranger",
                Dropped::TooMany => "rate",
                Dropped::Connections => "connections",
                Dropped::NotSent => "not_sent",
            };
            line(format_args!("adieu_dns_dropped_total{{reason=\"{why}\"}} {count}"));
        }
        line(format_args!("# HELP adieu_dns_upstream_up Whether the machine's resolvers answered the last question."));
        line(format_args!("# TYPE adieu_dns_upstream_up gauge"));
        line(format_args!("adieu_dns_upstream_up {}", u8::from(is_up)));
        out
    }
}

fn name(code: u16) -> &'static str {
    match code {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        _ => "OTHER",
    }
}
