//! Who a container's processes are: names in the image's own `/etc/passwd` and `/etc/group` turned into numbers.

use std::fs::File;
use std::io::Read;

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::SetupError;
use crate::contract::ContainerSpec;
use crate::ids::{id_in_range, is_number};

/// A longer account file is a trick, not an account file.
const ACCOUNTS_BYTES_MAX: u64 = 4 << 20;

/// Numbers to assume before a program runs, and the home that goes with them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

impl Identity {
    /// Reads the account files of the root this process stands in.
    pub(crate) fn resolve(user: &str, spec: &ContainerSpec) -> Result<Self, SetupError> {
        Self::from_accounts(user, spec, &account_file("/etc/passwd"), &account_file("/etc/group"))
    }

    fn from_accounts(user: &str, spec: &ContainerSpec, passwd: &str, group: &str) -> Result<Self, SetupError> {
        let (user, group_asked) = user.split_once(':').map_or((user, None), |(user, group)| (user, Some(group)));
        // What is left out on either side of the colon is as if nothing was said of it.
        let (user, group_asked) =
            (if user.is_empty() { "0" } else { user }, group_asked.filter(|group| !group.is_empty()));
        // A number is never a name, whatever the account file says.
        let number = if is_number(user) { Some(id("user", user)?) } else { None };
        // name:password:uid:gid:comment:home:shell
        let account = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
            let is_named = || number.is_none() && fields[0] == user;
            fields.len() >= 6 && (is_named() || (number.is_some() && fields[2].parse().ok() == number))
        });
        let uid = match (number, &account) {
            (Some(number), _) => number,
            (None, Some(fields)) => id("user", fields[2])?,
            (None, None) => {
                return Err(SetupError(format!("unable to find user {user}: no matching entries in passwd file")));
            }
        };
        if uid == 0 && spec.must_not_be_root {
            return Err(SetupError("container has runAsNonRoot and would run as root".to_owned()));
        }
        let gid = match (spec.group, group_asked) {
            (Some(gid), _) => in_range("group", gid)?,
            (None, Some(name)) => group_number(name, group)?,
            // An account without a group is in that of root, as everywhere else.
            (None, None) => account
                .as_ref()
                .map(|fields| fields[3])
                .filter(|gid| !gid.is_empty())
                .map_or(Ok(0), |gid| id("group", gid))?,
        };
        let mut groups = spec.groups.iter().map(|gid| in_range("group", *gid)).collect::<Result<Vec<_>, _>>()?;
        if let Some(name) = account.as_ref().map(|fields| fields[0]).filter(|_| !spec.strict_groups) {
            // name:password:gid:member,member
            for fields in group.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
                if fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name)) {
                    groups.push(id("group", fields[2])?);
                }
            }
        }
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        let home = account.map(|fields| fields[5].to_owned()).filter(|home| !home.is_empty());
        Ok(Self { uid, gid, groups, home: home.unwrap_or_else(|| "/".to_owned()) })
    }
}

fn group_number(name: &str, group: &str) -> Result<u32, SetupError> {
    if is_number(name) {
        return id("group", name);
    }
    let line = group.lines().find(|line| line.split(':').next() == Some(name));
    let number = line.and_then(|line| line.split(':').nth(2));
    let unknown = || SetupError(format!("unable to find group {name}: no matching entries in group file"));
    number.ok_or_else(unknown).and_then(|number| id("group", number))
}

/// The id that a text gives. `of` says whose it is: "user" or "group".
fn id(of: &str, text: &str) -> Result<u32, SetupError> {
    id_in_range(of, text).map_err(SetupError)
}

fn in_range(of: &str, id: u32) -> Result<u32, SetupError> {
    id_in_range(of, &id.to_string()).map_err(SetupError)
}

