#!/usr/bin/python3
"""Path ping: a signaling application of its own, in a process of its own.

It uses the daemon of its node (signalboxd) over gRPC, and reaches its like on other nodes over GIST. A message goes
along the path of a flow; every node on the way that runs this program adds itself, nodes that do not let it pass; the
far end sends it back, and the sender prints who is on the path.

  pathping.py listen                  take part on this node, until interrupted (or --count answers)
  pathping.py send 10.0.3.2 hello     send "hello" towards 10.0.3.2 and print who is on the path
"""

import argparse
import json
import os
import queue
import secrets
import socket
import sys
import time

try:
    import grpc

    from signalbox.gist.v1 import application_pb2 as api
    from signalbox.v1 import types_pb2 as types
except ImportError as error:
    sys.exit(f"pathping: {error}; on Debian: apt-get install python3-grpcio python3-protobuf")

# The number of this application, from the range for private use; the same on all nodes.
NSLP_ID = 32720
DEFAULT_SOCKET = "/run/signalbox/signalboxd.sock"


class Refused(Exception):
    """The daemon cannot do what was asked; its text says what to do."""


class Call:
    """One call to the daemon: an application of its node for as long as the call lasts."""

    def __init__(self, path, method, request, response, **register):
        # The daemon has no name by which a Unix socket could be called, so we give it one.
        self.channel = grpc.insecure_channel(f"unix:{path}", [("grpc.default_authority", "localhost")])
        self.requests = queue.SimpleQueue()
        self.request = request
        self.ask(**register)
        call = self.channel.stream_stream(
            method, request_serializer=request.SerializeToString, response_deserializer=response.FromString
        )
        self.indications = call(iter(self.requests.get, None))
        try:
            self.node = next(self.indications).registered.node
        except grpc.RpcError as error:
            raise Refused(f"{error.details()} [{path}]") from None

    def ask(self, **request):
        """Sends one request; its name is a field of the request message."""
        self.requests.put(self.request(**request))

    def events(self):
        """Each indication, with its name: a field of the response message."""
        try:
            for response in self.indications:
                kind = response.WhichOneof("indication")
                if kind is None:
                    continue  # A newer daemon has indications that this program does not know.
                if kind == "request_refused":
                    raise Refused(response.request_refused.reason)
                yield kind, getattr(response, kind)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise Refused(error.details()) from None

    def close(self):
        """Ends the call, and with it the application's place in the node."""
        self.indications.cancel()
        self.channel.close()


class Application(Call):
    """A signaling application of GIST."""

    def __init__(self, path, policy):
        register = api.Register(nslp_id=NSLP_ID, peering_policy=policy)
        method = "/signalbox.gist.v1.Gist/Application"
        super().__init__(path, method, api.ApplicationRequest, api.ApplicationResponse, register=register)

    def send(self, session, mri, payload, handle=None):
        """Sends a payload, anything that JSON can say, along a flow."""
        data = json.dumps(payload).encode()
        data += b" " * (-len(data) % 4)  # NSLP data comes in multiples of 4 octets.
        self.ask(send_message=api.SendMessage(data=data, session_id=session, mri=mri, handle=handle))


def own_address(destination):
    """The address from which this node sends to a destination."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((destination, 9))  # Sends nothing: the kernel only chooses our address.
        return probe.getsockname()[0]


def flow(destination):
    """Message Routing Information of all packets from here to an address."""
    source = own_address(destination)
    return api.Mri(
        method=api.ROUTING_METHOD_PATH_COUPLED,
        direction=types.DIRECTION_DOWNSTREAM,
        flow=types.FlowSpec(source=source, destination=destination),
    )


def turned(mri):
    """The same flow, the other way."""
    other = api.Mri()
    other.CopyFrom(mri)
    downstream = mri.direction == types.DIRECTION_DOWNSTREAM
    other.direction = types.DIRECTION_UPSTREAM if downstream else types.DIRECTION_DOWNSTREAM
    return other


def say(text):
    """Prints a line at once, whoever reads it."""
    print(text, flush=True)


def listen(arguments):
    """Takes part: adds this node to what passes, and answers where the flow ends."""
    application = Application(arguments.socket, api.PEERING_POLICY_ALWAYS)
    say(f"{application.node}: listening as NSLP {NSLP_ID}")
    answers = 0
    for kind, event in application.events():
        if kind != "recv_message" or not event.data:
            continue
        message = json.loads(event.data)
        if event.mri.direction == types.DIRECTION_DOWNSTREAM:
            message["path"].append([application.node, event.ip_hops if event.HasField("ip_hops") else None])
        if event.at_flow_end and event.mri.direction == types.DIRECTION_DOWNSTREAM:
            say(f"{application.node}: {message['text']!r} from {event.mri.flow.source}")
            message["answer"] = f"{application.node} received {message['text']!r}"
            application.send(event.session_id, turned(event.mri), message, handle=answers)
        elif not event.at_flow_end:
            application.send(event.session_id, event.mri, message)
            say(f"{application.node}: passed on {message['text']!r}")
        answers += event.at_flow_end
        if arguments.count and answers >= arguments.count:
            break
    # The last answer shall leave before the application does.
    for kind, _ in application.events():
        if kind == "message_status":
            break
    application.close()


def send(arguments):
    """Sends a text to the far end and prints the answer and who is on the path."""
    application = Application(arguments.socket, api.PEERING_POLICY_NEVER)
    session, mri = secrets.token_bytes(16), flow(arguments.destination)
    begin = time.monotonic()
    application.send(session, mri, {"text": arguments.text, "path": [[application.node, 0]]}, handle=1)
    for kind, event in application.events():
        if kind == "message_status" and event.HasField("failed"):
            raise Refused(f"not sent: {event.failed.reason}")
        if kind == "recv_message":
            message = json.loads(event.data)
            elapsed = (time.monotonic() - begin) * 1000
            say(f"answer after {elapsed:.1f} ms: {message['answer']}")
            for number, (node, hops) in enumerate(message["path"]):
                between = f", {hops} IP hops from the one before" if number and hops is not None else ""
                say(f"  {number}  {node}{between}")
            break
    # The session is over: no node needs to keep state for it.
    application.ask(set_state_lifetime=api.SetStateLifetime(mri=mri, session_id=session, lifetime_us=0))
    application.close()


def main(name="pathping", description=__doc__, listen=listen, send=send):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--socket",
        default=os.environ.get("SIGNALBOX_SOCKET", DEFAULT_SOCKET),
        help="the daemon's control socket (default: $SIGNALBOX_SOCKET, else %(default)s)",
    )
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("listen", help="take part on this node")
    command.add_argument("--count", type=int, default=0, help="end after so many messages (default: never)")
    command.set_defaults(run=listen)
    command = commands.add_parser("send", help="send a text, print who is on the path")
    command.add_argument("destination", help="IP address of the far end")
    command.add_argument("text", help="what to say")
    command.set_defaults(run=send)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (Refused, OSError) as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
