-- The QoS client and the Ping client of CASP (docs/wire/casp-qos.md), in CLIENT_DATA.

local common = require("signalbox.common")

local qos = Proto("casp_qos", "CASP QoS client")

local type_names = { "Reserve", "Commit", "Release", "Success", "Error", "Query" }
local class_names = {
    "ERROR_NODE", "VERSION", "MINIMUM_FLOWSPEC", "DESIRED_FLOWSPEC", "PARTIAL_RESERVATION", "BANDWIDTH", "PHB", "L2_PROPERTIES", "LOCAL",
    "SEQUENCE", "AGE", "ERROR_CODE", "NEXT", "PRIORITY", "TIME", "CMS", "REVERSE_FLOW", "REFUSAL", "HOPS",
}
local code_names = {
    "lower bound cannot be met", "too many failed nodes", "too many indeterminate nodes", "authentication failed", "policy",
    "syntax", "required object missing", "unknown VERSION", "unknown C-Type", "unknown type", "no such reservation", "preempted",
    "no answer in time", "time not possible", "not the owner", "insecure hop not accepted",
}
local local_names = { "authorization token", "DSCP", "aggregation", "reservation priority", "accounting", "operator" }

local f = common.fields(qos, "casp_qos.", {
    { "length", "u32", "Length in octets" },
    { "flags.c", "bool", "C: Commit back", mask = 0x80 },
    { "flags.r", "bool", "R: state is removed", mask = 0x40 },
    { "flags.p", "bool", "P: partial reservation", mask = 0x20 },
    { "flags.u", "bool", "U: unsecure", mask = 0x10 },
    { "flags.b", "bool", "B: old branch", mask = 0x08 },
    { "type", "u8", "Message type", values = type_names },
    { "form", "u8", "Flow form" },
    { "src", "ipv4", "Source" },
    { "dst", "ipv4", "Destination" },
    { "src6", "ipv6", "Source" },
    { "dst6", "ipv6", "Destination" },
    { "src_port", "u16", "Source port" },
    { "dst_port", "u16", "Destination port" },
    { "protocol", "u8", "Protocol" },
    { "spi", "u32", "SPI", base = base.HEX },
    { "flow_label", "u32", "Flow label", base = base.HEX, mask = 0xfffff },
    { "object", "bytes", "Object" },
    { "object.length", "u16", "Object length in octets" },
    { "object.class", "u8", "Class", values = class_names },
    { "object.ctype", "u8", "C-Type" },
    { "object.value", "bytes", "Value" },
    { "error_node", "ipv4", "Node of the error" },
    { "error_node6", "ipv6", "Node of the error" },
    { "version", "u32", "Kind of resource", values = { [0] = "flowspecs", "BANDWIDTH", "PHB" } },
    { "service", "u8", "Service", values = { [2] = "guaranteed", [5] = "controlled load" } },
    { "rate", "float", "Token rate in octets/s" },
    { "bucket", "float", "Bucket size in octets" },
    { "peak", "float", "Peak rate in octets/s" },
    { "min_policed", "u32", "Minimum policed unit" },
    { "max_packet", "u32", "Maximum packet size" },
    { "guaranteed.rate", "float", "Rate R in octets/s" },
    { "guaranteed.slack", "u32", "Slack term in µs" },
    { "partial.failed", "u16", "Failed nodes" },
    { "partial.indeterminate", "u16", "Indeterminate nodes" },
    { "partial.failures_allowed", "u16", "Failures allowed" },
    { "partial.indeterminates_allowed", "u16", "Indeterminates allowed" },
    { "partial.hops", "u8", "Hop count at the last node" },
    { "bandwidth.upper", "float", "Upper bound in octets/s" },
    { "bandwidth.lower", "float", "Lower bound in octets/s" },
    { "phb", "u16", "PHB", base = base.HEX },
    { "local.id", "u16", "Id" },
    { "local.type", "u8", "Type", values = local_names },
    { "local.scope", "u8", "Scope" },
    { "local.data", "bytes", "Data" },
    { "sequence", "u32", "Number" },
    { "echo", "u32", "Number that is answered" },
    { "age", "bytes", "Age" },
    { "error.code", "u16", "Error code", values = code_names },
    { "error.detail", "u16", "Detail" },
    { "priority", "u32", "Priority" },
    { "time.start", "bytes", "Start" },
    { "time.end", "bytes", "End" },
    { "reverse.form", "u8", "Flow form of the opposite flow" },
    { "refusal.rate", "u64", "Rate that the node could give in octets/s" },
    { "refusal.note", "string", "Note" },
    { "hops.last", "u8", "Hop count at the last node" },
    { "node.after_gap", "bool", "Routers or other nodes before it", mask = 0x01 },
    { "node.routers", "u8", "Routers before it" },
    { "node.part", "u8", "Part" },
    { "node.address", "ipv4", "Node" },
    { "node.address6", "ipv6", "Node" },
    { "node.rate", "u64", "Rate in octets/s" },
})

