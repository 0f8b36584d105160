//! The common types of the API: those of requests are read here, those of answers come from the crate `show`.

use std::net::IpAddr;
use std::time::SystemTime;

use signalbox_api::v1;
use signalbox_core::Direction;
use signalbox_core::mri::PathCoupled;
use signalbox_core::node::Prefix;
use signalbox_core::traffic::TrafficSpec;
pub(crate) use signalbox_show::types::{
    filter, flow, hop, identity, interface, micros, owner, pinhole_rule, protocol, session_id,
};

use super::errors::FieldError;

/// The time of day in microseconds since 1970.
pub(crate) fn unix_us() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, micros)
}

/// An address in a field.
pub(crate) fn address(field: &str, text: &str) -> Result<IpAddr, FieldError> {
    text.parse().map_err(|_| FieldError::new(field, format_args!("{text:?} is no IP address")))
}

/// An address in a field that may be absent.
pub(crate) fn address_in(field: &str, text: Option<&str>) -> Result<Option<IpAddr>, FieldError> {
    text.map(|text| address(field, text)).transpose()
}

/// A number that must be in the range of its type, and from `least` on.
pub(crate) fn number<T>(field: &str, value: u32, least: u32, most: u32) -> Result<T, FieldError>
where
    T: TryFrom<u32>,
{
    let fits = (least..=most).contains(&value);
    let wrong = || FieldError::new(field, format_args!("{value}, but {least} to {most} are possible"));
    T::try_from(value).ok().filter(|_| fits).ok_or_else(wrong)
}

/// A number that may be absent.
pub(crate) fn number_in<T: TryFrom<u32>>(
    field: &str,
    value: Option<u32>,
    least: u32,
    most: u32,
) -> Result<Option<T>, FieldError> {
    value.map(|value| number(field, value, least, most)).transpose()
}

/// The packets of a flow as a client gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    /// Source prefix.
    pub(crate) src: Option<Prefix>,
    /// Destination prefix.
    pub(crate) dst: Option<Prefix>,
    /// IP protocol.
    pub(crate) protocol: Option<u8>,
    /// Code point.
    pub(crate) dscp: Option<u8>,
    /// IPv6 flow label.
    pub(crate) flow_label: Option<u32>,
    /// Security parameter index.
    pub(crate) spi: Option<u32>,
    /// Source port.
    pub(crate) src_port: Option<u16>,
    /// Destination port.
    pub(crate) dst_port: Option<u16>,
}

impl Flow {
    /// Reads a flow. It must be possible on its own.
    pub(crate) fn read(field: &str, flow: Option<&v1::FlowSpec>) -> Result<Self, FieldError> {
        let flow = flow.ok_or_else(|| FieldError::new(field, "missing"))?;
        let name = |part: &str| format!("{field}.{part}");
        let end = |part: &str, text: &Option<String>, length: Option<u32>| {
            let length_name = name(&format!("{part}_prefix_length"));
            let Some(addr) = address_in(&name(part), text.as_deref())? else {
                return match length {
                    Some(_) => Err(FieldError::new(length_name, format_args!("needs {part}"))),
                    None => Ok(None),
                };
            };
            let host = Prefix::host(addr);
            let len = number_in(&length_name, length, 0, host.len.into())?;
            Ok(Some(Prefix { addr, len: len.unwrap_or(host.len) }))
        };
        let src = end("source", &flow.source, flow.source_prefix_length)?;
        let dst = end("destination", &flow.destination, flow.destination_prefix_length)?;
        let versions = [src, dst].map(|end| end.map(|end| end.addr.is_ipv4()));
        if let [Some(src), Some(dst)] = versions
            && src != dst
        {
            return Err(FieldError::new(field, "source and destination are of different IP versions"));
        }
        if flow.flow_label.is_some() && versions.contains(&Some(true)) {
            return Err(FieldError::new(name("flow_label"), "IPv4 has none"));
        }
        for (part, value) in [
            ("spi", flow.spi),
            ("source_port", flow.source_port),
            ("destination_port", flow.destination_port),
        ] {
            if value.is_some() && flow.ip_protocol.is_none() {
                return Err(FieldError::new(name(part), "needs ip_protocol"));
            }
        }
        Ok(Self {
            src,
            dst,
            protocol: number_in(&name("ip_protocol"), flow.ip_protocol, 0, 0xff)?,
            dscp: number_in(&name("dscp"), flow.dscp, 0, 63)?,
            flow_label: number_in(&name("flow_label"), flow.flow_label, 0, 0xf_ffff)?,
            spi: flow.spi,
            src_port: number_in(&name("source_port"), flow.source_port, 0, 0xffff)?,
            dst_port: number_in(&name("destination_port"), flow.destination_port, 0, 0xffff)?,
        })
    }

    /// Source and destination, each one host, of a flow that needs a destination.
    pub(crate) fn hosts(&self, field: &str) -> Result<(Option<IpAddr>, IpAddr), FieldError> {
        let host = |part: &str, end: Option<Prefix>| match end {
            Some(prefix) if prefix != Prefix::host(prefix.addr) => {
                Err(FieldError::new(format!("{field}.{part}_prefix_length"), "one host only: leave it out"))
            }
            end => Ok(end.map(|prefix| prefix.addr)),
        };
        let dst = host("destination", self.dst)?;
        let dst = dst.ok_or_else(|| FieldError::new(format!("{field}.destination"), "missing"))?;
        Ok((host("source", self.src)?, dst))
    }

