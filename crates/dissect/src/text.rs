//! Messages as indented text for people.

use core::fmt::{self, Write as _};

use signalbox_core::{Mri, NslpId};
use signalbox_gist::wire::{ErrorObject, Info, MaOptions, Message, MrmId, Nli, ObjectType};
use signalbox_ping::wire as ping;
use signalbox_wire::hex;

use crate::json::unknown;

/// Returns a GIST message (RFC 5971 A.1) as text: a line for the header, then one or more indented lines for each
/// object. There is no line break at the end.
#[must_use]
pub fn describe(message: &Message<'_>) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, message);
    text.truncate(text.trim_end().len());
    text
}

fn write(f: &mut String, message: &Message<'_>) -> fmt::Result {
    let header = &message.header;
    write!(f, "{}, NSLP {}", header.kind, header.nslp)?;
    if header.nslp.name().is_some() {
        write!(f, " ({})", header.nslp.0)?;
    }
    write!(f, ", hops {}, flags ", header.hops)?;
    for (set, name) in [(header.c, 'C'), (header.s, 'S'), (header.r, 'R'), (header.e, 'E')] {
        f.push(if set { name } else { '-' });
    }
    writeln!(f, ", {} octets", header.message_octets())?;
    if let Some(nat) = &message.nat_traversal {
        writeln!(f, "  {}: {} NATs", ObjectType::NAT_TRAVERSAL, nat.replaced.len())?;
        match nat.mri() {
            Some(original) => writeln!(f, "    original MRI: {}", mri(&original))?,
            None => writeln!(f, "    original MRI: {}", hex(nat.original_mri))?,
        }
        for translated in &nat.translated {
            writeln!(f, "    translated: {}", translated.kind())?;
        }
        for replaced in &nat.replaced {
            writeln!(f, "    replaced: {}", hex(replaced.0))?;
        }
    }
    if let Some(object) = &message.mri {
        writeln!(f, "  {}: {}", ObjectType::MRI, mri(&object.mri))?;
    }
    if let Some(session) = message.session {
        writeln!(f, "  {}: {session}", ObjectType::SESSION_ID)?;
    }
    if let Some(object) = &message.nli {
        nli(f, object)?;
    }
    for (kind, cookie) in [
        (ObjectType::QUERY_COOKIE, message.query_cookie),
        (ObjectType::RESPONDER_COOKIE, message.responder_cookie),
    ] {
        if let Some(cookie) = cookie {
            writeln!(f, "  {kind}: {}", hex(cookie))?;
        }
    }
    if let Some(proposal) = &message.stack_proposal {
        writeln!(f, "  {}: {} profiles", ObjectType::STACK_PROPOSAL, proposal.profiles.len())?;
        for (number, profile) in (1..).zip(&proposal.profiles) {
            let protocols: Vec<_> = profile.protocols().map(|p| p.to_string()).collect();
            writeln!(f, "    {number}: {}", protocols.join(" over "))?;
        }
    }
    if let Some(configuration) = &message.stack_configuration {
        let hold = configuration.hold_time_ms;
        writeln!(f, "  {}: hold time {hold} ms", ObjectType::STACK_CONFIGURATION)?;
        configuration.options.iter().try_for_each(|o| ma_options(f, &o))?;
    }
    if let Some(error) = &message.error {
        error_object(f, error)?;
    }
    if let Some(id) = message.hello_id {
        writeln!(f, "  {}: {id}", ObjectType::HELLO_ID)?;
    }
    if let Some(data) = message.nslp_data {
        nslp_data(f, header.nslp, data)?;
    }
    for o in unknown(message) {
        writeln!(f, "  unknown object {} ({}): {}", o.kind.0, o.extensibility, hex(o.value))?;
    }
    Ok(())
}

fn mri(mri: &Mri) -> String {
    let direction = mri.direction();
    match mri {
        Mri::PathCoupled(_) => format!("{} {direction}, {mri}", MrmId::PATH_COUPLED),
        Mri::LooseEnd(l) => format!("{} {direction}, {} > {}", MrmId::LOOSE_END, l.src, l.dst),
    }
}

fn nli(f: &mut String, nli: &Nli<'_>) -> fmt::Result {
    writeln!(
        f,
        "  {}: peer {}, interface {}, IP-TTL {}, validity {} ms",
        ObjectType::NLI,
        hex(nli.peer_identity),
        nli.interface,
        nli.ip_ttl,
        nli.validity_ms
    )
}

fn ma_options(f: &mut String, options: &MaOptions<'_>) -> fmt::Result {
    write!(f, "    {}, ", options.protocol)?;
    match options.profile {
        0 => f.write_str("all profiles")?,
        n => write!(f, "profile {n}")?,
    }
    match options.port() {
        Some(port) => write!(f, ", port {port}")?,
        None if options.data.is_empty() => {}
        None => write!(f, ", data {}", hex(options.data))?,
    }
    f.write_str(if options.disabled { ", must not be used\n" } else { "\n" })
}

