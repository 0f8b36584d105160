-- Boomerang (docs/wire/boomerang.md), in the data of ICMP Echo and ICMPv6 Echo.

local common = require("signalbox.common")

local boomerang = Proto("boomerang", "Boomerang")

local format_names = { "BITRATE", "INTSERV", "DOWNGRADE" }
local family_names = { [2] = "IPv4", [10] = "IPv6" }
local option_names = {
    [0] = "padding", [1] = "Boomerang_UID", [2] = "RESV_AGGREGATION", [0x8001] = "refusal", [0x8002] = "authentication",
    [0x8003] = "proof of return", [0x8004] = "note", [0x8005] = "nodes",
}
local reason_names = {
    [0] = "not known", "resources", "policy", "not supported", "the flow is another reservation's", "a table is full", "bad request",
    "not authenticated", "no room for another proof of return", "the initiating node does not have option 0x8003",
    "too many wrong proofs of return", "preempted", "the link has less to give", "the interface is gone", "the kernel did not install it",
    "an administrator ended it",
}
local service_names = { [2] = "guaranteed", [5] = "controlled load" }

local f = common.fields(boomerang, "boomerang.", {
    { "reply", "bool", "Reply" },
    { "identifier", "u16", "ICMP identifier" },
    { "icmp_sequence", "u16", "ICMP sequence number" },
    { "magic", "u32", "Magic number", base = base.HEX },
    { "transaction", "u32", "Transaction" },
    { "type", "u8", "Type", base = base.HEX },
    { "qos_format", "u8", "QoS format", values = format_names, mask = 0xf0 },
    { "family", "u8", "Family", values = family_names, mask = 0x0f },
    { "flags.nack", "bool", "NACK: refused", width = 16, mask = 0x0001 },
    { "flags.no_echo", "bool", "NO_ECHO", width = 16, mask = 0x0002 },
    { "flags.returns", "bool", "RETURNS", width = 16, mask = 0x0004 },
    { "flags.stands", "bool", "STANDS", width = 16, mask = 0x0008 },
    { "refresh", "u8", "Refresh interval in s" },
    { "version", "u8", "Version" },
    { "key", "u64", "KEY", base = base.HEX },
    { "refused", "bool", "Refused" },
    { "src", "ipv4", "Source" },
    { "dst", "ipv4", "Destination" },
    { "src6", "ipv6", "Source" },
    { "dst6", "ipv6", "Destination" },
    { "src_port", "u16", "Source port" },
    { "dst_port", "u16", "Destination port" },
    { "protocol", "u8", "Protocol" },
    { "tos", "u8", "TOS", base = base.HEX },
    { "mask", "bytes", "Mask" },
    { "mask.src", "ipv4", "Source" },
    { "mask.dst", "ipv4", "Destination" },
    { "mask.src6", "ipv6", "Source" },
    { "mask.dst6", "ipv6", "Destination" },
    { "mask.src_port", "u16", "Source port", base = base.HEX },
    { "mask.dst_port", "u16", "Destination port", base = base.HEX },
    { "mask.protocol", "u8", "Protocol", base = base.HEX },
    { "mask.tos", "u8", "TOS", base = base.HEX },
    { "forward", "u32", "Forward rate in bit/s" },
    { "reverse", "u32", "Reverse rate in bit/s" },
    { "downgrade.pairs", "u8", "Number of pairs" },
    { "downgrade.policy", "u16", "Policy" },
    { "intserv", "bytes", "IntServ parameters" },
    { "intserv.service", "u8", "Service", values = service_names },
    { "intserv.rate", "float", "Token rate in octets/s" },
    { "intserv.bucket", "float", "Bucket size in octets" },
    { "intserv.peak", "float", "Peak rate in octets/s" },
    { "intserv.min_policed", "u32", "Minimum policed unit" },
    { "intserv.max_packet", "u32", "Maximum packet size" },
    { "option", "bytes", "Option" },
    { "option.type", "u16", "Option type", base = base.HEX, values = option_names },
    { "option.flags", "u16", "Option flags", base = base.HEX },
    { "option.unread", "bytes", "Octets that are not read" },
    { "uid.user", "string", "User" },
    { "uid.credential", "bytes", "Credential" },
    { "aggregate.node", "ipv4", "Node that proposes" },
    { "aggregate.node6", "ipv6", "Node that proposes" },
    { "aggregate.number", "u32", "Number of the aggregate" },
    { "aggregate.src", "ipv4", "Source" },
    { "aggregate.dst", "ipv4", "Destination" },
    { "aggregate.src6", "ipv6", "Source" },
    { "aggregate.dst6", "ipv6", "Destination" },
    { "aggregate.src_port", "u16", "Source port" },
    { "aggregate.dst_port", "u16", "Destination port" },
    { "aggregate.protocol", "u8", "Protocol" },
    { "aggregate.tos", "u8", "TOS", base = base.HEX },
    { "aggregate.mask", "bytes", "Mask" },
    { "aggregate.mask.src", "ipv4", "Source" },
    { "aggregate.mask.dst", "ipv4", "Destination" },
    { "aggregate.mask.src6", "ipv6", "Source" },
    { "aggregate.mask.dst6", "ipv6", "Destination" },
    { "aggregate.mask.src_port", "u16", "Source port", base = base.HEX },
    { "aggregate.mask.dst_port", "u16", "Destination port", base = base.HEX },
    { "aggregate.mask.protocol", "u8", "Protocol", base = base.HEX },
    { "aggregate.mask.tos", "u8", "TOS", base = base.HEX },
    { "aggregate.rate", "u32", "Rate in bit/s" },
    { "refusal.node", "ipv4", "Node that refused" },
    { "refusal.node6", "ipv6", "Node that refused" },
    { "refusal.reason", "u8", "Reason", values = reason_names },
    { "auth.key", "u32", "Number of the key" },
    { "auth.time", "u64", "Time in µs since 1970" },
    { "auth.forward", "u32", "Largest forward rate in bit/s" },
    { "auth.reverse", "u32", "Largest reverse rate in bit/s" },
    { "auth.digest", "bytes", "Digest" },
    { "proof.node", "u32", "Random number of the node", base = base.HEX },
    { "proof.number", "u64", "Number", base = base.HEX },
    { "note", "string", "Note" },
    { "nodes.count", "u8", "Nodes that granted" },
    { "nodes.ttl", "u8", "TTL with which the last one sent it on" },
    { "nodes.gaps", "u16", "Gaps", base = base.HEX },
    { "nodes.address", "ipv4", "Node" },
    { "nodes.address6", "ipv6", "Node" },
    { "reply_in", "frame", "Reply in", frametype = frametype.RESPONSE },
    { "request_in", "frame", "Request in", frametype = frametype.REQUEST },
})

