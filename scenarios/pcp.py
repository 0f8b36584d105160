#!/usr/bin/env python3
"""A client of PCP (RFC 6887), written from the RFC, which sends one request and prints what comes back as a line of JSON.

    pcp.py map SERVER PROTOCOL INTERNAL EXTERNAL LIFETIME [CLIENT]
    pcp.py announce SERVER
    pcp.py cut SERVER
    pcp.py forged SERVER SOURCE

`map` asks for a port; CLIENT is the address in the header, if it is not that of this host. `cut` sends a MAP request without its end.
`forged` sends a whole one from the address SOURCE, and listens there where nothing should come. It runs in the network namespaces of
the lab only: the last one needs a raw socket.
"""

import ipaddress
import json
import socket
import struct
import sys

PORT = 5351
ANNOUNCE, MAP = 0, 1
NONCE = bytes(range(1, 13))
NUMBERS = {"tcp": 6, "udp": 17}
WAIT = 3.0


def octets_of(address):
    """An address in 16 octets (RFC 6887 section 5)."""
    address = ipaddress.ip_address(address)
    return b"\0" * 10 + b"\xff\xff" + address.packed if address.version == 4 else address.packed


def text_of(octets):
    """An address of 16 octets as text."""
    address = ipaddress.IPv6Address(octets)
    return str(address.ipv4_mapped or address)


def header(opcode, lifetime, client):
    return struct.pack("!BBHI", 2, opcode, 0, lifetime) + octets_of(client)


def map_request(client, protocol, internal, external, lifetime):
    body = NONCE + struct.pack("!B3xHH", NUMBERS[protocol], internal, external) + octets_of("0.0.0.0")
    return header(MAP, lifetime, client) + body


def read(octets):
    """What a response says."""
    version, opcode, _, result, lifetime, epoch = struct.unpack("!BBBBII", octets[:12])
    told = {"version": version, "opcode": opcode, "result": result, "lifetime": lifetime, "epoch": epoch}
    if opcode == 0x80 | MAP and len(octets) >= 60:
        protocol, internal, external = struct.unpack("!B3xHH", octets[36:44])
        told.update(nonce=octets[24:36] == NONCE, protocol=protocol, internal=internal)
        told.update(external=external, address=text_of(octets[44:60]))
    return told


def own_address(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((server, PORT))
        return probe.getsockname()[0]


def ask(server, request):
    """Sends a request, and prints the answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(WAIT)
        channel.connect((server, PORT))
        # As often as a program may that repeats its request.
        for _ in range(4):
            channel.send(request)
            try:
                return print(json.dumps(read(channel.recv(1100))))
            except (TimeoutError, ConnectionRefusedError):
                continue
    print(json.dumps({"silence": True}))


def forged(server, source):
    """Sends a MAP request with a source that is not behind this link."""
    request = map_request(source, "udp", 9999, 9999, 3600)
    datagram = struct.pack("!HHHH", 40000, PORT, 8 + len(request), 0) + request
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as channel:
        length = 20 + len(datagram)
        packet = struct.pack("!BBHHHBBH", 0x45, 0, length, 1, 0, 64, socket.IPPROTO_UDP, 0)
        packet += socket.inet_aton(source) + socket.inet_aton(server)
        for _ in range(3):
            channel.sendto(packet + datagram, (server, 0))
    print(json.dumps({"sent": True}))


def main(kind, server, *rest):
    if kind == "map":
        protocol, internal, external, lifetime = rest[:4]
        client = rest[4] if len(rest) > 4 else own_address(server)
        ask(server, map_request(client, protocol, int(internal), int(external), int(lifetime)))
    elif kind == "announce":
        ask(server, header(ANNOUNCE, 0, own_address(server)))
    elif kind == "cut":
        ask(server, map_request(own_address(server), "udp", 9998, 0, 3600)[:40])
    elif kind == "forged":
        forged(server, *rest)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
