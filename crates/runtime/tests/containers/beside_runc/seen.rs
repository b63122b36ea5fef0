//! What a container saw of itself, taken apart into fields that can be compared.

use std::collections::BTreeMap;

/// Fields by name.
pub type Seen = BTreeMap<String, String>;

const OF_STATUS: [&str; 16] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Cpus_allowed_list",
];
/// Fields of `/proc/PID/stat`, counted behind the name of the program.
const OF_STAT: [(&str, usize); 7] =
    [("pgrp", 2), ("session", 3), ("tty", 4), ("foreground", 5), ("nice", 16), ("rt_priority", 37), ("policy", 38)];

/// Reads what `observe.sh` wrote. `host` names the host's namespaces.
pub fn read(text: &str, host: &dyn Fn(&str) -> String) -> Seen {
    let mut seen = Seen::new();
    let text = text.replace("\r\n", "\n");
    assert!(text.contains("== end"), "the script did not end:\n{text}");
    for section in text.split("== ").skip(1) {
        let (name, body) = section.split_once('\n').unwrap_or((section, ""));
        let mut put = |field: String, value: String| {
            let mut unique = field.clone();
            for number in 2.. {
                if !seen.contains_key(&unique) {
                    break;
                }
                unique = format!("{field} ({number})");
            }
            seen.insert(unique, value);
        };
        match name {
            "status" => {
                for (key, value) in body.lines().filter_map(|line| line.split_once(':')) {
                    if OF_STATUS.contains(&key) {
                        put(format!("status {key}"), words(value));
                    }
                }
            }
            "limits" => {
                for line in body.lines().skip(1).filter(|line| line.len() > 26) {
                    put(format!("limit {}", line[..26].trim()), words(&line[26..]));
                }
            }
            "mountinfo" => {
                for line in body.lines() {
                    let (target, how) = mount(line);
                    put(format!("mount {target}"), how);
                }
            }
            "stat" => {
                let (pid, rest) = body.split_once(' ').unwrap();
                let fields: Vec<&str> = rest.rsplit_once(')').unwrap().1.split_whitespace().collect();
                for (key, at) in OF_STAT {
                    let value = if fields[at] == pid { "itself" } else { fields[at] };
                    put(format!("stat {key}"), value.to_owned());
                }
            }
            "cgroup" => {
                for line in body.lines() {
                    let (controllers, path) = line.split_once(':').unwrap().1.split_once(':').unwrap();
                    put(format!("cgroup {}", if controllers.is_empty() { "v2" } else { controllers }), path.to_owned());
                }
            }
            "environ" => {
                for (name, value) in body.lines().filter_map(|line| line.split_once('=')) {
                    put(format!("env {name}"), value.to_owned());
                }
            }
            "ns" => {
                for (name, id) in body.lines().filter_map(|line| line.split_once(' ')) {
                    let whose = if id == host(name) { "the host's" } else { "its own" };
                    put(format!("namespace {name}"), whose.to_owned());
                }
            }
            "fd" => {
                for (number, target) in body.lines().filter_map(|line| line.split_once(' ')) {
                    put(format!("fd {number}"), target.split(":[").next().unwrap().to_owned());
                }
            }
            "attempts" => {
                for (what, answer) in body.lines().filter_map(|line| line.split_once(": ")) {
                    put(format!("attempt {what}"), answer.to_owned());
                }
            }
            "seccomp" => {
                let names = calls();
                for (number, answer) in body.lines().filter_map(|line| line.split_once(' ')) {
                    let name = names.get(number).map_or(number, String::as_str);
                    put(format!("call {name}"), answer.to_owned());
                }
            }
            "dev" | "sysctl" => {
                for (what, value) in body.lines().filter_map(|line| line.split_once(' ')) {
                    put(format!("{name} {what}"), value.to_owned());
                }
            }
            "end" => {}
            _ => put(name.to_owned(), body.trim().to_owned()),
        }
    }
    seen
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether nothing can be seen behind a mount: an empty directory, or `/dev/null`.
fn is_mask(target: &str, root: &str, kind: &str, options: &str) -> bool {
    let hidden = target.starts_with("/proc/") || target.starts_with("/sys/");
    hidden && kind == "tmpfs" && (root == "/null" || options.split(',').any(|option| option == "ro"))
}

/// A line of `mountinfo`: where, and how; without numbers and the places on the host that are different every time.
fn mount(line: &str) -> (String, String) {
    let (left, right) = line.split_once(" - ").unwrap();
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    if is_mask(left[4], left[3], right[0], left[5]) {
        return (left[4].to_owned(), "hidden".to_owned());
    }
    let passes: Vec<&str> = left[6..].iter().map(|tag| tag.split(':').next().unwrap()).collect();
    let ours = |option: &&str| !["lowerdir", "upperdir", "workdir", "uuid"].iter().any(|name| option.starts_with(name));
    let of_whole: Vec<&str> = right[2].split(',').filter(ours).collect();
    let how = [right[0].to_owned(), left[5].to_owned(), of_whole.join(","), passes.join(",")];
    (left[4].to_owned(), how.join(" ").trim_end().to_owned())
}

/// The names of calls, as the C library's header numbers them.
fn calls() -> BTreeMap<String, String> {
    let header = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
        .or_else(|_| std::fs::read_to_string("/usr/include/asm-generic/unistd.h"))
        .unwrap_or_default();
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '));
    defined.map(|(name, number)| (number.trim().to_owned(), name.to_owned())).collect()
}
