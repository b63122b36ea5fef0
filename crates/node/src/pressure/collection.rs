//! Images that nobody uses make room before their file system is full.
//!
//! Looked at whenever a container was given its image, for that is what fills the disk, and now and then besides. Above the
//! high mark the longest unused go until the low mark is reached.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use lifecycle::EventKind;
use runtime_api::Runtime;
use runtime_api::image::Prune;
use supervision::error_chain;
use tracing::{info, warn};

use super::signals;
use super::threshold::Reading;
use crate::effects::Tools;

/// How long to wait for the next look if no container is given an image.
const LOOK_AT_LEAST: Duration = Duration::from_secs(300);

/// When images are removed to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageCollection {
    /// How full the disk is when it begins, in percent; 100 for never.
    pub high_percent: u8,
    /// How full it may stay.
    pub low_percent: u8,
    /// How long an image must have been unused: the next container with it may be about to start.
    pub unused_for: Duration,
}

impl Default for ImageCollection {
    /// As upstream.
    fn default() -> Self {
        Self { high_percent: 85, low_percent: 80, unused_for: Duration::from_secs(120) }
    }
}

impl ImageCollection {
    /// How many bytes have to go; `None` while there is room.
    fn needed(&self, disk: Reading) -> Option<u64> {
        let share = |percent: u8| u128::from(disk.capacity) * u128::from(percent) / 100;
        let used = u128::from(disk.capacity.saturating_sub(disk.available));
        if self.high_percent >= 100 || disk.capacity == 0 || used < share(self.high_percent) {
            return None;
        }
        u64::try_from(used - share(self.low_percent).min(used)).ok().filter(|bytes| *bytes > 0)
    }

    /// Removes images for so many bytes; answers how many were gained.
    pub(super) async fn free<R: Runtime>(&self, runtime: &R, bytes: u64) -> u64 {
        match runtime.prune_images(Prune::Free { bytes, unused_for: self.unused_for }).await {
            Ok(removed) => {
                if !removed.images.is_empty() {
                    info!(images = ?removed.names, bytes = removed.bytes, "unused images removed");
                }
                removed.bytes
            }
            Err(error) => {
                warn!(error = error_chain(&error), "images cannot be removed to make room");
                0
            }
        }
    }
}

/// The part of the node that does this.
pub struct Collector<R: Runtime> {
    tools: Arc<Tools<R>>,
    config: ImageCollection,
    imagefs: PathBuf,
    /// There is too little room and nothing more that may go. That is said once.
    helpless: bool,
}

impl<R: Runtime> Collector<R> {
    /// A collector of the images on the file system at `imagefs`.
    pub fn new(tools: Arc<Tools<R>>, config: ImageCollection, imagefs: PathBuf) -> Self {
        Self { tools, config, imagefs, helpless: false }
    }

    /// Looks until the node stops.
    pub async fn run(self) {
        supervision::keep_on("image-collection", self, |collector| collector.collect().boxed()).await;
    }

    async fn collect(&mut self) {
        loop {
            self.make_room().await;
            // An end of the wait is a reason to look, whichever it is.
            let _ = tokio::time::timeout(LOOK_AT_LEAST, self.tools.images_given.notified()).await;
        }
    }

    async fn make_room(&mut self) {
        let Some(needed) = signals::space(&self.imagefs).and_then(|disk| self.config.needed(disk)) else {
            self.helpless = false;
            return;
        };
        let mut freed = 0;
        // What images share is counted with each of them, so that what they were said to take may not be gained at once.
        while freed < needed {
            match self.config.free(&*self.tools.runtime, needed - freed).await {
                0 => break,
                gained => freed += gained,
            }
        }
        if freed < needed && !self.helpless {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {needed} bytes, but only found \
                 {freed} bytes eligible to free."
            );
            self.tools.recorder.record_own(EventKind::Warning, "FreeDiskSpaceFailed", message);
        }
        self.helpless = freed < needed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_collection_between_its_thresholds_removes_nothing() {
        let config = ImageCollection::default();
        let full = |percent: u64| Reading { available: 1000 - percent * 10, capacity: 1000 };
        assert_eq!(config.needed(full(84)), None);
        assert_eq!(config.needed(full(85)), Some(50));
        assert_eq!(config.needed(full(100)), Some(200));
        assert_eq!(ImageCollection { high_percent: 100, ..config }.needed(full(100)), None, "100 is never");
        assert_eq!(config.needed(Reading { available: 0, capacity: 0 }), None);
        let all = ImageCollection { high_percent: 0, low_percent: 0, ..config };
        assert_eq!((all.needed(full(0)), all.needed(full(1))), (None, Some(10)));
    }
}
