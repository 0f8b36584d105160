//! Which object may stand in which message (RFC 2205 §3.1, 2745, 2747, 2961, 3209).

use super::code_points::{Class, MessageType};

/// What [`allowed`] says, by class: bits of message types, asked for each object of each message.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
static ALLOWED: [u32; 256] = {
    let mut table = [0; 256];
    let mut class = 0_u8;
    loop {
        let mut message = 0_u8;
        while message < 32 {
            if may_stand(MessageType(message), Class(class)) {
                table[class as usize] |= 1 << message;
            }
            message += 1;
        }
        match class.checked_add(1) {
            Some(next) => class = next,
            None => break table,
        }
    }
};

/// Whether an object of a known class may stand in the message at all.
pub(crate) fn allowed(message: MessageType, class: Class) -> bool {
    let messages = ALLOWED.get(usize::from(class.0)).copied().unwrap_or(0);
    messages.checked_shr(u32::from(message.0)).is_some_and(|bits| bits & 1 != 0)
}

const fn may_stand(message: MessageType, class: Class) -> bool {
    use MessageType as M;
    match class {
        Class::NULL => true,
        Class::INTEGRITY => !matches!(message, M::BUNDLE | M::INTEGRITY_CHALLENGE),
        Class::MESSAGE_ID_ACK => {
            !matches!(message, M::BUNDLE | M::INTEGRITY_CHALLENGE | M::INTEGRITY_RESPONSE)
        }
        Class::MESSAGE_ID => {
            !matches!(message, M::BUNDLE | M::ACK | M::INTEGRITY_CHALLENGE | M::INTEGRITY_RESPONSE)
        }
        Class::MESSAGE_ID_LIST => matches!(message, M::SREFRESH),
        Class::HELLO => matches!(message, M::HELLO),
        Class::CHALLENGE => matches!(message, M::INTEGRITY_CHALLENGE | M::INTEGRITY_RESPONSE),
        Class::SESSION => has_session(message),
        Class::RSVP_HOP => matches!(
            message,
            M::PATH | M::RESV | M::RESV_ERR | M::PATH_TEAR | M::RESV_TEAR | M::DREQ | M::DREP
        ),
        Class::TIME_VALUES => matches!(message, M::PATH | M::RESV),
        Class::ERROR_SPEC => matches!(message, M::PATH_ERR | M::RESV_ERR | M::RESV_CONF),
        Class::SCOPE => matches!(message, M::RESV | M::RESV_ERR | M::RESV_TEAR),
        Class::STYLE | Class::FLOWSPEC | Class::FILTER_SPEC => has_style(message),
        Class::SENDER_TEMPLATE | Class::SENDER_TSPEC | Class::ADSPEC => has_sender(message),
        Class::POLICY_DATA => matches!(message, M::PATH | M::RESV | M::PATH_ERR | M::RESV_ERR),
        Class::RESV_CONFIRM => matches!(message, M::RESV | M::RESV_CONF),
        _ => is_diagnostic(message),
    }
}

/// What the message must have, in the order of its grammar.
pub(crate) const fn demanded(message: MessageType) -> &'static [Class] {
    use Class as C;
    use MessageType as M;
    match message {
        M::PATH => &[C::SESSION, C::RSVP_HOP, C::TIME_VALUES, C::SENDER_TEMPLATE, C::SENDER_TSPEC],
        M::RESV => &[C::SESSION, C::RSVP_HOP, C::TIME_VALUES, C::STYLE],
        M::PATH_ERR => &[C::SESSION, C::ERROR_SPEC, C::SENDER_TEMPLATE],
        M::RESV_ERR => &[C::SESSION, C::RSVP_HOP, C::ERROR_SPEC, C::STYLE],
        M::PATH_TEAR => &[C::SESSION, C::RSVP_HOP, C::SENDER_TEMPLATE],
        M::RESV_TEAR => &[C::SESSION, C::RSVP_HOP, C::STYLE],
        M::RESV_CONF => &[C::SESSION, C::ERROR_SPEC, C::RESV_CONFIRM, C::STYLE],
        M::DREQ | M::DREP => &[C::SESSION, C::RSVP_HOP, C::DIAGNOSTIC],
        M::ACK => &[C::MESSAGE_ID_ACK],
        M::SREFRESH => &[C::MESSAGE_ID_LIST],
        M::HELLO => &[C::HELLO],
        M::INTEGRITY_CHALLENGE => &[C::CHALLENGE],
        M::INTEGRITY_RESPONSE => &[C::INTEGRITY, C::CHALLENGE],
        _ => &[],
    }
}

/// The classes of [`demanded`] as bits, for the messages that there are many of: 1 to 7.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
static DEMANDED: [u128; 8] = {
    let mut table = [0; 8];
    let mut message = 1;
    while message < 8 {
        let mut classes = demanded(MessageType(message));
        while let [first, rest @ ..] = classes {
            table[message as usize] |= 1 << first.0;
            classes = rest;
        }
        message += 1;
    }
    table
};

/// The first class that the message must have and that is not among those `seen`, bits by class.
pub(crate) fn missing(message: MessageType, seen: u128) -> Option<Class> {
    if DEMANDED.get(usize::from(message.0)).is_some_and(|all| seen & all == *all && *all != 0) {
        return None;
    }
    let lacks = |class: &&Class| seen & 1_u128.checked_shl(u32::from(class.0)).unwrap_or(0) == 0;
    demanded(message).iter().find(lacks).copied()
}

const fn has_session(message: MessageType) -> bool {
    matches!(message.0, 1..=9)
}

pub(crate) const fn has_style(message: MessageType) -> bool {
    matches!(
        message,
        MessageType::RESV | MessageType::RESV_ERR | MessageType::RESV_TEAR | MessageType::RESV_CONF
    )
}

const fn has_sender(message: MessageType) -> bool {
    matches!(message, MessageType::PATH | MessageType::PATH_ERR | MessageType::PATH_TEAR)
}

pub(crate) const fn is_diagnostic(message: MessageType) -> bool {
    matches!(message, MessageType::DREQ | MessageType::DREP)
}
