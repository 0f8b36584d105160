#!/usr/bin/python3
"""Compares what the Wireshark dissectors of contrib/wireshark read with `signalbox decode`, field by field. See docs/wireshark.md, and --help."""
import argparse
import collections
import ipaddress
import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from wireshark_fields import APPLICATION_FAULTS, FAULTS, FLOATS, NAMES, expected  # noqa: E402

TOP = ("gist", "casp", "boomerang")
# Packets that errors of ICMP quote are not compared.
ICMP_TYPES = ("icmp.type", "icmpv6.type")
ECHOS = (0, 8, 128, 129)


class Tshark:
    """tshark with the dissectors of this tree. Newer ones load those of a user for other users than root only."""

    def __init__(self, program, home):
        self.program, self.home = program, pathlib.Path(home)
        os.chmod(home, 0o755)
        shutil.copytree(ROOT / "contrib/wireshark/signalbox", self.home / ".local/lib/wireshark/plugins/signalbox")
        protocols = self.run("-G", "protocols").decode()
        missing = [name for name in (*TOP, *NAMES) if not re.search(rf"\t{name}[\t\n]", protocols)]
        if missing:
            sys.exit(f"{program} does not load the dissectors: {missing} are missing")

    def start(self, *arguments, capture=None):
        environment = dict(os.environ, HOME=str(self.home), XDG_CONFIG_HOME=str(self.home) + "/.config", LC_ALL="C.UTF-8", TZ="UTC")
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        self.errors = tempfile.TemporaryFile()
        with open(capture or os.devnull, "rb") as file:
            return subprocess.Popen([self.program, *arguments], env=environment, stdout=subprocess.PIPE, stderr=self.errors, stdin=file, **user)

    def finish(self, started):
        status = started.wait()
        self.errors.seek(0)
        noise = [line for line in self.errors.read().decode(errors="replace").splitlines() if line and "cut short" not in line]
        if any("Lua" in line for line in noise) or status not in (0, 2):
            sys.exit(f"{' '.join(started.args)}: exit status {status}\n" + "\n".join(noise))

    def run(self, *arguments):
        started = self.start(*arguments)
        out = started.stdout.read()
        self.finish(started)
        return out

    def messages(self, capture):
        """By frame: the messages, each as fields with their values in the order of the tree."""
        started = self.start("-r", "-", "-Y", " || ".join(TOP), "-T", "pdml", "-o", "tcp.reassemble_out_of_order:TRUE", capture=capture)
        frames = collections.OrderedDict()
        for _, packet in ElementTree.iterparse(Printable(started.stdout)):
            if packet.tag != "packet":
                continue
            number = int(packet.find("./proto[@name='geninfo']/field[@name='num']").get("show"))
            broken = [field.get("showname") for field in packet.iter("field") if "Lua Error" in (field.get("showname") or "")]
            if broken or packet.find("./proto[@name='_ws.lua']") is not None:
                sys.exit(f"{capture}, frame {number}: a fault of Lua: {broken}")
            if not any(field.get("name") in ICMP_TYPES and int(field.get("show")) not in ECHOS for field in packet.iter("field")):
                frames[number] = self.of_packet(packet)
            packet.clear()
        self.finish(started)
        return frames

    @staticmethod
    def of_packet(packet):
        messages = []
        for proto in packet.findall("proto"):
            if proto.get("name") in TOP:
                messages.append((proto.get("name"), collections.defaultdict(list)))
            elif not messages or proto.get("name") not in NAMES:
                continue
            for field in proto.iter():
                name = field.get("name")
                if name and field is not proto:
                    messages[-1][1][name].append(field.get("show"))
        return messages


class Printable:
    """A stream without the control characters of texts, which tshark writes as they are and XML does not allow."""

    TABLE = bytes(octet if octet in b"\t\n\r" or octet >= 32 and octet != 127 else ord("?") for octet in range(256))

    def __init__(self, stream):
        self.stream = stream

    def read(self, size=-1):
        return self.stream.read(size).translate(self.TABLE)


def begin_of(capture, most, place):
    """The capture, or a file with its first packets if it has more than so many: floods have enough of the same."""
    with open(capture, "rb") as file:
        head = file.read(24)
        if head[:4] not in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"):
            return capture
        for _ in range(most):
            packet = file.read(16)
            if len(packet) < 16:
                return capture
            file.seek(struct.unpack("<I", packet[8:12])[0], os.SEEK_CUR)
        end = file.tell()
        file.seek(0)
        short = pathlib.Path(place) / "begin.pcap"
        short.write_bytes(file.read(end))
        return short


