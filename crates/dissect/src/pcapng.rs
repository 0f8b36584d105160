//! The packets of a pcapng file.
//!
//! The crate pcap-file reads its blocks. It takes all times for nanoseconds and refuses a packet for a bad option, so that the
//! fields of a packet are read here, and what stands behind the packet is not.

use core::time::Duration;
use std::io::Read;

use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{Endianness, PcapError};
use signalbox_wire::Reader;

use crate::capture::{LinkType, Packet};

const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The packets of a pcapng file, in their order, those of all interfaces.
pub(crate) struct Blocks<R: Read> {
    reader: PcapNgReader<R>,
}

/// Octets of a packet, and where they come from.
struct BlockPacket {
    interface: u32,
    /// Units of the interface's clock; `None`: the block has no time.
    time: Option<u64>,
    captured: u32,
    original: u32,
}

impl<R: Read> Blocks<R> {
    pub(crate) fn open(reader: R) -> Result<Self, PcapError> {
        Ok(Self { reader: PcapNgReader::new(reader)? })
    }

    /// The next packet, with this number.
    pub(crate) fn next(&mut self, number: u64) -> Option<Result<Packet, PcapError>> {
        loop {
            let little = self.reader.section().endianness == Endianness::Little;
            let (kind, body) = match self.reader.next_raw_block()? {
                Ok(block) => (block.type_, block.body.into_owned()),
                Err(error) => return Some(Err(error)),
            };
            if !matches!(kind, PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
                continue;
            }
            let packet = self.packet(kind, &body, little, number);
            return Some(packet.ok_or(PcapError::InvalidField("a block of a packet is too short")));
        }
    }

    fn packet(&self, kind: u32, body: &[u8], little: bool, number: u64) -> Option<Packet> {
        let mut r = Reader::new(body);
        let found = read(&mut r, kind, little)?;
        let interface = self.reader.interfaces().get(usize::try_from(found.interface).ok()?)?;
        // A simple packet has no number of captured octets: as many as the interface takes, without the padding.
        let captured = match (kind, interface.snaplen) {
            (SIMPLE_PACKET, limit) if limit > 0 => found.captured.min(limit),
            _ => found.captured,
        };
        let octets = r.take(usize::try_from(captured).ok()?).ok()?.to_vec();
        let time = found.time.map(|units| time(units, interface)).unwrap_or_default();
        let link = LinkType(u32::from(interface.linktype));
        Some(Packet { number, time, link, octets, original: found.original })
    }
}

impl<R: Read> core::fmt::Debug for Blocks<R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Blocks").finish_non_exhaustive()
    }
}

/// Reads what stands before the octets of a packet.
fn read(r: &mut Reader<'_>, kind: u32, little: bool) -> Option<BlockPacket> {
    let mut word = || {
        let octets = r.array::<4>().ok()?;
        Some(if little { u32::from_le_bytes(octets) } else { u32::from_be_bytes(octets) })
    };
    if kind == SIMPLE_PACKET {
        let original = word()?;
        return Some(BlockPacket { interface: 0, time: None, captured: original, original });
    }
    let first = word()?;
    // The older block has 16 bits of the interface and 16 of a count of drops.
    let interface = match kind {
        PACKET if little => first & 0xffff,
        PACKET => first >> 16,
        _ => first,
    };
    let (high, low) = (word()?, word()?);
    let (captured, original) = (word()?, word()?);
    Some(BlockPacket { interface, time: Some(u64::from(high) << 32 | u64::from(low)), captured, original })
}

/// The time of an interface's clock since 1970: microseconds, if it does not say otherwise.
fn time(units: u64, interface: &InterfaceDescriptionBlock<'_>) -> Duration {
    let resolution = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(value) => Some(*value),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let nanoseconds =
        base.checked_pow(exponent).map_or(0, |a_second| u128::from(units) * 1_000_000_000 / a_second);
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}
