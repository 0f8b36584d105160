"""What a line of `signalbox decode --json` says, as the fields that the Wireshark dissectors should have for the same message."""
import collections
import struct

# Dissectors whose fields belong to the message before them.
NAMES = {"gist_ping", "nsis_ping", "qosnslp", "natfw", "casp_qos", "casp_natfw", "casp_ping", "qspec"}
FLOATS = {
    "qspec.tmod.rate", "qspec.tmod.bucket", "qspec.tmod.peak", "casp_qos.rate", "casp_qos.bucket", "casp_qos.peak",
    "casp_qos.bandwidth.upper", "casp_qos.bandwidth.lower",
}
# Expert information about what a receiver does not take.
FAULTS = (
    "gist.expert.fault", "casp.expert.malformed", "casp.expert.stream", "boomerang.expert.malformed",
    "boomerang.expert.format",
)
APPLICATION_FAULTS = {
    "ping": ("gist_ping.expert.malformed", "gist_ping.expert.version"), "nsis_ping": ("nsis_ping.expert.malformed",),
    "natfw": ("natfw.expert.fault",), "qos": ("qosnslp.expert.fault",), "casp_qos": ("casp_qos.expert.fault",),
    "casp_natfw": ("casp_natfw.expert.fault",), "casp_ping": ("casp_ping.expert.malformed",),
}


class Fields(collections.defaultdict):
    """Values by field. A name that is here at all is compared, with what the dissector has of it."""

    def __init__(self):
        super().__init__(list)

    def none_of(self, prefix, names):
        for name in names.split():
            self[prefix + name]

    def put(self, name, value):
        self[name]
        if value is not None:
            self[name].append(value)

    def address(self, name, value):
        """An address, in the field of its IP version."""
        self[name], self[name + "6"]
        if value is not None:
            self[name + "6" if ":" in value else name].append(value)

    def flags(self, prefix, names, set_names):
        for name, text in names.items():
            self.put(prefix + name, text in set_names)
        unknown = set(set_names) - set(names.values())
        if unknown:
            self.put(prefix + "unknown", sorted(unknown))


def objects_of(octets):
    """Types and lengths in words of the objects of GIST, from what the encoder makes of a message."""
    raw = bytes.fromhex(octets)
    at = 12 if raw[:4] == b"\x4e\x04\xbd\xa5" else 8
    found = []
    while at + 4 <= len(raw):
        head, words = struct.unpack("!HH", raw[at:at + 4])
        found.append((head & 0xfff, words & 0xfff))
        at += 4 + 4 * (words & 0xfff)
    return found


def casp_objects_of(octets):
    """Class, C-Type and length in octets of the objects of CASP, from what the encoder makes of a message."""
    raw = bytes.fromhex(octets)
    at = 24 if struct.unpack("!I", raw[:4])[0] == len(raw) else 20
    found = []
    while at + 4 <= len(raw):
        length, kind, ctype = struct.unpack("!HBB", raw[at:at + 4])
        if length < 4:
            break
        found.append((kind, ctype, length))
        at += (length + 3) // 4 * 4
    return found


def header(out, head):
    for name, key in (("version", "version"), ("hops", "hops"), ("length", "length_words"), ("nslpid", "nslpid"), ("type", "type"),
                      ("flags.c", "c"), ("flags.s", "s"), ("flags.r", "r"), ("flags.e", "e")):
        out.put("gist." + name, head[key])


def mri(out, of):
    out.put("gist.mri.mrm", of["mrm_id"])
    out.address("gist.mri.src", of["src"])
    out.address("gist.mri.dst", of["dst"])
    if of["mrm_id"] == 0:
        out.put("gist.mri.upstream", of["direction"] == "upstream")
        for name in ("src_prefix", "dst_prefix", "protocol", "dscp", "flow_label", "spi", "src_port", "dst_port"):
            out.put("gist.mri." + name, of[name])


