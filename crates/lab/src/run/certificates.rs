//! Keys and certificates of a lab's nodes, which are made for each run.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::language::Certificate;
use crate::plan::PlannedNode;
use crate::plan::certificates::{ANCHORS, files};
use crate::plan::configuration::USER;

/// The domain of the names in certificates; `.test` belongs to no owner (RFC 6761).
fn name(node: &str) -> String {
    format!("{node}.lab.test")
}

/// Makes the files of all nodes that have a certificate.
pub(crate) fn make(nodes: &[PlannedNode], directory: &Path) -> Result<()> {
    if nodes.iter().all(|node| node.certificate.is_none()) {
        return Ok(());
    }
    let (trusted, anchor) = authority("trusted by the lab")?;
    let (foreign, _) = authority("not trusted")?;
    write(directory, ANCHORS, &anchor)?;
    for node in nodes {
        let issuer = match node.certificate {
            Some(Certificate::Trusted) => &trusted,
            Some(Certificate::Foreign) => &foreign,
            None => continue,
        };
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name(&node.name)])?;
        params.distinguished_name.push(DnType::CommonName, node.name.as_str());
        let [key_file, file] = files(&node.name);
        write(directory, &file, &params.signed_by(&key, issuer)?.pem())?;
        write(directory, &key_file, &key.serialize_pem())?;
    }
    Ok(())
}

/// An authority, and its certificate.
fn authority(name: &str) -> Result<(Issuer<'static, KeyPair>, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

/// Writes a file that only its owner and the user of the daemons can read.
pub(crate) fn write(directory: &Path, file: &str, text: &str) -> Result<()> {
    let path = directory.join(file);
    let written = fs::write(&path, text).and_then(|()| {
        // In a user namespace without that group the daemons stay root.
        let group = chown(&path, None, Some(USER)).is_ok();
        fs::set_permissions(&path, Permissions::from_mode(if group { 0o640 } else { 0o600 }))
    });
    written.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::read;
    use crate::plan::Plan;
    use crate::plan::certificates::configure;

    #[test]
    fn nodes_get_files_and_their_configuration_names_them() {
        let text = "version = 2\nname = \"x\"\ndescription = \"\"\n[nodes]\na = { certificate = \"trusted\" }\n\
                    b = { certificate = \"foreign\" }\nc = {}\n";
        let plan = Plan::new(&read("x.toml", text).unwrap_or_else(|error| panic!("{error}")));
        let directory = std::env::temp_dir().join(format!("signalbox-lab-{}-keys", std::process::id()));
        fs::create_dir_all(&directory).expect("the directory is writable");
        make(&plan.nodes, &directory).expect("keys are made");
        let mut files: Vec<_> = fs::read_dir(&directory)
            .expect("ours")
            .map(|entry| entry.expect("ours").file_name().into_string().expect("ASCII"))
            .collect();
        fs::remove_dir_all(&directory).expect("ours");
        files.sort();
        assert_eq!(files, ["a.key.pem", "a.pem", "authority.pem", "b.key.pem", "b.pem"]);

        let configured = |node: usize| {
            let mut config = toml::toml! { gist.associations.tls_port = 271 };
            configure(&plan.nodes[node], &mut config);
            config
        };
        let a = &configured(0)["gist"];
        assert_eq!(a["associations"]["tls_port"].as_integer(), Some(271));
        assert_eq!(
            (a["tls"]["key_file"].as_str(), a["tls"]["anchors_file"].as_str()),
            (Some("a.key.pem"), Some(ANCHORS))
        );
        assert!(configured(2)["gist"].get("tls").is_none());
    }
}
