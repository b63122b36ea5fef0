//! Who has to go: pure, from what is known of each pod.

use super::threshold::Signal;

/// A pod that may be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its UID.
    pub uid: String,
    /// Its priority.
    pub priority: i32,
    /// How much its containers use, and asked for, of what is short, by their names.
    pub containers: Vec<(String, u64, u64)>,
}

impl Candidate {
    fn used(&self) -> u64 {
        self.containers.iter().map(|(_, used, _)| used).sum()
    }

    fn asked(&self) -> u64 {
        self.containers.iter().map(|(_, _, asked)| asked).sum()
    }
}

/// The one who has to go: first those who use more than they asked for, then the least important, then who uses most
/// beyond what it asked for. Process ids cannot be asked for, so there importance comes first.
pub fn choose(signal: Signal, candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|it| {
        let keeps_within = signal != Signal::PidAvailable && it.used() <= it.asked();
        let beyond = i128::from(it.used()) - i128::from(it.asked());
        (keeps_within, it.priority, -beyond, it.uid.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, priority: i32, used: u64, asked: u64) -> Candidate {
        Candidate { uid: uid.to_owned(), priority, containers: vec![("app".to_owned(), used, asked)] }
    }

    #[test]
    fn eviction_ranks_by_request_then_priority_then_usage() {
        let chosen = |signal, pods: &[Candidate]| choose(signal, pods.to_vec()).map(|it| it.uid).unwrap_or_default();
        let memory = Signal::MemoryAvailable;
        assert_eq!(chosen(memory, &[pod("modest", 0, 5, 10), pod("greedy", 9, 11, 10)]), "greedy");
        assert_eq!(chosen(memory, &[pod("vital", 9, 99, 0), pod("cheap", 1, 1, 0)]), "cheap");
        assert_eq!(chosen(memory, &[pod("some", 0, 20, 10), pod("most", 0, 25, 10)]), "most");
        assert_eq!(chosen(memory, &[pod("b", 0, 1, 0), pod("a", 0, 1, 0)]), "a");
        assert_eq!(chosen(Signal::PidAvailable, &[pod("cheap", 0, 2, 0), pod("vital", 9, 500, 0)]), "cheap");
        assert_eq!(choose(memory, Vec::new()), None);
    }
}
