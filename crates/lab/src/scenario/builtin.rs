//! The scenarios that come with the program: the files of `scenarios/`, built in.

const BUILTINS: [(&str, &str); 35] = [
    ("quickstart", include_str!("../../../../scenarios/quickstart.toml")),
    ("gist-dmode-v6", include_str!("../../../../scenarios/gist-dmode-v6.toml")),
    ("gist-bypass", include_str!("../../../../scenarios/gist-bypass.toml")),
    ("gist-loss", include_str!("../../../../scenarios/gist-loss.toml")),
    ("gist-cmode-tcp", include_str!("../../../../scenarios/gist-cmode-tcp.toml")),
    ("gist-mux", include_str!("../../../../scenarios/gist-mux.toml")),
    ("gist-app-python", include_str!("../../../../scenarios/gist-app-python.toml")),
    ("gist-cmode-sctp", include_str!("../../../../scenarios/gist-cmode-sctp.toml")),
    ("gist-cmode-tls", include_str!("../../../../scenarios/gist-cmode-tls.toml")),
    ("gist-large", include_str!("../../../../scenarios/gist-large.toml")),
    ("gist-restart", include_str!("../../../../scenarios/gist-restart.toml")),
    ("gist-reroute", include_str!("../../../../scenarios/gist-reroute.toml")),
    ("gist-flood", include_str!("../../../../scenarios/gist-flood.toml")),
    ("qos-admission", include_str!("../../../../scenarios/qos-admission.toml")),
    ("qos-peer", include_str!("../../../../scenarios/qos-peer.toml")),
    ("qos-police", include_str!("../../../../scenarios/qos-police.toml")),
    ("qos-crash", include_str!("../../../../scenarios/qos-crash.toml")),
    ("qos-receiver", include_str!("../../../../scenarios/qos-receiver.toml")),
    ("qos-bidirectional", include_str!("../../../../scenarios/qos-bidirectional.toml")),
    ("qos-aggregate", include_str!("../../../../scenarios/qos-aggregate.toml")),
    ("qos-many", include_str!("../../../../scenarios/qos-many.toml")),
    ("qos-reroute", include_str!("../../../../scenarios/qos-reroute.toml")),
    ("rsvp-ff", include_str!("../../../../scenarios/rsvp-ff.toml")),
    ("rsvp-v6", include_str!("../../../../scenarios/rsvp-v6.toml")),
    ("rsvp-crash", include_str!("../../../../scenarios/rsvp-crash.toml")),
    ("rsvp-multicast", include_str!("../../../../scenarios/rsvp-multicast.toml")),
    ("rsvp-wf", include_str!("../../../../scenarios/rsvp-wf.toml")),
    ("rsvp-se", include_str!("../../../../scenarios/rsvp-se.toml")),
    ("rsvp-killer", include_str!("../../../../scenarios/rsvp-killer.toml")),
    ("rsvp-nonrsvp-hop", include_str!("../../../../scenarios/rsvp-nonrsvp-hop.toml")),
    ("rsvp-reroute", include_str!("../../../../scenarios/rsvp-reroute.toml")),
    ("rsvp-integrity", include_str!("../../../../scenarios/rsvp-integrity.toml")),
    ("rsvp-refresh-reduction", include_str!("../../../../scenarios/rsvp-refresh-reduction.toml")),
    ("rsvp-diagnostics", include_str!("../../../../scenarios/rsvp-diagnostics.toml")),
    ("rsvp-multicast-v6", include_str!("../../../../scenarios/rsvp-multicast-v6.toml")),
];

/// Name and text of each.
pub(crate) fn builtins() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILTINS.into_iter()
}

/// The text of the one with this name.
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    builtins().find(|(known, _)| *known == name).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_built_in_and_readable_under_its_own_name() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let files = std::fs::read_dir(directory).expect("the scenarios are part of the repository").count();
        assert_eq!(files, BUILTINS.len());
        for (name, text) in builtins() {
            let scenario =
                crate::scenario::read(&format!("{name}.toml"), text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(scenario.name, name);
        }
    }
}
