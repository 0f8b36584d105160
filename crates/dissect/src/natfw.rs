//! Messages of the NATFW NSLP.

use core::fmt::{self, Write as _};

use serde_json::{Map, Value, json};
use signalbox_natfw::wire::{DataTerminal, Filter, Information, Message, Publication, Wish};

/// Returns a message of the NATFW NSLP (RFC 5973 §4) as a JSON object. Absent objects have no field.
pub(crate) fn json(message: &Message<'_>) -> Value {
    let mut fields = Map::new();
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), value);
        }
    };
    add("kind", Some(message.kind.to_string().into()));
    add("flags", Some(flags(message).into()));
    add("lifetime_s", message.lifetime.map(Value::from));
    add("msn", message.msn.map(Value::from));
    add("action", message.efi.map(|efi| efi.action.to_string().into()));
    add("sub_ports", message.efi.map(|efi| efi.sub_ports.into()));
    add("info", message.info.map(info));
    add("terminal", message.terminal.map(|terminal| data_terminal(&terminal)));
    add("nonce", message.nonce.map(|nonce| format!("{nonce:08x}").into()));
    add("icmp_types", message.icmp_types.map(|types| types.types().into()));
    let external = message
        .external
        .map(|external| json!({ "address": external.address.to_string(), "port": external.port }));
    add("external", external);
    let bindings = message.bindings.map(|bindings| {
        let addresses: Vec<_> = bindings.iter().map(|address| address.to_string()).collect();
        json!({ "port": bindings.port, "addresses": addresses })
    });
    add("bindings", bindings);
    add("publication", message.publication.map(publication));
    add("hops", message.hops.map(|hops| hops.iter().map(crate::json::hop).collect::<Vec<_>>().into()));
    Value::Object(fields)
}

fn flags(message: &Message<'_>) -> Vec<&'static str> {
    let flags = [(message.proxy, "P"), (message.extend, "E")];
    flags.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}

fn info(info: Information) -> Value {
    json!({
        "class": info.info.class.0,
        "class_name": info.info.class.name(),
        "code": info.info.code,
        "name": info.info.name(),
        "object_type": info.object.map(|object| object.0),
    })
}

fn publication(publication: Publication<'_>) -> Value {
    let Wish { opens, exactly, address, port, key, filters } = publication.wish();
    let filters: Vec<_> =
        filters.iter().map(|filter| json!({ "senders": senders(filter), "port": filter.port })).collect();
    json!({
        "opens": opens,
        "exactly": exactly,
        "address": address.map(|address| address.to_string()),
        "port": port,
        "key": format!("{:016x}", u64::from_be_bytes(key)),
        "filters": filters,
    })
}

fn senders(filter: &Filter) -> String {
    format!("{}/{}", filter.address, filter.prefix)
}

fn data_terminal(terminal: &DataTerminal) -> Value {
    let (address, prefix) = terminal.sender;
    let ports = terminal.ports();
    json!({
        "protocol": terminal.protocol(),
        "receiver_port": ports.receiver,
        "sender_port": ports.sender,
        "spi": terminal.spi(),
        "sender": format!("{address}/{prefix}"),
    })
}

/// Returns a message as indented lines.
pub(crate) fn text(f: &mut String, message: &Message<'_>) -> fmt::Result {
    write!(f, "    NATFW {}", message.kind)?;
    flags(message).iter().try_for_each(|flag| write!(f, " {flag}"))?;
    if let Some(msn) = message.msn {
        write!(f, ", MSN {msn}")?;
    }
    if let Some(lifetime) = message.lifetime {
        write!(f, ", lifetime {lifetime} s")?;
    }
    if let Some(efi) = message.efi {
        write!(f, ", action {}", efi.action)?;
        if efi.sub_ports > 0 {
            write!(f, ", {} further ports", efi.sub_ports)?;
        }
    }
    if let Some(nonce) = message.nonce {
        write!(f, ", nonce {nonce:08x}")?;
    }
    f.push('\n');
    if let Some(Information { info, object }) = message.info {
        write!(f, "    {}/{:#04x} {info}", info.class.0, info.code)?;
        object.map_or(Ok(()), |object| write!(f, " ({object})"))?;
        f.push('\n');
    }
    if let Some(terminal) = message.terminal {
        let (address, prefix) = terminal.sender;
        write!(f, "    from {address}/{prefix}")?;
        let ports = terminal.ports();
        for (name, value) in [
            ("sender port", ports.sender.map(u32::from)),
            ("receiver port", ports.receiver.map(u32::from)),
            ("protocol", terminal.protocol().map(u32::from)),
            ("SPI", terminal.spi()),
        ] {
            value.map_or(Ok(()), |value| write!(f, ", {name} {value}"))?;
        }
        f.push('\n');
    }
    if let Some(types) = message.icmp_types {
        writeln!(f, "    ICMP types {:?}", types.types())?;
    }
    let at = |port: Option<u16>| port.map_or(String::new(), |port| format!(" port {port}"));
    if let Some(external) = message.external {
        writeln!(f, "    external address {}{}", external.address, at(external.port))?;
    }
    if let Some(bindings) = message.bindings {
        let addresses: Vec<_> = bindings.iter().map(|address| address.to_string()).collect();
        writeln!(f, "    external addresses of NATs [{}]{}", addresses.join(", "), at(bindings.port))?;
    }
    if let Some(publication) = message.publication {
        let Wish { opens, exactly, address, port, key, filters } = publication.wish();
        f.push_str(if opens { "    publication, opens at once" } else { "    publication, opens nothing" });
        let only = if exactly { "only" } else { "rather" };
        address.map_or(Ok(()), |address| write!(f, ", {only} address {address}"))?;
        port.map_or(Ok(()), |port| write!(f, ", {only} port {port}"))?;
        writeln!(f, ", lease key {:016x}", u64::from_be_bytes(key))?;
        for filter in &filters {
            writeln!(f, "        from {}{}", senders(filter), at(filter.port))?;
        }
    }
    for hop in message.hops.iter().flat_map(|hops| hops.iter()) {
        let gap = if hop.after_gap { ", behind routers or nodes that are unknown" } else { "" };
        writeln!(f, "    {} {}{gap}", hop.address, hop.part)?;
    }
    Ok(())
}
