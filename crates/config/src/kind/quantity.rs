//! Numbers and quantities.

use std::ops::RangeInclusive;
use std::time::Duration;

use signalbox_node::resources::Rate;
use signalbox_node::resources::units::Share;
use signalbox_units::{BadText, BitRate, PerSecond, Size, Span};
use time::OffsetDateTime;
use toml::value::Offset;

use super::{Kind, KindError, quoted};
use crate::tree::{Tree, Value};

/// `true` or `false`.
pub(crate) struct Flag;

/// `true` or `false`.
pub(crate) const fn flag() -> Flag {
    Flag
}

impl Kind for Flag {
    type Value = bool;

    fn read(&self, value: &Tree) -> Result<bool, KindError> {
        match value.value {
            Value::Flag(flag) => Ok(flag),
            ref other => Err(KindError::new(format!("{other} is neither true nor false"))),
        }
    }

    fn show(&self, value: &bool) -> String {
        value.to_string()
    }

    fn form(&self) -> String {
        "true or false".to_owned()
    }

    fn example(&self) -> String {
        "true".to_owned()
    }
}

/// An integer of the configuration.
pub(crate) trait Integer: Copy + PartialOrd + TryFrom<u64> {
    const MAX: Self;
    fn wide(self) -> u64;
}

macro_rules! integer {
    ($($kind:ty),*) => { $(
        impl Integer for $kind {
            const MAX: Self = <$kind>::MAX;
            fn wide(self) -> u64 {
                // A `usize` has at most 64 bits.
                u64::try_from(self).unwrap_or(u64::MAX)
            }
        }
    )* };
}
integer!(u8, u16, u32, u64, usize);

/// How an integer is written.
#[derive(Clone, Copy)]
enum Form {
    Number,
    Hexadecimal,
    Octets,
    EachSecond,
}

impl Form {
    fn text(self, value: u64) -> String {
        match self {
            Self::Number => value.to_string(),
            Self::Hexadecimal => format!("{value:#010x}"),
            Self::Octets => Size(value).to_string(),
            Self::EachSecond => PerSecond(value).to_string(),
        }
    }
}

/// An integer in a range.
pub(crate) struct Count<T> {
    range: RangeInclusive<T>,
    form: Form,
}

/// A whole number.
pub(crate) fn number<T: Integer>(range: RangeInclusive<T>) -> Count<T> {
    Count { range, form: Form::Number }
}

/// A packet mark.
pub(crate) fn mark() -> Count<u32> {
    Count { range: 1..=u32::MAX, form: Form::Hexadecimal }
}

/// A number of octets.
pub(crate) fn size<T: Integer>(range: RangeInclusive<T>) -> Count<T> {
    Count { range, form: Form::Octets }
}

/// Events a second.
pub(crate) fn per_second(range: RangeInclusive<u32>) -> Count<u32> {
    Count { range, form: Form::EachSecond }
}

fn bounds<T: PartialOrd>(
    range: &RangeInclusive<T>,
    least: &T,
    most: &T,
    show: impl Fn(&T) -> String,
) -> String {
    if range.start() == range.end() {
        return show(range.start());
    }
    match (range.start() > least, range.end() < most) {
        (true, true) => format!("{} to {}", show(range.start()), show(range.end())),
        (true, false) => format!("from {}", show(range.start())),
        (false, true) => format!("{} to {}", show(range.start()), show(range.end())),
        (false, false) => String::new(),
    }
}

impl<T: Integer> Kind for Count<T> {
    type Value = T;

    fn read(&self, value: &Tree) -> Result<T, KindError> {
        let problem = |error: BadText| KindError::new(error.problem());
        let found = match (self.form, &value.value) {
            (Form::Number | Form::Hexadecimal | Form::Octets, Value::Integer(number)) => {
                u64::try_from(*number).map_err(|_| KindError::out_of_range(value))?
            }
            (Form::Octets, Value::Text(text)) => text.parse::<Size>().map_err(problem)?.0,
            (Form::EachSecond, Value::Text(text)) => text.parse::<PerSecond>().map_err(problem)?.0,
            (Form::EachSecond, Value::Integer(number)) => {
                return Err(KindError::new(format!("{number} has no /s")));
            }
            (_, other) => return Err(KindError::new(format!("{other} is not a number"))),
        };
        let found = T::try_from(found).map_err(|_| KindError::out_of_range(value))?;
        if self.range.contains(&found) { Ok(found) } else { Err(KindError::out_of_range(value)) }
    }