def gist_object(out, of):
    kind = of["type"]
    if of["object"] == "unknown":
        return
    if kind == 0:
        mri(out, of)
    elif kind == 1:
        out.put("gist.session", of["session"])
    elif kind == 2:
        out.put("gist.nli.peer", of["peer_identity"] or None)
        out.address("gist.nli.interface", of["interface"])
        out.put("gist.nli.ip_ttl", of["ip_ttl"])
        out.put("gist.nli.validity", of["validity_ms"])
    elif kind == 3:
        out.put("gist.stack.profiles", len(of["profiles"]))
        for protocol in sum(of["profiles"], []):
            out.put("gist.stack.protocol", protocol)
    elif kind == 4:
        out.put("gist.scd.hold_time", of["hold_time_ms"])
        out.put("gist.scd.options", len(of["options"]))
        for option in of["options"]:
            out.put("gist.scd.protocol", option["protocol"])
            out.put("gist.scd.profile", option["profile"])
            out.put("gist.scd.disabled", option["disabled"])
            out.put("gist.scd.data", option["data"] or None)
            out.put("gist.scd.port", option["port"])
    elif kind == 5:
        out.put("gist.query_cookie", of["cookie"])
    elif kind == 6:
        out.put("gist.responder_cookie", of["cookie"])
    elif kind == 7:
        if of["mri"]:
            mri(out, of["mri"])
        elif of.get("original_mri"):
            out.put("gist.mri.mrm", int(of["original_mri"][:2], 16))
        out.put("gist.nat.types", len(of["translated"]))
        out.put("gist.nat.count", len(of["replaced"]))
        for text in of["replaced"]:
            out.put("gist.nat.replaced", text or None)
    elif kind == 8:
        out.put("gist.data", of["data"] or None)
        application(out, of)
    elif kind == 9:
        error = of["error"]
        out.put("gist.error.class", error["class"])
        out.put("gist.error.code", error["code"])
        out.put("gist.error.subcode", error["subcode"])
        out.put("gist.error.d", of["d_mode"])
        out.put("gist.error.q", of["q_mode"])
        out.put("gist.error.header", of["original_header"])
        out.put("gist.error.session", of["session"])
        if of["mri"]:
            mri(out, of["mri"])
        elif of.get("original_mri"):
            out.put("gist.mri.mrm", int(of["original_mri"][:2], 16))
        for info in of["infos"]:
            out.put("gist.error.info.type", info["type"])
            out.put("gist.error.info.calculated", info.get("length_words"))
            out.put("gist.error.info.mtu", info.get("mtu"))
            out.put("gist.error.info.offset", info.get("offset"))
        out.put("gist.error.comment", of["comment"])
    elif kind == 10:
        out.put("gist.hello_id", of["hello_id"])


def application(out, of):
    for key, read in (("ping", ping), ("nsis_ping", nsis_ping), ("natfw", natfw), ("qos", qos)):
        if key in of:
            read(out, of[key])
            for name in APPLICATION_FAULTS[key]:
                out[name]
        elif key + "_error" in of:
            out["refused by " + key]


def ping(out, of):
    out.put("gist_ping.kind", {"echo request": 1, "echo reply": 2}.get(of["kind"], of["kind"]))
    out.flags("gist_ping.flags.", PING_FLAGS, of["flags"])
    out.put("gist_ping.sequence", of["sequence"])
    out.put("gist_ping.identifier", int(of["identifier"], 16))
    out.put("gist_ping.sent", of["sent_us"])
    out.put("gist_ping.there", len(of["there"]))
    out.put("gist_ping.back", len(of["back"]))
    out.none_of("gist_ping.record.", "address address6 received held distance")
    for record in of["there"] + of["back"]:
        out.address("gist_ping.record.address", record["address"])
        out.put("gist_ping.record.received", record["received_us"])
        out.put("gist_ping.record.held", record["held_us"])
        out.put("gist_ping.record.distance", record["ip_distance"])


PING_FLAGS = {
    "padding": "padded", "end": "end-reached", "no_next": "no-next-node", "not_sent": "not-sent", "there_full": "there-truncated",
    "back_full": "back-truncated",
}


def nsis_ping(out, of):
    out.put("nsis_ping.hops", of["hops"])
    out.put("nsis_ping.length", of["octets"])
    out.put("nsis_ping.sequence", of["sequence"])
    out.put("nsis_ping.objects", len(of["objects"]))
    out.none_of("nsis_ping.", "object.type object.length record.address record.address6")
    for entry in of["objects"]:
        out.put("nsis_ping.object.type", entry["type"])
        out.put("nsis_ping.object.length", entry["octets"])
    for record in of["records"]:
        out.address("nsis_ping.record.address", record["address"])


