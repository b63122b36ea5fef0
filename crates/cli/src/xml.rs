//! Text of others inside XML: JUnit reports and pictures.

/// Without what ends a text or an attribute. What XML cannot hold is shown as something that cannot be shown.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            letter if letter.is_control() => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// The same on one line.
pub(crate) fn escaped_line(text: &str) -> String {
    escaped(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_cannot_end_an_element_or_an_attribute() {
        assert_eq!(escaped("a<b> & \"c\"\u{1b}[2J\u{0}"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}[2J\u{fffd}");
        assert_eq!(escaped_line("a\n\"b\""), "a &quot;b&quot;");
    }
}
