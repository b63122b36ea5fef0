//! Which capabilities a container's processes may have.

use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use super::{Doing, SetupError};
use crate::contract::{CAPABILITIES as NAMES, ContainerSpec};

/// What containers get unless told otherwise, as everywhere else.
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// A set of capabilities, one bit each, in the kernel's numbering.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Capabilities(pub(crate) u64);

impl Default for Capabilities {
    /// What a container gets unasked.
    fn default() -> Self {
        Self::named(&DEFAULT)
    }
}

impl Capabilities {
    /// The defaults plus what is added minus what is dropped; adding a name beats dropping `ALL`.
    pub(crate) fn of(spec: &ContainerSpec) -> Self {
        if spec.privileged {
            return Self::all();
        }
        let mut set = Self::default().0;
        if names(&spec.cap_add).any(|name| name == "ALL") {
            set = Self::all().0;
        }
        if names(&spec.cap_drop).any(|name| name == "ALL") {
            set = 0;
        }
        set |= names(&spec.cap_add).filter_map(|name| bit(&name)).fold(0, |set, bit| set | bit);
        set &= !names(&spec.cap_drop).filter_map(|name| bit(&name)).fold(0, |set, bit| set | bit);
        Self(set)
    }

    /// Those of these names.
    pub(crate) fn named(names: &[&str]) -> Self {
        Self(names.iter().filter_map(|name| bit(name)).fold(0, |set, bit| set | bit))
    }

    /// Whether there is one among them that a container does not get unasked.
    pub(crate) fn exceed_default(self) -> bool {
        self.0 & !Self::default().0 != 0
    }

    /// Every capability this code knows by name.
    pub(crate) fn all() -> Self {
        Self((1 << NAMES.len()) - 1)
    }

    /// Whether the named capability is in the set.
    pub(crate) fn has(self, name: &str) -> bool {
        bit(name).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Takes everything else out of reach of this process and all it becomes.
    pub(crate) fn limit(self) -> Result<(), SetupError> {
        for number in 0..64 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            // The kernel says which numbers exist: the first unknown one ends the list.
            let Ok(held) = rustix::thread::capability_is_in_bounding_set(one) else { break };
            if held && self.0 & (1 << number) == 0 {
                rustix::thread::remove_capability_from_bounding_set(one)
                    .doing(|| format!("drop capability {number}"))?;
            }
        }
        Ok(())
    }

    /// Makes these the capabilities of this process: effective and permitted, none inheritable.
    pub(crate) fn assume(self) -> Result<(), SetupError> {
        let now = rustix::thread::capabilities(None).doing(|| "read own capabilities".to_owned())?;
        let set = CapabilitySet::from_bits_retain(self.0) & now.permitted;
        rustix::thread::set_capabilities(
            None,
            CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() },
        )
        .doing(|| "set capabilities".to_owned())
    }

    /// Makes sure of both: no more than these are within reach, none can be handed on, and none are held by a user that is
    /// not root. Without inheritable capabilities there are no ambient ones either.
    pub(crate) fn verify(self, uid: u32) -> Result<(), SetupError> {
        let held = rustix::thread::capabilities(None).doing(|| "read own capabilities".to_owned())?;
        let allowed = if uid == 0 { self.0 } else { 0 };
        let wrong = |which: &str, set: u64| Err(SetupError(format!("the process holds {which} capabilities {set:#x}")));
        for (which, set, allowed) in [
            ("effective", held.effective, allowed),
            ("permitted", held.permitted, allowed),
            ("inheritable", held.inheritable, 0),
        ] {
            if set.bits() & !allowed != 0 {
                return wrong(which, set.bits());
            }
        }
        for number in 0..64 {
            let one = CapabilitySet::from_bits_retain(1 << number);
            let Ok(in_reach) = rustix::thread::capability_is_in_bounding_set(one) else { break };
            if in_reach && self.0 & (1 << number) == 0 {
                return wrong("bounding", 1 << number);
            }
        }
        Ok(())
    }
}

fn names(written: &[String]) -> impl Iterator<Item = String> + '_ {
    written.iter().map(|name| {
        let upper = name.to_ascii_uppercase();
        upper.strip_prefix("CAP_").map(str::to_owned).unwrap_or(upper)
    })
}

fn bit(name: &str) -> Option<u64> {
    NAMES.iter().position(|known| *known == name).map(|number| 1 << number)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::spec;
    use super::*;

    #[test]
    fn the_default_set_is_the_usual_fourteen() {
        assert_eq!(Capabilities::of(&spec()).0, 0xa804_25fb);
    }

    #[test]
    fn add_and_drop_are_honoured_with_and_without_prefix() {
        let spec = ContainerSpec {
            cap_drop: vec!["ALL".into()],
            cap_add: vec!["CAP_NET_BIND_SERVICE".into(), "sys_time".into()],
            ..spec()
        };
        let set = Capabilities::of(&spec);
        assert!(set.has("NET_BIND_SERVICE") && set.has("SYS_TIME"));
        assert_eq!(set.0.count_ones(), 2);
    }
}
