//! How often something broke, by part.

use std::collections::BTreeMap;
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

tokio::task_local! {
    /// Whose work is being done.
    pub(crate) static PART: &'static str;
}

/// Where somebody broke of whom nobody said what part it is.
const OTHER: &str = "other";

static COUNTS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts every panic of this process from now on, behind what is done about panics already.
pub fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            before(info);
            count(PART.try_with(|part| *part).unwrap_or(OTHER));
        }));
    });
}

fn count(part: &'static str) {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(part).or_default();
    *count = count.saturating_add(1);
}

/// How often each part broke that did.
pub fn counts() -> Vec<(&'static str, u64)> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(part, count)| (*part, *count)).collect()
}
