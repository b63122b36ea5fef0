//! Which of the nodes that a pod fits on suits it best: each of several questions gives every node up to a hundred points, and counts
//! as much as it does upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::affinity::{self, preference};
use super::fit::reluctance;
use super::resources::{Amounts, NonZeroRequest};
use super::spread;
use super::world::{NodeState, World, image_key};
use crate::pod::PodView;

const TAINTS: i64 = 3;
const NODE_AFFINITY: i64 = 2;
const POD_AFFINITY: i64 = 2;
const SPREAD: i64 = 2;
const LEAST_ALLOCATED: i64 = 1;
const BALANCED: i64 = 1;
const IMAGES: i64 = 1;

const MOST: i64 = 100;

/// Less than this of the pod's images on a node is not worth a thought, and more than that for each container is no better.
const IMAGES_MIN: i64 = 23 << 20;
const IMAGES_MAX: i64 = 1000 << 20;

/// The node that suits the pod best. Among equals, where the fewest pods are.
pub(super) fn best(pod: &PodView, asked: &Amounts, fitting: &[&NodeState], world: &World) -> Option<Arc<str>> {
    let totals = match fitting.len() {
        0 | 1 => vec![0; fitting.len()],
        _ => totals(pod, asked, fitting, world),
    };
    let suits = |(place, total): &(&&NodeState, i64)| (-total, place.crowd, Arc::clone(&place.node.name));
    fitting.iter().zip(totals).min_by_key(suits).map(|(place, _)| Arc::clone(&place.node.name))
}

/// What all questions give each node together.
fn totals(pod: &PodView, asked: &Amounts, fitting: &[&NodeState], world: &World) -> Vec<i64> {
    let request = NonZeroRequest::of(pod, asked);
    let each = |score: &dyn Fn(&NodeState) -> i64| fitting.iter().map(|place| score(place)).collect::<Vec<_>>();
    let images = Images::of(pod, world);
    let mut answers = vec![
        (TAINTS, upside_down(each(&|place| reluctance(pod, &place.node)))),
        (NODE_AFFINITY, scaled(each(&|place| preference(pod, &place.node)))),
        (LEAST_ALLOCATED, each(&|place| least_allocated(place, request))),
        (IMAGES, each(&|place| images.score(place))),
    ];
    if asked.get("cpu") > 0 || asked.get("memory") > 0 {
        answers.push((BALANCED, each(&|place| balanced(place, asked))));
    }
    answers.extend(affinity::scores(pod, fitting, world).map(|scores| (POD_AFFINITY, between(&scores))));
    answers.extend(spread::scores(pod, fitting, world).map(|scores| (SPREAD, scores)));
    let mut totals = vec![0; fitting.len()];
    for (weight, scores) in answers {
        totals.iter_mut().zip(scores).for_each(|(total, score)| *total += weight * score);
    }
    totals
}

/// The most gets all points, nothing gets none.
fn scaled(scores: Vec<i64>) -> Vec<i64> {
    let most = scores.iter().max().copied().unwrap_or(0);
    scores.into_iter().map(|score| if most <= 0 { 0 } else { score.saturating_mul(MOST) / most }).collect()
}

/// The most gets none, nothing gets all points.
fn upside_down(scores: Vec<i64>) -> Vec<i64> {
    scaled(scores).into_iter().map(|score| MOST - score).collect()
}

/// The most gets all points, the least gets none.
fn between(scores: &[i64]) -> Vec<i64> {
    let (least, most) = (scores.iter().min().copied().unwrap_or(0), scores.iter().max().copied().unwrap_or(0));
    let span = most.saturating_sub(least);
    let score = |score: i64| if span == 0 { 0 } else { score.saturating_sub(least).saturating_mul(MOST) / span };
    scores.iter().map(|it| score(*it)).collect()
}

/// How much of CPU and memory would be left, on average. A pod that asks for nothing is taken to use a little.
fn least_allocated(place: &NodeState, request: NonZeroRequest) -> i64 {
    let parts = [("cpu", place.nonzero.cpu, request.cpu), ("memory", place.nonzero.memory, request.memory)];
    let left = parts.into_iter().filter_map(|(name, used, asked)| {
        let room = place.node.room.get(name);
        let free = room.saturating_sub(used.saturating_add(asked)).max(0);
        (room > 0).then(|| free.saturating_mul(MOST) / room)
    });
    let left: Vec<i64> = left.collect();
    left.iter().sum::<i64>() / i64::try_from(left.len()).unwrap_or(1).max(1)
}

/// How much more evenly CPU and memory would be used than they are: a node with much of one and none of the other left is of use to
/// few.
fn balanced(place: &NodeState, asked: &Amounts) -> i64 {
    MOST / 2 + (MOST / 2 + evenness(place, asked) - evenness(place, &Amounts::default())) / 2
}

/// How evenly they are used with this on the node.
fn evenness(place: &NodeState, asked: &Amounts) -> i64 {
    let part = |name: &str| {
        let room = place.node.room.get(name);
        let used = place.used.get(name).saturating_add(asked.get(name)).clamp(0, room.max(0));
        (room > 0).then(|| (i128::from(used), i128::from(room)))
    };
    let (Some((cpu, cpus)), Some((memory, memories))) = (part("cpu"), part("memory")) else { return MOST };
    let apart = (cpu * memories - memory * cpus).abs().saturating_mul(i128::from(MOST / 2));
    let all = cpus * memories;
    MOST - i64::try_from((apart + all - 1) / all).unwrap_or(MOST)
}

/// The images of a pod, and how many of the nodes have each.
struct Images {
    wanted: Vec<(u64, i64)>,
    nodes: i64,
    containers: i64,
}

impl Images {
    fn of(pod: &PodView, world: &World) -> Self {
        let containers = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let mut spread: BTreeMap<u64, i64> =
            containers().filter(|it| !it.image.is_empty()).map(|it| (image_key(&it.image), 0)).collect();
        let mut nodes = 0;
        for place in world.places() {
            nodes += 1;
            spread
                .iter_mut()
                .filter(|(image, _)| place.image_size(**image).is_some())
                .for_each(|(_, count)| *count += 1);
        }
        let wanted = containers().filter(|it| !it.image.is_empty()).map(|it| image_key(&it.image));
        let wanted = wanted.filter_map(|image| Some((image, *spread.get(&image)?))).filter(|(_, count)| *count > 0);
        let number = i64::try_from(containers().count()).unwrap_or(i64::MAX);
        Self { wanted: wanted.collect(), nodes, containers: number }
    }

    /// Images that few nodes have count little: all pods would go there.
    fn score(&self, place: &NodeState) -> i64 {
        let share = |(image, count): &(u64, i64)| {
            let size = i128::from(place.image_size(*image).unwrap_or(0));
            i64::try_from(size * i128::from(*count) / i128::from(self.nodes.max(1))).unwrap_or(i64::MAX)
        };
        let sum = self.wanted.iter().map(share).fold(0, i64::saturating_add);
        let most = IMAGES_MAX.saturating_mul(self.containers.max(1));
        (sum.clamp(IMAGES_MIN, most) - IMAGES_MIN).saturating_mul(MOST) / (most - IMAGES_MIN)
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pods; the last digit decides nothing")]
pub(super) fn as_number(number: i64) -> f64 {
    number as f64
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the largest number")]
pub(super) fn rounded(number: f64) -> i64 {
    number.round() as i64
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