    /// The path-coupled MRI of the flow.
    pub(crate) fn path_coupled(&self, field: &str, direction: Direction) -> Result<PathCoupled, FieldError> {
        let end = |part: &str, end: Option<Prefix>| {
            end.ok_or_else(|| FieldError::new(format!("{field}.{part}"), "missing"))
        };
        let (src, dst) = (end("source", self.src)?, end("destination", self.dst)?);
        Ok(PathCoupled {
            src_prefix: src.len,
            dst_prefix: dst.len,
            protocol: self.protocol,
            dscp: self.dscp,
            flow_label: self.flow_label,
            spi: self.spi,
            src_port: self.src_port,
            dst_port: self.dst_port,
            direction,
            ..PathCoupled::between(src.addr, dst.addr)
        })
    }
}

/// The traffic of a request.
pub(crate) fn traffic(field: &str, bucket: Option<&v1::TokenBucket>) -> Result<TrafficSpec, FieldError> {
    let bucket = bucket.ok_or_else(|| FieldError::new(field, "missing"))?;
    let rate = bucket.rate_octets_per_s;
    if rate == 0 {
        return Err(FieldError::new(format!("{field}.rate_octets_per_s"), "at least 1"));
    }
    let max_packet = bucket.max_packet_octets.unwrap_or(1500);
    let burst = bucket.burst_octets.unwrap_or_else(|| (rate / 10).max(2 * u64::from(max_packet)));
    let wrong = |_| FieldError::new(format!("{field}.burst_octets"), "at most 4294967295");
    Ok(TrafficSpec {
        rate,
        burst: u32::try_from(burst).map_err(wrong)?,
        peak: bucket.peak_octets_per_s,
        min_policed: bucket.min_policed_octets.unwrap_or(1),
        max_packet,
    })
}

/// Whether a list with this filter has a flow: one of its ends is the address.
pub(crate) fn has_end(address: Option<IpAddr>, ends: [IpAddr; 2]) -> bool {
    address.is_none_or(|address| ends.contains(&address))
}

/// The filter by the beginning of a session identifier, in lower case.
pub(crate) fn session_prefix(field: &str, digits: Option<String>) -> Result<String, FieldError> {
    let digits = digits.unwrap_or_default().to_ascii_lowercase();
    if digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(FieldError::new(field, "at most 32 hexadecimal digits"));
    }
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use signalbox_core::Mri;

    use super::*;

    fn ends() -> v1::FlowSpec {
        v1::FlowSpec {
            source: Some("2001:db8::1".into()),
            destination: Some("2001:db8:1::".into()),
            destination_prefix_length: Some(48),
            ip_protocol: Some(17),
            dscp: Some(46),
            flow_label: Some(0xf_ffff),
            spi: Some(7),
            source_port: Some(0),
            destination_port: Some(65_535),
            ..v1::FlowSpec::default()
        }
    }

    #[test]
    fn a_flow_is_read_and_shown_whole() {
        let read = Flow::read("flow", Some(&ends())).unwrap();
        let mri = Mri::PathCoupled(read.path_coupled("flow", Direction::Upstream).unwrap());
        assert_eq!(flow(&mri), ends());
    }

    #[test]
    fn a_flow_that_cannot_be_names_its_field() {
        let text = |text: &str| Some(text.to_owned());
        for (flow, field) in [
            (v1::FlowSpec { source: text("x"), ..ends() }, "flow.source"),
            (v1::FlowSpec { source: text("192.0.2.1"), ..ends() }, "flow"),
            (v1::FlowSpec { source_prefix_length: Some(129), ..ends() }, "flow.source_prefix_length"),
            (v1::FlowSpec { destination: None, ..ends() }, "flow.destination_prefix_length"),
            (v1::FlowSpec { ip_protocol: Some(256), ..ends() }, "flow.ip_protocol"),
            (v1::FlowSpec { ip_protocol: None, ..ends() }, "flow.spi"),
            (v1::FlowSpec { dscp: Some(64), ..ends() }, "flow.dscp"),
            (v1::FlowSpec { flow_label: Some(1 << 20), ..ends() }, "flow.flow_label"),
            (v1::FlowSpec { source_port: Some(65_536), ..ends() }, "flow.source_port"),
        ] {
            assert_eq!(Flow::read("flow", Some(&flow)).unwrap_err().field, field, "{flow:?}");
        }
        assert_eq!(Flow::read("flow", None).unwrap_err().to_string(), "flow: missing");
        let hosts = Flow::read("flow", Some(&ends())).unwrap().hosts("flow");
        assert_eq!(hosts.unwrap_err().field, "flow.destination_prefix_length");
        let none = Flow::read("flow", Some(&v1::FlowSpec::default())).unwrap().hosts("flow");
        assert_eq!(none.unwrap_err().field, "flow.destination");
    }
}
