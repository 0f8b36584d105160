//! Whether the gRPC API still has all that its clients may use: the present descriptors are compared with the released ones. And whether
//! Go can compile its code: packages of Go must not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// The descriptors of the present API; `make generated` writes them.
const PRESENT: &str = "crates/api/src/generated/descriptors.bin";
/// The descriptors that clients may use.
const RELEASED: &str = "crates/api/released.bin";

/// Compares the present descriptors with the released ones, or makes the present ones the released ones.
pub(crate) fn run(root: &Path, options: &[&str]) -> Result<bool> {
    let (record, anyway, complete) = match options {
        [] => (false, false, false),
        ["--complete"] => (false, false, true),
        ["--add"] => (true, false, false),
        ["--release"] => (true, true, false),
        other => bail!("unknown options {other:?}; there are --complete, --add and --release"),
    };
    let present = read(&root.join(PRESENT))?;
    let released = read(&root.join(RELEASED))?;
    let faults = go_faults(&present);
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        return Ok(false);
    }
    let broken = breaks(&released, &present);
    for line in &broken {
        println!("{line}");
    }
    if !broken.is_empty() && !anyway {
        println!(
            "{} breaks for clients: only additions are allowed. A new release writes its API with `cargo xtask api --release`",
            broken.len()
        );
        return Ok(false);
    }
    if record {
        let path = root.join(RELEASED);
        fs::write(&path, present.encode_to_vec())
            .with_context(|| format!("cannot write {}", path.display()))?;
        println!("{RELEASED} has the API as it is now; {} breaks for clients", broken.len());
        return Ok(true);
    }
    let open = unprotected(&released, &present);
    let all = parts(&present).len();
    println!("the API has all that {RELEASED} has, which is {} of {all} elements", all - open.len());
    // A call that is not in the file could change without a notice, and its messages with it.
    let missing: Vec<&String> = open.iter().filter(|part| complete || is_method(part)).collect();
    for part in &missing {
        println!("{part}: not in {RELEASED}: run `cargo xtask api --add`, commit the result");
    }
    Ok(missing.is_empty())
}

/// What clients may use now and `released` does not have: a later change of it is not noticed.
fn unprotected(released: &FileDescriptorSet, present: &FileDescriptorSet) -> Vec<String> {
    let released = parts(released);
    parts(present).into_keys().filter(|part| !released.contains_key(part)).collect()
}

/// Whether a part is a method of a service; no other part has a slash in its name.
fn is_method(part: &str) -> bool {
    part.contains('/')
}

/// The descriptors in a file, without comments.
fn read(path: &Path) -> Result<FileDescriptorSet> {
    let octets = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut set = FileDescriptorSet::decode(octets.as_slice())
        .with_context(|| format!("{} has no descriptors", path.display()))?;
    set.file.iter_mut().for_each(|file| file.source_code_info = None);
    Ok(set)
}

/// What clients of `released` lose with `present`, a line for each.
fn breaks(released: &FileDescriptorSet, present: &FileDescriptorSet) -> Vec<String> {
    let present = parts(present);
    let lost = |(part, was): (String, String)| match present.get(&part) {
        None => Some(format!("{part}: removed or renumbered (it was {was})")),
        Some(now) if *now != was => Some(format!("{part}: was {was}, is {now}")),
        Some(_) => None,
    };
    parts(released).into_iter().filter_map(lost).collect()
}

/// Why the Go code of these files cannot be compiled, a line for each reason.
fn go_faults(set: &FileDescriptorSet) -> Vec<String> {
    let mut packages = BTreeMap::new();
    let mut faults = Vec::new();
    for file in &set.file {
        // "signalbox.example/api/gist/v1;gist": the path, and the name in code.
        let option = file.options.as_ref().map(|options| options.go_package());
        match option.and_then(|option| option.split(';').next()).filter(|path| !path.is_empty()) {
            Some(path) => {
                packages.insert(file.name(), path);
            }
            None => faults.push(format!("{}: no go_package", file.name())),
        }
    }
    let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in &set.file {
        let Some(own) = packages.get(file.name()) else { continue };
        let used = file.dependency.iter().filter_map(|name| packages.get(name.as_str()));
        imports.entry(own).or_default().extend(used.filter(|used| *used != own));
    }
    // A package without imports, and one that no other imports, is in no circle. What is left without them is in one, or between two.
    while let Some(outside) = imports
        .iter()
        .find(|(own, used)| used.is_empty() || !imports.values().any(|used| used.contains(*own)))
        .map(|(own, _)| *own)
    {
        imports.remove(outside);
        for used in imports.values_mut() {
            used.remove(outside);
        }
    }
    faults.extend(
        imports.iter().map(|(own, used)| format!("the Go package {own} is in a circle: it imports {used:?}")),
    );
    faults
}

