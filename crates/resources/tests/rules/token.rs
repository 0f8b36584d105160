//! Authentication data of tokens.

use ring::hmac;
use signalbox_core::Time;
use signalbox_resources::token::{KeyConfig, TokenError};
use signalbox_resources::{Config, Resources};

const SECRET: [u8; 32] = [0x0b; 32];

fn key(id: u32, length: u8) -> KeyConfig {
    KeyConfig {
        entity: "auth.example".to_owned(),
        id,
        secret: "0b".repeat(32),
        length,
        from: 100,
        until: Some(200),
    }
}

fn with(keys: Vec<KeyConfig>) -> Resources {
    Resources::new(Config { keys, ..Config::default() }, 150_000_000, [7; 32]).unwrap()
}

/// RFC 4231, test case 1: the key is 20 octets of 0x0b, the data are "Hi There".
#[test]
fn the_signature_is_hmac_sha_256() {
    let mut key = key(1, 32);
    key.secret = "0b".repeat(20);
    let resources = with(vec![key]);
    let tag = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
    let tag: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&tag[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert_eq!(resources.verify_token(Time::ZERO, "auth.example", 1, b"Hi There", &tag), Ok(()));
}

#[test]
fn only_the_right_signature_is_accepted() {
    let resources = with(vec![key(1, 32), key(2, 16)]);
    let signed = b"attributes up to the signature";
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), signed);
    let tag = tag.as_ref();
    let verify = |entity: &str, id, octets: &[u8], tag: &[u8]| {
        resources.verify_token(Time::ZERO, entity, id, octets, tag)
    };
    assert_eq!(verify("auth.example", 1, signed, tag), Ok(()));
    assert_eq!(verify("auth.example", 2, signed, &tag[..16]), Ok(()));
    assert_eq!(verify("auth.example", 3, signed, tag), Err(TokenError::UnknownKey));
    assert_eq!(verify("other.example", 1, signed, tag), Err(TokenError::UnknownKey));
    assert_eq!(verify("auth.example", 1, &signed[1..], tag), Err(TokenError::Signature));
    // A key is used with its configured length: a shorter form is refused.
    assert_eq!(verify("auth.example", 1, signed, &tag[..16]), Err(TokenError::Length));
    assert_eq!(verify("auth.example", 2, signed, tag), Err(TokenError::Length));
    assert_eq!(verify("auth.example", 1, signed, &[]), Err(TokenError::Length));
    for at in 0..32 {
        for bit in 0..8 {
            let mut wrong = tag.to_vec();
            wrong[at] ^= 1 << bit;
            assert_eq!(verify("auth.example", 1, signed, &wrong), Err(TokenError::Signature));
        }
    }
}

#[test]
fn keys_have_a_lifetime() {
    let resources = with(vec![key(1, 32)]);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), b"x");
    let at =
        |seconds| resources.verify_token(Time::from_secs(seconds), "auth.example", 1, b"x", tag.as_ref());
    assert_eq!(at(49), Ok(()));
    assert_eq!(at(50), Err(TokenError::KeyExpired));
    let early = Resources::new(Config { keys: vec![key(1, 32)], ..Config::default() }, 0, [7; 32]).unwrap();
    assert_eq!(
        early.verify_token(Time::from_secs(99), "auth.example", 1, b"x", tag.as_ref()),
        Err(TokenError::KeyExpired)
    );
}

#[test]
fn keys_that_cannot_be_are_refused_by_name() {
    let fault = |keys: Vec<KeyConfig>| {
        Resources::new(Config { keys, ..Config::default() }, 0, [7; 32]).unwrap_err().to_string()
    };
    let short = KeyConfig { secret: "0b".repeat(8), ..key(1, 32) };
    assert_eq!(fault(vec![short]), "key[1] 'auth.example'.secret: 32 to 256 hexadecimal digits are wanted");
    let odd = KeyConfig { secret: "xy".repeat(32), ..key(1, 32) };
    assert_eq!(fault(vec![odd]), "key[1] 'auth.example'.secret: 32 to 256 hexadecimal digits are wanted");
    assert_eq!(fault(vec![key(1, 20)]), "key[1] 'auth.example'.length: 16 or 32 octets");
    assert_eq!(
        fault(vec![key(1, 32), key(1, 16)]),
        "key[2] 'auth.example'.id: the entity has two keys of this id"
    );
    let ended = KeyConfig { until: Some(100), ..key(1, 32) };
    assert_eq!(fault(vec![ended]), "key[1] 'auth.example'.until: not after from");
    assert!(!format!("{:?}", key(1, 32)).contains("0b0b"));
}
