//! Services, pods, nodes and slices in any order, against a table of what there is.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;
use crate::woken::{Dice, Watched};

fn service(name: &str, uid: usize, spec: &Value) -> Arc<ServiceView> {
    let mut whole = json!({ "metadata": { "name": name, "namespace": "ns", "uid": format!("{name}-{uid}") },
        "spec": { "clusterIP": "10.87.0.9", "ipFamilies": ["IPv4"], "selector": { "app": name },
            "ports": [{ "port": 80, "targetPort": "http" }] } });
    for (key, value) in spec.as_object().unwrap() {
        whole["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(whole).unwrap())
}

fn pod(name: &str, app: &str, node: &str, more: &Value) -> Arc<PodView> {
    let number: usize = name[1..].parse().unwrap();
    let mut whole = json!({ "metadata": { "name": name, "namespace": "ns", "uid": name, "labels": { "app": app } },
        "spec": { "nodeName": node, "containers": [{ "name": "a", "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }] }] },
        "status": { "phase": "Running", "podIPs": [{ "ip": format!("10.1.{}.{}", number / 250, number % 250 + 1) }],
            "conditions": [{ "type": "Ready", "status": "True" }] } });
    if more["leaving"] == true {
        whole["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if more["unready"] == true {
        whole["status"]["conditions"][0]["status"] = json!("False");
    }
    if more["ended"] == true {
        whole["status"]["phase"] = json!("Succeeded");
    }
    if more["homeless"] == true {
        whole["status"]["podIPs"] = json!([]);
    }
    Arc::new(serde_json::from_value(whole).unwrap())
}

fn node(name: &str) -> Arc<Node> {
    Arc::new(serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap())
}

fn keys() -> Vec<Key> {
    ["ns/a", "ns/b"].iter().flat_map(|name| by_service(&Name::from(*name))).collect()
}

/// What is stored, and what is done to it.
#[derive(Default)]
struct Stored {
    slices: BTreeMap<String, EndpointSlice>,
    endpoints: BTreeMap<String, Endpoints>,
    names: usize,
}

impl Stored {
    /// Does what is planned for everybody, and tells it. Answers how many slices were written.
    fn write(&mut self, watched: &mut Watched<EndpointController>, seed: u64) -> usize {
        let mut written = 0;
        for key in keys() {
            watched.pass(BATCH);
            let plan = watched.controller.plan(&key, watched.now);
            watched.controller.begun(watched.now, &key, &plan.actions);
            for action in plan.actions {
                let inputs: Vec<Input> = match action {
                    Action::Slices { creates, updates, deletes } => {
                        written += creates.len() + updates.len() + deletes.len();
                        let mut inputs = Vec::new();
                        for mut slice in creates {
                            self.names += 1;
                            slice.metadata.name = Some(format!("slice-{}", self.names));
                            self.slices.insert(slice.name_any(), slice.clone());
                            inputs.push(Input::Slices(WatchUpdate::Changed(Arc::new(slice))));
                        }
                        for slice in updates {
                            assert!(self.slices.insert(slice.name_any(), slice.clone()).is_some(), "seed {seed}");
                            inputs.push(Input::Slices(WatchUpdate::Changed(Arc::new(slice))));
                        }
                        for slice in deletes {
                            self.slices.remove(&slice.name_any());
                            inputs.push(Input::Slices(WatchUpdate::Removed(Arc::new(slice))));
                        }
                        inputs
                    }
                    Action::WriteEndpoints(one) => {
                        self.endpoints.insert(one.name_any(), (*one).clone());
                        vec![Input::Endpoints(WatchUpdate::Changed(Arc::new(*one)))]
                    }
                    Action::DeleteEndpoints(one) => {
                        self.endpoints.remove(&one.name_any());
                        vec![Input::Endpoints(WatchUpdate::Removed(one))]
                    }
                };
                inputs.into_iter().for_each(|input| watched.tell(input, keys(), seed));
            }
        }
        written
    }
}

/// For any order of facts, whatever of them is lost until the next list or told twice: whoever has to be listed anew was woken, and slices
/// describe exactly the pods, each once, none of them too long; then nothing more is written. [TR-5] [TR-6] [TR-8] [TR-11]
#[test]
fn slices_describe_exactly_the_selected_pods_for_any_order_of_facts() {
    let mut written = 0;
    for seed in 1..=150 {
        let mut watched = Watched::new(EndpointController { slice_max: 3, ..EndpointController::default() });
        let (mut dice, mut stored) = (Dice::new(seed), Stored::default());
        let mut pods: BTreeMap<String, (Arc<PodView>, &str, &str, Value)> = BTreeMap::new();
        let mut services: BTreeMap<&str, Arc<ServiceView>> = BTreeMap::new();
        let mut nodes: BTreeSet<&str> = BTreeSet::from(["n1"]);
        watched.tell(Input::Nodes(WatchUpdate::Listed(vec![node("n1")])), keys(), seed);
        for step in 0..60 {
            let input = match dice.roll(12) {
                0..=6 => {
                    let name = format!("p{}", dice.roll(12));
                    let (app, node) = (dice.pick(&["a", "a", "b", "c"]), dice.pick(&["n1", "n1", "n2"]));
                    let more = json!({ dice.pick(&["leaving", "unready", "ended", "homeless", "well", "well"]): true });
                    let one = pod(&name, app, node, &more);
                    pods.insert(name, (Arc::clone(&one), app, node, more));
                    Input::Pods(WatchUpdate::Changed(one))
                }
                7 => {
                    let Some((one, ..)) = pods.remove(&format!("p{}", dice.roll(12))) else { continue };
                    Input::Pods(WatchUpdate::Removed(one))
                }
                8 | 9 => {
                    let name = dice.pick(&["a", "b"]);
                    let one = service(name, dice.roll(2), &json!({ "publishNotReadyAddresses": dice.roll(4) == 0 }));
                    services.insert(name, Arc::clone(&one));
                    Input::Services(WatchUpdate::Changed(one))
                }
                10 => {
                    let Some(one) = services.remove(dice.pick(&["a", "b"])) else { continue };
                    Input::Services(WatchUpdate::Removed(one))
                }
                _ => match dice.flip() {
                    true => {
                        nodes.insert("n2");
                        Input::Nodes(WatchUpdate::Changed(node("n2")))
                    }
                    false => {
                        nodes.remove("n2");
                        Input::Nodes(WatchUpdate::Removed(node("n2")))
                    }
                },
            };
            // Some of it is only found by the next list.
            if dice.roll(8) != 0 {
                watched.tell(input, keys(), seed);
            }
            if dice.flip() {
                written += stored.write(&mut watched, seed);
            }
            if step == 59 {
                let all = pods.values().map(|(one, ..)| Arc::clone(one)).collect();
                watched.tell(Input::Pods(WatchUpdate::Listed(all)), keys(), seed);
                let all = services.values().cloned().collect();
                watched.tell(Input::Services(WatchUpdate::Listed(all)), keys(), seed);
                let all = nodes.iter().map(|name| node(name)).collect();
                watched.tell(Input::Nodes(WatchUpdate::Listed(all)), keys(), seed);
            }
        }
        // A continued loop may have left out the lists.
        let all = pods.values().map(|(one, ..)| Arc::clone(one)).collect();
        watched.tell(Input::Pods(WatchUpdate::Listed(all)), keys(), seed);
        watched.tell(Input::Services(WatchUpdate::Listed(services.values().cloned().collect())), keys(), seed);
        watched.tell(Input::Nodes(WatchUpdate::Listed(nodes.iter().map(|name| node(name)).collect())), keys(), seed);
        written += stored.write(&mut watched, seed);
        assert_eq!(stored.write(&mut watched, seed), 0, "seed {seed}: it is written again");
        for (name, service) in &services {
            let publishes = service.spec.publish_not_ready_addresses;
            let mut expected: Vec<(String, bool, bool, bool)> = Vec::new();
            for (pod, (_, app, node, more)) in &pods {
                let is = |word: &str| more[word] == true;
                if app != name || is("ended") || is("homeless") || !(nodes.contains(node) || publishes) {
                    continue;
                }
                let (serving, terminating) = (!is("unready"), is("leaving"));
                expected.push((pod.clone(), publishes || (serving && !terminating), serving, terminating));
            }
            let own: Vec<&EndpointSlice> = stored
                .slices
                .values()
                .filter(|slice| slice.metadata.owner_references.as_ref().unwrap()[0].uid == service.uid().unwrap())
                .collect();
            assert!(
                !own.is_empty() && own.iter().all(|slice| slice.endpoints.as_ref().unwrap().len() <= 3),
                "seed {seed}"
            );
            let mut listed: Vec<(String, bool, bool, bool)> = own
                .iter()
                .flat_map(|slice| slice.endpoints.iter().flatten())
                .map(|one| {
                    let conditions = one.conditions.clone().unwrap();
                    let target = one.target_ref.clone().unwrap().name.unwrap();
                    (target, conditions.ready.unwrap(), conditions.serving.unwrap(), conditions.terminating.unwrap())
                })
                .collect();
            listed.sort();
            assert_eq!(listed, expected, "seed {seed}: {name}");
        }
    }
    assert!(written > 1000, "the dice never asked for anything: {written}");
}

fn told(pods: Vec<Arc<PodView>>, spec: &Value) -> (Watched<EndpointController>, Stored) {
    let (mut watched, mut stored) = (Watched::new(EndpointController::default()), Stored::default());
    watched.tell(Input::Nodes(WatchUpdate::Listed(vec![node("n1")])), keys(), 0);
    watched.tell(Input::Pods(WatchUpdate::Listed(pods)), keys(), 0);
    watched.tell(Input::Services(WatchUpdate::Listed(vec![service("a", 0, spec)])), keys(), 0);
    stored.write(&mut watched, 0);
    (watched, stored)
}

/// [TR-7] One of 250 endpoints turns terminating: one slice of three is rewritten.
#[test]
fn slice_of_a_terminating_pod_is_the_only_one_rewritten() {
    let pods = (0..250).map(|number| pod(&format!("p{number}"), "a", "n1", &json!({}))).collect();
    let (mut watched, mut stored) = told(pods, &json!({}));
    let sizes: Vec<usize> = stored.slices.values().map(|slice| slice.endpoints.as_ref().unwrap().len()).collect();
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (3, 250));
    let leaving = pod("p7", "a", "n1", &json!({ "leaving": true }));
    watched.tell(Input::Pods(WatchUpdate::Changed(leaving)), keys(), 0);
    assert_eq!(watched.controller.rank(&Key::Slices("ns/a".into())), (0, 0), "it comes first");
    assert_eq!(stored.write(&mut watched, 0), 1);
}

/// [TR-4] The published `ready` stays true for who asked for that.
#[test]
fn terminating_pod_stays_ready_where_not_ready_addresses_are_published() {
    let pods =
        vec![pod("p1", "a", "n1", &json!({ "leaving": true })), pod("p2", "a", "gone", &json!({ "unready": true }))];
    let (_, stored) = told(pods, &json!({ "publishNotReadyAddresses": true }));
    let [slice] = &stored.slices.values().collect::<Vec<_>>()[..] else { panic!("{:?}", stored.slices) };
    let conditions: Vec<_> = slice.endpoints.iter().flatten().map(|one| one.conditions.clone().unwrap()).collect();
    assert_eq!(conditions.iter().map(|one| one.ready.unwrap()).collect::<Vec<_>>(), [true, true]);
    assert_eq!(conditions.iter().map(|one| one.terminating.unwrap()).collect::<Vec<_>>(), [true, false]);
    let addresses = stored.endpoints["a"].subsets.as_ref().unwrap()[0].addresses.as_ref().unwrap();
    assert_eq!(addresses.len(), 2);
}

/// Who becomes ready right after a write waits for others; who leaves does not.
#[test]
fn withdrawal_is_written_at_once_while_an_addition_waits_for_others() {
    let (mut watched, _) = told(vec![pod("p1", "a", "n1", &json!({}))], &json!({}));
    let key = Key::Slices("ns/a".into());
    watched.controller.begun(watched.now, &key, &[]);
    watched.tell(Input::Pods(WatchUpdate::Changed(pod("p2", "a", "n1", &json!({})))), [], 0);
    let waiting = watched.controller.plan(&key, watched.now);
    assert!(waiting.actions.is_empty() && waiting.wake.is_some(), "{waiting:?}");
    watched.tell(Input::Pods(WatchUpdate::Changed(pod("p1", "a", "n1", &json!({ "leaving": true })))), [], 0);
    let now = watched.controller.plan(&key, watched.now);
    assert_eq!(now.actions.len(), 1, "both at once: {now:?}");
}

#[test]
fn service_without_selector_or_with_an_external_name_is_left_alone() {
    for spec in [json!({ "selector": {} }), json!({ "type": "ExternalName" })] {
        let (_, stored) = told(vec![pod("p1", "a", "n1", &json!({}))], &spec);
        assert!(stored.slices.is_empty() && stored.endpoints.is_empty(), "{spec}");
    }
}

fn only_endpoint(stored: &Stored, family: &str) -> (EndpointSlice, k8s_openapi::api::discovery::v1::Endpoint) {
    let slice = stored.slices.values().find(|slice| slice.address_type == family).unwrap().clone();
    let endpoint = slice.endpoints.as_ref().unwrap()[0].clone();
    (slice, endpoint)
}

/// A pod with an address of each family and a name within the service has an endpoint in a slice of each; Endpoints have the main one.
#[test]
fn headless_dual_stack_service_names_its_pods_in_slices_of_both_families() {
    let mut one = Arc::unwrap_or_clone(pod("p1", "a", "n1", &json!({})));
    one.spec.hostname = Some("db-0".to_owned());
    one.spec.subdomain = Some("a".to_owned());
    one.status.pod_ips.push(serde_json::from_value(json!({ "ip": "fd00:0::1" })).unwrap());
    let spec = json!({ "clusterIP": "None", "ipFamilies": ["IPv6", "IPv4"] });
    let (_, stored) = told(vec![Arc::new(one)], &spec);
    assert_eq!(stored.slices.len(), 2);
    for (family, address) in [("IPv4", "10.1.0.2"), ("IPv6", "fd00::1")] {
        let (slice, endpoint) = only_endpoint(&stored, family);
        assert_eq!((endpoint.addresses, endpoint.hostname), (vec![address.to_owned()], Some("db-0".to_owned())));
        assert_eq!(slice.labels().get("service.kubernetes.io/headless").map(String::as_str), Some(""));
    }
    let address = &stored.endpoints["a"].subsets.as_ref().unwrap()[0].addresses.as_ref().unwrap()[0];
    assert_eq!((address.ip.as_str(), address.hostname.as_deref()), ("fd00::1", Some("db-0")));
}

/// Pods whose port of the same name has another number are in another slice; what has no such port is listed without it.
#[test]
fn slices_are_grouped_by_the_numbers_of_named_ports() {
    let mut other = Arc::unwrap_or_clone(pod("p2", "a", "n1", &json!({})));
    other.spec.containers[0].ports[0].container_port = 9090;
    let (_, stored) = told(vec![pod("p1", "a", "n1", &json!({})), Arc::new(other)], &json!({}));
    let ports: BTreeSet<i32> =
        stored.slices.values().map(|slice| slice.ports.as_ref().unwrap()[0].port.unwrap()).collect();
    assert_eq!(ports, BTreeSet::from([8080, 9090]));
    let by_udp = json!({ "ports": [{ "port": 80, "protocol": "UDP", "targetPort": "http" }] });
    let (_, stored) = told(vec![pod("p1", "a", "n1", &json!({}))], &by_udp);
    assert!(only_endpoint(&stored, "IPv4").0.ports.unwrap().is_empty());
}

#[test]
fn traffic_distribution_gives_ready_endpoints_hints() {
    let spec = json!({ "trafficDistribution": "PreferSameNode" });
    let (mut watched, mut stored) = told(vec![pod("p1", "a", "n1", &json!({}))], &spec);
    let hints = only_endpoint(&stored, "IPv4").1.hints.unwrap();
    assert_eq!((hints.for_zones, hints.for_nodes.unwrap()[0].name.as_str()), (None, "n1"));
    let zoned = json!({ "metadata": { "name": "n1", "labels": { "topology.kubernetes.io/zone": "z1" } } });
    let zoned: Arc<Node> = Arc::new(serde_json::from_value(zoned).unwrap());
    watched.tell(Input::Nodes(WatchUpdate::Changed(zoned)), keys(), 0);
    stored.write(&mut watched, 0);
    let endpoint = only_endpoint(&stored, "IPv4").1;
    assert_eq!(
        (endpoint.zone.as_deref(), endpoint.hints.unwrap().for_zones.unwrap()[0].name.as_str()),
        (Some("z1"), "z1")
    );
    watched.tell(Input::Pods(WatchUpdate::Changed(pod("p1", "a", "n1", &json!({ "leaving": true })))), keys(), 0);
    stored.write(&mut watched, 0);
    assert_eq!(only_endpoint(&stored, "IPv4").1.hints, None);
}
