//! From a process inside the container's namespaces to the container's program.
//!
//! Order matters: what needs privileges first, then giving them up, then nothing but `execve`.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;

use rustix::fs::{Access, AtFlags, CWD, Gid, Uid};
use rustix::thread::SecureComputingMode;

use super::capabilities::Capabilities;
use super::identity::Identity;
use super::progress::{self, Progress};
use super::{Doing, SetupError, stdio, words};
use crate::sys::{descriptors, identity, program};

/// What the program will be and who it will run as.
#[derive(Debug)]
pub(crate) struct LastSteps<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) env: &'a [(String, String)],
    pub(crate) cwd: &'a str,
    pub(crate) identity: &'a Identity,
    pub(crate) capabilities: Capabilities,
    pub(crate) no_new_privileges: bool,
    pub(crate) seccomp: &'a [Vec<u8>],
}

impl LastSteps<'_> {
    /// Becomes the program; returns only with the reason why not.
    pub(crate) fn take(&self) -> SetupError {
        match self.confine() {
            Ok(()) => {
                progress::tell(descriptors::agreed(stdio::PROGRESS), &Progress::Ready);
                self.execute()
            }
            Err(error) => error,
        }
    }

    fn confine(&self) -> Result<(), SetupError> {
        self.enter_cwd()?;
        if !self.no_new_privileges {
            // Without the promise of no new privileges only a privileged process may install a filter.
            self.install_filters()?;
        }
        self.capabilities.limit()?;
        let groups: Vec<_> = self.identity.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.identity.uid), Gid::from_raw(self.identity.gid));
        rustix::thread::set_thread_groups(&groups).doing(|| "set groups".to_owned())?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).doing(|| "set group".to_owned())?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).doing(|| "set user".to_owned())?;
        rustix::thread::clear_ambient_capability_set().doing(|| "clear ambient capabilities".to_owned())?;
        self.capabilities.assume()?;
        if self.no_new_privileges {
            rustix::thread::set_no_new_privs(true).doing(|| "forbid new privileges".to_owned())?;
            self.install_filters()?;
        }
        self.verify()
    }

    /// Makes sure that this process became what it was to become, by asking the kernel: some numbers mean "leave it as it is"
    /// to the calls above, which then succeed.
    fn verify(&self) -> Result<(), SetupError> {
        let wrong = |what: String| Err(SetupError(format!("the process did not become what it must be: {what}")));
        let Identity { uid, gid, groups, home: _ } = self.identity;
        let users = identity::users();
        if users != [*uid; 3] {
            return wrong(format!("its user is {users:?}, not {uid}"));
        }
        let primary = identity::groups();
        if primary != [*gid; 3] {
            return wrong(format!("its group is {primary:?}, not {gid}"));
        }
        let set = |ids: &[u32]| ids.iter().copied().collect::<BTreeSet<u32>>();
        let held = rustix::process::getgroups().doing(|| "read own groups".to_owned())?;
        let held: Vec<u32> = held.into_iter().map(Gid::as_raw).collect();
        if set(&held) != set(groups) {
            return wrong(format!("its groups are {held:?}, not {groups:?}"));
        }
        self.capabilities.verify(*uid)?;
        if self.no_new_privileges && !rustix::thread::no_new_privs().doing(|| "read own promises".to_owned())? {
            return wrong("it may gain privileges".to_owned());
        }
        let filtered = || rustix::thread::secure_computing_mode().doing(|| "read own filter".to_owned());
        if !self.seccomp.is_empty() && filtered()? != SecureComputingMode::Filter {
            return wrong("it has no system call filter".to_owned());
        }
        Ok(())
    }

    fn install_filters(&self) -> Result<(), SetupError> {
        self.seccomp
            .iter()
            .try_for_each(|filter| program::install_filter(filter).doing(|| "install seccomp filter".to_owned()))
    }

    fn enter_cwd(&self) -> Result<(), SetupError> {
        rustix::process::chdir(self.cwd).doing(|| format!("chdir to working directory {:?}", self.cwd))?;
        // A working directory outside the root would be a way out of the container.
        let here = rustix::process::getcwd(Vec::new()).doing(|| "read working directory".to_owned())?;
        if here.as_bytes().first() == Some(&b'/') {
            Ok(())
        } else {
            Err(SetupError(format!("working directory {:?} is outside the container", self.cwd)))
        }
    }

    fn execute(&self) -> SetupError {
        let Some(name) = self.argv.first().filter(|name| !name.is_empty()) else {
            return SetupError("no command specified".to_owned());
        };
        let mut environment = self.env.to_vec();
        if !environment.iter().any(|(name, _)| name == "HOME") {
            environment.push(("HOME".to_owned(), self.identity.home.clone()));
        }
        let environment = environment.iter().map(|(name, value)| c_string(&format!("{name}={value}")));
        let arguments = self.argv.iter().map(|text| c_string(text));
        let (Ok(environment), Ok(arguments)) =
            (environment.collect::<Result<Vec<_>, _>>(), arguments.collect::<Result<Vec<_>, _>>())
        else {
            return SetupError(format!("exec: {name:?}: zero byte in arguments or environment"));
        };
        if name.contains('/') {
            return refusal(name, name, attempt(name, &arguments, &environment));
        }
        let path = self.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
        let mut denied = false;
        for dir in path.split(':') {
            let candidate = format!("{}/{name}", if dir.is_empty() { "." } else { dir });
            if rustix::fs::accessat(CWD, candidate.as_str(), Access::EXISTS, AtFlags::empty()).is_err() {
                continue;
            }
            let answer = attempt(&candidate, &arguments, &environment);
            if answer.kind() != io::ErrorKind::PermissionDenied {
                return refusal(name, &candidate, answer);
            }
            denied = true;
        }
        if denied {
            SetupError(format!("exec: {name:?}: permission denied"))
        } else {
            SetupError(format!("exec: {name:?}: executable file not found in $PATH"))
        }
    }
}

