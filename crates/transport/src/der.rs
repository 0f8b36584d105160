//! A DER parser for the names and the key of a certificate (RFC 5280). The signature chain of the certificate was
//! verified before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
/// Explicit tags of TBSCertificate: version and extensions (RFC 5280 §4.1).
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// Tags of GeneralName (§4.2.1.6).
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// String types whose content is read as UTF-8: UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];

/// Names and key of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names<'a> {
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    pub(crate) common_name: Option<&'a str>,
    pub(crate) dns: Vec<&'a str>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// A cursor over a sequence of values.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag, its content, and its whole encoding.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let all = self.0;
        let (&tag, rest) = all.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let length = if first < 0x80 {
            usize::from(first)
        } else {
            let (octets, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            rest = after;
            // No certificate is so long that its length takes more than four octets.
            if octets.is_empty() || octets.len() > 4 {
                return None;
            }
            octets.iter().fold(0usize, |n, &octet| n << 8 | usize::from(octet))
        };
        let (content, after) = rest.split_at_checked(length)?;
        self.0 = after;
        Some((tag, content, all.get(..all.len() - after.len())?))
    }

    /// The content of the next value, which must have `tag`.
    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (found, content, _) = self.next()?;
        (found == tag).then_some(content)
    }

    fn skip_if(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) {
            self.next()?;
        }
        Some(())
    }
}

/// Parses a certificate (RFC 5280 §4.1); `None` if it is not one.
pub(crate) fn certificate(der: &[u8]) -> Option<Names<'_>> {
    let certificate = Der(der).expect(SEQUENCE)?;
    let mut tbs = Der(Der(certificate).expect(SEQUENCE)?);
    tbs.skip_if(VERSION)?;
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        tbs.next()?;
    }
    let subject = tbs.expect(SEQUENCE)?;
    let (tag, _, spki) = tbs.next()?;
    if tag != SEQUENCE {
        return None;
    }
    let mut names = Names { spki, common_name: common_name(subject), ..Names::default() };
    while let Some((tag, content, _)) = tbs.next() {
        if tag == EXTENSIONS {
            alternative_names(Der(content).expect(SEQUENCE)?, &mut names)?;
        }
    }
    Some(names)
}

/// The most specific Common Name: the last of the sequence.
fn common_name(subject: &[u8]) -> Option<&str> {
    let mut found = None;
    let mut relative = Der(subject);
    while let Some((SET, set, _)) = relative.next() {
        let mut attributes = Der(set);
        while let Some((SEQUENCE, attribute, _)) = attributes.next() {
            let mut parts = Der(attribute);
            if parts.expect(OID)? == COMMON_NAME {
                let (tag, value, _) = parts.next()?;
                if STRINGS.contains(&tag) {
                    found = core::str::from_utf8(value).ok().or(found);
                }
            }
        }
    }
    found
}

fn alternative_names<'a>(extensions: &'a [u8], names: &mut Names<'a>) -> Option<()> {
    let mut extensions = Der(extensions);
    while let Some((SEQUENCE, extension, _)) = extensions.next() {
        let mut parts = Der(extension);
        if parts.expect(OID)? != SUBJECT_ALT_NAME {
            continue;
        }
        parts.skip_if(BOOLEAN)?;
        let mut general = Der(Der(parts.expect(OCTET_STRING)?).expect(SEQUENCE)?);
        while let Some((tag, value, _)) = general.next() {
            match tag {
                DNS_NAME => names.dns.extend(core::str::from_utf8(value).ok()),
                IP_ADDRESS => names.addresses.extend(address(value)),
                _ => {}
            }
        }
    }
    Some(())
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Some(Ipv4Addr::from(v4).into());
    }
    <[u8; 16]>::try_from(octets).ok().map(|v6| Ipv6Addr::from(v6).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the names of a certificate that rcgen composed. A certificate that is cut or changed does not panic.
    #[test]
    fn names_of_a_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params =
            rcgen::CertificateParams::new(vec!["a.example".to_owned(), "192.0.2.7".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "Example");
        params.distinguished_name.push(rcgen::DnType::CommonName, "cn.example");
        let certificate_der = params.self_signed(&key).unwrap();
        let der: &[u8] = certificate_der.der();
        let names = certificate(der).unwrap();
        assert_eq!(names.dns, ["a.example"]);
        assert_eq!(names.addresses, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert_eq!(names.common_name, Some("cn.example"));
        assert_eq!(names.spki, rcgen::PublicKeyData::subject_public_key_info(&key));
        for at in 0..der.len() {
            let _ = certificate(&der[..at]);
            for value in [0x00, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = der.to_vec();
                changed[at] = value;
                let _ = certificate(&changed);
            }
        }
    }
}
