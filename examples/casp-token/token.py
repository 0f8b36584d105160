"""Makes an AUTH_TOKEN for `signalbox pinhole open --signaling casp --token @FILE` (docs/wire/casp-natfw.md).

    /usr/bin/python3 token.py --creator pdp.example --secret-file secret --dst 10.0.3.2 --port 5004 --id 1 >token.bin

An entity of the network behind a firewall runs it, and gives the token to the sender. The firewall has the same secret in its
`[[keys]]` for tokens, with the creator as `entity`. The token is for UDP packets of any source to one port of the destination. It
is valid for 300 s.
"""

import argparse
import hashlib
import hmac
import ipaddress
import struct
import sys
import time

AUTH_TOKEN, PACKET_FILTER = 0x14, 0x19
OMITTED, NAME = 0, 3
HMAC_SHA_256 = 3
UDP = 17
# Seconds from 1900 to 1970.
NTP = 2_208_988_800


def padded(octets):
    """The octets with zeros up to the next word."""
    return octets + bytes(-len(octets) % 4)


def identity(kind, value=b""):
    return struct.pack("!HBB", len(value), kind, 0) + padded(value)


def tlv(kind, contents):
    """An object; its length counts words, with the header."""
    return struct.pack("!HH", kind, len(contents) // 4 + 1) + contents


def packet_filter(destination, port):
    version, any_source = destination.version, bytes(destination.max_prefixlen // 8)
    head = struct.pack("!BBBB", version, 0, destination.max_prefixlen, 0)
    # One protocol, no range of source ports, one range of destination ports, no SPI.
    lists = bytes([1, 0, 1, 0]) + padded(bytes([UDP])) + struct.pack("!HH", port, port)
    return tlv(PACKET_FILTER, head + any_source + destination.packed + lists)


def token(creator, secret, destination, port, number):
    requestor = user = source = target = identity(OMITTED)
    names = identity(NAME, creator.encode()) + requestor + user + source + target
    stamp = (int(time.time()) + NTP) << 32
    head = struct.pack("!I", number) + names + struct.pack("!QB", stamp, HMAC_SHA_256)
    rest = bytes(3) + packet_filter(destination, port)
    # The HMAC covers the contents with zeros in its place, and its first 20 octets are sent.
    mac = hmac.new(secret, head + bytes(20) + rest, hashlib.sha256).digest()[:20]
    return tlv(AUTH_TOKEN, head + mac + rest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--creator", required=True, help="name of the entity that makes the token")
    parser.add_argument("--secret-file", required=True, help="file with the secret")
    parser.add_argument("--dst", required=True, type=ipaddress.ip_address, help="destination of the packets")
    parser.add_argument("--port", required=True, type=int, help="destination port of the packets")
    parser.add_argument("--id", required=True, type=int, help="number of the token, another one for each")
    given = parser.parse_args()
    with open(given.secret_file, "rb") as file:
        secret = file.read().removesuffix(b"\n")
    sys.stdout.buffer.write(token(given.creator, secret, given.dst, given.port, given.id))


if __name__ == "__main__":
    main()