local e = common.experts(boomerang, "boomerang.", {
    { "malformed", "A node forwards this message without reading it", "MALFORMED", "ERROR" },
    { "format", "Unknown format", "UNDECODED", "WARN" },
    { "service", "Parameters of a service that a node does not have", "UNDECODED", "NOTE" },
    { "unknown", "Unknown option: a node reads no further", "UNDECODED", "NOTE" },
    { "truncated", "The capture has only the begin of the message", "UNDECODED", "NOTE" },
    { "refused", "Refused", "RESPONSE_CODE", "NOTE" },
})

-- Requests and replies by identifier and transaction.
local exchanges = common.pairs()
function boomerang.init()
    exchanges = common.pairs()
end

-- Two addresses, ports, protocol and TOS.
local function classifier(tree, tvb, at, size, prefix)
    local version = size == 4 and 4 or 6
    local _, src = common.address(tree, version, f[prefix .. "src"], f[prefix .. "src6"], tvb, at)
    local _, dst = common.address(tree, version, f[prefix .. "dst"], f[prefix .. "dst6"], tvb, at + size)
    at = at + 2 * size
    tree:add(f[prefix .. "src_port"], tvb(at, 2))
    tree:add(f[prefix .. "dst_port"], tvb(at + 2, 2))
    tree:add(f[prefix .. "protocol"], tvb(at + 4, 1))
    tree:add(f[prefix .. "tos"], tvb(at + 5, 1))
    return src .. ":" .. tvb(at, 2):uint() .. " > " .. dst .. ":" .. tvb(at + 2, 2):uint()
end

-- A message of RFC 2210 appendix A. The result is its length, or nil if the message ends before.
local function intserv(tree, tvb, at)
    local length = tvb:len()
    if at + 4 > length then return nil end
    local size = 4 + tvb(at + 2, 2):uint() * 4
    if at + size > length then return nil end
    local item = tree:add(f.intserv, tvb(at, size))
    if size == 4 then
        item:append_text(" (nothing)")
        return size
    end
    item:add(f["intserv.service"], tvb(at + 4, 1))
    local service = tvb(at + 4, 1):uint()
    if not ((service == 5 and size == 32) or (service == 2 and size == 44)) then
        item:add_proto_expert_info(e.service)
        return size
    end
    item:add(f["intserv.rate"], tvb(at + 12, 4))
    item:add(f["intserv.bucket"], tvb(at + 16, 4))
    item:add(f["intserv.peak"], tvb(at + 20, 4))
    item:add(f["intserv.min_policed"], tvb(at + 24, 4))
    item:add(f["intserv.max_packet"], tvb(at + 28, 4))
    return size
end