def decoded(program, capture):
    """By frame: the lines of `signalbox decode`, without the protocols that have no dissector here."""
    done = subprocess.run([program, "decode", "--json", "--reencode", str(capture)], capture_output=True)
    frames = collections.OrderedDict()
    for line in done.stdout.decode().splitlines():
        message = json.loads(line)
        if "rsvp" in message or "mapping" in message or message.get("protocol") in ("rsvp", "pcp"):
            continue
        if "frame" not in message:
            sys.exit(f"{capture}: {line}")
        frames.setdefault(message["frame"], []).append(message)
    return frames


def normal(value):
    """One form for what the two write in different ways."""
    if value is None:
        return "null"
    if value is True or value == "True":
        return "1"
    if value is False or value == "False":
        return "0"
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.6g}"
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if text.startswith("0x"):
        return str(int(text, 16))
    if ":" in text and all(len(part) == 2 for part in text.split(":")):
        return text.replace(":", "").lower()
    if ":" in text:
        try:
            return str(ipaddress.ip_address(text))
        except ValueError:
            return text
    return text


def numeric(values):
    """Numbers as such, so that 1e+06 and 1000000 are one."""
    out = []
    for value in values:
        value = normal(value)
        try:
            out.append(f"{float(value):.6g}" if "." in value or "e" in value or "inf" in value else value)
        except ValueError:
            out.append(value)
    return out


def compare(line, fields):
    """The differences of one message, as text."""
    found = []
    # The dissectors do not read these on, decode may.
    if any(fields.get(kind + ".expert.truncated") for kind in TOP):
        return found
    # Read by decode, and by no rule of the specification refused: only our encoder would not make it.
    if not line["ok"] and line["error"]["text"].startswith("cannot be encoded again"):
        return found
    try:
        wanted = expected(line)
    except (KeyError, TypeError, AttributeError) as error:
        return [f"a line of decode has another form than docs/decode.md says: {error!r}: {json.dumps(line)[:1000]}"]
    for key, names in APPLICATION_FAULTS.items():
        refused = "refused by " + key in wanted
        wanted.pop("refused by " + key, None)
        if refused and not any(fields.get(name) for name in names):
            found.append(f"decode refuses the message of {key}, the dissector does not")
    fields["natfw.dtinfo.ports"] = [port for port in fields.get("natfw.dtinfo.receiver_port", []) + fields.get("natfw.dtinfo.sender_port", []) if port != "0"]
    for name, values in wanted.items():
        left, right = sorted(numeric(values)), sorted(numeric(fields.get(name, [])))
        if name == "qspec.expert.malformed" and left and right:
            continue
        if name in FLOATS:
            left, right = sorted(f"{float(v):.6g}" for v in left), sorted(f"{float(v):.6g}" for v in right)
        if left != right:
            found.append(f"{name}: decode {left}, dissector {right}")
    faults = [name for name in FAULTS if fields.get(name)]
    if line["ok"] and not wanted.get("faulty") and faults:
        found.append(f"decode understands it, the dissector has {faults} {fields.get('gist.fault.code')} {fields.get('gist.fault.subcode')}")
    if not line["ok"] and not line.get("truncated"):
        if not faults:
            found.append(f"decode: {line['error']['text']}; the dissector has no fault")
        raised = line["error"].get("gist")
        pairs = list(zip(fields.get("gist.fault.code", []), fields.get("gist.fault.subcode", [])))
        if raised and faults and (str(raised["code"]), str(raised["subcode"])) not in pairs:
            found.append(f"decode raises {raised['code']}/{raised['subcode']} ({line['error']['text']}), the dissector {pairs}")
    return found


def judge(tshark, program, capture, packets, counts):
    """Compares all messages of a capture, or of its begin. The result is a list of differences."""
    theirs, ours = tshark.messages(packets), decoded(program, packets)
    found = []
    for number in sorted(set(theirs) | set(ours)):
        # A length that ends a connection is not a message: decode prints nothing about it.
        left, right = ours.get(number, []), [one for one in theirs.get(number, []) if "casp.expert.stream" not in one[1]]
        if len(left) != len(right):
            found.append(f"{capture}, frame {number}: decode has {len(left)} messages, the dissector {len(right)} {[m[0] for m in right]}"
                         + "".join(f"; {m['error']['text']}" for m in left if not m["ok"]))
            continue
        for line, (kind, fields) in zip(left, right):
            counts[kind] += 1
            counts["fields"] += sum(len(values) for values in fields.values())
            found += [f"{capture}, frame {number}: {kind}: {text}" for text in compare(line, fields)]
    return found


