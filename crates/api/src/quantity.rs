//! Quantities: `1000m` and `1` are the same number, and only one of them is stored.
//!
//! A canonical quantity keeps the family of its suffix (decimal, binary, exponent), has no fraction and uses the
//! largest suffix that allows that. Finer than a nano is rounded up.

use std::fmt;
use std::str::FromStr;

/// The family of suffixes a quantity was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `m`, `k`, `M`, ...
    Decimal,
    /// `Ki`, `Mi`, ...
    Binary,
    /// `e3`, `E6`.
    Exponent,
}

/// A number of something, in nanos.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
pub struct NotAQuantity;

const NANO: i128 = 1_000_000_000;
/// Upstream caps quantities at what fits in 64 bits.
const LIMIT: i128 = i64::MAX as i128 * NANO;
const DECIMAL: [(&str, i32); 9] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::Decimal };

    /// So many pieces.
    pub fn pieces(count: u64) -> Self {
        Self { nanos: (i128::from(count) * NANO).min(LIMIT), format: Format::Decimal }
    }

    /// Both together, written as the first is unless that is nothing.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        // Not held to the limit of a single one: a sum from which all is taken again is nothing.
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }

    /// What is left of the first without the second.
    #[must_use]
    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, ..other })
    }

    /// How many times `other` fits into this.
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people and for comparing with another")]
    pub(crate) fn ratio_to(self, other: Self) -> f64 {
        self.nanos as f64 / other.nanos as f64
    }

    /// The whole number, rounded up: bytes of memory, seconds.
    pub fn ceil(self) -> i64 {
        let whole = self.nanos.div_euclid(NANO) + i128::from(self.nanos.rem_euclid(NANO) > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    /// Thousandths, rounded up: CPU.
    pub fn milli_ceil(self) -> i64 {
        let unit = NANO / 1000;
        let whole = self.nanos.div_euclid(unit) + i128::from(self.nanos.rem_euclid(unit) > 0);
        i64::try_from(whole).unwrap_or(i64::MAX)
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

impl FromStr for Quantity {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || (*i == 0 && matches!(c, '+' | '-'))))
            .map_or(text.len(), |(i, _)| i);
        let (number, suffix) = text.split_at(end);
        let negative = number.starts_with('-');
        let number = number.trim_start_matches(['+', '-']);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if !(1..=30).contains(&(whole.len() + fraction.len())) {
            return Err(NotAQuantity);
        }
        let mut mantissa: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            if !digit.is_ascii_digit() {
                return Err(NotAQuantity);
            }
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        }
        let fraction = i32::try_from(fraction.len()).map_err(|_| NotAQuantity)?;
        let (format, nanos) = if let Some((_, shift)) = BINARY.iter().find(|(s, _)| *s == suffix) {
            (Format::Binary, scaled(mantissa, 1_i128 << shift, 9 - fraction)?)
        } else if let Some((_, power)) = DECIMAL.iter().chain(&[("E", 18)]).find(|(s, _)| *s == suffix) {
            (Format::Decimal, scaled(mantissa, 1, power + 9 - fraction)?)
        } else {
            let power = suffix.strip_prefix(['e', 'E']).ok_or(NotAQuantity)?;
            let power: i32 = power.parse().map_err(|_| NotAQuantity)?;
            (Format::Exponent, scaled(mantissa, 1, power.saturating_add(9 - fraction))?)
        };
        let nanos = nanos.min(LIMIT);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }
}

/// `mantissa * unit * 10^power`, rounded up, saturating.
fn scaled(mantissa: i128, unit: i128, power: i32) -> Result<i128, NotAQuantity> {
    let product = mantissa.saturating_mul(unit);
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    if power >= 0 {
        return Ok(if product == 0 { 0 } else { factor.map_or(i128::MAX, |f| product.saturating_mul(f)) });
    }
    let factor = factor.ok_or(NotAQuantity)?;
    Ok(product.div_euclid(factor) + i128::from(product.rem_euclid(factor) > 0))
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // A binary quantity below one Ki or with a fraction is written as a decimal.
        let whole = self.nanos / NANO;
        if self.format == Format::Binary && self.nanos % NANO == 0 && whole.abs() >= 1024 {
            let fits = BINARY.iter().rev().find(|(_, shift)| whole % (1_i128 << shift) == 0);
            return match fits {
                Some((suffix, shift)) => write!(f, "{}{suffix}", whole >> shift),
                None => write!(f, "{whole}"),
            };
        }
        let fits = |power: i32| 10_i128.checked_pow((power + 9).unsigned_abs()).filter(|unit| self.nanos % unit == 0);
        for power in [18, 15, 12, 9, 6, 3, 0, -3, -6, -9] {
            let Some(unit) = fits(power) else { continue };
            let number = self.nanos / unit;
            return match (self.format, power) {
                (_, 0) => write!(f, "{number}"),
                (Format::Exponent, _) => write!(f, "{number}e{power}"),
                (Format::Decimal | Format::Binary, 18) => write!(f, "{number}E"),
                (Format::Decimal | Format::Binary, _) => {
                    let suffix = DECIMAL.iter().find(|(_, p)| *p == power).map_or("", |(s, _)| s);
                    write!(f, "{number}{suffix}")
                }
            };
        }
        unreachable!("every number of nanos is a multiple of one nano")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn quantity_has_one_canonical_spelling() {
        for (sent, stored) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("2048Mi", "2Gi"),
            ("1.5Gi", "1536Mi"),
            ("128Mi", "128Mi"),
            ("1000", "1k"),
            ("1000Ki", "1000Ki"),
            ("1024", "1024"),
            ("0", "0"),
            ("0Mi", "0"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("0.1", "100m"),
            ("100000n", "100u"),
            ("0.5Ki", "512"),
            ("-1", "-1"),
            ("5E", "5E"),
        ] {
            assert_eq!(sent.parse::<Quantity>().unwrap().to_string(), stored, "{sent}");
        }
        for bad in ["", "x", "1.2.3", "1Qi", "1 Gi", "--1", "e3"] {
            assert!(bad.parse::<Quantity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn quantity_rounds_up() {
        let q = |s: &str| s.parse::<Quantity>().unwrap();
        assert_eq!((q("1500m").ceil(), q("1Gi").ceil(), q("100u").milli_ceil()), (2, 1 << 30, 1));
        assert!(q("1") == q("1000m") && q("1Ki") > q("1k"));
    }
}
