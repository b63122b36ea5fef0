//! Which pods go first when there are too many.
//!
//! The order is total, whatever the times are: unassigned, phase, readiness, deletion cost, siblings on the node, time of readiness,
//! restarts, age, UID. Siblings are counted anew after each choice, so that one node is not emptied while another keeps all.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// A pod that may have to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replica<'a> {
    pub(crate) uid: &'a str,
    pub(crate) node: Option<&'a str>,
    /// Pending 0, unknown 1, running 2.
    pub(crate) phase: u8,
    /// Since when it is ready, if it is.
    pub(crate) ready_since: Option<Timestamp>,
    pub(crate) deletion_cost: i32,
    /// The most of any regular container, and of any sidecar.
    pub(crate) restarts: (i32, i32),
    pub(crate) created: Option<Timestamp>,
}

/// How long ago that was, as a power of two of nanoseconds: pods of about the same age are alike. -1 for what is still to come.
fn bucket(since: Timestamp, now: Timestamp) -> i64 {
    let nanos = now.duration_since(since).as_nanos();
    u128::try_from(nanos).ok().and_then(u128::checked_ilog2).map_or(-1, i64::from)
}

/// The `count` of `replicas` that go first, by their place in the list. `siblings` is how many active pods of the same owner each
/// node has, these included.
pub(crate) fn victims(
    replicas: &[Replica<'_>],
    count: usize,
    mut siblings: BTreeMap<&str, usize>,
    now: Timestamp,
) -> Vec<usize> {
    if count >= replicas.len() {
        return (0..replicas.len()).collect();
    }
    let order = |at: usize, siblings: &BTreeMap<&str, usize>| {
        let it = &replicas[at];
        let on_node = it.node.and_then(|node| siblings.get(node)).copied().unwrap_or(0);
        (
            (it.node.is_some(), it.phase, it.ready_since.is_some(), it.deletion_cost),
            std::cmp::Reverse(on_node),
            it.ready_since.map_or(-2, |since| bucket(since, now)),
            (std::cmp::Reverse(it.restarts.0), std::cmp::Reverse(it.restarts.1)),
            it.created.map_or(-1, |created| bucket(created, now)),
            it.uid,
        )
    };
    let mut left: Vec<usize> = (0..replicas.len()).collect();
    let mut chosen = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((at, _)) = left.iter().enumerate().min_by_key(|(_, one)| order(**one, &siblings)) else { break };
        let victim = left.swap_remove(at);
        if let Some(others) = replicas[victim].node.and_then(|node| siblings.get_mut(node)) {
            *others = others.saturating_sub(1);
        }
        chosen.push(victim);
    }
    chosen
}

