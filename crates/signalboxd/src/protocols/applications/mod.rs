//! Signaling applications of other processes: clients of GIST's service interface (RFC 5971, Appendix B) and clients of CASP.
//!
//! A call serves one application. [`Layer`] is what the calls of GIST and of CASP differ in.

pub(crate) mod call;
pub(crate) mod client;
mod convert;
mod gist;

use std::fmt;

use signalbox_node::{Command, Event};
use tonic::Status;

use crate::api::InterfaceNames;
use crate::api::errors::FieldError;

pub(crate) use self::gist::Gist;

/// A messaging layer whose applications can be processes of their own.
pub(crate) trait Layer: Send + Sync + 'static {
    /// How the layer numbers its applications.
    type Number: Copy + fmt::Debug + Send + Sync + 'static;
    /// What an application may ask of the node.
    type Command: Send + 'static;
    /// Why the node does not register an application.
    type Refusal: Send + 'static;
    /// What the node reports to a registered application.
    type Indication: Send + 'static;
    /// A message of the application's call.
    type Request: Send + 'static;
    /// What a message to the application contains.
    type Answer: Send + 'static;
    /// A message to the application.
    type Response: Send + 'static;

    /// Reads the first message of a call.
    fn register(first: Option<Self::Request>) -> Result<(Self::Number, Self::Command), Status>;

    /// The status for an application whose registration is refused.
    fn not_registered(refusal: Self::Refusal) -> Status;

    /// Reads a further message of the call of the application `number`.
    fn request(number: Self::Number, request: Self::Request) -> ParsedRequest<Self>;

    /// The node's command for the application `id`.
    fn command(id: u64, command: Self::Command) -> Command;

    /// The command that ends the registration.
    fn close(id: u64) -> Command;

    /// The command that makes the node give the application no more messages, or messages again. `None`: the layer cannot
    /// wait for its applications.
    fn block(id: u64, blocked: bool) -> Option<Command>;

    /// The layer's part of an event of the node; `None` if the event is not about an application.
    fn event(event: Event) -> Option<Outcome<Self>>;

    /// The octets of the message in an indication.
    fn octets(indication: &Self::Indication) -> usize;

    /// The application is registered with the node of this name.
    fn registered(node: String) -> Self::Answer;

    /// A request was wrong.
    fn refused(refused: RefusedRequest) -> Self::Answer;

    /// An indication as the application receives it.
    fn indication(indication: Self::Indication, names: &InterfaceNames) -> Self::Answer;

    /// A message to the application.
    fn response(time_unix_us: u64, lost: u64, answer: Self::Answer) -> Self::Response;
}

/// A message of a registered application.
pub(crate) enum ParsedRequest<L: Layer + ?Sized> {
    /// It ends its registration.
    Unregister,
    /// It asks something of the node.
    Command(L::Command),
    /// The request is wrong; with the handle that it carried.
    Wrong(Option<u64>, FieldError),
}

/// What the node reports about an application.
pub(crate) enum Outcome<L: Layer + ?Sized> {
    /// It is registered.
    Registered,
    /// It is not registered; the last event.
    Refused(L::Refusal),
    /// An indication of the layer.
    Indication(L::Indication),
}

/// A wrong request.
pub(crate) struct RefusedRequest {
    /// Its number: requests are counted from the beginning of the call.
    pub(crate) request: u64,
    /// The handle that it carried.
    pub(crate) handle: Option<u64>,
    /// What is wrong with which field.
    pub(crate) reason: String,
}