local qos = {
    function(tree, tvb, at)
        if at + 8 > tvb:len() then return nil end
        tree:add(f.forward, tvb(at, 4))
        tree:add(f.reverse, tvb(at + 4, 4))
        return 8
    end,
    function(tree, tvb, at)
        local forward = intserv(tree, tvb, at)
        local reverse = forward and intserv(tree, tvb, at + forward)
        return reverse and forward + reverse
    end,
    function(tree, tvb, at)
        if at + 4 > tvb:len() then return nil end
        local count = tvb(at, 1):uint()
        tree:add(f["downgrade.pairs"], tvb(at, 1))
        tree:add(f["downgrade.policy"], tvb(at + 1, 2))
        if count < 1 or count > 32 or at + 4 + 8 * count > tvb:len() then return nil end
        for index = 0, count - 1 do
            local before = at - 4 + 8 * index
            if index > 0 and (tvb(before + 8, 4):uint() > tvb(before, 4):uint() or tvb(before + 12, 4):uint() > tvb(before + 4, 4):uint()) then
                tree:add_proto_expert_info(e.malformed, "A pair of rates that is larger than the one before it")
            end
            tree:add(f.forward, tvb(at + 4 + 8 * index, 4))
            tree:add(f.reverse, tvb(at + 8 + 8 * index, 4))
        end
        return 4 + 8 * count
    end,
}

-- By type: octets of the body with addresses of so many octets, and what is in it.
local options = {
    [1] = { function() return 16 end, function(tree, tvb, at)
        tree:add(f["uid.user"], tvb(at, 8), common.text(tvb(at, 8)))
        tree:add(f["uid.credential"], tvb(at + 8, 8))
    end },
    [2] = { function(size) return 5 * size + 24 end, function(tree, tvb, at, size)
        common.address(tree, size == 4 and 4 or 6, f["aggregate.node"], f["aggregate.node6"], tvb, at)
        tree:add(f["aggregate.number"], tvb(at + size, 4))
        classifier(tree, tvb, at + size + 4, size, "aggregate.")
        local mask = at + 3 * size + 12
        classifier(tree:add(f["aggregate.mask"], tvb(mask, 2 * size + 8)):set_text("Mask"), tvb, mask, size, "aggregate.mask.")
        tree:add(f["aggregate.rate"], tvb(at + 5 * size + 20, 4))
    end },
    [0x8001] = { function(size) return size + 4 end, function(tree, tvb, at, size)
        common.address(tree, size == 4 and 4 or 6, f["refusal.node"], f["refusal.node6"], tvb, at)
        tree:add(f["refusal.reason"], tvb(at + size, 1))
        tree:append_text(": " .. common.name(reason_names, tvb(at + size, 1):uint()))
    end },
    [0x8002] = { function() return 36 end, function(tree, tvb, at)
        tree:add(f["auth.key"], tvb(at, 4))
        tree:add(f["auth.time"], tvb(at + 4, 8))
        tree:add(f["auth.forward"], tvb(at + 12, 4))
        tree:add(f["auth.reverse"], tvb(at + 16, 4))
        tree:add(f["auth.digest"], tvb(at + 20, 16))
    end },
    [0x8003] = { function() return 12 end, function(tree, tvb, at)
        tree:add(f["proof.node"], tvb(at, 4))
        tree:add(f["proof.number"], tvb(at + 4, 8))
    end },
    [0x8004] = { function() return 60 end, function(tree, tvb, at)
        tree:add(f.note, tvb(at, 60), common.text(tvb(at, 60)))
    end },
    [0x8005] = { function(size) return 4 + 8 * size end, function(tree, tvb, at, size)
        local count = tvb(at, 1):uint()
        tree:add(f["nodes.count"], tvb(at, 1))
        tree:add(f["nodes.ttl"], tvb(at + 1, 1))
        tree:add(f["nodes.gaps"], tvb(at + 2, 2))
        for index = 0, math.min(count, 8) - 1 do
            common.address(tree, size == 4 and 4 or 6, f["nodes.address"], f["nodes.address6"], tvb, at + 4 + index * size)
        end
    end },
}

local function dissect_options(tree, tvb, at, size)
    local length = tvb:len()
    while at + 4 <= length do
        local kind = tvb(at, 2):uint()
        if kind == 0 then return end
        local known = options[kind]
        local octets = known and 4 + known[1](size) or length - at
        if at + octets > length then
            tree:add_proto_expert_info(e.malformed, "Option beyond the message")
            return
        end
        local item = tree:add(f.option, tvb(at, octets))
        item:set_text("Option: " .. common.name(option_names, kind))
        item:add(f["option.type"], tvb(at, 2))
        if not known then
            item:add(f["option.unread"], tvb(at + 2, octets - 2))
            item:add_proto_expert_info(e.unknown)
            return
        end
        item:add(f["option.flags"], tvb(at + 2, 2))
        known[2](item, tvb, at + 4, size)
        at = at + octets
    end
    if at < length then tree:add_proto_expert_info(e.malformed, "Octets behind the options") end
