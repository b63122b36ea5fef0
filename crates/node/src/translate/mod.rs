//! Between the API's words and everyone else's: the only place where both are known.

pub mod container;
pub mod pod_spec;
pub mod report;
pub mod sandbox;
pub mod status;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lifecycle::Wall;

/// A wall-clock label as the API writes it.
pub fn api_time(wall: Wall) -> Option<Time> {
    Timestamp::from_millisecond(wall.0).ok().map(Time)
}

/// The container of that name, init containers and sidecars included.
pub fn find_container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.init_containers.iter().flatten().chain(&spec.containers).find(|c| c.name == name)
}