/// The file's text, or nothing if it is absent or anything but a sane regular file.
fn account_file(path: &str) -> String {
    // Non-blocking, so that a fifo put there by an image cannot hold us up.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut text = String::new();
    if let Ok(fd) = rustix::fs::open(path, flags, Mode::empty())
        && rustix::fs::fstat(&fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    {
        let mut bytes = Vec::new();
        let _ = File::from(fd).take(ACCOUNTS_BYTES_MAX).read_to_end(&mut bytes);
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::plan::tests::spec;
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:34:www:/var/www:/bin/false\n";
    const GROUP: &str = "root:x:0:\nwww-data:x:34:\nlogs:x:50:root,www-data\n";

    fn resolve(user: &str) -> Result<Identity, SetupError> {
        Identity::from_accounts(user, &spec(), PASSWD, GROUP)
    }

    #[test]
    fn a_name_is_looked_up_with_its_groups_and_home() {
        let identity = resolve("www-data").unwrap();
        assert_eq!(identity, Identity { uid: 33, gid: 34, groups: vec![34, 50], home: "/var/www".into() });
        assert_eq!(resolve("33").unwrap(), identity);
        assert_eq!(resolve("www-data:logs").unwrap().gid, 50);
        let strict = ContainerSpec { strict_groups: true, groups: vec![7], ..spec() };
        assert_eq!(Identity::from_accounts("www-data", &strict, PASSWD, GROUP).unwrap().groups, [7, 34]);
    }

    #[test]
    fn user_or_group_that_is_left_out_beside_a_colon_is_the_usual_one() {
        assert_eq!(resolve("www-data:").unwrap(), resolve("www-data").unwrap());
        assert_eq!(resolve("1000:").unwrap(), resolve("1000").unwrap());
        assert_eq!((resolve(":50").unwrap().uid, resolve(":50").unwrap().gid), (0, 50));
        let spec = ContainerSpec { must_not_be_root: true, ..spec() };
        assert!(Identity::from_accounts(":50", &spec, PASSWD, GROUP).is_err());
    }

    #[test]
    fn a_number_needs_no_account() {
        assert_eq!(resolve("4711").unwrap(), Identity { uid: 4711, gid: 0, groups: vec![0], home: "/".into() });
        assert_eq!(resolve("4711:12").unwrap().gid, 12);
    }

    #[test]
    fn root_is_refused_by_whatever_name_where_it_must_not_be() {
        let spec = ContainerSpec { must_not_be_root: true, ..spec() };
        for user in ["0", "root", "0:34"] {
            let refused = Identity::from_accounts(user, &spec, PASSWD, GROUP).unwrap_err();
            assert_eq!(refused.to_string(), "container has runAsNonRoot and would run as root");
        }
        assert_eq!(Identity::from_accounts("www-data", &spec, PASSWD, GROUP).unwrap().uid, 33);
    }

    /// [SE-1] [SE-2] [SE-3] The highest number means "leave it as it is" to the kernel, and would leave root as it is.
    #[test]
    fn id_outside_the_range_is_refused_wherever_it_is_written() {
        let passwd = "app:x:4294967295:0::/:/bin/sh\n4294967296:x:0:0::/:/bin/sh\nhigh:x:7:2147483648::/:/bin/sh\n\
                      odd:x:seven:0::/:/bin/sh\nmember:x:8:8::/:/bin/sh\n";
        let group = "huge:x:4294967295:\nodd:x:0x7:\nsecret:x:4294967295:other,member\n";
        let refused = |user: &str, spec: &ContainerSpec| {
            Identity::from_accounts(user, spec, passwd, group).unwrap_err().to_string()
        };
        let range = "must be between 0 and 2147483647";
        for must_not_be_root in [false, true] {
            let spec = ContainerSpec { must_not_be_root, ..spec() };
            for (user, named) in [
                ("4294967295", "user 4294967295"),
                ("2147483648", "user 2147483648"),
                ("4294967296", "user 4294967296"),
                ("99999999999999999999999999", "user 99999999999999999999999999"),
                ("-1", "user -1"),
                ("app", "user 4294967295"),
                ("odd", "user seven"),
                ("7:4294967295", "group 4294967295"),
                ("7:huge", "group 4294967295"),
                ("7:odd", "group 0x7"),
                ("high", "group 2147483648"),
                ("member", "group 4294967295"),
            ] {
                assert_eq!(refused(user, &spec), format!("{named} {range}"), "{user}");
            }
        }
        let of_pod = ContainerSpec { group: Some(u32::MAX), ..spec() };
        assert_eq!(refused("7", &of_pod), format!("group 4294967295 {range}"));
        let of_pod = ContainerSpec { groups: vec![5, 1 << 31], ..spec() };
        assert_eq!(refused("7", &of_pod), format!("group 2147483648 {range}"));
        let highest = Identity::from_accounts("2147483647:2147483647", &spec(), passwd, group).unwrap();
        assert_eq!((highest.uid, highest.gid), (2_147_483_647, 2_147_483_647));
    }

    /// [SE-4] An account whose name is a number does not give that number another meaning.
    #[test]
    fn number_is_itself_whatever_account_has_it_for_a_name() {
        let passwd = "1000:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
        let identity = Identity::from_accounts("1000", &spec(), passwd, "").unwrap();
        assert_eq!(identity, Identity { uid: 1000, gid: 1000, groups: vec![1000], home: "/home/user".into() });
    }

    #[test]
    fn an_unknown_name_is_an_error_that_names_it() {
        assert!(resolve("nobody").unwrap_err().to_string().contains("unable to find user nobody"));
    }
}
