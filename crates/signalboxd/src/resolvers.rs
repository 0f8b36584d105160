//! The resolvers of this machine, for discovery by DNS where the configuration names none.

use std::fs;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use resolv_conf::{Config as Resolvers, ScopedIp};
use signalbox_node::Config;

/// The file of the C library's resolver (`resolv.conf(5)`).
const FILE: &str = "/etc/resolv.conf";
/// Most resolvers that are taken, as in the configuration and in the C library.
const MOST: usize = 3;

/// Gives CASP the resolvers of this machine, if it needs some. It is called before the daemon gives up its access to files.
///
/// # Errors
/// The file cannot be read, or names no resolver.
pub(crate) fn complete(settings: &mut Config) -> Result<()> {
    let Some(casp) = settings.casp.as_mut().filter(|casp| casp.lacks_resolver()) else { return Ok(()) };
    let help = "write resolvers = [\"ADDRESS\"] into [casp.dns] of the configuration";
    let text = fs::read(FILE).with_context(|| format!("discovery by DNS needs {FILE}: {help}"))?;
    casp.dns.resolvers = parse(&text).with_context(|| format!("{FILE} cannot be read: {help}"))?;
    ensure!(!casp.dns.resolvers.is_empty(), "{FILE} names no resolver: {help}");
    tracing::info!(resolvers = ?casp.dns.resolvers, "resolvers of {FILE}");
    Ok(())
}

/// The addresses of the resolvers. Link-local ones with an interface are left out: CASP's streams have no interface.
fn parse(text: &[u8]) -> Result<Vec<IpAddr>> {
    let all = Resolvers::parse(text)?.nameservers.into_iter().filter_map(|one| match one {
        ScopedIp::V4(address) => Some(address.into()),
        ScopedIp::V6(address, None) => Some(address.into()),
        ScopedIp::V6(_, Some(_)) => None,
    });
    Ok(all.take(MOST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_resolvers_are_taken() {
        let text = b"# by hand\nsearch example.net\nnameserver fe80::1%eth0\nnameserver 127.0.0.53\n\
                     options edns0\nnameserver 2001:db8::53\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n";
        let all: Vec<String> = parse(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(all, ["127.0.0.53", "2001:db8::53", "192.0.2.1"]);
        assert!(parse(b"nameserver nowhere\n").is_err());
        assert_eq!(parse(b"").unwrap(), Vec::<IpAddr>::new());
    }
}
