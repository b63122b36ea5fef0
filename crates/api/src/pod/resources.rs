//! What a pod asks for and is limited to, as one.
//!
//! Its containers and sidecars (init containers that are restarted) together, or an init container beside the sidecars before it
//! if that is more. What the pod says as a whole comes in place of that sum, and what its runtime needs comes on top.

use super::view::{Container, ContainerStatus, ResourceList, View};
use crate::amounts::Amounts;
use crate::quantity::Quantity;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResourceOptions {
    /// What the node has granted and what the containers run with, where that is more than they ask for: a resize takes effect
    /// later than it is asked for. What the node has refused for good does not count.
    pub use_status: bool,
    /// What the pod says as a whole.
    pub pod_level: bool,
    /// What its runtime needs.
    pub overhead: bool,
}

impl ResourceOptions {
    /// As the spec says, with all of it.
    pub const SPEC: Self = Self { use_status: false, pod_level: true, overhead: true };
    /// What the pod occupies while it is resized.
    pub const WITH_STATUS: Self = Self { use_status: true, ..Self::SPEC };
    /// As the spec says, without the runtime's share.
    pub const WITHOUT_OVERHEAD: Self = Self { overhead: false, ..Self::SPEC };
    /// What the containers say.
    pub const CONTAINERS: Self = Self { pod_level: false, ..Self::WITHOUT_OVERHEAD };
}

/// Whether a pod can say so much of this resource as a whole.
pub(crate) fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What the pod asks for.
pub fn requests(pod: &impl View, options: ResourceOptions) -> Amounts {
    let mut total = containers(pod, options, Side::Requests);
    if options.pod_level {
        put_pod_level(&mut total, pod.resources().requests);
    }
    if options.overhead {
        total.add_list(pod.overhead());
    }
    total
}

/// What the pod may use at most, as far as it says. A limit that nobody has set is not made by an overhead.
pub fn limits(pod: &impl View, options: ResourceOptions) -> Amounts {
    let mut total = containers(pod, options, Side::Limits);
    if options.pod_level {
        put_pod_level(&mut total, pod.resources().limits);
    }
    if options.overhead {
        for (name, amount) in pod.overhead().iter() {
            if total.get(name).is_some_and(|limit| !limit.is_zero()) {
                total.add_one(name, amount);
            }
        }
    }
    total
}

fn put_pod_level(total: &mut Amounts, own: ResourceList<'_>) {
    own.iter().filter(|(name, _)| is_pod_level_resource(name)).for_each(|(name, amount)| total.put(name, amount));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Side {
    fn asked<'a>(self, container: &Container<'a>) -> ResourceList<'a> {
        match self {
            Self::Requests => container.resources.requests,
            Self::Limits => container.resources.limits,
        }
    }

    /// What the node says of a container, in the places where it says so.
    fn told(self) -> &'static [Told] {
        match self {
            Self::Requests => &[|status| status.allocated, |status| status.requests.or(status.allocated)],
            Self::Limits => &[|status| status.limits],
        }
    }
}

type Told = for<'a> fn(&ContainerStatus<'a>) -> Option<ResourceList<'a>>;

fn containers(pod: &impl View, options: ResourceOptions, side: Side) -> Amounts {
    let infeasible = options.use_status
        && super::condition(pod, "PodResizePending").is_some_and(|condition| condition.reason == "Infeasible");
    let mut total = if infeasible { Amounts::default() } else { sum(pod, |container| side.asked(container)) };
    if !options.use_status {
        return total;
    }
    for read in side.told() {
        if !pod.container_statuses().any(|status| read(&status).is_some()) {
            continue;
        }
        total.raise(&sum(pod, |container| {
            let status = pod.container_statuses().find(|status| status.name == container.name);
            let unless_told = || if infeasible { ResourceList::default() } else { side.asked(container) };
            status.and_then(|status| read(&status)).unwrap_or_else(unless_told)
        }));
    }
    total
}

fn sum<'a>(pod: &'a impl View, own: impl Fn(&Container<'a>) -> ResourceList<'a>) -> Amounts {
    let (mut total, mut most) = (Amounts::default(), Amounts::default());
    for container in pod.init_containers() {
        if container.is_restartable() {
            total.add_list(own(&container));
        } else {
            // Those that run so far are its sidecars.
            for (name, amount) in own(&container).iter() {
                most.raise_one(name, total.get(name).unwrap_or(Quantity::ZERO).plus(amount));
            }
        }
    }
    pod.containers().for_each(|container| total.add_list(own(&container)));
    total.raise(&most);
    total
}
