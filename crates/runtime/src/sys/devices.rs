//! Which devices a control group's processes may open: a small BPF program, attached by raw system call.
#![allow(unsafe_code, reason = "bpf has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_TYPE_CGROUP_DEVICE: u32 = 6;
const ALLOW_MULTI: u32 = 2;

/// The kernel's instruction format.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, value }
}

const fn load(to: u8, at: i16) -> Instruction {
    instruction(0x61, to, 1, at, 0)
}

const fn jump_if_equal(register: u8, value: i32, offset: i16) -> Instruction {
    instruction(0x15, register, 0, offset, value)
}

const fn jump_unless_equal(register: u8, value: i32, offset: i16) -> Instruction {
    instruction(0x55, register, 0, offset, value)
}

const RETURN: Instruction = instruction(0x95, 0, 0, 0, 0);

/// Making nodes is allowed, it opens nothing. Of devices, the harmless ones of `/dev` and terminals may be used.
const PROGRAM: [Instruction; 24] = [
    load(2, 0),                         // kind in the lower half, access in the upper
    instruction(0xbf, 3, 2, 0, 0),      // r3 = r2
    instruction(0x77, 3, 0, 0, 16),     // r3 >>= 16
    instruction(0x57, 2, 0, 0, 0xffff), // r2 &= 0xffff
    load(4, 4),                         // major
    load(5, 8),                         // minor
    instruction(0x57, 3, 0, 0, 0b110),  // read and write of the access; the lowest bit is making a node
    jump_if_equal(3, 0, 14),
    jump_unless_equal(2, 2, 11), // 2 is a character device
    jump_if_equal(4, 136, 12),   // terminals
    jump_if_equal(4, 5, 7),
    jump_unless_equal(4, 1, 8),
    jump_if_equal(5, 3, 9),        // null
    jump_if_equal(5, 5, 8),        // zero
    jump_if_equal(5, 7, 7),        // full
    jump_if_equal(5, 8, 6),        // random
    jump_if_equal(5, 9, 5),        // urandom
    instruction(0x05, 0, 0, 2, 0), // none of these
    jump_if_equal(5, 0, 3),        // tty
    jump_if_equal(5, 2, 2),        // ptmx
    instruction(0xb7, 0, 0, 0, 0),
    RETURN,
    instruction(0xb7, 0, 0, 0, 1),
    RETURN,
];

#[repr(C)]
#[derive(Default)]
struct LoadArguments {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    rest: [u64; 12],
}

#[repr(C)]
#[derive(Default)]
struct AttachArguments {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
    rest: [u64; 12],
}

/// Confines everything in a v2 control group to the devices that every container has.
pub(crate) fn confine(group: impl AsFd) -> io::Result<()> {
    let load = LoadArguments {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(PROGRAM.len()).expect("a short program"),
        instructions: PROGRAM.as_ptr().addr() as u64,
        license: c"Apache-2.0".as_ptr().addr() as u64,
        ..LoadArguments::default()
    };
    let program = bpf(BPF_PROG_LOAD, &load)?;
    // SAFETY: fresh from the kernel, owned by nobody else.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let number = |fd: i32| u32::try_from(fd).expect("open descriptors are not negative");
    let attach = AttachArguments {
        group: number(group.as_fd().as_raw_fd()),
        program: number(program.as_raw_fd()),
        kind: ATTACH_TYPE_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
        ..AttachArguments::default()
    };
    bpf(BPF_PROG_ATTACH, &attach).map(drop)
}

fn bpf<T>(command: libc::c_int, arguments: &T) -> io::Result<i32> {
    // SAFETY: the arguments and all they point to outlive the call, and the size is theirs.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(arguments), size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(i32::try_from(done).expect("a descriptor or zero")) }
}
