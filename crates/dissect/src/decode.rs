//! The command `signalbox decode`, without its arguments.

use std::io::{self, BufRead, BufReader, Cursor, Read, Write};

use serde_json::{Value, json};
use signalbox_gist::wire::{
    DecodeError, Encapsulation, GistError, Header, MAGIC, Message, MriObject, PORT, strip_magic,
};
use signalbox_qos::wire::qspec::Qspec;
use signalbox_wire::{Writer, hex, parse_hex};

use crate::capture::{CaptureError, IpPacket, Packet, Packets, UdpPacket, is_capture};
use crate::stream::{Framing, Streams};
use crate::{boomerang, casp, json, mapping, rsvp, text};

/// The protocol of the messages in hexadecimal lines. In a capture each packet shows its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// GIST, RFC 5971.
    #[default]
    Gist,
    /// RSVP, RFC 2205.
    Rsvp,
    /// Boomerang, draft-bergkvist-boomerang-spec-00.
    Boomerang,
    /// CASP, draft-schulzrinne-nsis-casp-01.
    Casp,
    /// Bare messages of the NATFW NSLP, RFC 5973.
    Natfw,
    /// Bare messages of the QoS NSLP, RFC 5974.
    Qos,
    /// Bare QSPECs, RFC 5975.
    Qspec,
    /// PCP, RFC 6887, and NAT-PMP, RFC 6886: the first octet decides.
    Pcp,
}

/// How to read and print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The protocol of hexadecimal lines.
    pub protocol: Protocol,
    /// One JSON object a line instead of text.
    pub json: bool,
    /// Encode each decoded message again. As text only the hexadecimal octets are printed, a message a line, and what
    /// cannot be decoded becomes a comment; in JSON they are a further field.
    pub reencode: bool,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Messages, decoded or not.
    pub messages: u64,
    /// Messages that could not be decoded, lines that are no hexadecimal, and captures that end too early.
    pub failed: u64,
}

/// Reading or writing failed; nothing that the input's contents can cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The input could not be read.
    #[error("cannot read the input: {0}")]
    Read(#[source] io::Error),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Write(#[source] io::Error),
}

/// The source of a message.
enum Source<'a> {
    Line(u64),
    Frame(&'a Packet, UdpPacket<'a>),
    IpFrame(&'a Packet, IpPacket<'a>),
    Input,
}

