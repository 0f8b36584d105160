//! A DER parser for the names, the key and the validity of a certificate (RFC 5280). The signature chain of the certificate was
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
/// Tags of Time (§4.1.2.5).
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Tags of GeneralName (§4.2.1.6).
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
/// String types whose content is read as UTF-8: UTF8String, PrintableString, IA5String.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];

/// Names, key and validity of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names<'a> {
    /// The whole SubjectPublicKeyInfo.
    pub(crate) spki: &'a [u8],
    /// The last second of its validity, seconds since 1970.
    pub(crate) not_after: u64,
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
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        tbs.next()?;
    }
    let not_after = not_after(tbs.expect(SEQUENCE)?)?;
    let subject = tbs.expect(SEQUENCE)?;
    let (tag, _, spki) = tbs.next()?;
    if tag != SEQUENCE {
        return None;
    }
    let mut names = Names { spki, not_after, common_name: common_name(subject), ..Names::default() };
    while let Some((tag, content, _)) = tbs.next() {
        if tag == EXTENSIONS {
            alternative_names(Der(content).expect(SEQUENCE)?, &mut names)?;
        }
    }
    Some(names)
}

/// The end of a Validity (RFC 5280 §4.1.2.5), seconds since 1970; 0 before that.
fn not_after(validity: &[u8]) -> Option<u64> {
    let mut times = Der(validity);
    times.next()?;
    let (tag, text, _) = times.next()?;
    let digits = core::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (century, digits) = match tag {
        UTC_TIME => (None, digits),
        GENERALIZED_TIME => {
            let (century, rest) = digits.split_at_checked(2)?;
            (Some(century.parse::<u64>().ok()?), rest)
        }
        _ => return None,
    };
    if digits.len() != 12 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let pair = |at: usize| digits.get(2 * at..2 * at + 2)?.parse::<u64>().ok();
    let [year, month, day] = [pair(0)?, pair(1)?, pair(2)?];
    let [hour, minute, second] = [pair(3)?, pair(4)?, pair(5)?];
    // Two digits stand for 1950 to 2049.
    let year = year + century.map_or(if year < 50 { 2000 } else { 1900 }, |century| century * 100);
    let days = days_until(year, month, day)?;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 to a date of the Gregorian calendar, 0 before 1970.
fn days_until(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let in_year = BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Leap days of the years before this one.
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let Some(past) = year.checked_sub(1970) else { return Some(0) };
    let extra = leaps(year - 1) - leaps(1969) + u64::from(leap(year) && month > 2);
    Some(past * 365 + extra + in_year + day.checked_sub(1)?)
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

    /// A UTCTime and a GeneralizedTime as the end of a validity.
    #[test]
    fn the_end_of_a_validity() {
        let parsed = |tag: u8, end: &str| {
            let begin = [&[UTC_TIME, 13], &b"200101000000Z"[..]].concat();
            let length = u8::try_from(end.len()).unwrap();
            not_after(&[&begin, &[tag, length][..], end.as_bytes()].concat())
        };
        // The numbers are those of `date -u -d … +%s`.
        assert_eq!(parsed(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(parsed(UTC_TIME, "000229235959Z"), Some(951_868_799));
        assert_eq!(parsed(UTC_TIME, "261123210000Z"), Some(1_795_467_600));
        assert_eq!(parsed(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(parsed(UTC_TIME, "500101000000Z"), Some(0), "1950");
        assert_eq!(parsed(GENERALIZED_TIME, "21000301000000Z"), Some(4_107_542_400));
        assert_eq!(parsed(GENERALIZED_TIME, "99991231235959Z"), Some(253_402_300_799));
        for wrong in
            ["", "Z", "2611232100Z", "26112321000aZ", "261323210000Z", "260023210000Z", "261123210000"]
        {
            assert_eq!(parsed(UTC_TIME, wrong), None, "{wrong}");
        }
    }
}