    fn show(&self, value: &T) -> String {
        let text = self.form.text(value.wide());
        match self.form {
            Form::Number | Form::Hexadecimal => text,
            Form::Octets | Form::EachSecond => quoted(&text),
        }
    }

    fn form(&self) -> String {
        match self.form {
            Form::Number | Form::Hexadecimal => "a whole number".to_owned(),
            Form::Octets => format!("{} in quotes", Size::FORM.parts),
            Form::EachSecond => format!("{} in quotes", PerSecond::FORM.parts),
        }
    }

    fn range(&self) -> String {
        // The end of the type of 8 and 16 bits is a limit that a user meets; those of wider types are not.
        let most = if T::MAX.wide() > u64::from(u16::MAX) { T::MAX.wide() } else { u64::MAX };
        let range = self.range.start().wide()..=self.range.end().wide();
        bounds(&range, &0, &most, |value| self.form.text(*value))
    }

    fn example(&self) -> String {
        self.show(self.range.start())
    }
}

/// A number with a fraction.
pub(crate) struct Real(RangeInclusive<f64>, &'static str);

/// A number with a fraction, in a range.
pub(crate) fn real(range: RangeInclusive<f64>) -> Real {
    Real(range, "")
}

/// A number that is more than 0 or 1, and its range in words.
pub(crate) fn factor(range: RangeInclusive<f64>, words: &'static str) -> Real {
    Real(range, words)
}

impl Kind for Real {
    type Value = f64;

    fn read(&self, value: &Tree) -> Result<f64, KindError> {
        let found = match &value.value {
            Value::Real(number) => *number,
            // Up to 2^53 the conversion is exact, and no range goes further.
            Value::Integer(number) => i32::try_from(*number).map_or(f64::INFINITY, f64::from),
            other => return Err(KindError::new(format!("{other} is not a number"))),
        };
        if self.0.contains(&found) { Ok(found) } else { Err(KindError::out_of_range(value)) }
    }

    fn show(&self, value: &f64) -> String {
        format!("{value:?}")
    }

    fn form(&self) -> String {
        "a number".to_owned()
    }

    fn range(&self) -> String {
        let Self(range, words) = self;
        if words.is_empty() { format!("{} to {}", range.start(), range.end()) } else { (*words).to_owned() }
    }

    fn example(&self) -> String {
        format!("{:?}", self.0.end().min(2.0))
    }
}

/// A duration.
pub(crate) struct Time(RangeInclusive<Duration>);

/// A duration in a range.
pub(crate) fn duration(range: RangeInclusive<Duration>) -> Time {
    Time(range)
}

impl Kind for Time {
    type Value = Duration;

    fn read(&self, value: &Tree) -> Result<Duration, KindError> {
        let Value::Text(text) = &value.value else {
            return Err(KindError::new(format!("{} is not a duration", value.value)));
        };
        let Span(found) = text.parse().map_err(|error: BadText| KindError::new(error.problem()))?;
        if self.0.contains(&found) { Ok(found) } else { Err(KindError::out_of_range(value)) }
    }

    fn show(&self, value: &Duration) -> String {
        quoted(&Span(*value).to_string())
    }

    fn form(&self) -> String {
        format!("{} in quotes", Span::FORM.parts)
    }

    fn range(&self) -> String {
        bounds(&self.0, &Duration::ZERO, &Duration::MAX, |value| Span(*value).to_string())
    }

    fn example(&self) -> String {
        self.show(&Duration::from_secs(30).clamp(*self.0.start(), *self.0.end()))
    }
}

/// A duration of the policy and of links.
pub(crate) struct ResourceSpan(Time);

/// A duration in a range, as admission control has it.
pub(crate) fn span(range: RangeInclusive<Duration>) -> ResourceSpan {
    ResourceSpan(Time(range))
}

impl Kind for ResourceSpan {
    type Value = Span;

    fn read(&self, value: &Tree) -> Result<Span, KindError> {
        self.0.read(value).map(Span)
    }

    fn show(&self, value: &Span) -> String {
        self.0.show(&value.0)
    }

    fn form(&self) -> String {
        self.0.form()
    }

    fn range(&self) -> String {
        self.0.range()
    }

    fn example(&self) -> String {
        self.0.example()
    }
}

/// A rate.
pub(crate) struct Bits(u64);

/// A rate of at least `least` octets a second.
pub(crate) fn rate(least: u64) -> Bits {
    Bits(least)
}

impl Kind for Bits {
    type Value = Rate;

    fn read(&self, value: &Tree) -> Result<Rate, KindError> {
        let Value::Text(text) = &value.value else {
            return Err(KindError::new(format!("{} is not a rate", value.value)));
        };
        let found: BitRate = text.parse().map_err(|error: BadText| KindError::new(error.problem()))?;
        if found.octets() >= self.0 { Ok(Rate(found.octets())) } else { Err(KindError::out_of_range(value)) }
    }

    fn show(&self, value: &Rate) -> String {
        quoted(&BitRate::of_octets(value.0).to_string())
    }

    fn form(&self) -> String {
        format!("{} in quotes", BitRate::FORM.parts)
    }

    fn range(&self) -> String {
        if self.0 == 0 { String::new() } else { format!("from {}", BitRate::of_octets(self.0)) }
    }

    fn example(&self) -> String {
        quoted(BitRate::FORM.example)
    }
}

/// A share of a link.
pub(crate) struct Part;

/// A share of a link, or a rate.
pub(crate) const fn share() -> Part {
    Part
}

impl Kind for Part {
    type Value = Share;

    fn read(&self, value: &Tree) -> Result<Share, KindError> {
        let wrong = || KindError::new(format!("{} is neither a share nor a rate", value.value));
        let Value::Text(text) = &value.value else { return Err(wrong()) };
        text.parse().map_err(|_| wrong())
    }

    fn show(&self, value: &Share) -> String {
        match value {
            Share::Percent(percent) => quoted(&percent.to_string()),
            Share::Rate(rate) => Bits(0).show(rate),
        }
    }

    fn form(&self) -> String {
        "a number from 0 to 100 and %, or a rate, in quotes".to_owned()
    }

    fn range(&self) -> String {
        "0% to 100%, or a rate".to_owned()
    }

    fn example(&self) -> String {
        quoted("75%")
    }
}

/// A code point of the DS field, in the upper six bits of an octet or by itself.
pub(crate) struct CodePoint;

/// A code point, kept as the octet that contains it.
pub(crate) const fn code_point() -> CodePoint {
    CodePoint
}

impl Kind for CodePoint {
    type Value = u8;

    fn read(&self, value: &Tree) -> Result<u8, KindError> {
        number(0..=63).read(value).map(|code: u8| code << 2)
    }

    fn show(&self, value: &u8) -> String {
        (value >> 2).to_string()
    }

    fn form(&self) -> String {
        "a whole number".to_owned()
    }

    fn range(&self) -> String {
        "0 to 63".to_owned()
    }

    fn example(&self) -> String {
        "48".to_owned()
    }
}

/// File permissions.
pub(crate) struct Mode;

/// File permissions in octal.
pub(crate) const fn file_mode() -> Mode {
    Mode
}

impl Kind for Mode {
    type Value = u32;

    fn read(&self, value: &Tree) -> Result<u32, KindError> {
        let wrong = || KindError::new(format!("{} is no file mode", value.value));
        let Value::Text(text) = &value.value else { return Err(wrong()) };
        let digits = text.bytes().all(|octet| octet.is_ascii_digit());
        u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && digits).ok_or_else(wrong)
    }

    fn show(&self, value: &u32) -> String {
        quoted(&format!("{value:04o}"))
    }

    fn form(&self) -> String {
        "file permissions in octal, in quotes".to_owned()
    }

    fn example(&self) -> String {
        quoted("0660")
    }
}

