//! `[ … ]`: what a condition comes to, where that shows.

/// Whether a condition holds; nothing if that does not show.
pub(super) fn holds(words: &[Option<String>]) -> Option<bool> {
    let known: Option<Vec<&str>> = words.iter().map(|word| word.as_deref()).collect();
    match known?.as_slice() {
        [] => Some(false),
        [word] => Some(!word.is_empty()),
        ["!", _, ..] => holds(&words[1..]).map(|holds| !holds),
        ["-n", word] => Some(!word.is_empty()),
        ["-z", word] => Some(word.is_empty()),
        [a, "=" | "==", b] => Some(a == b),
        [a, "!=", b] => Some(a != b),
        [a, operator, b] => {
            let (a, b) = (a.trim().parse::<i64>().ok()?, b.trim().parse::<i64>().ok()?);
            match *operator {
                "-eq" => Some(a == b),
                "-ne" => Some(a != b),
                "-lt" => Some(a < b),
                "-le" => Some(a <= b),
                "-gt" => Some(a > b),
                "-ge" => Some(a >= b),
                _ => None,
            }
        }
        _ => None,
    }
}
