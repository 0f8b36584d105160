//! The sweep of a scenario: which of its parameters take which values, and how often it is run with each.

mod quantity;
mod range;

use std::borrow::Cow;
use std::ops;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Mistake;
use super::load::decode;
use super::topology::table;
pub(crate) use quantity::{Kind as Quantity, amount};

/// Runs at each point where the file does not say how many: the fewest with an interval.
const REPEAT: u32 = 6;
/// More runs at a point, and more points, are no experiment that ends.
const REPEAT_MAX: u32 = 1000;
const POINTS_MAX: usize = 1000;
/// With a greater ratio between values of a list its axis is one of logarithms.
const WIDE: f64 = 20.0;

/// The order of the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Each repetition takes all points in an order of its own, drawn from the seed. What changes slowly on the machine
    /// then concerns all points in the same way.
    #[default]
    Random,
    /// As they are listed.
    Listed,
}

/// Which average of the runs at a point is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Average {
    #[default]
    Median,
    Mean,
}

/// What is run how often.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sweep {
    /// The parameters that vary, in the order of the file.
    pub(crate) over: Vec<Axis>,
    /// Counted runs at each point.
    pub(crate) repeat: u32,
    /// Runs before them, which are not counted.
    pub(crate) warm_up: u32,
    pub(crate) order: Order,
    pub(crate) average: Average,
    /// What the table and the plot show: names of measurements, in which `*` stands for any text. Empty: those that a
    /// reader looks for first.
    pub(crate) measure: Vec<String>,
}

impl Default for Sweep {
    fn default() -> Self {
        let (order, average) = (Order::default(), Average::default());
        Self { over: Vec::new(), repeat: REPEAT, warm_up: 0, order, average, measure: Vec::new() }
    }
}

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Axis {
    pub(crate) name: String,
    pub(crate) values: Vec<toml::Value>,
    /// Whether equal ratios of the values have equal distances in a plot.
    pub(crate) logarithmic: bool,
}

/// A value of each parameter that varies, in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point(pub(crate) Vec<(String, toml::Value)>);

impl Point {
    /// Returns the parameters as arguments of `--set`.
    pub(crate) fn set(&self) -> Vec<(String, String)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
    }

    /// Returns the values without quotes, for people: `sessions=10, rate=1mbit`.
    pub(crate) fn text(&self) -> String {
        let of = |(name, value): &(String, toml::Value)| format!("{name}={}", plain(value));
        self.0.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

/// Returns a value as people write it outside of a file.
pub(crate) fn plain(value: &toml::Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| value.to_string().into(), Cow::from)
}

impl Sweep {
    /// Returns all points: each value of the first parameter with each of the second, and so on. Without parameters there is one.
    pub(crate) fn points(&self) -> Vec<Point> {
        self.over.iter().fold(vec![Point(Vec::new())], |points, axis| {
            let with = |point: &Point| {
                let more = |value: &toml::Value| {
                    let mut all = point.0.clone();
                    all.push((axis.name.clone(), value.clone()));
                    Point(all)
                };
                axis.values.iter().map(more).collect::<Vec<_>>()
            };
            points.iter().flat_map(with).collect()
        })
    }
}

/// The keys beside `over`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(rename = "over")]
    _over: Option<()>,
    repeat: Option<Spanned<u32>>,
    #[serde(default)]
    warm_up: u32,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    average: Average,
    #[serde(default)]
    measure: Vec<Spanned<String>>,
}

/// Takes `[sweep]` out of the file. `params` are the parameters of the scenario.
pub(super) fn read(
    file: &mut DeTable<'_>,
    params: &toml::Table,
    mistakes: &mut Vec<Mistake>,
) -> Option<Sweep> {
    let sweep = table(file, "sweep", mistakes)?;
    let at = sweep.span();
    let mut sweep = sweep.into_inner();
    let mut axes = Vec::new();
    for (name, value) in table(&mut sweep, "over", mistakes).map(Spanned::into_inner).into_iter().flatten() {
        let place = name.span().start;
        match axis(&name, value, params) {
            Ok(axis) => axes.push((place, axis)),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    // The parser has the names in the order of the alphabet.
    axes.sort_by_key(|(place, _)| *place);
    let over: Vec<_> = axes.into_iter().map(|(_, axis)| axis).collect();
    let points = over.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.values.len()));
    if points.is_none_or(|points| points > POINTS_MAX) {
        let what = format!("a sweep has at most {POINTS_MAX} points: the product of the numbers of values");
        mistakes.push(Mistake::new(at.clone(), what));
    }
    match decode::<Keys>(Spanned::new(at.clone(), DeValue::Table(sweep))).and_then(|keys| keys.checked(&at)) {
        Ok(keys) => Some(Sweep { over, ..keys }),
        Err(mistake) => {
            mistakes.push(mistake);
            None
        }
    }
}

