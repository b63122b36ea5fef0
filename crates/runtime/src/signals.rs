//! Names of signals, as images and manifests write them.

/// `SIGRTMIN` as every container sees it: the C library keeps the first two real-time signals for itself.
const RTMIN: u8 = 34;
/// `SIGRTMAX`.
const RTMAX: u8 = 64;

const NAMES: [(&str, u8); 33] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The number of a signal written as `SIGQUIT`, `QUIT`, `3` or `SIGRTMIN+3`, in any case.
pub fn signal_from_name(name: &str) -> Option<u8> {
    if let Ok(number) = name.parse::<u8>() {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == short) {
        return Some(*number);
    }
    let number = if let Some(offset) = short.strip_prefix("RTMIN") {
        if offset.is_empty() { RTMIN } else { RTMIN.checked_add(offset.strip_prefix('+')?.parse().ok()?)? }
    } else {
        let offset = short.strip_prefix("RTMAX")?;
        if offset.is_empty() { RTMAX } else { RTMAX.checked_sub(offset.strip_prefix('-')?.parse().ok()?)? }
    };
    (RTMIN..=RTMAX).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::signal_from_name;

    #[test]
    fn every_way_of_writing_a_signal_is_read() {
        for (name, number) in [
            ("SIGQUIT", 3),
            ("QUIT", 3),
            ("3", 3),
            ("sigterm", 15),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
        ] {
            assert_eq!(signal_from_name(name), Some(number), "{name}");
        }
    }

    #[test]
    fn unknown_signal_name_is_refused() {
        for name in ["", "0", "65", "SIG", "NOPE", "SIGRTMIN+31", "SIGRTMAX-31", "RTMIN-1", "-1"] {
            assert_eq!(signal_from_name(name), None, "{name}");
        }
    }
}
