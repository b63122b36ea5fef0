//! Who the processes of a container are, whatever the image says of it.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common;
use crate::common::{Machine, on_a_machine, processes_in};
use crate::image_support::{Layer, docker};
use runtime::image::{ImageError, ImageStore};
use runtime::verbs::*;
use runtime::{ContainerSpec, HookRecord, PodUid};
use serde_json::json;
use tar::EntryType;

const RANGE: &str = "must be between 0 and 2147483647";

fn archive(name: &str, user: &str, top: Layer) -> Vec<u8> {
    docker(&[name], &[common::busybox_layer(), top.tar()], json!({ "Cmd": ["sh"], "User": user }))
}

async fn load(machine: &Machine, name: &str, user: &str, top: Layer) -> String {
    machine.runtime().image_store().load(archive(name, user, top).as_slice()).unwrap();
    machine.runtime().ensure_image(name).await.unwrap().id
}

async fn refusal(machine: &Machine, pod: &PodUid, change: impl FnOnce(&mut ContainerSpec)) -> String {
    let mut spec = machine.spec("refused", "id; sleep 1000").await;
    change(&mut spec);
    let error = machine.runtime().start_container(pod, &spec).await.expect_err("it must not start").to_string();
    assert_eq!(machine.log(pod, &spec.id), "", "it never ran");
    error
}

/// [SE-1] [SE-3]
#[test]
fn image_whose_user_is_a_number_out_of_range_is_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let store = ImageStore::open(dir.path(), crate::image_support::program()).unwrap();
    let passwd = || Layer::new().file("etc/passwd", "4294967296:x:0:0::/:/bin/sh\n");
    for (user, named) in [
        ("4294967295", "its user 4294967295"),
        ("4294967296", "its user 4294967296"),
        ("-1", "its user -1"),
        ("1000:4294967295", "its group 4294967295"),
    ] {
        let refused = store.load(archive("test/user:1", user, passwd()).as_slice()).unwrap_err();
        assert!(matches!(&refused, ImageError::Broken { why } if *why == format!("{named} {RANGE}")), "{refused}");
        assert!(store.list().is_empty());
    }
    store.load(archive("test/user:1", "2147483647", passwd()).as_slice()).unwrap();
}

/// [SE-1] [SE-2] The kernel takes the highest number for "leave it as it is", which is root.
#[test]
fn container_whose_user_or_group_is_out_of_range_does_not_start() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        for must_not_be_root in [false, true] {
            let why = refusal(&machine, &pod, |spec| {
                (spec.user, spec.must_not_be_root) = (Some(u32::MAX), must_not_be_root);
            })
            .await;
            assert!(why.contains(&format!("user 4294967295 {RANGE}")), "{why}");
        }
        let why = refusal(&machine, &pod, |spec| spec.group = Some(u32::MAX)).await;
        assert!(why.contains(&format!("group 4294967295 {RANGE}")), "{why}");
        let why = refusal(&machine, &pod, |spec| spec.groups = vec![1 << 31]).await;
        assert!(why.contains(&format!("group 2147483648 {RANGE}")), "{why}");
        let cases = [
            ("app", "app:x:4294967295:0::/:/bin/sh\n", "", "user 4294967295"),
            ("app", "app:x:1000:4294967295::/:/bin/sh\n", "", "group 4294967295"),
            ("app", "app:x:1000:1000::/:/bin/sh\n", "more:x:4294967295:app\n", "group 4294967295"),
            ("1000:more", "", "more:x:4294967295:\n", "group 4294967295"),
        ];
        for (number, (user, passwd, group, named)) in cases.into_iter().enumerate() {
            let layer = Layer::new().file("etc/passwd", passwd).file("etc/group", group);
            let image = load(&machine, &format!("test/accounts:{number}"), user, layer).await;
            let why = refusal(&machine, &pod, |spec| (spec.image_id, spec.must_not_be_root) = (image, true)).await;
            assert!(why.contains(&format!("{named} {RANGE}")), "{user}: {why}");
        }
        machine
    });
}

/// [SE-4]
#[test]
fn user_given_as_a_number_is_that_number_whatever_the_account_file_says() {
    on_a_machine(|machine| async {
        let passwd = Layer::new().file("etc/passwd", "1000:x:0:0::/root:/bin/sh\n");
        let image = load(&machine, "test/numbered:1", "1000", passwd).await;
        let pod = machine.sandbox("pod-1").await;
        let mut spec = machine.spec("app", "sleep 1000").await;
        (spec.image_id, spec.must_not_be_root) = (image, true);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        assert_eq!(
            machine.exec(&pod, &spec.id, "grep -e Uid /proc/1/status; grep -e Uid /proc/self/status").await.0,
            "Uid:\t1000\t1000\t1000\t1000\n".repeat(2)
        );
        machine
    });
}

/// [SE-5] What stands in for an account file holds nobody up.
#[test]
fn account_files_that_are_none_hold_no_start_up() {
    on_a_machine(|machine| async {
        let pod = machine.sandbox("pod-1").await;
        let layers = [
            Layer::new().entry(EntryType::Fifo, "etc/passwd", "", b"", |_| {}),
            Layer::new().link(EntryType::Symlink, "etc/passwd", "/dev/zero"),
            Layer::new().directory("etc/passwd"),
        ];
        for (number, layer) in layers.into_iter().enumerate() {
            let image = load(&machine, &format!("test/none:{number}"), "1000", layer).await;
            let mut spec = machine.spec(&format!("app-{number}"), "").await;
            (spec.image_id, spec.command) = (image, ["sleep", "1000"].map(String::from).to_vec());
            machine.runtime().start_container(&pod, &spec).await.unwrap();
            // Looked at from outside: a shell in there might read the file, and wait.
            let first = processes_in(&format!("/adieu-{}/{}/app-{number}", machine.instance, pod.0))[0];
            let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
            assert!(status.contains("\nUid:\t1000\t1000\t1000\t1000\n"), "{status}");
        }
        machine
    });
}

/// [SE-29] [SE-30] The first process, an exec and a hook are confined alike.
#[test]
fn every_process_of_a_container_holds_what_it_was_given_and_no_more() {
    on_a_machine(|mut machine| async {
        let pod = machine.sandbox("pod-1").await;
        let look = "grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status";
        let mut spec = machine.spec("app", &format!("{look} > /tmp/first; sleep 1000")).await;
        (spec.user, spec.group, spec.groups) = (Some(1000), Some(1000), vec![3000]);
        (spec.no_new_privileges, spec.cap_add) = (true, vec!["NET_ADMIN".to_owned()]);
        machine.runtime().start_container(&pod, &spec).await.unwrap();
        let hook = ["sh", "-c", &format!("{look} > /tmp/hook")].map(String::from);
        machine.runtime().run_hook(&pod, &spec.id, "look", &hook).await.unwrap();
        assert_eq!(machine.hook(&pod, "look").await, HookRecord::Exited { code: 0, output: None });
        let none = "0000000000000000";
        let ids = |name: &str| format!("{name}:\t1000\t1000\t1000\t1000\n");
        let expected = format!(
            "{}{}Groups:\t1000 2000 3000 \nCapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\n\
             NoNewPrivs:\t1\nSeccomp:\t2\n",
            ids("Uid"),
            ids("Gid")
        );
        let whole = "until grep -q Seccomp /tmp/first; do sleep 0.01; done; cat /tmp/first";
        for (who, seen) in [("first process", whole), ("hook", "cat /tmp/hook"), ("exec", look)] {
            assert_eq!(machine.exec(&pod, &spec.id, seen).await.0, expected, "{who}");
        }
        machine
    });
}
