//! The keys and certificates that nodes shall have, and where their daemons find them.

use super::PlannedNode;
use crate::language::merge;

/// The file of the authority that all nodes with a certificate trust.
pub(crate) const ANCHORS: &str = "authority.pem";

/// Returns the files of the key and of the certificate of a node.
pub(crate) fn files(node: &str) -> [String; 2] {
    [format!("{node}.key.pem"), format!("{node}.pem")]
}

/// Adds the paths of its key and certificate to a daemon's configuration.
pub(crate) fn configure(node: &PlannedNode, config: &mut toml::Table) {
    if node.certificate.is_none() {
        return;
    }
    let [key, certificate] = files(&node.name);
    let entries =
        [("key_file", key), ("certificate_file", certificate), ("anchors_file", ANCHORS.to_owned())];
    let tls: toml::Table = entries.map(|(key, file)| (key.to_owned(), file.into())).into_iter().collect();
    for protocol in ["gist", "casp"].into_iter().filter(|name| node.protocols.contains(name)) {
        let inside = ["tls", protocol].into_iter().fold(tls.clone(), |table, key| {
            let table = toml::Value::Table(table);
            [(key.to_owned(), table)].into_iter().collect()
        });
        merge(config, &inside);
    }
}
