//! Times as text.

/// A duration in its two largest units, or with three decimals below a second: `250us`, `1.250ms`, `12.3s`, `2m34s`,
/// `2h1m`, `1d1h`.
pub(crate) fn duration(us: u64) -> String {
    let (ms, s) = (us / 1000, us / 1_000_000);
    match s {
        0 if ms == 0 => format!("{us}us"),
        0 => format!("{ms}.{:03}ms", us % 1000),
        1..60 => format!("{s}.{}s", ms % 1000 / 100),
        60..3600 => format!("{}m{}s", s / 60, s % 60),
        3600..86_400 => format!("{}h{}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (us, text) in [
            (0, "0us"),
            (250, "250us"),
            (1_250, "1.250ms"),
            (12_345_000, "12.3s"),
            (154_000_000, "2m34s"),
            (7_260_000_000, "2h1m"),
            (90_000_000_000, "1d1h"),
        ] {
            assert_eq!(duration(us), text);
        }
    }
}
