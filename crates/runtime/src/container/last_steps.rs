//! From a process inside the container's namespaces to the container's program.
//!
//! Order matters: what needs privileges first, then giving them up, then nothing but `execve`.

use std::ffi::CString;
use std::io;

use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, Uid};

use super::capabilities::Capabilities;
use super::identity::Identity;
use super::progress::{self, Progress};
use super::{Doing, SetupError, stdio, words};
use crate::sys::{descriptors, program};

/// What the program will be and who it will run as.
#[derive(Debug)]
pub(crate) struct LastSteps<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) env: &'a [(String, String)],
    pub(crate) cwd: &'a str,
    pub(crate) make_cwd: bool,
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
        Ok(())
    }

    fn install_filters(&self) -> Result<(), SetupError> {
        self.seccomp
            .iter()
            .try_for_each(|filter| program::install_filter(filter).doing(|| "install seccomp filter".to_owned()))
    }

    fn enter_cwd(&self) -> Result<(), SetupError> {
        if self.make_cwd {
            let mut path = String::new();
            for part in self.cwd.split('/').filter(|part| !part.is_empty()) {
                path = format!("{path}/{part}");
                // Failing is told by the chdir below.
                let _ = rustix::fs::mkdirat(CWD, path.as_str(), Mode::from_raw_mode(0o755));
            }
        }
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