/// Why there is no message.
enum Failure {
    /// The octets are not a GIST message.
    Gist(DecodeError),
    /// The octets are not a message of RSVP, Boomerang, CASP or PCP; with the name of the protocol.
    Other(&'static str, String),
    /// The input is not what it should be.
    Input(String),
}

/// Reads GIST, RSVP, Boomerang, CASP, PCP and NAT-PMP messages from hexadecimal lines or from a pcap file, and prints each.
///
/// A line holds a UDP payload with its magic number, or the bare message of a stream; blank lines and what
/// follows a `#` are skipped. Of a capture, UDP datagrams from or to port 270 are read, GIST messages in TCP connections,
/// IP packets of protocol 46 (RSVP), ICMP Echo messages with the magic number of Boomerang, UDP datagrams from or to the
/// ports 50003 and 50004 (CASP) and 5351 (PCP and NAT-PMP), and TCP connections from or to port 50003. The C-flag and the magic
/// number of a GIST message show its encapsulation, [`Encapsulation::of`]. A line of [`Protocol::Rsvp`] holds a message
/// from its common header on, one of [`Protocol::Boomerang`] an ICMP message from its type octet on, one of [`Protocol::Casp`] a
/// message with or without Length Header.
///
/// # Errors
/// [`Error`] if reading or writing fails. Bad contents are printed and counted in the [`Summary`] instead.
pub fn decode(input: impl Read, out: &mut impl Write, options: &Options) -> Result<Summary, Error> {
    let mut input = BufReader::new(input);
    let mut start = Vec::new();
    Read::by_ref(&mut input).take(4).read_to_end(&mut start).map_err(Error::Read)?;
    let capture = start.first_chunk().is_some_and(|start| is_capture(*start));
    let input = Cursor::new(start).chain(input);
    let mut printer = Printer { out, options, summary: Summary::default() };
    if capture {
        packets(input, &mut printer)?;
    } else {
        lines(input, &mut printer)?;
    }
    printer.out.flush().map_err(Error::Write)?;
    Ok(printer.summary)
}

fn packets(input: impl BufRead, printer: &mut Printer<'_, impl Write>) -> Result<(), Error> {
    let packets = match Packets::open(input) {
        Ok(packets) => packets,
        Err(error) => return printer.failure(&Source::Input, &error.to_string()),
    };
    let mut streams = Streams::default();
    for packet in packets {
        let packet = match packet {
            Ok(packet) => packet,
            // The next packet may be of another interface.
            Err(error @ CaptureError::LinkType(_)) => {
                printer.failure(&Source::Input, &error.to_string())?;
                continue;
            }
            Err(error) => return printer.failure(&Source::Input, &error.to_string()),
        };
        if let Some(ip) = packet.ip().filter(|ip| ip.protocol == rsvp::IP_PROTOCOL) {
            printer.rsvp(&Source::IpFrame(&packet, ip), ip.payload)?;
            continue;
        }
        if let Some(ip) = packet.ip().filter(|ip| boomerang::is_boomerang(ip.protocol, ip.payload)) {
            printer.boomerang(&Source::IpFrame(&packet, ip), ip.payload)?;
            continue;
        }
        if let Some(ip) = packet.ip() {
            streams.take(&ip, |src, dst, framing, octets| {
                let segment = UdpPacket { src, dst, ttl: ip.ttl, options: ip.options, payload: octets };
                let source = Source::Frame(&packet, segment);
                match framing {
                    Framing::Gist => printer.message(&source, octets, false),
                    Framing::Casp => printer.casp(&source, octets),
                }
            })?;
        }
        if let Some(udp) = packet.udp().filter(|udp| casp::is_casp(udp.src.port(), udp.dst.port())) {
            printer.casp(&Source::Frame(&packet, udp), udp.payload)?;
            continue;
        }
        if let Some(udp) = packet.udp().filter(|udp| mapping::is_mapping(udp.src.port(), udp.dst.port())) {
            printer.mapping(&Source::Frame(&packet, udp), udp.payload)?;
            continue;
        }
        let Some(udp) = packet.udp().filter(|u| u.src.port() == PORT || u.dst.port() == PORT) else {
            continue;
        };
        for payload in datagrams(udp.payload) {
            let source = Source::Frame(&packet, UdpPacket { payload, ..udp });
            match strip_magic(payload) {
                Some(octets) => printer.message(&source, octets, true)?,
                None => {
                    printer.summary.messages += 1;
                    printer.failure(&source, "UDP port 270 without the GIST magic number 4e04bda5")?;
                }
            }
        }
    }
    Ok(())
}

/// The datagrams in a captured UDP payload. Where a node sends many datagrams in one call (UDP_SEGMENT), a capture on that
/// node has them as one: each is as long as the first, the last may be shorter.
fn datagrams(payload: &[u8]) -> Vec<&[u8]> {
    let words = payload.get(MAGIC.len() + 2..MAGIC.len() + 4).and_then(|octets| octets.first_chunk::<2>());
    let first = words.map(|words| MAGIC.len() + 8 + 4 * usize::from(u16::from_be_bytes(*words)));
    let equal = |size: &usize| {
        *size < payload.len() && payload.chunks(*size).all(|datagram| datagram.starts_with(&MAGIC))
    };
    match first.filter(equal) {
        Some(size) => payload.chunks(size).collect(),
        None => vec![payload],
    }
}

fn lines(mut input: impl BufRead, printer: &mut Printer<'_, impl Write>) -> Result<(), Error> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.read_until(b'\n', &mut line).map_err(Error::Read)? == 0 {
            break;
        }
        let source = Source::Line(number);
        let text = String::from_utf8_lossy(&line);
        let text = text.split('#').next().unwrap_or_default();
        match parse_hex(text) {
            Ok(octets) if octets.is_empty() => {}
            Ok(octets) => match (printer.options.protocol, strip_magic(&octets)) {
                (Protocol::Rsvp, _) => printer.rsvp(&source, &octets)?,
                (Protocol::Boomerang, _) => printer.boomerang(&source, &octets)?,
                (Protocol::Casp, _) => printer.casp(&source, &octets)?,
                (Protocol::Natfw, _) => printer.natfw(&source, &octets)?,
                (Protocol::Qos, _) => printer.qos(&source, &octets)?,
                (Protocol::Qspec, _) => printer.qspec(&source, &octets)?,
                (Protocol::Pcp, _) => printer.mapping(&source, &octets)?,
                (Protocol::Gist, Some(message)) => printer.message(&source, message, true)?,
                (Protocol::Gist, None) => printer.message(&source, &octets, false)?,
            },
            Err(error) => printer.failure(&source, &format!("no message in hexadecimal: {error}"))?,
        }
    }
    Ok(())
}

