//! How much of a container's last words is kept (node-termination 6.5).

/// The most that is kept of one file, from its end.
pub(crate) const FILE_MOST: usize = 4096;
/// The most that is kept of a log that stands in for the file, from its end.
pub(crate) const LOG_MOST: usize = 2048;
/// And of its lines.
pub(crate) const LOG_LINES_MOST: usize = 80;
/// The most that all containers of a pod may say together.
pub(crate) const POD_MOST: usize = 12_288;

/// How much each of so many containers of all kinds may say.
pub fn share(containers: usize) -> usize {
    POD_MOST / containers.max(1)
}

/// The beginning of `text`, `most` bytes at most, whole characters only.
pub fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The end of a message file.
pub fn of_file(text: &str) -> &str {
    last_bytes(text, FILE_MOST)
}

/// The end of a log, for a container that failed and left no message.
pub fn of_log(text: &str) -> &str {
    let ended = text.strip_suffix('\n').unwrap_or(text);
    let start = ended.rmatch_indices('\n').nth(LOG_LINES_MOST - 1).map_or(0, |(at, _)| at + 1);
    last_bytes(&text[start..], LOG_MOST)
}

fn last_bytes(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
