//! The objects that each message may have (RFC 2205 §3.1, 2745, 2747, 2961, 3209).

use super::code_points::{Class, MessageType};
use super::object::ObjectType;
use super::values::is_known;

/// The place of the next object in a message, where order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// After the common header.
    Start = 1,
    /// After INTEGRITY and acknowledgments.
    Acks = 2,
    /// After MESSAGE_ID, or any object of the body.
    Body = 4,
    /// After STYLE.
    Flows = 8,
}

/// Rules for the objects of a class, applied before their contents are parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Message types in which the class is legal, as bits.
    messages: u32,
    /// Known C-Types, as bits.
    c_types: u8,
    /// Legal places: bits of [`Place`].
    places: u8,
    /// The place after an object of the class.
    pub(crate) then: Place,
    /// The class is known.
    pub(crate) known: bool,
    /// A message may have several objects of the class.
    pub(crate) list: bool,
    /// All C-Types are accepted.
    any: bool,
}

impl Rules {
    /// The rules of a class.
    pub(crate) fn of(class: Class) -> &'static Self {
        #[expect(clippy::indexing_slicing, reason = "one for each octet")]
        &RULES[usize::from(class.0)]
    }

    /// Whether the class is legal in the message.
    pub(crate) const fn allowed(&self, message: MessageType) -> bool {
        message.0 < 32 && self.messages >> message.0 & 1 != 0
    }

    /// Whether the C-Type is known.
    pub(crate) const fn is_known(&self, c_type: u8) -> bool {
        self.any || c_type < 8 && self.c_types >> c_type & 1 != 0
    }

    /// Whether the class is legal at this place.
    pub(crate) const fn fits(&self, place: Place) -> bool {
        self.places & place as u8 != 0
    }
}

#[expect(clippy::indexing_slicing, reason = "at compile time")]
static RULES: [Rules; 256] = {
    let mut table = [rules_of(Class(0)); 256];
    let mut class = 0_u8;
    while let Some(next) = class.checked_add(1) {
        table[next as usize] = rules_of(Class(next));
        class = next;
    }
    table
};

const fn rules_of(class: Class) -> Rules {
    use Place as P;
    let (mut messages, mut c_types) = (0, 0);
    let mut number = 0_u8;
    while number < 32 {
        if may_stand(MessageType(number), class) {
            messages |= 1 << number;
        }
        if number < 8 && is_known(ObjectType::new(class, number)) {
            c_types |= 1 << number;
        }
        number += 1;
    }
    let (places, then) = match class {
        Class::INTEGRITY => (P::Start as u8, P::Acks),
        Class::MESSAGE_ID_ACK => (P::Start as u8 | P::Acks as u8, P::Acks),
        Class::MESSAGE_ID => (P::Start as u8 | P::Acks as u8, P::Body),
        Class::FLOWSPEC | Class::FILTER_SPEC => (P::Flows as u8, P::Flows),
        Class::STYLE => (P::Start as u8 | P::Acks as u8 | P::Body as u8, P::Flows),
        _ => (P::Start as u8 | P::Acks as u8 | P::Body as u8, P::Body),
    };
    let any = is_known(ObjectType::new(class, u8::MAX));
    Rules { messages, c_types, places, then, known: class.name().is_some(), list: is_list(class), any }
}

const fn is_list(class: Class) -> bool {
    matches!(
        class,
        Class::POLICY_DATA
            | Class::FLOWSPEC
            | Class::FILTER_SPEC
            | Class::MESSAGE_ID_ACK
            | Class::MESSAGE_ID_LIST
            | Class::DIAG_RESPONSE
    )
}

/// The bit of a known class other than NULL; CHALLENGE, 64, uses NULL's.
pub(crate) const fn bit(class: Class) -> u64 {
    1 << (class.0 % 64)
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

/// The mandatory classes of a message, in the order of its grammar.
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

/// The mandatory classes as bits, for the frequent message types 1 to 7.
#[expect(clippy::indexing_slicing, reason = "at compile time")]
static DEMANDED: [u64; 8] = {
    let mut table = [0; 8];
    let mut message = 1;
    while message < 8 {
        let mut classes = demanded(MessageType(message));
        while let [first, rest @ ..] = classes {
            table[message as usize] |= bit(*first);
            classes = rest;
        }
        message += 1;
    }
    table
};

/// The first mandatory class that is not among those `seen`, bits by class.
pub(crate) fn missing(message: MessageType, seen: u64) -> Option<Class> {
    if DEMANDED.get(usize::from(message.0)).is_some_and(|all| seen & all == *all && *all != 0) {
        return None;
    }
    let lacks = |class: &&Class| seen & bit(**class) == 0;
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
