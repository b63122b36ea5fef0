//! Answers of others, for as long as they said, and no more of them than there is room for.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use hickory_resolver::proto::op::{Query, ResponseCode};
use hickory_resolver::proto::rr::Record;
use hickory_resolver::proto::serialize::binary::{BinEncodable, BinEncoder};
use tokio::time::Instant;

use crate::packet::Reply;

const ENTRIES_MAX: usize = 10_000;
const BYTES_MAX: usize = 16 << 20;
/// A larger answer is not kept: few clients ask for such, and each would take the place of hundreds.
const ENTRY_BYTES_MAX: usize = 4096;
/// What an entry takes beside its records.
const ENTRY_BYTES: usize = 512;
/// For how long an answer is kept, whatever it says of itself.
const TTL_MAX: u32 = 30;
/// The same of one that says that there is nothing, and the least of it.
const NEGATIVE_TTL: std::ops::RangeInclusive<u32> = 5..=30;
/// For how long after that it is better than none.
const STALE_MAX: Duration = Duration::from_secs(60 * 60);
const STALE_TTL: u32 = 5;

#[derive(Debug)]
struct Entry {
    reply: Reply,
    since: Instant,
    ttl: u32,
    bytes: usize,
    /// Which of those with the same question it is.
    serial: u64,
}

/// The oldest makes room for the newest.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<Query, Entry>,
    order: VecDeque<(Query, u64)>,
    bytes: usize,
    serial: u64,
}

impl Cache {
    /// What was answered, with the time that is left of it.
    pub(crate) fn get(&self, query: &Query, now: Instant) -> Option<Reply> {
        let entry = self.entries.get(query)?;
        let age = u32::try_from(now.duration_since(entry.since).as_secs()).unwrap_or(u32::MAX);
        (age < entry.ttl).then(|| aged(&entry.reply, |ttl| ttl.saturating_sub(age)))
    }

    /// What was answered before, when nobody can say it now.
    pub(crate) fn get_stale(&self, query: &Query, now: Instant) -> Option<Reply> {
        let entry = self.entries.get(query)?;
        let is_kept = now.duration_since(entry.since) < STALE_MAX + Duration::from_secs(entry.ttl.into());
        is_kept.then(|| aged(&entry.reply, |_| STALE_TTL))
    }

    /// Keeps an answer, if it can be.
    pub(crate) fn put(&mut self, query: &Query, reply: &Reply, now: Instant) {
        let records = || reply.answers.iter().chain(&reply.authority).chain(&reply.additional);
        let least = records().map(|record| record.ttl).min();
        let ttl = if reply.code == ResponseCode::NoError && !reply.answers.is_empty() {
            least.unwrap_or(0).min(TTL_MAX)
        } else if matches!(reply.code, ResponseCode::NoError | ResponseCode::NXDomain) {
            least.unwrap_or(0).clamp(*NEGATIVE_TTL.start(), *NEGATIVE_TTL.end())
        } else {
            return;
        };
        let bytes = ENTRY_BYTES + records().map(size).sum::<usize>();
        if ttl == 0 || bytes > ENTRY_BYTES_MAX {
            return;
        }
        self.serial += 1;
        let entry = Entry { reply: reply.clone(), since: now, ttl, bytes, serial: self.serial };
        self.bytes += bytes;
        if let Some(former) = self.entries.insert(query.clone(), entry) {
            self.bytes -= former.bytes;
        }
        self.order.push_back((query.clone(), self.serial));
        while self.entries.len() > ENTRIES_MAX || self.bytes > BYTES_MAX || self.order.len() > 2 * ENTRIES_MAX {
            let Some((query, serial)) = self.order.pop_front() else { return };
            if self.entries.get(&query).is_some_and(|entry| entry.serial == serial)
                && let Some(entry) = self.entries.remove(&query)
            {
                self.bytes -= entry.bytes;
            }
        }
    }

    #[cfg(test)]
    fn room(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }
}

fn aged(reply: &Reply, ttl: impl Fn(u32) -> u32) -> Reply {
    let mut reply = reply.clone();
    let records = reply.answers.iter_mut().chain(&mut reply.authority).chain(&mut reply.additional);
    records.for_each(|record| record.ttl = ttl(record.ttl));
    reply
}

fn size(record: &Record) -> usize {
    let mut bytes = Vec::new();
    let _ = record.emit(&mut BinEncoder::new(&mut bytes));
    bytes.len() + size_of::<Record>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use hickory_resolver::proto::rr::rdata::TXT;
    use hickory_resolver::proto::rr::{Name, RData, RecordType};

    use super::*;

    fn query(name: &str) -> Query {
        Query::query(Name::from_ascii(name).unwrap(), RecordType::A)
    }

    fn reply(ttl: u32) -> Reply {
        let address = std::net::Ipv4Addr::new(192, 0, 2, 1);
        let record = Record::from_rdata(Name::from_ascii("x.").unwrap(), ttl, RData::A(address.into()));
        Reply { answers: vec![record], ..Reply::empty(ResponseCode::NoError) }
    }

    fn ttl(reply: Option<Reply>) -> Option<u32> {
        reply.and_then(|reply| reply.answers.first().map(|record| record.ttl))
    }

    #[test]
    fn cached_answer_ages_expires_and_is_kept_for_worse_times() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        cache.put(&query("a."), &reply(10), start);
        cache.put(&query("b."), &reply(3600), start);
        cache.put(&query("c."), &reply(0), start);
        assert_eq!(ttl(cache.get(&query("A."), after(4))), Some(6), "letters do not matter");
        assert_eq!(ttl(cache.get(&query("a."), after(10))), None);
        assert_eq!(ttl(cache.get(&query("b."), after(29))), Some(3571));
        assert_eq!(ttl(cache.get(&query("b."), after(30))), None, "nothing is believed for longer");
        assert_eq!(ttl(cache.get(&query("c."), start)), None);
        assert_eq!(ttl(cache.get_stale(&query("a."), after(3600))), Some(STALE_TTL));
        assert_eq!(ttl(cache.get_stale(&query("a."), after(3611))), None);
    }

    #[test]
    fn cached_denial_lasts_a_while_and_a_failure_not_at_all() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        cache.put(&query("a."), &Reply::empty(ResponseCode::NXDomain), start);
        cache.put(&query("b."), &Reply::empty(ResponseCode::ServFail), start);
        assert!(cache.get(&query("a."), start + Duration::from_secs(4)).is_some());
        assert!(cache.get(&query("a."), start + Duration::from_secs(5)).is_none());
        assert!(cache.get(&query("b."), start).is_none());
    }

    #[test]
    fn cache_takes_no_more_room_than_it_may() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        for n in 0..25_000 {
            cache.put(&query(&format!("n{n}.")), &reply(10), start);
            cache.put(&query("same."), &reply(10), start);
        }
        let (entries, bytes) = cache.room();
        assert!(entries <= ENTRIES_MAX && bytes <= BYTES_MAX, "{entries} {bytes}");
        assert!(cache.get(&query("n24999."), start).is_some() && cache.get(&query("n0."), start).is_none());
        let mut large = reply(10);
        let text = RData::TXT(TXT::new(vec!["x".repeat(255); 20]));
        large.additional.push(Record::from_rdata(Name::root(), 10, text));
        cache.put(&query("large."), &large, start);
        assert!(cache.get(&query("large."), start).is_none());
    }
}
