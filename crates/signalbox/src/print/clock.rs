//! Times of day. They are those of UTC, like those in the daemon's log.

/// Microseconds of a day.
const DAY_US: u64 = 86_400_000_000;

/// A time of day as a date and a time: `2026-11-28 14:03:07.123`.
pub(crate) fn date_time(unix_us: u64) -> String {
    let (year, month, day) = date(unix_us / DAY_US);
    format!("{year:04}-{month:02}-{day:02} {}", time_of_day(unix_us))
}

/// Only the time: `14:03:07.123`.
pub(crate) fn time_of_day(unix_us: u64) -> String {
    let ms = unix_us % DAY_US / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}

/// The date of a day, counted from 1970-01-01: the algorithm of the proleptic Gregorian calendar, whose year begins in March.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + later, month, of_month)
}

/// The days from 1970-01-01 to a date; `None`: there is no such date, or it is before.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let (year, month_from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    (date(days).2 == day).then_some(days)
}

/// Parses a moment in the past: a time of the last 24 hours (`14:00`, `14:00:30`), a date with a time (`2026-11-28T14:00`), or how
/// long ago it is (`2h`).
pub(crate) fn moment(text: &str, now_unix_us: u64) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no time such as 14:00, 2026-11-28T14:00 or 2h; times are UTC");
    if let Ok(ago) = crate::arguments::values::time(text) {
        return Ok(now_unix_us.saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX)));
    }
    let (date, time) = match text.trim_end_matches('Z').split_once(['T', ' ']) {
        Some((date, time)) => (Some(date), time),
        None => (None, text),
    };
    let mut parts = time.split(':').map(|part| part.parse::<u64>().ok().filter(|_| part.len() <= 2));
    let (hour, minute) = (parts.next().flatten(), parts.next().flatten());
    let second = match parts.next() {
        None => Some(0),
        Some(second) => second,
    };
    let (Some(hour @ 0..=23), Some(minute @ 0..=59), Some(second @ 0..=60), None) =
        (hour, minute, second, parts.next())
    else {
        return Err(wrong());
    };
    let of_day = (hour * 3600 + minute * 60 + second) * 1_000_000;
    let Some(date) = date else {
        let today = now_unix_us / DAY_US * DAY_US + of_day;
        return Ok(if today > now_unix_us { today.saturating_sub(DAY_US) } else { today });
    };
    let mut parts = date.split('-').map(|part| part.parse::<u64>().ok());
    let (Some(Some(year)), Some(Some(month)), Some(Some(day)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(wrong());
    };
    days(year, month, day).map(|days| days * DAY_US + of_day).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-28 14:03:07.123456 UTC.
    const NOW: u64 = 1_795_874_587_123_456;

    #[test]
    fn times_are_dates_of_utc() {
        assert_eq!(date_time(NOW), "2026-11-28 14:03:07.123");
        assert_eq!(date_time(0), "1970-01-01 00:00:00.000");
        assert_eq!(date_time(951_782_400_000_000), "2000-02-29 00:00:00.000");
        assert_eq!(time_of_day(NOW), "14:03:07.123");
    }

    #[test]
    fn a_moment_is_a_time_a_date_or_an_age() {
        let text = |text| moment(text, NOW).map(date_time);
        assert_eq!(text("14:00").unwrap(), "2026-11-28 14:00:00.000");
        assert_eq!(text("15:30:09").unwrap(), "2026-11-27 15:30:09.000");
        assert_eq!(text("2026-02-28T23:59Z").unwrap(), "2026-02-28 23:59:00.000");
        assert_eq!(text("2024-02-29 00:00").unwrap(), "2024-02-29 00:00:00.000");
        assert_eq!(text("1h").unwrap(), "2026-11-28 13:03:07.123");
        for wrong in ["", "14", "25:00", "14:61", "2026-02-30T10:00", "2026-13-01T10:00", "1:2:3:4", "noon"] {
            assert!(text(wrong).is_err(), "{wrong}");
        }
    }
}