NATFW_TYPES = {"CREATE": 1, "EXTERNAL": 2, "RESPONSE": 3, "NOTIFY": 4}


def natfw(out, of):
    out.put("natfw.type", NATFW_TYPES.get(of["kind"], of["kind"]))
    if of["kind"] in ("CREATE", "EXTERNAL"):
        out.put("natfw.flags.p", "P" in of["flags"])
        if "P" in of["flags"]:
            out.put("natfw.flags.e", "E" in of["flags"])
    out.put("natfw.lifetime", of.get("lifetime_s"))
    out.put("natfw.msn", of.get("msn"))
    out.put("natfw.action", {"allow": 1, "deny": 2}.get(of.get("action"), of.get("action")))
    out.put("natfw.sub_ports", of.get("sub_ports"))
    out.put("natfw.nonce", int(of["nonce"], 16) if of.get("nonce") is not None else None)
    info = of.get("info") or {}
    out.put("natfw.info.class", info.get("class"))
    out.put("natfw.info.code", info.get("code"))
    # 0: no object is concerned.
    out.put("natfw.info.object_type", (info.get("object_type") or 0) if info else None)
    terminal = of.get("terminal") or {}
    out.put("natfw.dtinfo.protocol", terminal.get("protocol"))
    # 0 is the wildcard, which decode does not print; without ports there is neither.
    ports = [terminal.get(key) for key in ("receiver_port", "sender_port")]
    out["natfw.dtinfo.ports"] += [port for port in ports if port]
    out.put("natfw.dtinfo.spi", terminal.get("spi"))
    if terminal.get("sender"):
        out.put("natfw.dtinfo.sender", terminal["sender"].split("/")[0])
        out.put("natfw.dtinfo.prefix", int(terminal["sender"].split("/")[1]))
    out["natfw.icmp.type"] += of.get("icmp_types") or []
    external = of.get("external") or {}
    out.put("natfw.external.address", external.get("address"))
    out.put("natfw.external.port", (external.get("port") or 0) if external else None)
    bindings = of.get("bindings") or {}
    out.put("natfw.binding.port", (bindings.get("port") or 0) if bindings else None)
    out["natfw.binding.address"] += bindings.get("addresses") or []
    out.none_of("natfw.node.", "address address6 after_gap routers")
    for node in of.get("hops") or []:
        out.address("natfw.node.address", node["address"])
        out.put("natfw.node.after_gap", node["after_gap"])
        out.put("natfw.node.routers", node["routers"])


QOS_TYPES = {"RESERVE": 1, "QUERY": 2, "RESPONSE": 3, "NOTIFY": 4}
SHARED_FLAGS = {"break": "BREAK", "ack": "ACK-REQ", "proxy": "PROXY", "scoping": "SCOPING"}