fn c_string(text: &str) -> Result<CString, std::ffi::NulError> {
    CString::new(text)
}

fn attempt(path: &str, arguments: &[CString], environment: &[CString]) -> io::Error {
    match CString::new(path) {
        Ok(path) => program::execute(&path, arguments, environment),
        Err(_) => io::Error::from_raw_os_error(libc::ENOENT),
    }
}

/// The kernel's answer in words that name the program; "no such file" of a file that exists is its interpreter.
fn refusal(name: &str, path: &str, answer: io::Error) -> SetupError {
    let exists = rustix::fs::accessat(CWD, path, Access::EXISTS, AtFlags::empty()).is_ok();
    if answer.kind() == io::ErrorKind::NotFound && exists {
        return SetupError(format!("exec: {name:?}: its interpreter or loader is missing"));
    }
    SetupError(format!("exec: {name:?}: {}", words(&answer)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// What this very process is, by another way than the one that is tested.
    fn own() -> Identity {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ids = |name: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|id| id.parse().unwrap()).collect()
        };
        Identity { uid: ids("Uid:")[0], gid: ids("Gid:")[0], groups: ids("Groups:"), home: "/".into() }
    }

    /// One that is never installed.
    static FILTERS: [Vec<u8>; 1] = [Vec::new()];

    fn verify(identity: &Identity, change: impl FnOnce(&mut LastSteps<'_>)) -> String {
        let mut steps = LastSteps {
            argv: &[],
            env: &[],
            cwd: "/",
            identity,
            capabilities: Capabilities(u64::MAX),
            no_new_privileges: false,
            seccomp: &[],
        };
        change(&mut steps);
        steps.verify().map_or_else(|error| error.to_string(), |()| "as it must be".to_owned())
    }

    /// [SE-1] [SE-29] [SE-30] A process that is not what was asked for does not run a program.
    #[test]
    fn process_that_did_not_become_what_was_asked_for_is_found_out() {
        let told = |what: &str| format!("the process did not become what it must be: {what}");
        let own = own();
        assert_eq!(verify(&own, |_| {}), "as it must be");
        let (uid, gid) = (own.uid, own.gid);
        for other in [4711, u32::MAX] {
            let said = verify(&Identity { uid: other, ..own.clone() }, |_| {});
            assert_eq!(said, told(&format!("its user is [{uid}, {uid}, {uid}], not {other}")));
            let said = verify(&Identity { gid: other, ..own.clone() }, |_| {});
            assert_eq!(said, told(&format!("its group is [{gid}, {gid}, {gid}], not {other}")));
            let said = verify(&Identity { groups: vec![other], ..own.clone() }, |_| {});
            assert!(said.starts_with(&told("its groups are ")) && said.ends_with(&format!("not [{other}]")), "{said}");
        }
        assert_eq!(verify(&own, |steps| steps.no_new_privileges = true), told("it may gain privileges"));
        assert_eq!(verify(&own, |steps| steps.seccomp = &FILTERS), told("it has no system call filter"));
        let said = verify(&own, |steps| steps.capabilities = Capabilities(0));
        assert!(said.starts_with("the process holds effective capabilities 0x"), "{said}");
    }
}
