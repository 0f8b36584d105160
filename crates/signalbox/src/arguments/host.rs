//! Hosts by address or name.

use std::net::{IpAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};

/// The address of a host that is given by its address or name. Of several addresses it is the first of the same IP
/// version as `like`, if that is given.
///
/// # Errors
/// The name has no such address.
pub(crate) fn resolve(host: &str, like: Option<IpAddr>) -> Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let found =
        (host, 0).to_socket_addrs().with_context(|| format!("cannot resolve the host name {host}"))?;
    let mut fitting =
        found.map(|found| found.ip()).filter(|ip| like.is_none_or(|like| like.is_ipv4() == ip.is_ipv4()));
    match (fitting.next(), like) {
        (Some(address), _) => Ok(address),
        (None, Some(like)) => {
            bail!(
                "{host} has no {} address, and the source has one",
                if like.is_ipv4() { "IPv4" } else { "IPv6" }
            )
        }
        (None, None) => bail!("{host} has no address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_no_name_service() {
        assert_eq!(resolve("2001:db8::9", None).unwrap(), "2001:db8::9".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_name_gets_an_address_of_the_version_of_the_source() {
        let like: IpAddr = "127.0.0.1".parse().unwrap();
        assert!(resolve("localhost", Some(like)).unwrap().is_ipv4());
        assert!(resolve("no such host", None).is_err());
    }
}