/// What a protocol other than GIST does with a message: encodes it again, and makes JSON and text of it.
struct Functions<R, J, T> {
    reencode: R,
    json: J,
    text: T,
}

struct Printer<'a, W> {
    out: &'a mut W,
    options: &'a Options,
    summary: Summary,
}

impl<W: Write> Printer<'_, W> {
    /// Prints one GIST message, `octets` from its common header on.
    fn message(&mut self, source: &Source<'_>, octets: &[u8], datagram: bool) -> Result<(), Error> {
        self.summary.messages += 1;
        let header = Header::parse(octets);
        let encapsulation = header.as_ref().ok().map(|h| Encapsulation::of(h, datagram));
        let parsed = Message::parse(octets, encapsulation.unwrap_or(Encapsulation::Normal));
        let message = match parsed {
            Ok(message) => message,
            Err(error) => {
                return self.not_understood(source, &Failure::Gist(error), header.ok(), octets, datagram);
            }
        };
        let reencoded = if self.options.reencode {
            match reencode(&message, datagram) {
                Ok(octets) => Some(octets),
                Err(text) => {
                    return self.not_understood(source, &Failure::Input(text), header.ok(), octets, datagram);
                }
            }
        } else {
            None
        };
        let expired = (message.header.hops == 0).then_some(GistError::HOP_LIMIT_EXCEEDED);
        let out = &mut *self.out;
        if self.options.json {
            let mut value = place_json(source);
            value["ok"] = true.into();
            value["magic"] = datagram.into();
            value["encapsulation"] = encapsulation.map(name).into();
            value["message"] = message.header.kind.name().into();
            value["header"] = json::header(&message.header);
            value["objects"] = json::objects(&message);
            value["would_raise"] = expired.map_or(Value::Null, json::gist_error);
            if let Some(octets) = reencoded {
                value["reencoded"] = octets.into();
            }
            writeln!(out, "{value}")
        } else if let Some(octets) = reencoded {
            writeln!(out, "{octets}")
        } else {
            let note = expired.map_or(String::new(), |e| format!("  hop count 0: would raise {e}\n"));
            let came = encapsulation.map_or("", name);
            writeln!(out, "{}: {came} {}\n{note}", place(source), text::describe(&message))
        }
        .map_err(Error::Write)
    }

    /// Prints one RSVP message.
    fn rsvp(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let read = rsvp::Decoded::parse(octets).map_err(|error| error.to_string());
        let functions = Functions { reencode: rsvp::reencode, json: rsvp::json, text: rsvp::describe };
        self.other(source, octets, ("RSVP", "rsvp"), read, functions)
    }

    /// Prints one Boomerang message.
    fn boomerang(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let functions = Functions {
            reencode: |message: &_| boomerang::reencode(message, octets),
            json: boomerang::json,
            text: boomerang::describe,
        };
        self.other(source, octets, ("Boomerang", "boomerang"), boomerang::parse(octets), functions)
    }

    /// Prints one CASP message.
    fn casp(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let functions = Functions { reencode: casp::reencode, json: casp::json, text: casp::describe };
        self.other(source, octets, ("CASP", "casp"), casp::parse(octets), functions)
    }

    /// Prints one message of PCP or NAT-PMP.
    fn mapping(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let functions =
            Functions { reencode: mapping::reencode, json: mapping::json, text: mapping::describe };
        self.other(source, octets, ("PCP", "mapping"), mapping::parse(octets), functions)
    }

    /// Prints one message of the NATFW NSLP.
    fn natfw(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let read = signalbox_natfw::wire::Message::parse(octets).map_err(|error| error.to_string());
        let text = |message: &_| indented(|f| crate::natfw::text(f, message));
        let reencode = |message: &signalbox_natfw::wire::Message<'_>| {
            encoded(|w| {
                message.encode(w);
                Ok::<_, String>(())
            })
        };
        let functions = Functions { reencode, json: crate::natfw::json, text };
        self.other(source, octets, ("NATFW NSLP", "natfw"), read, functions)
    }

    /// Prints one message of the QoS NSLP.
    fn qos(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let read = signalbox_qos::wire::Message::parse(octets).map_err(|error| error.to_string());
        let text = |message: &_| indented(|f| crate::qos::text(f, message));
        let reencode = |message: &signalbox_qos::wire::Message<'_>| encoded(|w| message.encode(w));
        let functions = Functions { reencode, json: crate::qos::json, text };
        self.other(source, octets, ("QoS NSLP", "qos"), read, functions)
    }

    /// Prints one QSPEC.
    fn qspec(&mut self, source: &Source<'_>, octets: &[u8]) -> Result<(), Error> {
        let read = Qspec::frame(octets).map_err(|error| error.to_string());
        let json = |_: &Qspec<'_>| crate::qos::qspec(octets);
        let reencode = |qspec: &Qspec<'_>| encoded(|w| qspec.encode(w));
        let functions = Functions { reencode, json, text: Qspec::to_string };
        self.other(source, octets, ("QSPEC", "qspec"), read, functions)
    }

    /// Prints a message of another protocol than GIST. The names of the protocol are those in errors and in JSON.
    fn other<M>(
        &mut self,
        source: &Source<'_>,
        octets: &[u8],
        (title, name): (&'static str, &str),
        read: Result<M, String>,
        functions: Functions<
            impl FnOnce(&M) -> Result<String, String>,
            impl FnOnce(&M) -> Value,
            impl FnOnce(&M) -> String,
        >,
    ) -> Result<(), Error> {
        self.summary.messages += 1;
        let read = read.and_then(|message| match self.options.reencode {
            true => (functions.reencode)(&message).map(|again| (message, Some(again))),
            false => Ok((message, None)),
        });
        let (message, reencoded) = match read {
            Ok(read) => read,
            Err(error) => {
                return self.not_understood(source, &Failure::Other(title, error), None, octets, true);
            }
        };
        let out = &mut *self.out;
        if self.options.json {
            let mut value = place_json(source);
            value["ok"] = true.into();
            value[name] = (functions.json)(&message);
            if let Some(octets) = reencoded {
                value["reencoded"] = octets.into();
            }
            writeln!(out, "{value}")
        } else if let Some(octets) = reencoded {
            writeln!(out, "{octets}")
        } else {
            writeln!(out, "{}: {}\n", place(source), (functions.text)(&message))
        }
        .map_err(Error::Write)
    }

    /// Prints input that is not a message.
    fn failure(&mut self, source: &Source<'_>, text: &str) -> Result<(), Error> {
        self.not_understood(source, &Failure::Input(text.to_owned()), None, &[], false)
    }

    fn not_understood(
        &mut self,
        source: &Source<'_>,
        failure: &Failure,
        header: Option<Header>,
        octets: &[u8],
        datagram: bool,
    ) -> Result<(), Error> {
        self.summary.failed += 1;
        let place_text = place(source);
        let cut = match source {
            Source::Frame(packet, _) | Source::IpFrame(packet, _) if packet.is_cut() => Some(*packet),
            _ => None,
        };
        let out = &mut *self.out;
        if self.options.json {
            let mut value = place_json(source);
            value["ok"] = false.into();
            value["error"] = match failure {
                Failure::Gist(error) => json::decode_error(error),
                Failure::Other(_, text) | Failure::Input(text) => json!({ "text": text, "gist": null }),
            };
            if cut.is_some() {
                value["truncated"] = true.into();
            }
            if let Failure::Other(..) = failure {
                value["octets"] = hex(octets).into();
            } else if !octets.is_empty() {
                value["magic"] = datagram.into();
                value["octets"] = hex(octets).into();
                value["header"] = header.as_ref().map_or(Value::Null, json::header);
            }
            return writeln!(out, "{value}").map_err(Error::Write);
        }
        let (text, raises) = match failure {
            Failure::Gist(error) => {
                let raises = error.gist_error().map(|e| e.to_string());
                (error.to_string(), format!("raises {}", raises.as_deref().unwrap_or("no error")))
            }
            Failure::Other(name, text) => (format!("{name}: {text}"), String::new()),
            Failure::Input(text) => (text.clone(), String::new()),
        };
        let text = cut.map_or_else(|| text.clone(), |packet| format!("{}: {text}", truncated(packet)));
        if self.options.reencode {
            let more = if raises.is_empty() { raises } else { format!("; {raises}") };
            writeln!(out, "# {place_text}: not understood: {text}{more}")
        } else if raises.is_empty() {
            writeln!(out, "{place_text}: not understood: {text}\n")
        } else {
            let kind = header.map_or(String::new(), |h| format!("{} ", h.kind));
            writeln!(out, "{place_text}: {kind}not understood: {text}\n  {raises}\n")
        }
        .map_err(Error::Write)
    }
}

