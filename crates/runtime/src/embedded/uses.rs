//! Which containers use which images, as the records on disk tell it, whether or not an agent runs.

use std::fs;
use std::io;
use std::path::Path;

use super::PODS;
use super::reattach::LEAVING;
use crate::container::plan::ContainerPlan;
use crate::image::Use;
use crate::shim::records::{self, ContainerDir, PodDir, SandboxRecord};

/// Every use of an image by a container below `data_dir`: from before it is started until its pod is removed.
///
/// A record that does not read is an error, because nobody can tell which image it is about.
pub fn image_uses(data_dir: &Path) -> io::Result<Vec<Use>> {
    let mut uses = Vec::new();
    // Nothing runs any more from what is only being deleted.
    for name in names_in(&data_dir.join(PODS))?.into_iter().filter(|name| !name.starts_with(LEAVING)) {
        let pod = PodDir { path: data_dir.join(PODS).join(&name) };
        let record: Option<SandboxRecord> = records::read(&pod.sandbox());
        let who = record.map_or(name, |record| format!("{}/{}", record.spec.namespace, record.spec.name));
        for container in names_in(&pod.path.join("containers"))? {
            let file = ContainerDir { path: pod.path.join("containers").join(&container) }.plan();
            let Some(plan) = records::read::<ContainerPlan>(&file) else {
                // One without a plan has not come to use anything yet, or is just being removed.
                match file.try_exists()? {
                    true => return Err(io::Error::other(format!("{} does not read", file.display()))),
                    false => continue,
                }
            };
            let by = format!("pod {who} (container {})", plan.spec.id.name);
            uses.push(Use { image: plan.spec.image_id, layers: plan.layers, by });
        }
    }
    Ok(uses)
}

/// The names in a directory; none if it is not there.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
