//! Files that hold secrets.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use signalbox_node::resources::Secret;

use crate::keys::Keys;

/// Octets of the longest shared secret.
const LONGEST: u64 = 1024;

/// Others may read, write or execute it, or the group may write it.
const TOO_OPEN: u32 = 0o027;

/// The content of a secret file of at most `limit` octets; or why it is not used, and what to do.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let name = path.display();
    let cannot = |error: std::io::Error| {
        format!("cannot read {name}: {error}; give the path of a file that signalboxd may read")
    };
    let file = File::open(path).map_err(cannot)?;
    // The metadata are those of the open file: the name may lead to another one a moment later.
    let about = file.metadata().map_err(cannot)?;
    if !about.is_file() {
        return Err(format!("{name} is no regular file; give the path of one"));
    }
    if about.mode() & TOO_OPEN != 0 {
        let mode = about.mode() & 0o777;
        return Err(format!(
            "{name} holds a secret, but its permissions are {mode:04o}: others may read it; chmod 600 {name}"
        ));
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content).map_err(cannot)?;
    if content.len() as u64 > limit {
        return Err(format!("{name} has more than {limit} octets; it should hold nothing but the secret"));
    }
    Ok(content)
}

/// The secret in a file: its content without one end of line.
pub(crate) fn line(content: &[u8]) -> &[u8] {
    let line = content.strip_suffix(b"\n").unwrap_or(content);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The shared secret in a file; what is wrong with the file is reported at `key`.
pub(crate) fn shared(file: &Path, key: &str, report: &mut Keys<'_>) -> Option<Secret> {
    let content = match read(file, LONGEST + 2) {
        Ok(content) => content,
        Err(message) => {
            report.fault(&[key], &message);
            return None;
        }
    };
    let problem = match line(&content) {
        [] => "the file is empty: write the secret into it, such as openssl rand -hex 32 makes",
        line if line.len() as u64 > LONGEST => "the secret has more than 1024 octets: take a shorter one",
        line => return Some(Secret::new(line)),
    };
    report.fault(&[key], problem);
    None
}
