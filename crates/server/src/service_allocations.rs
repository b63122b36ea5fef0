//! What Services have, for whoever gives out addresses and node ports: the sum over all that are stored. It begins with a list and follows
//! the store change by change, so that a new Service costs the same however many there are.

use std::sync::{Mutex, PoisonError};

use api::rules::allocation::Taken;
use store::{Change, Store, Watch};

const SERVICES: &str = "services";

/// The sum, and how far it has come; nothing before it was asked for.
#[derive(Default, Debug)]
pub(crate) struct ServiceAllocations(Mutex<Option<(Watch, Taken)>>);

impl ServiceAllocations {
    /// Asks what the Services have that are stored by now.
    pub(crate) fn ask<T>(&self, store: &Store, ask: impl FnOnce(&Taken) -> T) -> T {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = known.take().and_then(follow);
        let (_, taken) = known.insert(followed.unwrap_or_else(|| list(store)));
        ask(taken)
    }
}

fn list(store: &Store) -> (Watch, Taken) {
    let (page, watch) = store.list_and_watch(SERVICES, "");
    let mut taken = Taken::default();
    page.items.iter().for_each(|service| taken.add(&service.value()));
    (watch, taken)
}

/// Takes in what has changed; nothing if so much has that not all of it is known any more.
fn follow((mut watch, mut taken): (Watch, Taken)) -> Option<(Watch, Taken)> {
    while let Some(change) = watch.next_now() {
        match change {
            Change::Added(service) => taken.add(&service.value()),
            Change::Modified { before, after } => {
                taken.remove(&before.value());
                taken.add(&after.value());
            }
            Change::Deleted { before, .. } => taken.remove(&before.value()),
        }
    }
    watch.end().is_none().then_some((watch, taken))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};
    use store::{Expect, Key, Step, Window};

    use super::*;

    fn key(name: &str) -> Key {
        Key { collection: SERVICES.into(), namespace: "shop".into(), name: name.into() }
    }

    async fn put(store: &Store, name: &str, address: &str, node_port: i64) {
        let ports = json!([{ "port": 80, "protocol": "TCP", "nodePort": node_port }]);
        let value = json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": { "clusterIPs": [address], "ports": ports } });
        let expect = store.get(&key(name)).map_or(Expect::Absent, |old| Expect::Revision(old.revision));
        store.write(&key(name), expect, vec![Step::Put { key: key(name), value }]).await.unwrap();
    }

    /// What a list says.
    fn listed(store: &Store) -> Taken {
        list(store).1
    }

    #[tokio::test]
    async fn allocations_are_those_of_the_stored_services_after_every_change() {
        let dir = tempfile::tempdir().unwrap();
        // So few changes are kept that one who does not ask for long misses some.
        let window = Window { changes: 4, ..Window::default() };
        let store = Store::open_with(&dir.path().join("store"), window).await.unwrap();
        let allocations = ServiceAllocations::default();
        let asked = || allocations.ask(&store, Taken::clone);
        assert_eq!(asked(), Taken::default());
        put(&store, "web", "10.87.0.9", 30080).await;
        put(&store, "twin", "10.87.0.9", 30081).await;
        assert_eq!(asked(), listed(&store));
        put(&store, "web", "10.87.0.9", 30082).await;
        assert_eq!(asked(), listed(&store));
        let revision = store.get(&key("twin")).unwrap().revision;
        let gone = vec![Step::Delete { key: key("twin") }];
        store.write(&key("twin"), Expect::Revision(revision), gone).await.unwrap();
        let one = asked();
        assert_eq!(one, listed(&store), "the other has the address still");
        assert_ne!(one, Taken::default());
        for number in 0..20 {
            put(&store, &format!("more-{number}"), &format!("10.87.1.{number}"), 0).await;
        }
        assert_eq!(asked(), listed(&store), "more changed than is kept");
        let none: Value = json!({});
        let mut same = asked();
        same.remove(&none);
        assert_eq!(same, asked());
    }
}
