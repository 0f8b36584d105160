//! Units of figures, and numbers as papers print them.

/// A unit, what it measures, and how many of the first unit of its kind it is.
const UNITS: [(&str, &str, f64); 22] = [
    ("s", "time", 1.0),
    ("ms", "time", 1e-3),
    ("us", "time", 1e-6),
    ("ns", "time", 1e-9),
    ("bytes", "size", 1.0),
    ("octets", "size", 1.0),
    ("kB", "size", 1e3),
    ("KB", "size", 1e3),
    ("MB", "size", 1e6),
    ("1", "ratio", 1.0),
    ("factor", "ratio", 1.0),
    ("times", "ratio", 1.0),
    ("%", "ratio", 0.01),
    ("messages/s", "rate", 1.0),
    ("packets/s", "rate", 1.0),
    ("bytes/s", "throughput", 1.0),
    ("octets/s", "throughput", 1.0),
    ("kbit/s", "throughput", 125.0),
    ("sessions", "sessions", 1.0),
    ("agents", "agents", 1.0),
    ("messages", "messages", 1.0),
    ("lines", "lines", 1.0),
];

/// Returns by how much a number of the first unit has to be multiplied to be one of the second unit; `None`: they measure different things.
pub(crate) fn factor(from: &str, to: &str) -> Option<f64> {
    let find = |name: &str| UNITS.iter().find(|(unit, ..)| *unit == name);
    let ((_, one, from), (_, other, to)) = (find(from)?, find(to)?);
    (one == other).then_some(from / to)
}

/// A figure as it was printed: one number, or the ends of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Printed {
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Printed {
    /// Reads a printed figure; `None` if it is no number.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text =
            ["almost ", "about "].iter().fold(text, |text, word| text.strip_prefix(word).unwrap_or(text));
        let text = text.trim_start_matches(['<', '>', '=']);
        if let Ok(number) = text.parse() {
            return Some(Self { least: number, most: number });
        }
        let (least, most) = text.split_once('-')?;
        Some(Self { least: least.parse().ok()?, most: most.parse().ok()? })
    }

    /// Returns what a measured value is of the printed one, or of the middle of a range; `None` if that is 0.
    pub(crate) fn ratio(self, measured: f64) -> Option<f64> {
        let middle = f64::midpoint(self.least, self.most);
        (middle != 0.0).then_some(measured / middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_kind_are_converted() {
        assert_eq!(factor("us", "ms").map(|factor| 56.0 * factor), Some(0.056));
        assert_eq!((factor("1", "%"), factor("bytes", "octets")), (Some(100.0), Some(1.0)));
        assert_eq!((factor("ms", "bytes"), factor("furlong", "ms")), (None, None));
    }

    #[test]
    fn printed_figures_are_numbers_bounds_and_ranges() {
        let one = |number| Some(Printed { least: number, most: number });
        assert_eq!(Printed::read("8.963E-03"), one(0.008_963));
        assert_eq!(
            (Printed::read("<=10"), Printed::read(">15"), Printed::read("almost 15")),
            (one(10.0), one(15.0), one(15.0))
        );
        assert_eq!(Printed::read("-20"), one(-20.0));
        assert_eq!(Printed::read("53-59"), Some(Printed { least: 53.0, most: 59.0 }));
        for text in ["n/a", "several hundred", "132 (16 payload)", "x", "1/10"] {
            assert_eq!(Printed::read(text), None, "{text}");
        }
        assert_eq!(Printed::read("53-59").and_then(|printed| printed.ratio(112.0)), Some(2.0));
        assert_eq!(Printed::read("0").and_then(|printed| printed.ratio(1.0)), None);
    }
}
