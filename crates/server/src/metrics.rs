//! What the server counts, as Prometheus reads it: requests and how long they took, open watches, the store, the
//! process. Labels come from the kinds that are served, so no client can make up new ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::Kind;

use crate::audit::AuditLog;
use crate::state::State;

/// Upper bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0];

/// Counters that live as long as the server.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Labels, u64>>,
    durations: Mutex<BTreeMap<(&'static str, KindLabel), Histogram>>,
    watches: Arc<AtomicI64>,
    /// Lines of other parts of the process.
    others: Mutex<Vec<Lines>>,
}

type Lines = Box<dyn Fn() -> String + Send + Sync>;

/// Verb, kind, status code.
type Labels = (&'static str, KindLabel, u16);

/// The kind that a request is about, if it is about one. Two are one if they are called the same.
#[derive(Clone)]
struct KindLabel(Option<Arc<Kind>>);

impl KindLabel {
    fn resource(&self) -> &str {
        self.0.as_ref().map_or("", |kind| &kind.plural)
    }

    fn group(&self) -> &str {
        self.0.as_ref().map_or("", |kind| &kind.group)
    }
}

impl Ord for KindLabel {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.resource(), self.group()).cmp(&(other.resource(), other.group()))
    }
}

impl PartialOrd for KindLabel {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KindLabel {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for KindLabel {}

#[derive(Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

impl Histogram {
    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(bucket, more)| *bucket += more);
        self.count += other.count;
        self.seconds += other.seconds;
    }
}

/// The metric labels of a request: a fixed vocabulary.
#[derive(Default)]
pub(crate) struct RequestLabels {
    pub(crate) verb: &'static str,
    pub(crate) kind: Option<Arc<Kind>>,
}

/// Counts a watch for as long as it is open.
pub(crate) struct OpenWatch(Arc<AtomicI64>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts one answered request. A watch's time says nothing, so only its beginning is counted.
    pub(crate) fn answered(&self, what: RequestLabels, code: u16, took: Duration) {
        let (verb, kind) = (what.verb, KindLabel(what.kind));
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((verb, kind.clone(), code)).or_default() += 1;
        drop(requests);
        if verb == "watch" {
            return;
        }
        let seconds = took.as_secs_f64();
        let mut durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let histogram = durations.entry((verb, kind)).or_default();
        for (bucket, limit) in histogram.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= limit);
        }
        histogram.count += 1;
        histogram.seconds += seconds;
    }

    /// Shows these lines, too.
    pub(crate) fn add(&self, lines: impl Fn() -> String + Send + Sync + 'static) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(lines));
    }

    /// Forgets a kind that is no more: what is counted stays bounded by the kinds that there are.
    pub(crate) fn forget_kind(&self, kind: &Arc<Kind>) {
        let gone = KindLabel(Some(Arc::clone(kind)));
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.retain(|(_, kind, _), _| *kind != gone);
        drop(requests);
        self.durations.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, kind), _| *kind != gone);
    }

    /// A watch begins.
    pub(crate) fn watch_opened(&self) -> OpenWatch {
        self.watches.fetch_add(1, Ordering::Relaxed);
        OpenWatch(Arc::clone(&self.watches))
    }

    fn write(&self, out: &mut String) {
        head(out, "apiserver_request_total", "counter", "Requests by verb, resource and answer.");
        for ((verb, kind, code), count) in &*self.requests.lock().unwrap_or_else(PoisonError::into_inner) {
            let (resource, group) = (kind.resource(), kind.group());
            let labels = format!("verb=\"{verb}\",resource=\"{resource}\",group=\"{group}\",code=\"{code}\"");
            line(out, "apiserver_request_total", &labels, count);
        }
        let name = "apiserver_request_duration_seconds";
        head(out, name, "histogram", "How long requests took until their answer began.");
        let durations = self.durations.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_resource: BTreeMap<(&str, &str), Histogram> = BTreeMap::new();
        for ((verb, kind), histogram) in &*durations {
            by_resource.entry((verb, kind.resource())).or_default().add(histogram);
        }
        for ((verb, resource), histogram) in &by_resource {
            let labels = format!("verb=\"{verb}\",resource=\"{resource}\"");
            for (bucket, limit) in histogram.buckets.iter().zip(BUCKETS) {
                line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{limit}\""), bucket);
            }
            line(out, &format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), histogram.count);
            line(out, &format!("{name}_sum"), &labels, histogram.seconds);
            line(out, &format!("{name}_count"), &labels, histogram.count);
        }
        head(out, "apiserver_longrunning_requests", "gauge", "Watches that are open.");
        line(out, "apiserver_longrunning_requests", "verb=\"watch\"", self.watches.load(Ordering::Relaxed));
    }
}

/// The whole page.
pub(crate) fn page(state: &State) -> String {
    let mut out = String::with_capacity(16 * 1024);
    state.metrics.write(&mut out);
    head(&mut out, "apiserver_storage_revision", "gauge", "The newest revision of the store.");
    line(&mut out, "apiserver_storage_revision", "", state.store.revision().0);
    head(&mut out, "apiserver_storage_objects", "gauge", "Stored objects by resource.");
    for kind in state.kinds.now().stored() {
        let count = state.store.list(kind.collection(), "", None).map_or(0, |page| page.items.len());
        line(&mut out, "apiserver_storage_objects", &format!("resource=\"{}\"", kind.collection()), count);
    }
    if let Some((written, lost)) = state.audit.get().map(AuditLog::counts) {
        head(&mut out, "apiserver_audit_event_total", "counter", "Requests that were written down.");
        line(&mut out, "apiserver_audit_event_total", "", written);
        head(&mut out, "apiserver_audit_error_total", "counter", "Requests that could not be written down.");
        line(&mut out, "apiserver_audit_error_total", "plugin=\"log\"", lost);
    }
    head(&mut out, "adieu_panics_total", "counter", "Panics by the part of the program that broke and went on.");
    for (part, count) in supervision::counts() {
        line(&mut out, "adieu_panics_total", &format!("part=\"{part}\""), count);
    }
    head(&mut out, "adieu_log_lines_dropped_total", "counter", "Lines of the log that nobody took in time.");
    line(&mut out, "adieu_log_lines_dropped_total", "", logging::dropped());
    for lines in &*state.metrics.others.lock().unwrap_or_else(PoisonError::into_inner) {
        out.push_str(&lines());
    }
    process(&mut out);
    out
}

fn process(out: &mut String) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = resident.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    if let Some(kibibytes) = kibibytes {
        head(out, "process_resident_memory_bytes", "gauge", "Memory the process has in use.");
        line(out, "process_resident_memory_bytes", "", kibibytes * 1024);
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        head(out, "process_open_fds", "gauge", "Files and sockets the process has open.");
        line(out, "process_open_fds", "", files.count());
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ =
        if labels.is_empty() { writeln!(out, "{name} {value}") } else { writeln!(out, "{name}{{{labels}}} {value}") };
}