local e = common.experts(qos, "casp_qos.", {
    { "fault", "A receiver answers with an error, or consumes the message", "MALFORMED", "ERROR" },
    { "unknown", "Unknown object that is sent on", "UNDECODED", "NOTE" },
    { "unread", "A list that cannot be read", "UNDECODED", "NOTE" },
    { "error", "Error", "RESPONSE_CODE", "NOTE" },
})

local function fault(item, code, text)
    item:add_proto_expert_info(e.fault, (code and code_names[code] or "consumed") .. " (" .. text .. ")")
end

-- A flowspec of RFC 2210: its header, that of the service, the token bucket, and of guaranteed service the RSpec.
local function flowspec(tree, tvb)
    local length = tvb:len()
    if length ~= 32 and length ~= 44 then return fault(tree, 6, "flowspec of " .. length .. " octets") end
    local service = tvb(4, 1):uint()
    tree:add(f.service, tvb(4, 1))
    if not ((service == 5 and length == 32) or (service == 2 and length == 44)) then return fault(tree, 6, "service " .. service) end
    -- RFC 2210 §3: version 0, lengths of the message, of the service and of each parameter, and their numbers.
    local guaranteed = length == 44
    if tvb(0, 1):bitfield(0, 4) ~= 0 or tvb(2, 2):uint() ~= length / 4 - 1 or tvb(6, 2):uint() ~= length / 4 - 2
        or tvb(8, 1):uint() ~= 127 or tvb(10, 2):uint() ~= 5
        or (guaranteed and (tvb(32, 1):uint() ~= 130 or tvb(34, 2):uint() ~= 2)) then
        fault(tree, 6, "headers of the flowspec")
    end
    tree:add(f.rate, tvb(12, 4))
    tree:add(f.bucket, tvb(16, 4))
    tree:add(f.peak, tvb(20, 4))
    tree:add(f.min_policed, tvb(24, 4))
    tree:add(f.max_packet, tvb(28, 4))
    if guaranteed then
        tree:add(f["guaranteed.rate"], tvb(36, 4))
        tree:add(f["guaranteed.slack"], tvb(40, 4))
    end
end

local function fields(size, ...)
    local rows = { ... }
    return function(tree, tvb)
        if tvb:len() ~= size then return fault(tree, 6, tvb:len() .. " octets instead of " .. size) end
        for _, row in ipairs(rows) do
            tree:add(f[row[1]], tvb(row[2], row[3]))
        end
    end
end