fn truncated(packet: &Packet) -> String {
    format!(
        "truncated: the capture has {} of {} octets of this packet; capture whole packets (tcpdump -s 0)",
        packet.octets.len(),
        packet.original
    )
}

/// Returns the lines that a function writes, without those of GIST around them.
fn indented(write: impl FnOnce(&mut String) -> core::fmt::Result) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text);
    text.trim().to_owned()
}

/// Returns what a function encodes, in hexadecimal.
pub(crate) fn encoded<E: core::fmt::Display>(
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Result<String, String> {
    let mut octets = Vec::new();
    write(&mut Writer::new(&mut octets)).map_err(|error| format!("cannot be encoded again: {error}"))?;
    Ok(hex(&octets))
}

/// Encodes a decoded message again, in hexadecimal.
fn reencode(message: &Message<'_>, datagram: bool) -> Result<String, String> {
    // Without the received octets of the MRI, so that its reserved bits are composed and not copied.
    let message = Message { mri: message.mri.map(|m| MriObject::from(m.mri)), ..*message };
    let mut octets = Vec::new();
    let mut w = Writer::new(&mut octets);
    if datagram {
        w.bytes(&MAGIC);
    }
    message.encode(&mut w).map_err(|e| format!("cannot be encoded again: {e}"))?;
    Ok(hex(&octets))
}

const fn name(encapsulation: Encapsulation) -> &'static str {
    match encapsulation {
        Encapsulation::Normal => "D-mode",
        Encapsulation::QMode => "Q-mode",
        Encapsulation::Association => "C-mode",
    }
}