/// A date and time, kept as seconds since 1970.
pub(crate) struct Date;

/// A date and time with its offset from UTC.
pub(crate) const fn date() -> Date {
    Date
}

impl Kind for Date {
    type Value = u64;

    fn read(&self, value: &Tree) -> Result<u64, KindError> {
        let Value::Date(found) = &value.value else {
            return Err(KindError::new(format!("{} is not a date and time", value.value)));
        };
        let toml::value::Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = *found
        else {
            return Err(KindError::new(format!("{found} has no date, no time or no offset from UTC")));
        };
        let minutes = match offset {
            Offset::Z => 0,
            Offset::Custom { minutes } => i64::from(minutes),
        };
        let seconds = time::Month::try_from(date.month)
            .and_then(|month| time::Date::from_calendar_date(date.year.into(), month, date.day))
            // A leap second is the first second of the next minute.
            .and_then(|day| day.with_hms(time.hour, time.minute, time.second.unwrap_or(0).min(59)))
            .map(|moment| moment.assume_utc().unix_timestamp() - minutes * 60);
        let seconds = seconds.ok().and_then(|seconds| u64::try_from(seconds).ok());
        seconds.ok_or_else(|| KindError::new(format!("{found} is before 1970")))
    }

    fn show(&self, value: &u64) -> String {
        let moment = i64::try_from(*value).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
        let Some(moment) = moment else { return String::new() };
        let (date, time) = (moment.date(), moment.time());
        let two = |number: u8| format!("{number:02}");
        let [month, day] = [u8::from(date.month()), date.day()].map(two);
        let [hour, minute, second] = [time.hour(), time.minute(), time.second()].map(two);
        format!("{:04}-{month}-{day}T{hour}:{minute}:{second}Z", date.year())
    }