def qos(out, of):
    out.put("qosnslp.type", QOS_TYPES.get(of["kind"], of["kind"]))
    names = dict(SHARED_FLAGS)
    if of["kind"] == "RESERVE":
        names.update(tear="TEAR", replace="REPLACE")
    elif of["kind"] == "QUERY":
        names.update(reserve_init="RESERVE-INIT")
    out.flags("qosnslp.flags.", names, of["flags"])
    rsn = of.get("rsn") or {}
    rsns = of.get("rsns") or {}
    out.put("qosnslp.rsn", rsn.get("number"))
    out.put("qosnslp.epoch", rsn.get("epoch"))
    out.put("qosnslp.epoch", rsns.get("epoch"))
    out["qosnslp.list.rsn"] += rsns.get("numbers") or []
    out.put("qosnslp.rii", of.get("rii"))
    out.put("qosnslp.refresh_period", of.get("refresh_period_ms"))
    out.none_of("qosnslp.bound.", "code session")
    for bound in of.get("bound_sessions") or []:
        out.put("qosnslp.bound.code", bound["code"])
        out.put("qosnslp.bound.session", bound["session"])
    out["qosnslp.session"] += of.get("sessions") or []
    for name in ("message_id", "bound_message_id"):
        out.put("qosnslp." + name, (of.get(name) or {}).get("id"))
        out.put("qosnslp.message_id.bidirectional", (of.get(name) or {}).get("bidirectional"))
    info = of.get("info") or {}
    out.put("qosnslp.info.class", info.get("class"))
    out.put("qosnslp.info.code", info.get("code"))
    source = info.get("source")
    if source and all(c in "0123456789abcdef:." for c in source) and (":" in source or source.count(".") == 3):
        out.address("qosnslp.info.source", source)
    out.put("qosnslp.info.specific", info.get("specific") or None)
    if of.get("classifier") is not None:
        for letter in "XYPTFSAB":
            out.put("qosnslp.classifier." + letter.lower(), letter in of["classifier"])
    out.none_of("qosnslp.node.", "address address6 after_gap routers rate")
    for node in of.get("hops") or []:
        out.address("qosnslp.node.address", node["address"])
        out.put("qosnslp.node.after_gap", node["after_gap"])
        out.put("qosnslp.node.routers", node["routers"])
        out.put("qosnslp.node.rate", node["rate"])
    out.put("qosnslp.note", of.get("note"))
    out["qspec.expert.malformed"]
    for name in ("qspec", "second_qspec"):
        if of.get(name):
            qspec(out, of[name])


# By parameter: the fields of `decode`, and those of the dissector.
PARAMETERS = {
    "rate": "tmod.rate", "bucket": "tmod.bucket", "peak": "tmod.peak", "min_policed": "tmod.min_policed", "max_packet": "tmod.max_packet",
    "latency_us": "latency", "slack_us": "slack", "preemption": "preemption", "defending": "defending",
}


