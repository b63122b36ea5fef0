//! Numbers of users and groups, as they are written in images and account files.

/// The highest id that upstream takes. The highest that 32 bits hold means "leave it as it is" to the kernel.
const ID_MAX: i64 = 2_147_483_647;

/// Whether a text is meant as a number, however large, and not as a name.
pub(crate) fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// The id that a text gives, or why it gives none. `of` says whose it is: "user" or "group".
pub(crate) fn id_in_range(of: &str, text: &str) -> Result<u32, String> {
    /// As much as people read of a text that may be megabytes long.
    const SHOWN_MAX: usize = 64;
    let id = text.parse::<i64>().ok().filter(|id| (0..=ID_MAX).contains(id)).and_then(|id| u32::try_from(id).ok());
    let shown = || text.chars().take(SHOWN_MAX).collect::<String>();
    id.ok_or_else(|| format!("{of} {} must be between 0 and {ID_MAX}", shown()))
}