-- By class: the C-Types, and what is in the object.
local objects = {
    [1] = { { 1, 2 }, function(tree, tvb, ctype)
        if tvb:len() ~= (ctype == 1 and 4 or 16) then return fault(tree, 6, "address of " .. tvb:len() .. " octets") end
        common.address(tree, ctype == 1 and 4 or 6, f.error_node, f.error_node6, tvb, 0)
    end },
    [2] = { { 1 }, function(tree, tvb)
        if tvb:len() ~= 4 then return fault(tree, 6, "VERSION has 4 octets") end
        tree:add(f.version, tvb(0, 4))
        if tvb(0, 4):uint() > 2 then fault(tree, 8, "kind " .. common.number(tvb(0, 4):uint())) end
        return tvb(0, 4):uint()
    end },
    [3] = { { 1 }, flowspec },
    [4] = { { 1 }, flowspec },
    [5] = { { 1 }, fields(12, { "partial.failed", 0, 2 }, { "partial.indeterminate", 2, 2 }, { "partial.failures_allowed", 4, 2 },
        { "partial.indeterminates_allowed", 6, 2 }, { "partial.hops", 8, 1 }) },
    [6] = { { 1 }, fields(8, { "bandwidth.upper", 0, 4 }, { "bandwidth.lower", 4, 4 }) },
    [7] = { { 1 }, fields(4, { "phb", 0, 2 }) },
    [9] = { { 1 }, function(tree, tvb)
        if tvb:len() < 4 then return fault(tree, 6, "LOCAL of " .. tvb:len() .. " octets") end
        tree:add(f["local.id"], tvb(0, 2))
        tree:add(f["local.type"], tvb(2, 1))
        tree:add(f["local.scope"], tvb(3, 1))
        if tvb:len() > 4 then tree:add(f["local.data"], tvb(4, tvb:len() - 4)) end
    end },
    [10] = { { 1, 2 }, function(tree, tvb, ctype)
        if tvb:len() ~= 4 then return fault(tree, 6, "SEQUENCE has 4 octets") end
        tree:add(ctype == 1 and f.sequence or f.echo, tvb(0, 4))
    end },
    [11] = { { 1 }, fields(8, { "age", 0, 8 }) },
    [12] = { { 1 }, function(tree, tvb)
        if tvb:len() ~= 4 then return fault(tree, 6, "ERROR_CODE has 4 octets") end
        tree:add(f["error.code"], tvb(0, 2))
        tree:add(f["error.detail"], tvb(2, 2))
        tree:add_proto_expert_info(e.error, common.name(code_names, tvb(0, 2):uint()))
    end },
    [14] = { { 1 }, fields(4, { "priority", 0, 4 }) },
    [15] = { { 1 }, fields(16, { "time.start", 0, 8 }, { "time.end", 8, 8 }) },
    [17] = { { 1, 2 }, function(tree, tvb)
        local size = tvb:len() >= 4 and common.casp_flow_length(tvb(0, 1):uint())
        if not size or tvb:len() ~= 4 + size then return fault(tree, 6, "opposite flow") end
        tree:add(f["reverse.form"], tvb(0, 1))
        common.casp_flow(f, tree, tvb, 4, tvb(0, 1):uint())
    end },
    [18] = { { 1 }, function(tree, tvb)
        if tvb:len() < 8 then return tree:add_proto_expert_info(e.unread) end
        tree:add(f["refusal.rate"], tvb(0, 8))
        if tvb:len() > 8 then tree:add(f["refusal.note"], tvb(8, tvb:len() - 8), common.text(tvb(8, tvb:len() - 8))) end
    end },
    [19] = { { 1 }, function(tree, tvb)
        local length, at, entries = tvb:len(), 4, {}
        while at < length do
            local size = length - at >= 8 and common.address_length(tvb(at, 1):uint())
            local part = size and tvb(at + 3, 1):uint()
            local whole = size and 4 + size + (part == 0 and 8 or 0)
            if not size or at + whole > length then return tree:add_proto_expert_info(e.unread) end
            entries[#entries + 1] = { at, size, part }
            at = at + whole
        end
        if length < 4 then return tree:add_proto_expert_info(e.unread) end
        tree:add(f["hops.last"], tvb(0, 1))
        for _, entry in ipairs(entries) do
            local from, size = entry[1], entry[2]
            tree:add(f["node.after_gap"], tvb(from + 1, 1))
            tree:add(f["node.routers"], tvb(from + 2, 1))
            tree:add(f["node.part"], tvb(from + 3, 1))
            common.address(tree, size == 4 and 4 or 6, f["node.address"], f["node.address6"], tvb, from + 4)
            if entry[3] == 0 then tree:add(f["node.rate"], tvb(from + 4 + size, 8)) end
        end
    end },
}

-- What each message has.
local required = {
    { "10.1", 11, 2 }, { "10.1", 11, 2 }, { "10.1" }, { "10.2", 2 }, { "10.2", 2, 5, 1 }, { "10.1", 2 },
}

local repeated = { [9] = true, [16] = true, [10] = true }

function qos.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(qos, tvb(0, length))
    if length < 8 then
        fault(tree, nil, "shorter than the header")
        return length
    end
    tree:add(f.length, tvb(0, 4))
    for _, name in ipairs({ "c", "r", "p", "u", "b" }) do
        tree:add(f["flags." .. name], tvb(4, 1))
    end
    local kind, form = tvb(5, 1):uint(), tvb(6, 1):uint()
    tree:add(f.type, tvb(5, 1))
    tree:add(f.form, tvb(6, 1))
    if tvb(0, 4):uint() ~= length then fault(tree, 6, "length " .. common.number(tvb(0, 4):uint())) end
    local size = common.casp_flow_length(form)
    if not size or 8 + size > length then
        fault(tree, nil, "flow form " .. form)
        return length
    end
    local summary = common.name(type_names, kind)
    common.casp_flow(f, tree, tvb, 8, form)
    if not type_names[kind] then fault(tree, 10, "type " .. kind) end
    tree:append_text(", " .. summary)
    pinfo.cols.info:append("(" .. summary .. ") ")
    local at, seen, version = 8 + size, {}, nil
    while at < length do
        if length - at < 4 then
            fault(tree, 6, "octets behind the last object")
            break
        end
        local octets, class, ctype = tvb(at, 2):uint(), tvb(at + 2, 1):uint(), tvb(at + 3, 1):uint()
        local beyond = octets < 4 or at + octets > length
        local item = tree:add(f.object, tvb(at, beyond and length - at or octets))
        item:set_text(common.name(class_names, class))
        item:add(f["object.length"], tvb(at, 2))
        item:add(f["object.class"], tvb(at + 2, 1))
        item:add(f["object.ctype"], tvb(at + 3, 1))
        if beyond then
            fault(item, 6, "object length " .. octets)
            break
        end
        local known = objects[class]
        local has_type = false
        for _, one in ipairs(known and known[1] or {}) do has_type = has_type or one == ctype end
        if known and has_type then
            local mark = class == 10 and "10." .. ctype or class
            if seen[mark] and class ~= 9 then fault(item, 6, "a second " .. class_names[class]) end
            seen[mark] = true
            if octets > 4 then
                local value = known[2](item, tvb(at + 4, octets - 4):tvb(), ctype)
                if class == 2 then version = value end
            else
                fault(item, 6, "an object without contents")
            end
        else
            if octets > 4 then item:add(f["object.value"], tvb(at + 4, octets - 4)) end
            if known and not repeated[class] then
                fault(item, 9, class_names[class] .. " of C-Type " .. ctype)
            elseif class ~= 16 and class ~= 8 and class ~= 13 then
                item:add_proto_expert_info(e.unknown)
            end
        end
        at = at + math.floor((octets + 3) / 4) * 4
    end
    -- By VERSION, the resource that a request has.
    local resource = version and ({ [0] = 3, 6, 7 })[version]
    if resource and (kind == 1 or kind == 2 or kind == 6) and not seen[resource] then
        fault(tree, (seen[3] or seen[6] or seen[7]) and 6 or 7, class_names[resource])
    end
    for _, mark in ipairs(required[kind] or {}) do
        if not seen[mark] then fault(tree, 7, mark == "10.1" and "SEQUENCE" or (mark == "10.2" and "SEQUENCE echo" or class_names[mark])) end
    end
    return length
end

common.casp_clients:add(1, qos)

local ping = Proto("casp_ping", "CASP Ping client")

local pf = common.fields(ping, "casp_ping.", {
    { "type", "u8", "Type", values = { "request", "reply" } },
    { "entries", "u8", "Entries" },
    { "token", "u64", "Token", base = base.HEX },
    { "entry", "bytes", "Entry" },
    { "entry.family", "u8", "Family" },
    { "entry.hops", "u8", "Hop count" },
    { "entry.time", "u64", "Time in µs" },
    { "entry.address", "ipv4", "Address" },
    { "entry.address6", "ipv6", "Address" },
})
local pe = common.experts(ping, "casp_ping.", { { "malformed", "Malformed", "MALFORMED", "ERROR" } })

function ping.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(ping, tvb(0, length))
    if length < 12 then
        tree:add_proto_expert_info(pe.malformed, "Shorter than the header")
        return length
    end
    local kind, count, at = tvb(0, 1):uint(), tvb(1, 1):uint(), 12
    tree:add(pf.type, tvb(0, 1))
    tree:add(pf.entries, tvb(1, 1))
    tree:add(pf.token, tvb(4, 8))
    if kind ~= 1 and kind ~= 2 then tree:add_proto_expert_info(pe.malformed, "Unknown type") end
    if count > 64 then tree:add_proto_expert_info(pe.malformed, "More than 64 entries") end
    pinfo.cols.info:append(kind == 2 and "(reply) " or "(request) ")
    for _ = 1, count do
        local size = length - at >= 16 and common.address_length(tvb(at, 1):uint())
        if not size or at + 12 + size > length then
            tree:add_proto_expert_info(pe.malformed, "An entry that cannot be read")
            return length
        end
        local entry = tree:add(pf.entry, tvb(at, 12 + size))
        entry:add(pf["entry.family"], tvb(at, 1))
        entry:add(pf["entry.hops"], tvb(at + 1, 1))
        entry:add(pf["entry.time"], tvb(at + 4, 8))
        local _, address = common.address(entry, size == 4 and 4 or 6, pf["entry.address"], pf["entry.address6"], tvb, at + 12)
        entry:set_text("Entry: " .. address)
        at = at + 12 + size
    end
    if at ~= length then tree:add_proto_expert_info(pe.malformed, "Octets behind the entries") end
    return length
end

common.casp_clients:add(254, ping)
