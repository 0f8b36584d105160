"""Boomerang for the scenario boomerang-60k, in the standard library alone: an initiating node that fills a router, and an
observer that measures how long the router keeps single messages, as the paper on Boomerang does (its Table 2).

    boomerang.py generate FAR_END N...    at the initiating node: fills the router up to each N, and then makes and releases one
                                          more reservation thirty times, with pauses, beside a ping of the same size
    boomerang.py ping FAR_END N           sends Echoes as every ping does, and prints how many came back
    boomerang.py expire FAR_END           sends a request whose TTL the first router uses up, and prints the error that comes back
    boomerang.py replay FAR_END           at the initiating node: records its requests until a release, and sends the first again when it is interrupted
    boomerang.py observe                  at the router: prints a line of JSON for each N and kind of message

The wire format is that of docs/wire/boomerang.md.
"""

import ctypes
import json
import select
import signal
import socket
import statistics
import struct
import sys
import time

MAGIC, OTHER = 0x47114711, 0x50494E47
RATE = 8000
ROUNDS = 30
PAUSE = 0.02
WINDOW = 256
# Identifiers of the Echoes: those that fill, and those that are measured.
FILLING, MEASURED = 0x4F4F, 0x7777
KINDS = ("reservation", "tear", "ping")
LAST = 0xFFFF


def checksum(octets):
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def request(identifier, sequence, number, rate, own, far_end, magic=MAGIC):
    """A request for UDP to a port of the far end; the number is the flow's, and that of the transaction."""
    ports = struct.pack("!HH", 1 + number % 60000, 5000 + number // 60000)
    flow = own + far_end + ports + bytes((17, 0xB8, 0, 0))
    mask = bytes(12) + bytes((0, 0xFF, 0xFF, 0xFF))
    rest = struct.pack("!II4BBBHQ", magic, number, 0x10, 0x12, 0, 0, 255, 1, 0, 1) + flow + mask
    rest += struct.pack("!II", rate, 0)
    head = struct.pack("!BBHHH", 8, 0, 0, identifier, sequence)
    return head[:2] + struct.pack("!H", checksum(head + rest)) + head[4:] + rest


def generate(far_end, sizes):
    link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    link.connect((far_end, 0))
    own, there = (socket.inet_aton(address) for address in (link.getsockname()[0], far_end))

    def answers(identifier, wanted, seconds):
        """Takes the numbers of granted reservations out of `wanted`, until none is left or no more come."""
        end = time.monotonic() + seconds
        while wanted and (left := end - time.monotonic()) > 0:
            if not select.select([link], [], [], left)[0]:
                break
            packet = link.recv(2048)
            octets = packet[4 * (packet[0] & 15):]
            kind, _, _, of, _, magic, number = struct.unpack("!BBHHHII", octets[:16])
            if (kind, of) == (0, identifier):
                if magic == MAGIC and octets[19] & 1:
                    sys.exit(f"reservation {number} is refused")
                wanted.discard(number)

    def fill(first, last):
        while first < last:
            numbers = range(first, min(first + WINDOW, last))
            missing = set(numbers)
            while missing:
                for number in sorted(missing):
                    link.send(request(FILLING, number & 0xFFFF, number, RATE, own, there))
                answers(FILLING, missing, 2)
            first = numbers.stop

    def measure(place, number):
        for turn in range(ROUNDS):
            for kind, rate, magic in ((0, RATE, MAGIC), (1, 0, MAGIC), (2, RATE, OTHER)):
                sequence = place * 1000 + turn * 3 + kind
                missing = {number}
                link.send(request(MEASURED, sequence, number, rate, own, there, magic))
                answers(MEASURED, missing, 2)
                time.sleep(PAUSE)

    filled = 0
    for place, size in enumerate(sizes):
        start = time.monotonic()
        fill(filled, size)
        took = time.monotonic() - start
        count, filled = size - filled, size
        print(json.dumps({"type": "filled", "reservations": size, "per_second": round(count / max(took, 1e-9))}), flush=True)
        time.sleep(1)
        measure(place, 100_000 + place)
        print(json.dumps({"type": "measured", "reservations": size}), flush=True)
    link.send(request(MEASURED, LAST, 0, 0, own, there, OTHER))


def ping(far_end, count):
    link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.connect((far_end, 0))
    own, there = (socket.inet_aton(address) for address in (link.getsockname()[0], far_end))
    came = 0
    for number in range(count):
        link.send(request(FILLING, number, number, RATE, own, there, OTHER))
        while select.select([link], [], [], 1)[0]:
            packet = link.recv(2048)
            octets = packet[4 * (packet[0] & 15):]
            if octets[0] == 0 and octets[4:8] == struct.pack("!HH", FILLING, number):
                came += 1
                break
    print(f"{came} of {count} came back", flush=True)


def expire(far_end):
    link = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.connect((far_end, 0))
    own, there = (socket.inet_aton(address) for address in (link.getsockname()[0], far_end))
    errors = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    link.setsockopt(socket.SOL_IP, socket.IP_TTL, 1)
    sent = request(MEASURED, 1, 1, RATE, own, there)
    link.send(sent)
    while select.select([errors], [], [], 2)[0]:
        packet, (router, _) = errors.recvfrom(2048)
        octets = packet[4 * (packet[0] & 15):]
        if octets[0] == 11 and checksum(octets + b"\0" * (len(octets) % 2)) == 0:
            quoted = octets[8 + 4 * (octets[8] & 15):]
            what = "whole" if sent.startswith(quoted) and len(quoted) >= 8 else "altered"
            print(f"type {octets[0]} code {octets[1]} from {router}, quoted {what}", flush=True)
            return
    print("no error came", flush=True)


def replay(far_end):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.ntohs(0x0003))
    again = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    print("recording", flush=True)
    first, rates = None, None
    while rates != bytes(8):
        packet, address = link.recvfrom(2048)
        octets = packet[4 * (packet[0] & 15):]
        own = address[2] == 4 and address[1] == 0x0800  # PACKET_OUTGOING
        if own and packet[9] == 1 and octets[0] == 8 and octets[8:12] == struct.pack("!I", MAGIC):
            first, rates = first or packet, octets[64:72]
    print("recorded", flush=True)
    signal.sigwait({signal.SIGINT})
    for _ in range(3):
        again.sendto(first, (far_end, 0))
        time.sleep(0.2)
    print("sent again", flush=True)


