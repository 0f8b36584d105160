//! What plots have in common: colours, ticks of an axis, and text in SVG.

/// The colours of curves, in order.
pub const COLOURS: [&str; 4] = ["#0b6fb8", "#c2570c", "#2f8f4e", "#7a4fa3"];

/// Returns round ticks from 0 to at most `most`, in steps of 1, 2 or 5 times a power of ten.
#[must_use]
pub fn ticks(most: f64, intervals: f64) -> Vec<f64> {
    if most <= 0.0 {
        return vec![0.0];
    }
    let power = (most / intervals).log10().floor();
    let tenth = 10_f64.powf(power);
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * tenth * intervals >= most);
    let step = factor.unwrap_or(10.0) * tenth;
    // Rounded, so that 3 times 0.1 is printed as 0.3.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    (0_u32..=20).map(|n| rounded(f64::from(n) * step)).take_while(|tick| *tick <= most * 1.000_001).collect()
}

/// Returns the text as it stands in SVG.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_stay_below_the_greatest_value() {
        assert_eq!(ticks(100.0, 4.0), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(7.9, 4.0), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(0.37, 4.0), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(ticks(8.6, 10.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(ticks(0.0, 4.0), [0.0]);
    }
}