fn place(source: &Source<'_>) -> String {
    match source {
        Source::Input => "input".to_owned(),
        Source::Line(number) => format!("line {number}"),
        Source::Frame(packet, udp) => {
            let time = packet.time;
            let alert = udp.router_alert().map_or(String::new(), |v| format!(", Router Alert {v}"));
            format!(
                "frame {}, {}.{:06}, {} > {}, TTL {}{alert}",
                packet.number,
                time.as_secs(),
                time.subsec_micros(),
                udp.src,
                udp.dst,
                udp.ttl
            )
        }
        Source::IpFrame(packet, ip) => {
            let time = packet.time;
            let alert = ip.router_alert().map_or(String::new(), |v| format!(", Router Alert {v}"));
            let (seconds, micros) = (time.as_secs(), time.subsec_micros());
            let (src, dst, ttl) = (ip.src, ip.dst, ip.ttl);
            format!("frame {}, {seconds}.{micros:06}, {src} > {dst}, TTL {ttl}{alert}", packet.number)
        }
    }
}

fn place_json(source: &Source<'_>) -> Value {
    match source {
        Source::Input => json!({}),
        Source::Line(number) => json!({ "line": number }),
        Source::Frame(packet, udp) => json!({
            "frame": packet.number,
            "time_us": u64::try_from(packet.time.as_micros()).unwrap_or(u64::MAX),
            "src": udp.src.to_string(),
            "dst": udp.dst.to_string(),
            "ttl": udp.ttl,
            "router_alert": udp.router_alert(),
        }),
        Source::IpFrame(packet, ip) => json!({
            "frame": packet.number,
            "time_us": u64::try_from(packet.time.as_micros()).unwrap_or(u64::MAX),
            "src": ip.src.to_string(),
            "dst": ip.dst.to_string(),
            "ttl": ip.ttl,
            "router_alert": ip.router_alert(),
        }),
    }
}