def observe(sizes):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(0x0003))
    # Echo Requests with the identifier of the measured ones, without IP options.
    steps = [(0x30, 0, 0, 14), (0x15, 0, 5, 0x45), (0x30, 0, 0, 34), (0x15, 0, 3, 8), (0x28, 0, 0, 38), (0x15, 0, 1, MEASURED)]
    steps += [(6, 0, 0, 256), (6, 0, 0, 0)]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    room = ctypes.create_string_buffer(program)
    link.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", len(steps), ctypes.addressof(room)))
    link.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    print("observing", flush=True)
    came, times = {}, {}
    while True:
        packet, extra, _, address = link.recvmsg(256, 64)
        seconds, rest = struct.unpack("qq", extra[0][2][:16])
        now = seconds * 1_000_000_000 + rest
        sequence = struct.unpack("!H", packet[40:42])[0]
        if sequence == LAST:
            break
        if address[2] == 4:  # PACKET_OUTGOING
            if sequence in came:
                place, kind = sequence // 1000, KINDS[sequence % 1000 % 3]
                times.setdefault((place, kind), []).append((now - came.pop(sequence)) / 1000)
        else:
            came[sequence] = now
    for (place, kind), all_times in sorted(times.items(), key=lambda row: (row[0][0], KINDS.index(row[0][1]))):
        mean = statistics.fmean(all_times)
        line = {
            "type": "kept",
            "reservations": sizes[place],
            "message": kind,
            "count": len(all_times),
            "median_us": round(statistics.median(all_times), 1),
            "least_us": round(min(all_times), 1),
            "most_us": round(max(all_times), 1),
            "scv": round(statistics.pvariance(all_times) / mean**2, 9),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "generate":
        generate(rest[0], [int(size) for size in rest[1:]])
    elif what == "ping":
        ping(rest[0], int(rest[1]))
    elif what == "replay":
        replay(rest[0])
    elif what == "expire":
        expire(rest[0])
    else:
        observe([int(size) for size in rest])