/// All that a client can use, by what identifies it on the wire, with all that must stay the same.
fn parts(set: &FileDescriptorSet) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for file in &set.file {
        let package = file.package();
        for message in &file.message_type {
            message_parts(package, message, &mut parts);
        }
        for one in &file.enum_type {
            enum_parts(package, one, &mut parts);
        }
        for service in &file.service {
            for method in &service.method {
                let stream = |streams: bool| if streams { "stream " } else { "" };
                let form = format!(
                    "{}{} to {}{}",
                    stream(method.client_streaming()),
                    method.input_type(),
                    stream(method.server_streaming()),
                    method.output_type()
                );
                parts.insert(format!("{package}.{}/{}", service.name(), method.name()), form);
            }
        }
    }
    parts
}

fn message_parts(scope: &str, message: &DescriptorProto, parts: &mut BTreeMap<String, String>) {
    let name = format!("{scope}.{}", message.name());
    parts.insert(name.clone(), "a message".to_owned());
    for field in &message.field {
        parts.insert(format!("{name} field {}", field.number()), form(message, field));
    }
    for nested in &message.nested_type {
        message_parts(&name, nested, parts);
    }
    for nested in &message.enum_type {
        enum_parts(&name, nested, parts);
    }
}

/// Name, type, and whether the field can be absent or is repeated.
fn form(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let oneof = field.oneof_index.filter(|_| !field.proto3_optional());
    let oneof = oneof.and_then(|at| message.oneof_decl.get(usize::try_from(at).ok()?));
    let oneof = oneof.map(|oneof| format!(" of {}", oneof.name())).unwrap_or_default();
    let optional = if field.proto3_optional() { "optional " } else { "" };
    let label =
        if field.label() == prost_types::field_descriptor_proto::Label::Repeated { "repeated " } else { "" };
    format!("{label}{optional}{:?} {} {}{oneof}", field.r#type(), field.type_name(), field.name())
}

fn enum_parts(scope: &str, one: &EnumDescriptorProto, parts: &mut BTreeMap<String, String>) {
    for value in &one.value {
        parts.insert(format!("{scope}.{} value {}", one.name(), value.number()), value.name().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present() -> FileDescriptorSet {
        read(&crate::root().join(PRESENT)).unwrap()
    }

    fn message<'a>(set: &'a mut FileDescriptorSet, name: &str) -> &'a mut DescriptorProto {
        let messages = set.file.iter_mut().flat_map(|file| file.message_type.iter_mut());
        messages.into_iter().find(|message| message.name() == name).unwrap()
    }

    #[test]
    fn an_addition_is_no_break() {
        let (mut before, now) = (present(), present());
        message(&mut before, "GetNodeResponse").field.pop();
        let node = |file: &&mut prost_types::FileDescriptorProto| !file.service.is_empty();
        before.file.iter_mut().find(node).unwrap().service[0].method.pop();
        assert_eq!(breaks(&before, &now), Vec::<String>::new());
        let open = unprotected(&before, &now);
        assert_eq!(open.len(), 2, "{open:?}");
        assert_eq!(open.iter().filter(|part| is_method(part)).count(), 1, "{open:?}");
    }

    #[test]
    fn go_packages_have_paths_and_no_circle() {
        assert_eq!(go_faults(&present()), Vec::<String>::new());
        let mut set = present();
        let node = set.file.iter_mut().find(|file| file.name() == "signalbox/v1/node.proto").unwrap();
        node.options.as_mut().unwrap().go_package = Some("signalbox.example/api/v1;signalbox".to_owned());
        let circle = go_faults(&set);
        assert_eq!(circle.len(), 2, "{circle:?}");
        assert!(circle.iter().all(|fault| fault.contains("in a circle")), "{circle:?}");
        set.file[0].options = None;
        assert!(go_faults(&set)[0].ends_with("no go_package"));
    }

    #[test]
    fn what_clients_lose_is_a_break() {
        type Change = fn(&mut FileDescriptorSet);
        let changes: [(&str, Change); 6] = [
            ("GetNodeResponse field 1", |set| {
                message(set, "GetNodeResponse").field.remove(0);
            }),
            ("TokenBucket field 1", |set| message(set, "TokenBucket").field[0].number = Some(99)),
            ("TokenBucket field 1", |set| {
                message(set, "TokenBucket").field[0]
                    .set_type(prost_types::field_descriptor_proto::Type::Double)
            }),
            ("FlowSpec field 1", |set| message(set, "FlowSpec").field[0].name = Some("src".to_owned())),
            ("Protocol value", |set| {
                let enums = set.file.iter_mut().flat_map(|file| file.enum_type.iter_mut());
                enums.into_iter().find(|one| one.name() == "Protocol").unwrap().value.pop();
            }),
            ("Node/GetNode", |set| {
                let services = set.file.iter_mut().flat_map(|file| file.service.iter_mut());
                let node = services.into_iter().find(|one| one.name() == "Node").unwrap();
                node.method[0].server_streaming = Some(true);
            }),
        ];
        for (part, change) in changes {
            let mut now = present();
            change(&mut now);
            let broken = breaks(&present(), &now);
            assert_eq!(broken.len(), 1, "{part}: {broken:?}");
            assert!(broken[0].starts_with("signalbox.v1.") && broken[0].contains(part), "{broken:?}");
        }
    }
}