impl Keys {
    fn checked(self, at: &ops::Range<usize>) -> Result<Sweep, Mistake> {
        let repeat = self.repeat.as_ref().map_or(REPEAT, |repeat| *repeat.as_ref());
        if !(1..=REPEAT_MAX).contains(&repeat) {
            let at = self.repeat.map_or(at.clone(), |repeat| repeat.span());
            return Err(Mistake::new(at, format!("`repeat` lies between 1 and {REPEAT_MAX}")));
        }
        if let Some(empty) = self.measure.iter().find(|name| name.as_ref().is_empty()) {
            return Err(Mistake::new(empty.span(), "a measurement has a name, like \"rtt_ms/p50\""));
        }
        let measure = self.measure.into_iter().map(Spanned::into_inner).collect();
        let Self { warm_up, order, average, .. } = self;
        Ok(Sweep { over: Vec::new(), repeat, warm_up, order, average, measure })
    }
}

/// Reads the values of a parameter: a list, or a range.
fn axis(
    name: &Spanned<Cow<'_, str>>,
    value: Spanned<DeValue<'_>>,
    params: &toml::Table,
) -> Result<Axis, Mistake> {
    let (place, at) = (name.span(), value.span());
    let name = name.get_ref().to_string();
    if !params.contains_key(&name) {
        let known: Vec<_> = params.keys().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() {
            "the scenario has no [params]".to_owned()
        } else {
            format!("expected one of {}", known.join(", "))
        };
        return Err(Mistake::new(place, format!("no parameter `{name}` to sweep over: {known}")));
    }
    let (values, logarithmic) = match value.get_ref() {
        DeValue::Array(_) => {
            let values: Vec<toml::Value> = decode(value)?;
            let logarithmic = is_wide(&values);
            (values, logarithmic)
        }
        DeValue::Table(_) => {
            let span: range::Span = decode(value)?;
            (span.values()?, span.logarithmic())
        }
        _ => {
            let what = format!(
                "`{name}` has a list of values, like [1, 10, 100], or a range, like {{ from = 1, to = 100, points = 5, scale = \"log\" }}"
            );
            return Err(Mistake::new(at, what));
        }
    };
    let wrong = |what: String| Err(Mistake::new(at.clone(), what));
    if values.is_empty() {
        return wrong(format!("`{name}` has no value"));
    }
    for (number, value) in values.iter().enumerate() {
        if matches!(value, toml::Value::Array(_) | toml::Value::Table(_) | toml::Value::Datetime(_)) {
            return wrong(format!("a value of `{name}` is a number, a text or a boolean, not {value}"));
        }
        if values.iter().take(number).any(|other| other == value) {
            return wrong(format!("`{name}` has the value {value} twice"));
        }
    }
    Ok(Axis { name, values, logarithmic })
}

