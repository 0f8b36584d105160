#!/usr/bin/python3
"""Path ping over CASP: a client of CASP in a process of its own.

It uses the daemon of its node (signalboxd) over gRPC. A message goes along the path of a flow; every node on the way
that runs this program adds itself; the far end sends the list back, and the sender prints who is on the path.

  casppath.py listen                  take part on this node, until interrupted (or --count answers)
  casppath.py send 10.0.3.2 hello     send "hello" towards 10.0.3.2 and print who is on the path
"""

import json

from pathping import Call, Refused, main, own_address, say
from signalbox.casp.v1 import client_pb2 as api
from signalbox.v1 import types_pb2 as types

# The number of this client; the same on all nodes.
CLIENT_TYPE = 77


class Client(Call):
    """A client of CASP."""

    def __init__(self, path):
        register = api.RegisterClient(client_type=CLIENT_TYPE)
        method = "/signalbox.casp.v1.Casp/Client"
        super().__init__(path, method, api.ClientRequest, api.ClientResponse, register=register)

    def send(self, session, payload, **options):
        """Sends a payload, anything that JSON can say, in a session."""
        self.ask(send_message=api.SendMessage(session=session, data=json.dumps(payload).encode(), **options))

    def replace(self, event, payload):
        """Lets a message go on with another payload."""
        self.ask(verdict=api.Verdict(verdict_id=event.verdict_id, data=json.dumps(payload).encode()))


def listen(arguments):
    """Takes part: adds this node to what passes, and answers where the flow ends."""
    client = Client(arguments.socket)
    say(f"{client.node}: listening as client {CLIENT_TYPE} of CASP")
    served = 0
    for kind, event in client.events():
        if kind == "session_ended" and arguments.count and served >= arguments.count:
            break
        if kind != "recv_message":
            continue
        if event.reverse or not event.data:
            if event.HasField("verdict_id"):
                client.ask(verdict=api.Verdict(verdict_id=event.verdict_id))
            continue
        message = json.loads(event.data)
        message["path"].append(client.node)
        if event.at_end:
            say(f"{client.node}: {message['text']!r} from {event.session.flow.source}")
            client.send(event.session, message, reverse=True)
        else:
            client.replace(event, message)
            say(f"{client.node}: passed on {message['text']!r}")
        served += 1
    client.close()


def send(arguments):
    """Sends a text to the far end and prints who is on the path."""
    client = Client(arguments.socket)
    flow = types.FlowSpec(source=own_address(arguments.destination), destination=arguments.destination)
    client.send(api.SessionRef(flow=flow), {"text": arguments.text, "path": [client.node]})
    session = None
    for kind, event in client.events():
        if kind == "send_refused":
            raise Refused(f"not sent: {event.reason}")
        if kind == "undelivered":
            raise Refused("no node further on takes messages of CASP")
        if kind == "session_opened":
            session = api.SessionRef(session_id=event.session_id, flow=flow)
        if kind == "recv_message" and event.reverse:
            message = json.loads(event.data)
            say(f"{message['path'][-1]} received {message['text']!r}")
            for number, node in enumerate(message["path"]):
                say(f"  {number}  {node}")
            client.ask(send_message=api.SendMessage(session=session, tear_down=True))
            client.ask(unregister=api.Unregister())
    client.close()


if __name__ == "__main__":
    main("casppath", __doc__, listen, send)