    fn form(&self) -> String {
        "a date and time with its offset from UTC, without quotes".to_owned()
    }

    fn example(&self) -> String {
        "2026-01-01T00:00:00Z".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Table;

    fn read<K: Kind>(kind: &K, text: &str) -> Result<K::Value, String> {
        let (table, errors) = Table::parse(0, &format!("key = {text}"));
        assert!(errors.is_empty(), "{text}");
        kind.read(table.get("key").unwrap()).map_err(|wrong| wrong.what)
    }

    #[test]
    fn dates_have_an_offset() {
        assert_eq!(read(&date(), "2026-01-01T00:00:00Z"), Ok(1_767_225_600));
        assert_eq!(read(&date(), "2026-01-01T01:30:00+01:30"), Ok(1_767_225_600));
        assert_eq!(date().show(&1_767_225_600), "2026-01-01T00:00:00Z");
        for (text, part) in [
            ("2026-01-01", "no offset"),
            ("2026-01-01T00:00:00", "no offset"),
            ("1767225600", "is not a date"),
            ("1969-12-31T23:59:59Z", "before 1970"),
        ] {
            let error = read(&date(), text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_and_numbers_keep_their_range() {
        assert_eq!(read(&size(1024..=usize::MAX), "\"1KiB\""), Ok(1024));
        assert_eq!(read(&size(1024..=usize::MAX), "2048"), Ok(2048));
        assert!(read(&size(1024..=usize::MAX), "9").unwrap_err().contains("out of range"));
        assert!(read(&number(1..=32_u8), "300").unwrap_err().contains("out of range"));
        assert!(read(&number(0..=u64::MAX), "-1").unwrap_err().contains("out of range"));
        assert_eq!(number(1..=32_u8).range(), "1 to 32");
        assert_eq!(number(1..=u32::MAX).range(), "from 1");
        assert_eq!(number(0..=u16::MAX).range(), "0 to 65535");
        assert_eq!(number(0..=u32::MAX).range(), "");
        assert!(read(&per_second(0..=u32::MAX), "100").unwrap_err().contains("has no /s"));
    }
}