fn error_object(f: &mut String, error: &ErrorObject<'_>) -> fmt::Result {
    writeln!(f, "  {}: {}, {}", ObjectType::ERROR, error.error, error.error.class)?;
    let came = match (error.d_mode, error.q_mode) {
        (true, true) => "Q-mode",
        (true, false) => "D-mode",
        (false, _) => "C-mode",
    };
    match error.original() {
        Some(h) => writeln!(f, "    about a {} in {came}, NSLP {}, hops {}", h.kind, h.nslp, h.hops)?,
        None => writeln!(f, "    about a message in {came} with header {}", hex(&error.header))?,
    }
    if let Some(session) = error.session {
        writeln!(f, "    session {session}")?;
    }
    if let Some(octets) = error.mri_octets {
        let text = error.mri().map_or_else(|| hex(octets), |m| mri(&m));
        writeln!(f, "    MRI {text}")?;
    }
    for info in error.infos.iter() {
        let kind = info.kind();
        match info {
            Info::MessageLength(words) => writeln!(f, "    {kind}: {words} words")?,
            Info::Mtu(mtu) => writeln!(f, "    {kind}: {mtu} octets")?,
            Info::ObjectType(object) => writeln!(f, "    {kind}: {object}")?,
            Info::ObjectValue { offset, object } => {
                writeln!(f, "    {kind}: octet {offset} of {}", hex(object))?;
            }
            Info::Other { value, .. } => writeln!(f, "    information {}: {}", kind.0, hex(value))?,
        }
    }
    match error.comment {
        Some(comment) => writeln!(f, "    comment {comment:?}"),
        None => Ok(()),
    }
}

fn nslp_data(f: &mut String, nslp: NslpId, data: &[u8]) -> fmt::Result {
    write!(f, "  {}: {} octets", ObjectType::NSLP_DATA, data.len())?;
    if nslp == NslpId::QOS && !data.is_empty() {
        return match signalbox_qos::wire::Message::parse(data) {
            Ok(message) => {
                f.push('\n');
                crate::qos::text(f, &message)
            }
            Err(error) => writeln!(f, ", no QoS NSLP message ({error}): {}", hex(data)),
        };
    }
    if nslp == NslpId::NATFW && !data.is_empty() {
        return match signalbox_natfw::wire::Message::parse(data) {
            Ok(message) => {
                f.push('\n');
                crate::natfw::text(f, &message)
            }
            Err(error) => writeln!(f, ", no NATFW NSLP message ({error}): {}", hex(data)),
        };
    }
    if nslp == NslpId::NSIS_PING && !data.is_empty() {
        return match ping::nsis::Message::parse(data) {
            Ok(message) => nsis_ping(f, &message),
            Err(error) => writeln!(f, ", no message of the NSIS Ping tool ({error}): {}", hex(data)),
        };
    }
    if nslp != NslpId::PING || data.is_empty() {
        return writeln!(f, "{}{}", if data.is_empty() { "" } else { ", " }, hex(data));
    }
    let message = match ping::Message::parse(data) {
        Ok(message) => message,
        Err(error) => return writeln!(f, ", no Ping message ({error}): {}", hex(data)),
    };
    write!(f, "\n    Ping {} {}, identifier {:016x}", message.kind, message.sequence, message.identifier)?;
    write!(f, ", sent at {}", time(message.sent_us))?;
    message.flags.names().try_for_each(|name| write!(f, ", {name}"))?;
    f.push('\n');
    for (way, records) in [("there", message.there), ("back", message.back)] {
        for r in records.iter() {
            write!(f, "    {way}: {} at {}", r.address, time(r.received_us))?;
            writeln!(f, ", held {} µs, IP distance {}", r.held_us, r.ip_distance)?;
        }
    }
    message.padding.map_or(Ok(()), |padding| writeln!(f, "    padding: {} octets", padding.len()))
}

fn nsis_ping(f: &mut String, message: &ping::nsis::Message<'_>) -> fmt::Result {
    let (hops, sequence, octets) = (message.hops, message.sequence, message.octets());
    writeln!(f, "\n    NSIS Ping {sequence}, processed {hops} times, {octets} octets")?;
    for object in message.objects() {
        writeln!(f, "    each record has {}: {} octets", object.kind, object.octets)?;
    }
    for record in message.records() {
        let address = record.address.map_or_else(|| "unknown node".to_owned(), |a| a.to_string());
        let at = record.time_us.map_or_else(|| "unknown time".to_owned(), time);
        writeln!(f, "    record: {address} at {at}")?;
    }
    Ok(())
}

/// Returns microseconds since 1970 as seconds.
fn time(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
