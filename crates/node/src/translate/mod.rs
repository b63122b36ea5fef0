//! Between the API's words and everyone else's: the only place where both are known.

pub mod container;
pub mod non_root;
pub mod report;
pub mod resize;
pub mod resolv_conf;
pub mod sandbox;
pub mod status;
pub mod unmet;

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lifecycle::Wall;

/// A wall-clock label as the API tells it: in whole seconds.
pub fn api_time(wall: Wall) -> Option<Time> {
    Timestamp::from_second(wall.0.div_euclid(1000)).ok().map(Time)
}

/// The container of that name, whatever kind it is of.
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<Cow<'a, Container>> {
    let spec = pod.spec.as_ref()?;
    let found = spec.init_containers.iter().flatten().chain(&spec.containers).find(|c| c.name == name);
    found.map(Cow::Borrowed).or_else(|| find_ephemeral(pod, name).map(|found| Cow::Owned(as_container(found))))
}

/// The ephemeral container of that name.
pub fn find_ephemeral<'a>(pod: &'a Pod, name: &str) -> Option<&'a EphemeralContainer> {
    pod.spec.as_ref()?.ephemeral_containers.iter().flatten().find(|c| c.name == name)
}

/// An ephemeral container has what others have but for probes, hooks, ports and resources, which it must not have.
pub fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let own = ephemeral.clone();
    Container {
        name: own.name,
        image: own.image,
        image_pull_policy: own.image_pull_policy,
        command: own.command,
        args: own.args,
        working_dir: own.working_dir,
        env: own.env,
        env_from: own.env_from,
        volume_mounts: own.volume_mounts,
        volume_devices: own.volume_devices,
        security_context: own.security_context,
        stdin: own.stdin,
        stdin_once: own.stdin_once,
        tty: own.tty,
        termination_message_path: own.termination_message_path,
        termination_message_policy: own.termination_message_policy,
        ..Container::default()
    }
}
