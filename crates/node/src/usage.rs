//! What this node and its containers use of processor and memory, as a kubelet tells it under `/stats/summary`.
//!
//! Looked up when somebody asks, and never otherwise. What is used of a processor is a difference: between the latest look,
//! if that is not too old, and one now; or between two that are a second apart.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;
use runtime_api::{ContainerId, PodUid, Runtime};
use serde_json::{Value, json};
use timeline::Clock;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::pods::{Directory, PodReader};
use crate::pressure::signals::machine_memory;

/// The shortest time over which something is called its use.
const SHORTEST: Duration = Duration::from_secs(1);
/// A look that is older tells of another time.
const OLDEST: Duration = Duration::from_secs(60);

/// In what `/proc/stat` counts, whatever the kernel's own clock does.
const TICKS_PER_SECOND: u64 = 100;

/// Looks at a node, and remembers its latest two looks. Held while it looks, so that those who ask at once share the answer.
#[derive(Default)]
pub struct Usage {
    latest: Mutex<Option<(UsageSample, UsageSample)>>,
}

/// Everything as it was at one moment.
#[derive(Clone, Debug)]
struct UsageSample {
    at: Instant,
    wall: Timestamp,
    machine: Used,
    containers: BTreeMap<(PodUid, ContainerId), Used>,
}

/// What one of them uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Used {
    /// Processor time since its beginning, in nanoseconds.
    cpu_nanos: u64,
    /// Bytes that cannot be had back without harm.
    memory: u64,
}

impl Usage {
    /// What the node called `node` and the pods in `directory` use.
    pub async fn summary<R: Runtime>(&self, node: &str, runtime: &R, directory: &Directory, clock: &Clock) -> Value {
        let mut latest = self.latest.lock().await;
        let known = latest.take().filter(|(_, after)| after.at.elapsed() <= OLDEST);
        let looks = match known {
            Some((before, after)) if after.at.elapsed() < SHORTEST => (before, after),
            Some((_, before)) => {
                let after = look(runtime, directory, clock).await;
                // Of whoever came since, nothing can be said yet.
                if after.knows_no_more_than(&before) {
                    (before, after)
                } else {
                    follow(after, runtime, directory, clock).await
                }
            }
            None => follow(look(runtime, directory, clock).await, runtime, directory, clock).await,
        };
        let pods = directory.all();
        let (before, after) = latest.insert(looks);
        tell(node, before, after, &pods)
    }
}

/// The second look of a pair.
async fn follow<R: Runtime>(
    before: UsageSample,
    runtime: &R,
    directory: &Directory,
    clock: &Clock,
) -> (UsageSample, UsageSample) {
    tokio::time::sleep(SHORTEST.saturating_sub(before.at.elapsed())).await;
    (before, look(runtime, directory, clock).await)
}

async fn look<R: Runtime>(runtime: &R, directory: &Directory, clock: &Clock) -> UsageSample {
    let uids: Vec<PodUid> = directory.all().into_iter().map(|reader| reader.uid).collect();
    let (at, wall) = (Instant::now(), crate::timestamp(clock));
    let cpu_nanos = fs::read_to_string("/proc/stat").ok().and_then(|text| processor_nanos(&text)).unwrap_or(0);
    let memory = machine_memory().map_or(0, |reading| reading.capacity.saturating_sub(reading.available));
    let mut containers = BTreeMap::new();
    for uid in uids {
        // A pod that has no sandbox uses nothing.
        for of in runtime.stats(&uid).await.unwrap_or_default() {
            containers.insert((uid.clone(), of.id), Used { cpu_nanos: of.cpu_nanos, memory: of.memory_bytes });
        }
    }
    UsageSample { at, wall, machine: Used { cpu_nanos, memory }, containers }
}

/// Processor time that was spent on something since the machine was booted.
fn processor_nanos(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq; guests are part of the first two, and stolen time is others'.
    let [user, nice, system, _idle, _iowait, irq, softirq] = ticks.first_chunk()?;
    let busy = user + nice + system + irq + softirq;
    Some(busy.saturating_mul(1_000_000_000 / TICKS_PER_SECOND))
}

impl UsageSample {
    fn knows_no_more_than(&self, other: &Self) -> bool {
        self.containers.keys().all(|key| other.containers.contains_key(key))
    }
}

fn tell(node: &str, before: &UsageSample, after: &UsageSample, pods: &[PodReader]) -> Value {
    let window = after.at.duration_since(before.at);
    let time = after.wall.to_string();
    let usage = |before: &Used, after: &Used| {
        let spent = u128::from(after.cpu_nanos.saturating_sub(before.cpu_nanos));
        let cores = spent.saturating_mul(1_000_000_000) / window.as_nanos().max(1);
        let cores = u64::try_from(cores).unwrap_or(u64::MAX);
        (
            json!({ "time": time, "usageNanoCores": cores, "usageCoreNanoSeconds": after.cpu_nanos }),
            json!({ "time": time, "workingSetBytes": after.memory }),
        )
    };
    let tell_pod = |reader: &PodReader| {
        let pod = reader.record.pod();
        let metadata = &pod.metadata;
        let mut containers = Vec::new();
        let (mut was, mut is) = (Used::default(), Used::default());
        for ((uid, id), used) in after.containers.iter().filter(|((uid, _), _)| *uid == reader.uid) {
            let Some(earlier) = before.containers.get(&(uid.clone(), id.clone())) else { continue };
            let (cpu, memory) = usage(earlier, used);
            containers.push(json!({ "name": id.name, "cpu": cpu, "memory": memory }));
            (was.cpu_nanos, is.cpu_nanos) = (was.cpu_nanos + earlier.cpu_nanos, is.cpu_nanos + used.cpu_nanos);
            is.memory += used.memory;
        }
        let (cpu, memory) = usage(&was, &is);
        let whose = json!({ "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid });
        (!containers.is_empty())
            .then(|| json!({ "podRef": whose, "containers": containers, "cpu": cpu, "memory": memory }))
    };
    let (cpu, memory) = usage(&before.machine, &after.machine);
    json!({
        "node": { "nodeName": node, "cpu": cpu, "memory": memory },
        "pods": pods.iter().filter_map(tell_pod).collect::<Vec<_>>(),
        // A kubelet does not say over which time it counts; we know.
        "windowNanoSeconds": u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_cpu_time_does_not_count_as_usage() {
        let tick = 1_000_000_000 / TICKS_PER_SECOND;
        let text = "cpu  10 20 30 1000 2000 4 5 600 7 8\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(processor_nanos(text), Some(69 * tick));
        assert_eq!(processor_nanos("cpu 1 2"), None);
    }

    #[test]
    fn use_is_a_difference_over_the_time_that_passed() {
        let begin = Instant::now();
        let look = |seconds: u64, cpu_nanos: u64| UsageSample {
            at: begin + Duration::from_secs(seconds),
            wall: Timestamp::UNIX_EPOCH,
            machine: Used { cpu_nanos, memory: 4096 },
            containers: BTreeMap::new(),
        };
        let told = tell("n1", &look(0, 7), &look(20, 5_000_000_007), &[]);
        assert_eq!(told["node"]["cpu"]["usageNanoCores"], 250_000_000);
        assert_eq!(told["node"]["memory"]["workingSetBytes"], 4096);
        assert_eq!(told["windowNanoSeconds"], 20_000_000_000_u64);
    }
}
