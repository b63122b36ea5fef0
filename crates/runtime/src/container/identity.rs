//! Who a container's processes are: names in the image's own `/etc/passwd` and `/etc/group` turned into numbers.

use std::fs::File;
use std::io::Read;

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::SetupError;
use crate::contract::ContainerSpec;

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
        let number = user.parse::<u32>().ok();
        // name:password:uid:gid:comment:home:shell
        let account = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| {
            fields.len() >= 6 && (fields[0] == user || (number.is_some() && fields[2].parse().ok() == number))
        });
        let uid = number
            .or_else(|| account.as_ref().and_then(|fields| fields[2].parse().ok()))
            .ok_or_else(|| SetupError(format!("unable to find user {user}: no matching entries in passwd file")))?;
        if uid == 0 && spec.must_not_be_root {
            return Err(SetupError("container has runAsNonRoot and would run as root".to_owned()));
        }
        let gid = match (spec.group, group_asked) {
            (Some(gid), _) => gid,
            (None, Some(name)) => group_number(name, group)
                .ok_or_else(|| SetupError(format!("unable to find group {name}: no matching entries in group file")))?,
            (None, None) => account.as_ref().and_then(|fields| fields[3].parse().ok()).unwrap_or(0),
        };
        let mut groups = spec.groups.clone();
        if let Some(name) = account.as_ref().map(|fields| fields[0]).filter(|_| !spec.strict_groups) {
            // name:password:gid:member,member
            groups.extend(group.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter_map(|fields| {
                let member = fields.get(3)?.split(',').any(|member| member == name);
                if member { fields[2].parse::<u32>().ok() } else { None }
            }));
        }
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        let home = account.map(|fields| fields[5].to_owned()).filter(|home| !home.is_empty());
        Ok(Self { uid, gid, groups, home: home.unwrap_or_else(|| "/".to_owned()) })
    }
}

fn group_number(name: &str, group: &str) -> Option<u32> {
    name.parse().ok().or_else(|| {
        let line = group.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    })
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

    #[test]
    fn an_unknown_name_is_an_error_that_names_it() {
        assert!(resolve("nobody").unwrap_err().to_string().contains("unable to find user nobody"));
    }
}