class Capture:
    """A pcap file of IP packets without link header, made of messages."""

    def __init__(self):
        self.packets = []
        self.ports = 1024

    def add(self, protocol, payload, version=4):
        if version == 6:
            head = struct.pack("!IHBB", 0x60000000, len(payload), protocol, 64) + bytes(15) + b"\1" + bytes(15) + b"\2"
        else:
            head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), len(self.packets) & 0xffff, 0, 64, protocol, 0, bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2]))
        self.packets.append(head + payload)

    def udp(self, port, payload):
        self.add(17, struct.pack("!HHHH", port, port, 8 + len(payload), 0) + payload)

    def tcp(self, port, payload):
        """A connection of its own: its begin, and the payload in two segments."""
        self.ports += 1
        middle = len(payload) // 2
        self.add(6, struct.pack("!HHIIBBHHH", self.ports, port, 100, 0, 0x50, 2, 65535, 0, 0))
        for at, part in ((0, payload[:middle]), (middle, payload[middle:])):
            if part:
                self.add(6, struct.pack("!HHIIBBHHH", self.ports, port, 101 + at, 1, 0x50, 0x10, 65535, 0, 0) + part)

    def icmp(self, payload):
        version = 6 if len(payload) > 17 and payload[17] & 15 == 10 else 4
        if version == 6:
            payload = bytes([129 if payload[0] == 0 else 128]) + payload[1:]
        self.add(58 if version == 6 else 1, payload, version)

    def cut(self, rng):
        """Leaves the begin of the last datagram only, as a capture with a limited length does."""
        packet = self.packets[-1] if self.packets else b""
        if isinstance(packet, bytes) and packet[:1] == b"\x45" and packet[9] in (1, 17) and len(packet) > 48:
            self.packets[-1] = (packet[:rng.randrange(44, len(packet))], len(packet))

    def write(self, path):
        with open(path, "wb") as file:
            file.write(struct.pack("=IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, 101))
            for number, packet in enumerate(self.packets):
                packet, length = packet if isinstance(packet, tuple) else (packet, len(packet))
                file.write(struct.pack("=IIII", 1700000000 + number // 1000, number % 1000 * 1000, len(packet), length) + packet)


def tlv(kind, value, ab=0):
    return struct.pack("!HH", ab << 14 | kind, len(value) // 4) + value


MRI = bytes.fromhex("000048c0c0000201c6336407202011001388 1389".replace(" ", ""))
SESSION = bytes(range(16))
NLI = bytes.fromhex("1040400000007530") + bytes(16) + bytes([192, 0, 2, 1])


def in_gist(nslpid, data):
    data += bytes(-len(data) % 4)
    objects = tlv(0, MRI) + tlv(1, SESSION) + tlv(2, NLI) + tlv(8, data)
    return struct.pack("!IBBHHBB", 0x4e04bda5, 1, 64, len(objects) // 4, nslpid, 3, 0x80) + objects


def in_casp(client, data):
    flow = bytes.fromhex("00140101c0000201c6336407138c138e11000000")
    return bytes.fromhex("10400001") + SESSION + flow + struct.pack("!HBB", 4 + len(data), 3, client) + data + bytes(-len(data) % 4)


def wrap(capture, target, octets):
    """Puts a seed of a fuzz target into a packet. Others are left out."""
    if target == "gist_message":
        if octets[:4] == b"\x4e\x04\xbd\xa5":
            capture.udp(270, octets)
        elif len(octets) >= 8:
            capture.tcp(270, octets)
    elif target == "boomerang_message" and len(octets) >= 12 and octets[8:12] == b"\x47\x11\x47\x11":
        capture.icmp(octets)
    elif target == "casp_message" and len(octets) >= 4:
        if struct.unpack("!I", octets[:4])[0] == len(octets):
            capture.tcp(50003, octets)
        else:
            capture.udp(50003, octets)
    elif target in ("ping_message", "ping_nsis", "natfw_message", "qos_message"):
        nslpid = {"ping_message": 32704, "ping_nsis": 32705, "natfw_message": 33, "qos_message": 1}[target]
        capture.udp(270, in_gist(nslpid, octets))
    elif target == "qspec" and octets and len(octets) % 4 == 0:
        capture.udp(270, in_gist(1, struct.pack("!BBH", 2, 0, 0) + tlv(1, b"\0\0\0\1") + tlv(11, octets)))
    elif target in ("casp_qos", "casp_natfw"):
        capture.udp(50003, in_casp({"casp_qos": 1, "casp_natfw": 2}[target], octets))


def changed(octets, rng):
    """The octets with a few changes: what a hostile or broken node sends."""
    octets = bytearray(octets)
    for _ in range(rng.randint(1, 3)):
        if not octets:
            break
        kind, at = rng.randrange(4), rng.randrange(len(octets))
        if kind == 0:
            octets[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            octets[at] = rng.choice((0, 1, 4, 6, 0x7f, 0x80, 0xff))
        elif kind == 2:
            del octets[at & ~3:(at & ~3) + 4]
        else:
            octets[at & ~3:at & ~3] = octets[at & ~3:(at & ~3) + 4]
    return bytes(octets)


def noise(capture, rng):
    """Random octets behind heads that the dissectors take."""
    def octets(count):
        # Small numbers are types and lengths more often than others.
        return bytes(rng.choice((0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 16, 19, 64, 128)) if rng.random() < .6 else rng.randrange(256) for _ in range(count))

    count, kind = rng.randrange(90) * rng.choice((1, 4, 4)), rng.randrange(8)
    if kind == 0:
        capture.udp(270, b"\x4e\x04\xbd\xa5" + octets(count))
    elif kind == 1:
        capture.udp(270, in_gist(rng.choice((1, 33, 32704, 32705)), bytes([rng.randrange(6)]) + octets(count)))
    elif kind == 2:
        capture.udp(270, in_gist(1, bytes([rng.randrange(5), 0, 0, 0]) + tlv(rng.choice((11, 22, 6, 2000, 7)), octets(count // 4 * 4))))
    elif kind == 3:
        capture.udp(50003, bytes([rng.choice((0, 16, 128, 144)), 64, 0, rng.randrange(4)]) + octets(16 + count))
    elif kind == 4:
        capture.udp(50003, in_casp(rng.choice((1, 2, 254)), octets(count)))
    elif kind == 5:
        capture.tcp(50003, struct.pack("!I", rng.choice((count + 24, 24, count))) + octets(count + 20))
    elif kind == 6:
        formats = (0x12, 0x22, 0x32, 0x1a, 0x2a, 0x3a)
        capture.icmp(bytes([rng.choice((8, 0)), 0]) + octets(6) + b"\x47\x11\x47\x11" + octets(4) + bytes([16, rng.choice(formats)]) + octets(2) + b"\1\1" + octets(count + 50))
    else:
        capture.icmp(octets(8) + b"\x47\x11\x47\x11" + octets(count))


TARGETS = ("gist_message", "boomerang_message", "casp_message", "ping_message", "ping_nsis", "natfw_message", "qos_message", "qspec", "casp_qos", "casp_natfw")


def corpus(directory, changes):
    """Captures of the seeds of the fuzz targets, and of changed ones, each by target."""
    made = []
    for target in TARGETS:
        rng = random.Random(target)
        capture = Capture()
        seeds = [path.read_bytes() for path in sorted((ROOT / "fuzz/corpus" / target).iterdir())]
        for seed in seeds:
            wrap(capture, target, seed)
        for _ in range(changes):
            for seed in seeds:
                wrap(capture, target, changed(seed, rng))
                if rng.randrange(8) == 0:
                    capture.cut(rng)
        path = pathlib.Path(directory) / f"{target}.pcap"
        capture.write(path)
        made.append(path)
    rng = random.Random("noise")
    capture = Capture()
    for _ in range(50 * changes):
        noise(capture, rng)
        if rng.randrange(5) == 0:
            capture.cut(rng)
    capture.write(pathlib.Path(directory) / "noise.pcap")
    return made + [pathlib.Path(directory) / "noise.pcap"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tshark", default="tshark", help="the program of Wireshark")
    parser.add_argument("--signalbox", required=True, help="the command signalbox")
    parser.add_argument("--changes", type=int, default=20, help="how many changed messages of each seed of the fuzz targets")
    parser.add_argument("--most", type=int, default=40, help="how many differences of a capture are printed")
    parser.add_argument("--packets", type=int, default=40000, help="how many packets of a capture are read")
    parser.add_argument("--keep", help="a folder for the captures that are made of the seeds")
    parser.add_argument("captures", nargs="*", type=pathlib.Path, help="capture files, or folders of them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        tshark = Tshark(arguments.tshark, home)
        counts = collections.Counter()
        files = []
        for path in arguments.captures:
            files += sorted(path.rglob("*.pcap")) if path.is_dir() else [path]
        place = arguments.keep or home
        pathlib.Path(place).mkdir(parents=True, exist_ok=True)
        files += corpus(place, arguments.changes)
        differences = 0
        for file in files:
            found = judge(tshark, arguments.signalbox, file, begin_of(file, arguments.packets, home), counts)
            for text in found[:arguments.most]:
                print(text, flush=True)
            differences += len(found)
    print(f"{len(files)} captures, " + ", ".join(f"{counts[kind]} messages of {kind}" for kind in TOP) + f", {counts['fields']} fields: {differences} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