end

-- `tvb` begins with the type of the ICMP message.
local function dissect(tvb, pinfo, root, reply)
    local length = tvb:len()
    local tree = root:add(boomerang, tvb(8, length - 8))
    pinfo.cols.protocol:set("Boomerang")
    if tvb:reported_len() > length then
        tree:add_proto_expert_info(e.truncated)
        return
    end
    if length < 32 then
        tree:add_proto_expert_info(e.malformed, "Shorter than the headers")
        return
    end
    tree:add(f.reply, reply):set_generated()
    tree:add(f.identifier, tvb(4, 2))
    tree:add(f.icmp_sequence, tvb(6, 2))
    tree:add(f.magic, tvb(8, 4))
    tree:add(f.transaction, tvb(12, 4))
    tree:add(f.type, tvb(16, 1))
    local qos_format, family = tvb(17, 1):bitfield(0, 4), tvb(17, 1):bitfield(4, 4)
    tree:add(f.qos_format, tvb(17, 1))
    tree:add(f.family, tvb(17, 1))
    for _, name in ipairs({ "nack", "no_echo", "returns", "stands" }) do
        tree:add(f["flags." .. name], tvb(18, 2))
    end
    tree:add(f.refresh, tvb(20, 1))
    tree:add(f.version, tvb(21, 1))
    tree:add(f.key, tvb(24, 8))
    local nack = tvb(18, 2):bitfield(15, 1) == 1
    local refused = nack or (tvb(24, 4):uint() == 0 and tvb(28, 4):uint() == 0)
    tree:add(f.refused, refused):set_generated()
    local summary = (reply and "reply" or "request") .. (refused and ", refused or query" or "")
    if nack then tree:add_proto_expert_info(e.refused) end
    if tvb(1, 1):uint() ~= 0 then
        tree:add_proto_expert_info(e.malformed, "ICMP code " .. tvb(1, 1):uint())
        return
    end
    if length % 4 ~= 0 then
        tree:add_proto_expert_info(e.malformed, "No whole words")
        return
    end
    if tvb(16, 1):uint() ~= 0x10 or tvb(21, 1):uint() ~= 1 then
        tree:add_proto_expert_info(e.malformed, "Type or version")
        return
    end
    local key = tvb(4, 2):uint() .. " " .. common.number(tvb(12, 4):uint())
    if not pinfo.visited then common.remember(exchanges, reply and "answers" or "requests", key, pinfo.number) end
    local other = (reply and exchanges.requests or exchanges.answers)[key]
    if other and other ~= pinfo.number then tree:add(reply and f.request_in or f.reply_in, other):set_generated() end
    local size = family == 2 and 4 or (family == 10 and 16)
    local read = qos[qos_format]
    if not size or not read then
        tree:add_proto_expert_info(e.format)
        return
    end
    local at = 32
    local part = 2 * size + 8
    if at + 2 * part > length then
        tree:add_proto_expert_info(e.malformed, "Shorter than classifier and mask")
        return
    end
    local flow = classifier(tree, tvb, at, size, "")
    classifier(tree:add(f.mask, tvb(at + part, part)):set_text("Mask"), tvb, at + part, size, "mask.")
    summary = summary .. " " .. flow
    tree:append_text(", " .. summary)
    pinfo.cols.info:set("Boomerang " .. summary)
    at = at + 2 * part
    local octets = read(tree, tvb, at)
    if not octets then
        tree:add_proto_expert_info(e.malformed, "Quality of service")
        return
    end
    dissect_options(tree, tvb, at + octets, size)
end

-- The dissectors of ICMP of Wireshark itself go first; then the data are read here. Quoted packets in errors are not.
local function behind(protocol, request, answer)
    local table_of = DissectorTable.get("ip.proto")
    local before = table_of:get_dissector(protocol)
    local wrapped = Proto("boomerang_icmp" .. protocol, "IP protocol " .. protocol .. " with Boomerang")
    function wrapped.dissector(tvb, pinfo, root)
        -- It reports a broken packet itself, and as an error to its caller.
        if before then pcall(before.call, before, tvb, pinfo, root) end
        if tvb:len() < 12 or pinfo.in_error_pkt then return tvb:len() end
        local kind = tvb(0, 1):uint()
        if (kind == request or kind == answer) and tvb(8, 4):uint() == 0x47114711 then
            dissect(tvb, pinfo, root, kind == answer)
        end
        return tvb:len()
    end
    table_of:add(protocol, wrapped)
end

behind(1, 8, 0)
behind(58, 128, 129)