/// Whether a plot needs a logarithmic axis for these values.
fn is_wide(values: &[toml::Value]) -> bool {
    let amounts: Option<Vec<_>> = values.iter().map(|value| Some(amount(value)?.1)).collect();
    let amounts = amounts.unwrap_or_default();
    let least = amounts.iter().copied().fold(f64::INFINITY, f64::min);
    least > 0.0 && amounts.iter().any(|amount| *amount > WIDE * least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::load::read_with;
    use crate::language::read as read_file;

    const FILE: &str = r#"version = 2
name = "x"
description = ""
[params]
sessions = 3
interval = "100ms"
[topology]
chain = ["a", "b"]
[[steps]]
ping = { from = "a", to = "b", sessions = "${sessions}", interval = "${interval}" }
"#;

    fn sweep(text: &str) -> Result<Sweep, String> {
        let scenario = read_file("x.toml", &format!("{FILE}{text}")).map_err(|error| error.to_string())?;
        Ok(scenario.sweep.expect("there is one"))
    }

    fn values(text: &str) -> Vec<String> {
        let sweep = sweep(&format!("[sweep.over]\n{text}")).unwrap_or_else(|error| panic!("{error}"));
        sweep.over[0].values.iter().map(|value| plain(value).into_owned()).collect()
    }

    #[test]
    fn ranges_are_linear_or_logarithmic_and_have_units() {
        assert_eq!(values("sessions = [1, 30, 7]"), ["1", "30", "7"]);
        assert_eq!(values("sessions = { from = 0, to = 100, points = 5 }"), ["0", "25", "50", "75", "100"]);
        assert_eq!(
            values("sessions = { from = 1, to = 1000, points = 7, scale = \"log\" }"),
            ["1", "3", "10", "32", "100", "316", "1000"]
        );
        assert_eq!(values("sessions = { from = 1, to = 3, points = 9 }"), ["1", "2", "3"], "rounded");
        assert_eq!(
            values("interval = { from = \"1ms\", to = \"16ms\", points = 5, scale = \"log\" }"),
            ["1ms", "2ms", "4ms", "8ms", "16ms"]
        );
        // Three digits would make 1.23 and 1.24 of them.
        assert_eq!(
            values("interval = { from = \"1234us\", to = \"1238us\", points = 3 }"),
            ["1234us", "1236us", "1238us"]
        );
    }

    #[test]
    fn a_list_over_more_than_a_decade_is_drawn_by_logarithms() {
        for (list, logarithmic) in [("[1, 20]", false), ("[1, 10, 21]", true), ("[0, 100]", false)] {
            let sweep = sweep(&format!("[sweep]\nover = {{ sessions = {list} }}\n"));
            assert_eq!(sweep.map(|sweep| sweep.over[0].logarithmic), Ok(logarithmic), "{list}");
        }
    }

    #[test]
    fn points_are_all_pairs_and_the_first_parameter_of_the_file_varies_last() {
        let sweep = sweep(
            "[sweep]\nrepeat = 3\nwarm_up = 1\norder = \"listed\"\n[sweep.over]\nsessions = [1, 2]\ninterval = [\"1ms\", \"2ms\"]\n",
        );
        let sweep = sweep.unwrap_or_else(|error| panic!("{error}"));
        let points: Vec<_> = sweep.points().iter().map(Point::text).collect();
        assert_eq!(points[..2], ["sessions=1, interval=1ms", "sessions=1, interval=2ms"]);
        assert_eq!(points.len(), 4);
        assert_eq!((sweep.repeat, sweep.warm_up, sweep.order), (3, 1, Order::Listed));
        assert_eq!(Sweep::default().points(), [Point(Vec::new())]);
    }

    #[test]
    fn a_scenario_is_read_with_the_values_of_a_point() {
        let point = Point(vec![("sessions".into(), 7.into()), ("interval".into(), "2ms".into())]);
        let at = read_with("x.toml", FILE, &point.set()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(at.parameters["sessions"], toml::Value::from(7));
        assert_eq!(at.parameters["interval"], toml::Value::from("2ms"));
    }

    #[test]
    fn a_mistake_says_what_would_be_right() {
        for (text, expected) in [
            (
                "over = { sesions = [1] }",
                "x.toml:12: no parameter `sesions` to sweep over: expected one of `interval`, `sessions`",
            ),
            ("over = { sessions = 3 }", "`sessions` has a list of values, like [1, 10, 100], or a range"),
            ("over = { sessions = [] }", "`sessions` has no value"),
            ("over = { sessions = [1, 2, 1] }", "`sessions` has the value 1 twice"),
            ("over = { sessions = [[1]] }", "is a number, a text or a boolean, not [1]"),
            ("over = { sessions = { from = 5, to = 1, points = 3 } }", "a range goes up: 5 is not below 1"),
            (
                "over = { sessions = { from = 0, to = 1, points = 3, scale = \"log\" } }",
                "begins above 0, not at 0",
            ),
            ("over = { sessions = { from = 1, to = \"1ms\", points = 3 } }", "between 1 and \"1ms\""),
            ("over = { sessions = { from = 1, to = 9, points = 1 } }", "`points` lies between 2 and 1000"),
            ("over = { sessions = { from = 1, to = 9, step = 1 } }", "unknown field `step`"),
            (
                "over = { sessions = { from = 1, to = 900, points = 900 }, interval = [\"1ms\", \"2ms\"] }",
                "at most 1000 points",
            ),
            ("repeat = 0", "`repeat` lies between 1 and 1000"),
            (
                "repeats = 3",
                "unknown field `repeats`, expected one of `over`, `repeat`, `warm_up`, `order`, `average`, `measure`",
            ),
            ("order = \"shuffled\"", "unknown variant `shuffled`"),
            ("measure = [\"\"]", "a measurement has a name"),
        ] {
            let said = sweep(&format!("[sweep]\n{text}\n")).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        let none = "version = 2\nname = \"x\"\ndescription = \"\"\n[topology]\nchain = [\"a\", \"b\"]\n[sweep.over]\nx = [1]\n";
        let said = read_file("x.toml", none).expect_err("no parameter").to_string();
        assert!(said.ends_with("no parameter `x` to sweep over: the scenario has no [params]"), "{said}");
    }
}
