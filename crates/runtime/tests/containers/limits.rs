//! How many files may be open, in the agent and in its containers. A program of its own, as limits are per process.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::on_a_machine;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn the_agent_may_open_as_many_files_as_it_can_and_its_containers_as_many_as_before() {
    let before = getrlimit(Resource::Nofile);
    let low = Rlimit { current: Some(321), maximum: before.maximum };
    setrlimit(Resource::Nofile, low).unwrap();
    on_a_machine(|mut machine| async move {
        let here = getrlimit(Resource::Nofile);
        assert_eq!(here.current, here.maximum, "enough for two descriptors per pod");
        let pod = machine.sandbox("pod-1").await;
        let id = machine.start(&pod, "app", "ulimit -Sn; ulimit -Hn; sleep 1000").await;
        let hard = low.maximum.map_or("unlimited".to_owned(), |most| most.to_string());
        machine.logged(&pod, &id, &format!("stdout F 321\nstdout F {hard}\n")).await;
        assert_eq!(machine.exec(&pod, &id, "ulimit -Sn").await.0, "321\n");
        // An agent that opens its directory again has not forgotten what it was started with.
        machine.agent_dies();
        machine.agent_returns().await;
        let other = machine.sandbox("pod-2").await;
        let id = machine.start(&other, "app", "ulimit -Sn; sleep 1000").await;
        machine.logged(&other, &id, "stdout F 321\n").await;
        machine
    });
}
