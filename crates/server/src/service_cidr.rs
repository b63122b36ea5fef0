//! The ServiceCIDR `kubernetes`: the range that Services of this server get their addresses from, shown as an object that is always there.
//!
//! It shows the range and does not set it: other ServiceCIDRs are stored, and no address is given out of them.

use std::sync::Arc;

use api::Status;
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::background::{keep_right, source};
use crate::bootstrap::{known, make};
use crate::change;
use crate::own_service::unless_gone;
use crate::request::key;
use crate::state::State;

const NAME: &str = "kubernetes";

/// Keeps the object as it should be until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let kind = known("networking.k8s.io", "servicecidrs");
    let (clock, sources) = (state.clock, vec![source(&state.store, kind.collection(), "", |_| ())]);
    let restore = move || {
        let state = Arc::clone(&state);
        async move { restore(&state).await }.boxed()
    };
    keep_right("service-cidr", (clock, stop), sources, restore).await;
}

/// Makes the object, or puts right what is different.
pub(crate) async fn restore(state: &State) -> Result<(), Status> {
    let kind = known("networking.k8s.io", "servicecidrs");
    let key = key(kind, "", NAME);
    let cidrs = json!([state.service_range.to_string()]);
    make(state, kind, "", json!({ "metadata": { "name": NAME }, "spec": { "cidrs": cidrs } })).await?;
    if state.store.get(&key).is_none_or(|found| is_right(&found.value(), &cidrs)) {
        return Ok(());
    }
    let now = state.now();
    let adjusted = change::modify(state, kind, &key, false, |current| {
        let mut value = current.to_value();
        if !is_right(&value, &cidrs) {
            value["spec"] = json!({ "cidrs": cidrs });
            value["status"] = json!({ "conditions": [{
                "type": "Ready", "status": "True", "reason": "", "lastTransitionTime": api::time::seconds(now),
                "message": "Services get their addresses from this range",
            }] });
        }
        Ok(value)
    });
    unless_gone(adjusted.await)
}

fn is_right(value: &Value, cidrs: &Value) -> bool {
    let conditions = value["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    value["spec"]["cidrs"] == *cidrs && conditions.iter().any(is_ready)
}
