//! Values of options as text. Times, rates, sizes and services have the grammar of the configuration.

use std::net::IpAddr;
use std::time::Duration;

use signalbox_api::v1;
use signalbox_units::{BitRate, Size, Span};

/// Octets that an option gives in hexadecimal digits or as a file.
#[derive(Debug, Clone)]
pub(crate) struct Octets(pub(crate) Vec<u8>);

/// Parses a time of at least a microsecond: 250us, 200ms, 1.5s, 2m, 1h.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match text.parse::<Span>() {
        Ok(Span(time)) if time < Duration::from_micros(1) => Err("use a time of at least 1us".into()),
        Ok(Span(time)) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a rate in bits a second, 64kbit or 20mbit, into octets a second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    match text.parse::<BitRate>().map(BitRate::octets) {
        Ok(0) => Err("use a rate of at least 8bit, such as 64kbit or 20mbit".into()),
        Ok(octets) => Ok(octets),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a number of octets: 3000, 15k, 1M, 64KiB.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|size| size.0).map_err(|error| error.to_string())
}

/// Parses a number of octets of one packet.
pub(crate) fn packet(text: &str) -> Result<u32, String> {
    u32::try_from(size(text)?).map_err(|_| "use the size of a packet, such as 1500".into())
}

/// Parses an IP protocol, by name or number.
pub(crate) fn ip_protocol(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp6" | "icmpv6" => Ok(58),
        _ => text.parse().map_err(|_| "use a number from 0 to 255, or tcp, udp, icmp, icmpv6".into()),
    }
}

/// Parses a prefix, or an address: 192.0.2.0/24, 2001:db8::9.
pub(crate) fn prefix(text: &str) -> Result<(IpAddr, Option<u32>), String> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let found = address.parse().ok().and_then(|address: IpAddr| {
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map(|length| length.parse().ok().filter(|length| *length <= most));
        Some((address, length.map_or(Some(None), |length| length.map(Some))?))
    });
    found.ok_or_else(|| "use an address or a prefix, such as 192.0.2.0/24".to_owned())
}

/// Parses a number in decimal digits, or in hexadecimal digits after 0x.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
        None => text.parse(),
    };
    number.map_err(|_| "use a number of 32 bits, such as 5004 or 0x138c".into())
}

/// Parses an IPv6 flow label of 20 bits.
pub(crate) fn flow_label(text: &str) -> Result<u32, String> {
    let label = number(text).ok().filter(|label| label >> 20 == 0);
    label.ok_or_else(|| "use a number of 20 bits, such as 0x12345".into())
}

/// Parses hexadecimal digits, or `@FILE`, which is read.
pub(crate) fn octets(text: &str) -> Result<Octets, String> {
    if let Some(file) = text.strip_prefix('@') {
        return std::fs::read(file).map(Octets).map_err(|error| format!("cannot read {file}: {error}"));
    }
    let digit = |at: usize| text.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let hexadecimal = text.bytes().all(|octet| octet.is_ascii_hexdigit());
    let octets = (0..text.len()).step_by(2).map(digit).collect::<Option<Vec<_>>>();
    octets.filter(|_| hexadecimal).map(Octets).ok_or("use @FILE, or pairs of hexadecimal digits".to_owned())
}

/// Octets by which a later call finds a reservation or passage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestId(pub(crate) [u8; 16]);

/// Parses the hexadecimal digits of a request's octets.
pub(crate) fn request_id(text: &str) -> Result<RequestId, String> {
    let octets = octets(text)?;
    octets
        .0
        .try_into()
        .map(RequestId)
        .map_err(|_| "use 32 hexadecimal digits, as of `openssl rand -hex 16`".to_owned())
}

/// Parses how much of a path need not hold a reservation: nodes that refuse, or these and nodes that do not take part.
pub(crate) fn partial(text: &str) -> Result<v1::PartialReservation, String> {
    let number = |text: &str| text.parse::<u16>().map(u32::from);
    let (failures, unaware) = text.split_once('/').unwrap_or((text, "0"));
    match (number(failures), number(unaware)) {
        (Ok(failures), Ok(unaware)) => Ok(v1::PartialReservation { failures, unaware }),
        _ => Err("use a number of nodes, or two with a slash, such as 1/2: 0 to 65535".to_owned()),
    }
}

/// Parses priorities: SETUP, or SETUP/DEFENDING.
pub(crate) fn priority(text: &str) -> Result<v1::Priority, String> {
    let (setup, defending) = text.split_once('/').map_or((text, None), |(one, two)| (one, Some(two)));
    let number = |text: &str| text.parse::<u16>().map(u32::from);
    match (number(setup), defending.map(number).transpose()) {
        (Ok(setup), Ok(defending)) => Ok(v1::Priority { setup, defending }),
        _ => Err("use SETUP or SETUP/DEFENDING, each 0 to 65535".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_microseconds_to_days() {
        for (text, us) in
            [("500us", 500), ("1.5s", 1_500_000), ("7200s", 7_200_000_000), ("1d", 86_400_000_000)]
        {
            assert_eq!(time(text), Ok(Duration::from_micros(us)));
        }
        for text in ["0s", "30", "0.5us"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_bits_outside_and_octets_inside() {
        assert_eq!(rate("20mbit"), Ok(2_500_000));
        for text in ["20", "0bit", "7bit", "1 packet"] {
            assert!(rate(text).unwrap_err().contains("bit"), "{text}");
        }
    }

    #[test]
    fn priorities_and_octets_are_read() {
        assert_eq!(priority("5"), Ok(v1::Priority { setup: 5, defending: None }));
        assert_eq!(priority("5/7"), Ok(v1::Priority { setup: 5, defending: Some(7) }));
        assert_eq!(octets("00080eFF").unwrap().0, [0, 8, 14, 255]);
        assert!(priority("65536").is_err() && priority("1/").is_err());
        for wrong in ["0", "+1+2", "@/none/such"] {
            assert!(octets(wrong).is_err(), "{wrong}");
        }
        assert!(flow_label("0x100000").is_err() && flow_label("0xfffff").is_ok());
    }
}