/// What a pod's deletion cost is worth: a plain whole number, or nothing.
pub(crate) fn deletion_cost(written: Option<&str>) -> i32 {
    let Some(text) = written else { return 0 };
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if plain && text != "-0" { text.parse().unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::woken::Dice;

    const HOUR: u64 = 3600;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("a time")
    }

    fn ready<'a>(uid: &'a str, node: &'a str, seconds: u64, deletion_cost: i32) -> Replica<'a> {
        let since = Some(now() - Duration::from_secs(seconds));
        Replica { uid, node: Some(node), phase: 2, ready_since: since, deletion_cost, restarts: (0, 0), created: since }
    }

    fn on_nodes<'a>(replicas: &[Replica<'a>]) -> BTreeMap<&'a str, usize> {
        let mut counts = BTreeMap::new();
        replicas.iter().filter_map(|it| it.node).for_each(|node| *counts.entry(node).or_default() += 1);
        counts
    }

    fn chosen(replicas: &[Replica<'_>], count: usize) -> Vec<String> {
        let chosen = victims(replicas, count, on_nodes(replicas), now());
        chosen.into_iter().map(|at| replicas[at].uid.to_owned()).collect()
    }

    /// [WL-7]
    #[test]
    fn victims_are_those_of_the_worked_examples() {
        let five = [
            ready("A", "n1", 2 * HOUR, 0),
            ready("B", "n1", 3 * HOUR, 0),
            ready("C", "n1", 40, 0),
            ready("D", "n2", 30, 0),
            ready("E", "n2", 5 * 24 * HOUR, -5),
        ];
        assert_eq!(chosen(&five, 2), ["E", "C"]);
        let four = [
            ready("A", "n1", 20, 0),
            ready("B", "n1", 40, 0),
            ready("C", "n2", 2 * HOUR, 0),
            ready("D", "n2", 3 * HOUR, 0),
        ];
        assert_eq!(chosen(&four, 2), ["A", "C"], "ranks are counted anew");
        let (p, q) = (ready("P", "n1", 60, 0), ready("Q", "n2", 60, 0));
        let with_old = BTreeMap::from([("n1", 2), ("n2", 1)]);
        assert_eq!(victims(&[q, p], 1, with_old, now()), [1], "an old revision's pod counts as a sibling");
    }

    #[test]
    fn victims_are_unassigned_then_pending_then_unready_then_cheap() {
        let ready = ready("ready", "n", HOUR, 0);
        let cheap = Replica { uid: "cheap", deletion_cost: -1, ..ready.clone() };
        let unready = Replica { uid: "unready", ready_since: None, deletion_cost: 9, ..ready.clone() };
        let pending = Replica { uid: "pending", phase: 0, ..unready.clone() };
        let unassigned = Replica { uid: "unassigned", node: None, ..pending.clone() };
        let restarted = Replica { uid: "restarted", restarts: (3, 0), ..ready.clone() };
        let all = [ready, restarted, cheap, unready, pending, unassigned];
        assert_eq!(chosen(&all, 5), ["unassigned", "pending", "unready", "cheap", "restarted"]);
        assert_eq!(chosen(&all, 6).len(), 6);
    }

    /// [WL-8]
    #[test]
    fn deletion_cost_that_is_no_plain_number_counts_as_nothing() {
        for (text, cost) in [("10", 10), ("-10", -10), ("0", 0), ("2147483647", i32::MAX), ("-2147483648", i32::MIN)] {
            assert_eq!(deletion_cost(Some(text)), cost);
        }
        for odd in ["+10", "008", "", "-", "-0", "ten", "1e3", "2147483648", " 1"] {
            assert_eq!(deletion_cost(Some(odd)), 0, "{odd}");
        }
    }

    /// [WL-9]
    #[test]
    fn victims_are_the_same_for_every_order_of_the_list() {
        for seed in 1..=2000 {
            let mut dice = Dice::new(seed);
            let uids: Vec<String> = (0..2 + dice.roll(10)).map(|number| format!("u{number}")).collect();
            let times = [0, 1, 30, 31, 3600, 3601];
            let mut replicas: Vec<Replica<'_>> = uids
                .iter()
                .map(|uid| Replica {
                    node: (dice.roll(4) > 0).then(|| dice.pick(&["n1", "n2", "n3"])),
                    phase: u8::try_from(dice.roll(3)).unwrap_or(0),
                    ready_since: dice.flip().then(|| now() - Duration::from_secs(dice.pick(&times))),
                    deletion_cost: dice.pick(&[0, 0, -1, 5]),
                    restarts: (dice.pick(&[0, 1]), dice.pick(&[0, 1])),
                    created: dice.flip().then(|| now() + Duration::from_secs(dice.pick(&times))),
                    uid,
                })
                .collect();
            let count = dice.roll(replicas.len());
            let before = chosen(&replicas, count);
            let turn = dice.roll(replicas.len());
            replicas.rotate_left(turn);
            replicas.swap(0, turn);
            assert_eq!(chosen(&replicas, count), before, "seed {seed}");
            assert_eq!(before.len(), count);
        }
    }
}
