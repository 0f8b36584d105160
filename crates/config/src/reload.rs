//! Another configuration for a daemon that runs: which of its keys it takes, and which need a restart.

use crate::Config;

/// What a running daemon takes of another configuration.
#[derive(Debug)]
pub struct Reload {
    /// The configuration that is in force then.
    pub config: Config,
    /// The keys whose values change, with their tables, joined by dots.
    pub applied: Vec<String>,
    /// The keys whose values differ after that. They need a restart.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// What a daemon that runs with this configuration takes of `new`: the rules, the limits of admission control, the keys
    /// of tokens, the keys, certificates and revocation lists of TLS, the roles of users, and the level of the log.
    /// `admission.max_reservations` and `admission.max_pinholes` are sizes of tables, which stay.
    #[must_use]
    pub fn reload(&self, new: &Self) -> Reload {
        let mut config = self.clone();
        config.include.clone_from(&new.include);
        config.control.access.clone_from(&new.control.access);
        config.log.level = new.log.level.clone();
        config.secrets = self.secrets.with_tokens_of(&new.secrets);
        config.resources = new.resources.clone();
        config.resources.0.max_reservations = self.resources.0.max_reservations;
        config.resources.0.max_pinholes = self.resources.0.max_pinholes;
        config.protocols.gist = self.protocols.gist.reloaded(&new.protocols.gist);
        let mut applied = config.differences(self);
        // Files of the same names can have another content.
        if config.tls() != self.tls() && !applied.iter().any(|key| key.starts_with("gist.tls.")) {
            applied.push("gist.tls".to_owned());
        }
        let needs_restart = new.differences(&config);
        Reload { config, applied, needs_restart }
    }

    /// The keys, certificates and revocation lists of TLS; `None`: there is no TLS.
    #[must_use]
    pub fn tls(&self) -> Option<&signalbox_node::Tls> {
        if self.node.runs("gist") { self.protocols.gist.tls() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    const HEAD: &str =
        "version = 1\n[node]\nprotocols = [\"gist\", \"qos\", \"rsvp\"]\n[rsvp.integrity]\nenabled = true\n";

    fn config(rest: &str) -> Config {
        let loaded = crate::parse(Path::new("node.toml"), &format!("{HEAD}{rest}{}", key("rsvp", 1)));
        loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
    }

    fn key(usage: &str, id: u8) -> String {
        let entity = if usage == "tokens" { "entity = \"auth.example.org\"\n" } else { "" };
        format!("[[keys]]\nuse = \"{usage}\"\nid = {id}\nsecret_file = \"{id}.key\"\n{entity}")
    }

    #[test]
    fn rules_limits_and_the_log_level_are_taken() {
        let old = config("[policy]\ndefault = \"allow\"\n");
        let new = config(
            "[policy]\ndefault = \"deny\"\n[[policy.rules]]\naction = \"allow\"\nfrom = [\"10.0.0.0/8\"]\n\
             [admission]\npreemption = true\n[log]\nlevel = \"debug\"\n",
        );
        let reload = old.reload(&new);
        for name in ["policy.default", "policy.rules[1].from", "admission.preemption", "log.level"] {
            assert!(reload.applied.iter().any(|key| key == name), "{name}: {:?}", reload.applied);
        }
        assert_eq!(reload.needs_restart, [""; 0]);
        assert_eq!(reload.config, new);
        // The same once more changes nothing.
        assert_eq!(reload.config.reload(&new).applied, [""; 0]);
    }

    #[test]
    fn what_a_running_daemon_cannot_change_needs_a_restart() {
        let old = config("");
        let new = config(
            "[admission]\nmax_reservations = 5\n[log]\nformat = \"json\"\n[policy]\ndefault = \"allow\"\n\
             [interfaces.eth0]\ncapacity = \"10mbit\"\n",
        );
        let reload = old.reload(&new);
        assert_eq!(reload.applied, ["policy.default"]);
        for name in ["admission.max_reservations", "log.format", "interfaces.eth0.capacity"] {
            assert!(reload.needs_restart.iter().any(|key| key == name), "{name}: {:?}", reload.needs_restart);
        }
    }

    /// The files of TLS are read again, although their names stay. Other numbers of `[gist.tls]` need a restart.
    #[test]
    fn keys_certificates_and_revocation_lists_are_read_again() {
        let directory = std::env::temp_dir().join(format!("sbx-reload-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let issuer = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let anchor = params.self_signed(&issuer).unwrap().pem();
        let issuer = rcgen::Issuer::new(params, issuer);
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(directory.join(name), text).unwrap();
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(directory.join(name), mode).unwrap();
        };
        let renew = || {
            let key = rcgen::KeyPair::generate().unwrap();
            let leaf = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
            write("leaf.pem", &leaf.signed_by(&key, &issuer).unwrap().pem());
            write("key.pem", &key.serialize_pem());
        };
        let read = |more: &str| {
            let text = "version = 1\n[gist.associations]\ntls_port = 271\n[gist.tls]\nkey_file = \"key.pem\"\n\
                        certificate_file = \"leaf.pem\"\nanchors_file = \"anchors.pem\"\n";
            write("node.toml", &format!("{text}{more}"));
            let loaded = crate::load(&directory.join("node.toml")).unwrap();
            loaded.usable().unwrap_or_else(|findings| panic!("{findings:?}")).0
        };
        write("anchors.pem", &anchor);
        renew();
        let old = read("");
        assert_eq!(old.reload(&read("")).applied, [""; 0]);
        renew();
        let reload = old.reload(&read(""));
        assert_eq!((reload.applied, reload.needs_restart), (vec!["gist.tls".to_owned()], vec![]));
        assert_ne!(reload.config.tls(), old.tls());

        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2027, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        write("revoked.pem", &list.signed_by(&issuer).unwrap().pem().unwrap());
        let new =
            read("revocations_file = \"revoked.pem\"\nrevocations_required = true\nmax_handshakes = 7\n");
        let reload = old.reload(&new);
        assert_eq!(reload.applied, ["gist.tls.revocations_file", "gist.tls.revocations_required"]);
        assert_eq!(reload.needs_restart, ["gist.tls.max_handshakes"]);
        let tls = reload.config.tls().unwrap();
        assert!(tls.revocation_strict && tls.revocation_lists.contains("X509 CRL"));

        write("revoked.pem", "nothing");
        let loaded = crate::load(&directory.join("node.toml")).unwrap();
        let findings = loaded.usable().unwrap_err();
        assert!(findings[0].to_string().contains("[tls-pem] revocation lists"), "{findings:?}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Keys of tokens are taken, those of RSVP need a restart.
    #[test]
    fn keys_are_taken_by_their_use() {
        let old = config(&key("tokens", 2));
        let token = config(&key("tokens", 3));
        let reload = old.reload(&token);
        assert_eq!((reload.needs_restart, reload.config.effective()), (vec![], token.effective()));
        assert!(!reload.applied.is_empty());
        let rsvp = config(
            &(key("tokens", 2) + &key("rsvp", 4).replace("secret_file", "interface = \"eth0\"\nsecret_file")),
        );
        let reload = old.reload(&rsvp);
        assert_eq!((reload.applied, reload.config.effective()), (vec![], old.effective()));
        assert!(!reload.needs_restart.is_empty());
    }
}