def qspec(out, of):
    unread = 0
    while of:
        if "error" in of:
            out["qspec.expert.malformed"].append("any")
            return
        out.put("qspec.local", of["local"])
        out.put("qspec.type", of["type"])
        out.put("qspec.procedure", of["procedure"])
        out.none_of("qspec.", "object.type object.e parameter.id parameter.m parameter.e parameter.n parameter.length " + " ".join(PARAMETERS.values()))
        for entry in of["objects"]:
            out.put("qspec.object.type", entry["type"])
            out.put("qspec.object.e", entry["e"])
            for parameter in entry["parameters"]:
                if not parameter.get("fields"):
                    unread += 1
                out.put("qspec.parameter.id", parameter["id"])
                for flag in "men":
                    out.put("qspec.parameter." + flag, parameter[flag])
                out.put("qspec.parameter.length", len(parameter["octets"]) // 8)
                for name, value in (parameter.get("fields") or {}).items():
                    if name in PARAMETERS:
                        out.put("qspec." + PARAMETERS[name], {"infinite": float("inf"), "indeterminate": 0xffffffff}.get(value, value))
        of = of.get("encapsulated")
    # A value that is not allowed has no fields.
    if unread:
        for name in PARAMETERS.values():
            out.pop("qspec." + name, None)


BOOMERANG_FLAGS = {"nack": "NACK", "no_echo": "NO_ECHO", "returns": "RETURNS", "stands": "STANDS"}
OPTIONS = {
    "padding": 0, "Boomerang_UID": 1, "RESV_AGGREGATION": 2, "refusal": 0x8001, "authentication": 0x8002, "proof of return": 0x8003,
    "note": 0x8004, "nodes": 0x8005,
}


def classifier(out, prefix, of):
    out.address(prefix + "src", of["source"])
    out.address(prefix + "dst", of["destination"])
    out.put(prefix + "src_port", of["source_port"])
    out.put(prefix + "dst_port", of["destination_port"])
    out.put(prefix + "protocol", of["protocol"])
    out.put(prefix + "tos", of["tos"])


def boomerang(out, of):
    name = "boomerang."
    out.put(name + "reply", of["type"] == "reply")
    out.put(name + "identifier", of["identifier"])
    out.put(name + "icmp_sequence", of["sequence"])
    out.put(name + "transaction", of["transaction"])
    out.put(name + "qos_format", of["format"] >> 4)
    out.put(name + "family", of["format"] & 15)
    out.flags(name + "flags.", BOOMERANG_FLAGS, of["flags"])
    out.put(name + "refresh", of["refresh_s"])
    out.put(name + "key", of["key"] if isinstance(of["key"], int) else int(of["key"], 16))
    out.put(name + "refused", of["refused"])
    if of.get("flow"):
        classifier(out, name, of["flow"]["classifier"])
        classifier(out, name + "mask.", of["flow"]["mask"])
    quality = of.get("qos") or {}
    out.none_of(name, "forward reverse intserv")
    for pair in quality.get("pairs") or ([quality] if "forward_bits_per_s" in quality else []):
        forward, reverse = (pair["forward_bits_per_s"], pair["reverse_bits_per_s"]) if isinstance(pair, dict) else pair
        out.put(name + "forward", forward)
        out.put(name + "reverse", reverse)
    for way in ("forward", "reverse"):
        if way in quality:
            out.put(name + "intserv", quality[way])
    out[name + "option.flags"]
    for option in of.get("options") or []:
        kind = option["option"].split(" (")[0]
        out.put(name + "option.flags", option["flags"])
        if kind == "nodes":
            out.put(name + "nodes.count", option["count"])
            out.put(name + "nodes.ttl", option["ttl"])
            out.put(name + "nodes.gaps", option["gaps"])
            for address in option["nodes"]:
                out.address(name + "nodes.address", address)
        elif kind == "authentication":
            out.put(name + "auth.key", option["key"])
            out.put(name + "auth.time", option["time_us"])
            out.put(name + "auth.digest", option["digest"])
            out.put(name + "auth.forward", option["most_bits_per_s"][0])
            out.put(name + "auth.reverse", option["most_bits_per_s"][1])
        elif kind == "Boomerang_UID":
            if option["user"] and option["user"].isprintable():
                out.put(name + "uid.user", option["user"])
            out.put(name + "uid.credential", option["credential"])
        elif kind == "RESV_AGGREGATION":
            out.address(name + "aggregate.node", option["address"])
            out.put(name + "aggregate.number", option["transaction"])
            out.put(name + "aggregate.rate", option["rate_bits_per_s"])
            classifier(out, name + "aggregate.", option["flow"]["classifier"])
            classifier(out, name + "aggregate.mask.", option["flow"]["mask"])
        elif kind == "proof of return":
            for key, value in option.items():
                if key in ("number", "node", "random"):
                    out.put(name + "proof." + ("number" if key == "number" else "node"), value if isinstance(value, int) else int(value, 16))
        elif kind == "refusal":
            out.put(name + "refusal.reason", option["cause"])
            out.address(name + "refusal.node", option["address"])


CASP_TYPES = {"signaling": 1, "scout_request": 2, "scout_response": 3}
CASP_FLAGS = {"reverse": "reverse", "teardown": "tear-down", "discover": "discovery", "unsecure": "unsecure"}


def casp_flow(out, name, of):
    out.address(name + "src", of["source"])
    out.address(name + "dst", of["destination"])
    out.put(name + "src_port", of.get("source_port"))
    out.put(name + "dst_port", of.get("destination_port"))
    out.put(name + "protocol", of.get("protocol"))
    out.put(name + "spi", of.get("spi"))
    out.put(name + "flow_label", of.get("flow_label"))


def casp(out, of):
    name = "casp."
    out.put(name + "type", CASP_TYPES[of["type"]])
    out.put(name + "cookie_i", of.get("scout_cookie_i"))
    out.put(name + "cookie_r", of.get("scout_cookie_r"))
    if of["type"] != "signaling":
        return
    out.flags(name + "flags.", CASP_FLAGS, of["flags"])
    out.put(name + "ttd", of["ttd"])
    out.put(name + "hops", of["hops"])
    out.put(name + "session", of["session"])
    casp_flow(out, name, of["flow"])
    out.put(name + "timeout", of.get("timeout_s"))
    out.put(name + "error", (of.get("error") or {}).get("code"))
    out.none_of(name, "node.address node.address6 node.port node.transport client client.data")
    for key in ("record_route", "route"):
        for node in of.get(key) if isinstance(of.get(key), list) else []:
            out.address(name + "node.address", node["address"])
            out.put(name + "node.port", node["port"])
            out.put(name + "node.transport", node["transport"])
    client = of.get("client")
    if client:
        out.put(name + "client", client["type"])
        out.put(name + "client.data", client["octets"] or None)
        read = {1: casp_qos, 2: casp_natfw, 254: casp_ping}.get(client["type"])
        # Without octets there is nothing to read.
        message = client.get("message") if client["octets"] else None
        if read and message:
            if "type" not in message:
                out["refused by " + read.__name__]
            else:
                read(out, message)


CASP_QOS_CODES = [
    "lower bound cannot be met", "too many failed nodes", "too many indeterminate nodes", "authentication failed", "policy",
    "syntax", "required object missing", "unknown VERSION", "unknown C-Type", "unknown type", "no such reservation", "preempted",
    "no answer in time", "time not possible", "not the owner", "insecure hop not accepted",
]
CASP_QOS_TYPES = {"Reserve": 1, "Commit": 2, "Release": 3, "Success": 4, "Error": 5, "Query": 6}


def casp_qos(out, of):
    name = "casp_qos."
    out.put(name + "type", CASP_QOS_TYPES.get(of["type"], of["type"]))
    casp_flow(out, name, of["flow"])
    if of.get("reverse_flow"):
        casp_flow(out, name, of["reverse_flow"]["flow"])
    out.put(name + "sequence", of.get("sequence"))
    out.put(name + "echo", of.get("answers"))
    error = of.get("error")
    out.put(name + "error.code", (CASP_QOS_CODES.index(error["code"]) + 1 if error["code"] in CASP_QOS_CODES else error["code"]) if error else None)
    out.put(name + "error.detail", error["detail"] if error else None)
    out.address(name + "error_node", of.get("error_node"))
    partial = of.get("partial") or {}
    for field, key in (("failed", "failed"), ("indeterminate", "indeterminate"), ("failures_allowed", "failures_allowed"),
                       ("indeterminates_allowed", "indeterminate_allowed"), ("hops", "last_hops")):
        out.put(name + "partial." + field, partial.get(key))
    out.put(name + "age", of.get("age"))
    out.none_of(name, "rate bucket peak min_policed max_packet")
    for key in ("minimum", "desired"):
        spec = of.get(key)
        if spec and "rate" in spec:
            out.put(name + "rate", spec["rate"])
            out.put(name + "bucket", spec["bucket"])
            out.put(name + "peak", float("inf") if spec["peak"] is None else spec["peak"])
            out.put(name + "min_policed", spec["min_policed"])
            out.put(name + "max_packet", spec["max_packet"])


CASP_NATFW_TYPES = {"PATH": 1, "CREATE": 2, "RELEASE": 3, "RESPONSE": 4, "QUERY": 5, "TRIGGER": 6}
CASP_NATFW_OBJECTS = {
    "LOGGING_ACTION": 0x11, "APPLICATION_ID": 0x12, "NEXT": 0x13, "AUTH_TOKEN": 0x14, "CMS_CREDENTIAL": 0x15, "TIME": 0x16, "AGE": 0x17,
    "STATUS": 0x18, "PACKET_FILTER": 0x19, "NAT_OBJECT": 0x1a, "LIFETIME": 0x1b, "SCOPE": 0x1c, "MSG_ID": 0x1d, "NODE_ID": 0x1e,
    "CHALLENGE": 0x1f, "NOTE": 0x20, "HOPS": 0x21,
}
CASP_NATFW_CODES = [
    "done", "authentication required", "policy", "application id required", "filter not understood", "granularity", "not delivered",
    "token required", "token invalid", "credentials not accepted", "traffic", "no such state", "not the owner", "binding not available",
    "no resources", "malformed", "unknown type", "start time", "scope", "logging not permitted", "NEXT not permitted",
    "ended by the administrator",
]


def casp_natfw(out, of):
    """Of objects within objects decode has the names only."""
    name = "casp_natfw."
    out.put(name + "type", CASP_NATFW_TYPES.get(of["type"], of["type"]))
    kinds = [entry["object"] for entry in of["objects"]]
    nested = any(isinstance(entry.get("value"), dict) and entry["value"].get("objects") for entry in of["objects"])
    out.none_of(name, "msg_id next scope status status.msg_id status.request token.id object.type")
    if not nested:
        out.none_of(name, "age lifetime filter.src filter.dst filter.src6 filter.dst6 filter.protocol filter.src_prefix filter.dst_prefix "
                    "filter.src_port.first filter.src_port.last filter.dst_port.first filter.dst_port.last filter.spi filter.flow_label")
    codes = []
    for entry in of["objects"]:
        kind, value = entry["object"], entry.get("value")
        if isinstance(value, dict):
            kinds += value.get("objects") or []
        if kind == "MSG_ID" or kind in ("AGE", "LIFETIME") and not nested:
            out.put(name + kind.lower(), value)
        elif kind == "NEXT":
            out.put(name + "next", CASP_NATFW_TYPES.get(value["message"], value["message"]))
        elif kind == "SCOPE":
            out.put(name + "scope", value["kind"])
        elif kind == "STATUS":
            code = value["status"]
            codes.append(CASP_NATFW_CODES.index(code) if code in CASP_NATFW_CODES else None)
            out.put(name + "status.msg_id", value["msg_id"])
            out.put(name + "status.request", value["request"])
        elif kind in ("PACKET_FILTER", "NAT_OBJECT") and isinstance(value, dict) and not nested:
            packet_filter(out, name + "filter.", value)
        elif kind == "AUTH_TOKEN":
            out.put(name + "token.id", value["id"])
            if value.get("filter"):
                kinds.append("PACKET_FILTER")
                if not nested:
                    packet_filter(out, name + "filter.", value["filter"])
    # Some names of codes are others than in wire/casp-natfw.md.
    if None in codes:
        del out[name + "status"]
    else:
        out[name + "status"] += codes
    for kind in kinds:
        out.put(name + "object.type", CASP_NATFW_OBJECTS.get(kind, kind))


def packet_filter(out, name, of):
    for side, key in (("src", "source"), ("dst", "destination")):
        address, prefix = of[key].split("/")
        out.address(name + side, address)
        out.put(name + side + "_prefix", int(prefix))
        for first, last in of[key + "_ports"]:
            out.put(name + side + "_port.first", first)
            out.put(name + side + "_port.last", last)
    out[name + "protocol"] += of["protocols"]
    out[name + "spi"] += of["spis"]
    out.put(name + "flow_label", of["flow_label"])


def casp_ping(out, of):
    name = "casp_ping."
    out.put(name + "type", {"request": 1, "reply": 2}.get(of["type"], of["type"]))
    out.put(name + "token", of["token"])
    out.none_of(name + "entry.", "address address6 hops time")
    for node in of["nodes"]:
        out.address(name + "entry.address", node["address"])
        out.put(name + "entry.hops", node["hops"])
        out.put(name + "entry.time", node["time_us"])


def expected(line):
    """The fields by name, with their values in any order. Fields that are not named are not compared."""
    out = Fields()
    if "boomerang" in line and line["ok"]:
        boomerang(out, line["boomerang"])
    elif "casp" in line and line["ok"]:
        casp(out, line["casp"])
        if line.get("reencoded"):
            for kind, ctype, length in casp_objects_of(line["reencoded"]):
                out.put("casp.object.class", kind)
                out.put("casp.object.ctype", ctype)
                out.put("casp.object.length", length)
    elif "header" in line:
        if line["header"]:
            header(out, line["header"])
        if line["ok"]:
            out.put("gist.mode", line["encapsulation"])
            out.none_of("gist.", "session query_cookie responder_cookie hello_id data nli.interface nli.interface6 mri.src_port mri.dst_port")
            for entry in line["objects"]:
                gist_object(out, entry)
            if line.get("reencoded"):
                for kind, words in objects_of(line["reencoded"]):
                    out.put("gist.object.type", kind)
                    out.put("gist.object.length", words)
                    # An object that a receiver deletes is not made again.
                ignored = [entry for entry in line["objects"] if entry["object"] == "unknown" and entry["extensibility"] == "ignore"]
                for entry in ignored:
                    out.put("gist.object.type", entry["type"])
                    out.put("gist.object.length", len(entry["value"]) // 8)
    return out
