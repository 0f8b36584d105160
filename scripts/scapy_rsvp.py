#!/usr/bin/python3
"""A second source of RSVP messages: scapy composes some, which `signalbox decode` has to read, and reads what our encoder made of them.

usage: scapy_rsvp.py PROGRAM. scapy has no classes for SESSION, SENDER_TEMPLATE, STYLE, FLOWSPEC, FILTER_SPEC and ADSPEC: their octets are
written here. It knows neither the flags of objects nor refresh reduction.
"""
import json
import socket
import struct
import subprocess
import sys
import tempfile

from scapy.contrib.rsvp import RSVP, RSVP_Data, RSVP_HOP, RSVP_Object, RSVP_SenderTSPEC, RSVP_Time
from scapy.layers.inet import IP, IPOption_Router_Alert
from scapy.utils import wrpcap

PATH, RESV, PATH_TEAR, RESV_TEAR = 1, 2, 5, 6
R, B, P, M_MIN, M_MAX = 125000.0, 10000.0, 250000.0, 64, 1500
SESSION = socket.inet_aton("10.0.0.10") + bytes([17, 0]) + struct.pack("!H", 5000)
SENDER = socket.inet_aton("10.0.0.1") + struct.pack("!HH", 0, 4000)
BUCKET = struct.pack("!BBHfffII", 127, 0, 5, R, B, P, M_MIN, M_MAX)


def thing(kind, c_type, octets):
    return RSVP_Object(Length=4 + len(octets), Class=kind, C_Type=c_type) / RSVP_Data(Data=octets)


def hop():
    return RSVP_Object(Length=12, Class=3) / RSVP_HOP(neighbor="10.0.1.1", inface=2)


def tspec():
    # The object has 8 octets before its tokens, which scapy has as fields.
    return RSVP_Object(Length=36, Class=12, C_Type=2) / RSVP_SenderTSPEC(
        Data_Length=7, Srv_hdr=1, Srv_Length=6, Tokens=BUCKET)


def flowspec():
    return thing(9, 2, struct.pack("!HHBBH", 0, 7, 5, 0, 6) + BUCKET)


def messages():
    session, period = thing(1, 1, SESSION), RSVP_Object(Length=8, Class=5) / RSVP_Time(refresh=30000)
    head = {kind: RSVP(Class=kind, TTL=63) for kind in (PATH, RESV, PATH_TEAR, RESV_TEAR)}
    yield "Path", head[PATH] / session / hop() / period / thing(11, 1, SENDER) / tspec()
    yield "PathTear", head[PATH_TEAR] / session / hop() / thing(11, 1, SENDER) / tspec()
    style = thing(8, 1, struct.pack("!I", 0x0A))
    yield "Resv", head[RESV] / session / hop() / period / style / flowspec() / thing(10, 1, SENDER)
    yield "ResvTear", head[RESV_TEAR] / session / hop() / style / thing(10, 1, SENDER)


def decode(program, *words, octets=None):
    done = subprocess.run([program, "decode", *words], input=octets, capture_output=True, text=True, check=True)
    return done.stdout


def expect(what, seen, wanted):
    if seen != wanted:
        sys.exit(f"error: {what}: {seen!r} instead of {wanted!r}")


def judge(name, row):
    message = row["rsvp"]
    expect(name, (row["ok"], message["type_name"], message["send_ttl"]), (True, name, 63))
    found = {one["object"]: one for one in message["objects"]}
    session = found["SESSION"]
    expect(f"{name}: SESSION", (session["destination"], session["protocol"], session["port"]), ("10.0.0.10", 17, 5000))
    expect(f"{name}: RSVP_HOP", (found["RSVP_HOP"]["address"], found["RSVP_HOP"]["lih"]), ("10.0.1.1", 2))
    if "TIME_VALUES" in found:
        expect(f"{name}: TIME_VALUES", found["TIME_VALUES"]["refresh_ms"], 30000)
    for kind in ["SENDER_TSPEC", "FLOWSPEC"]:
        if kind in found:
            seen = [found[kind][field] for field in ["r", "b", "p", "m", "M"]]
            expect(f"{name}: {kind}", seen, [R, B, P, M_MIN, M_MAX])
    for kind in ["SENDER_TEMPLATE", "FILTER_SPEC"]:
        if kind in found:
            expect(f"{name}: {kind}", (found[kind]["source"], found[kind]["port"]), ("10.0.0.1", 4000))


def main():
    [program] = sys.argv[1:]
    composed = list(messages())
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        route = IP(src="10.0.0.1", dst="10.0.0.10", proto=46, ttl=63, options=[IPOption_Router_Alert()])
        wrpcap(file.name, [route / message for _, message in composed])
        rows = [json.loads(line) for line in decode(program, "--json", file.name).splitlines()]
    expect("messages of the capture", len(rows), len(composed))
    for (name, _), row in zip(composed, rows):
        expect(f"{name}: Router Alert", row["router_alert"], 0)
        judge(name, row)
    lines = "".join(f"{bytes(message).hex()}\n" for _, message in composed)
    again = decode(program, "--protocol", "rsvp", "--reencode", octets=lines).splitlines()
    expect("messages encoded again", len(again), len(composed))
    for (name, message), octets in zip(composed, again):
        ours = RSVP(bytes.fromhex(octets))
        expect(f"{name}: what scapy reads of ours", (ours.Class, ours.TTL, ours.Length), (message.Class, 63, len(octets) // 2))
        part = ours[RSVP_HOP]
        expect(f"{name}: the RSVP_HOP of ours", (part.neighbor, part.inface), ("10.0.1.1", 2))
        # The checksum is that of the octets.
        copy = RSVP(bytes.fromhex(octets))
        del copy.chksum
        expect(f"{name}: the checksum of ours", ours.chksum, RSVP(bytes(copy)).chksum)
    print(f"{len(composed)} messages of scapy are read, and read again by scapy")


if __name__ == "__main__":
    main()
