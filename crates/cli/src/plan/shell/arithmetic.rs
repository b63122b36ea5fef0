//! `$((…))`, as far as counters go: whole numbers and `+`, `-`, `*`.

/// The value of `sum`, whose names `value` knows; nothing if it is more than a counter needs.
pub(super) fn evaluate(sum: &str, value: &dyn Fn(&str) -> Option<String>) -> Option<i64> {
    let spaced: String =
        sum.chars().flat_map(|c| if "+-*".contains(c) { vec![' ', c, ' '] } else { vec![c] }).collect();
    let mut words = spaced.split_whitespace();
    let number = |word: &str| -> Option<i64> {
        let name = word.trim_start_matches('$');
        match name.parse() {
            Ok(number) => Some(number),
            Err(_) if super::tokens::is_name(name) => match value(name)?.as_str() {
                "" => Some(0),
                text => text.parse().ok(),
            },
            Err(_) => None,
        }
    };
    let (mut total, mut product) = (0_i64, number(words.next()?)?);
    while let Some(operator) = words.next() {
        let next = number(words.next()?)?;
        match operator {
            "+" => (total, product) = (total.checked_add(product)?, next),
            "-" => (total, product) = (total.checked_add(product)?, next.checked_neg()?),
            "*" => product = product.checked_mul(next)?,
            _ => return None,
        }
    }
    total.checked_add(product)
}
