//! Numbers that may be percentages: `maxUnavailable: 2`, `maxSurge: 25%`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a part of a whole goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    Up,
    Down,
}

/// How many of `total` are meant. What cannot be read is nothing.
pub(crate) fn scaled_value(value: &IntOrString, total: i64, round: Round) -> i64 {
    let text = match value {
        IntOrString::Int(number) => return i64::from(*number).max(0),
        IntOrString::String(text) => text,
    };
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok()).unwrap_or(0);
    let hundredfold = i64::from(percent).saturating_mul(total.max(0));
    match round {
        Round::Up => hundredfold.saturating_add(99) / 100,
        Round::Down => hundredfold / 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [WL-91]
    #[test]
    fn scaled_value_rounds_the_way_it_is_asked_to() {
        let percent = |text: &str, round| scaled_value(&IntOrString::String(text.to_owned()), 5, round);
        assert_eq!((percent("25%", Round::Up), percent("25%", Round::Down)), (2, 1));
        assert_eq!((percent("100%", Round::Up), percent("0%", Round::Up)), (5, 0));
        assert_eq!((percent("x", Round::Up), percent("4294967295%", Round::Down)), (0, 214_748_364));
        assert_eq!(scaled_value(&IntOrString::Int(7), 5, Round::Up), 7);
    }
}
