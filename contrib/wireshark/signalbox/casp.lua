-- CASP (docs/wire/casp.md): the messaging layer over TCP, TLS, SCTP and UDP, and scout.

local common = require("signalbox.common")

local casp = Proto("casp", "Cross-Application Signaling Protocol")

local type_names = { "Signaling", "Scout Request", "Scout Response" }
local class_names = {
    "FLOW_ID", "CASP_TIMEOUT", "CLIENT_DATA", "ERROR", "SCOUT_COOKIE_I", "SCOUT_COOKIE_R", [240] = "RECORD_ROUTE", [241] = "ROUTE",
}
local client_names = { "QoS", "NATFW", [254] = "Ping" }
local error_names = {
    [0] = "UNKNOWN", "COOKIE_ERROR", [0x80000001] = "route changed", [0x80000002] = "TTD exceeded", [0x80000003] = "no next peer",
    [0x80000004] = "refused", [0x80000005] = "no such client",
}
local transport_names = { [6] = "TCP", [17] = "UDP", [132] = "SCTP" }

local f = common.fields(casp, "casp.", {
    { "length", "u32", "Length Header" },
    { "flags.reverse", "bool", "R: reverse", mask = 0x80 },
    { "flags.teardown", "bool", "T: tear-down", mask = 0x40 },
    { "flags.discover", "bool", "D: discover", mask = 0x20 },
    { "flags.unsecure", "bool", "U: unsecure", mask = 0x10 },
    { "ttd", "u8", "TTD" },
    { "hops", "u8", "Hop count" },
    { "type", "u8", "Type", values = type_names },
    { "session", "bytes", "Session identifier" },
    { "object", "bytes", "Object" },
    { "object.length", "u16", "Object length in octets" },
    { "object.class", "u8", "Class", values = class_names },
    { "object.ctype", "u8", "C-Type" },
    { "object.value", "bytes", "Value" },
    { "src", "ipv4", "Source" },
    { "dst", "ipv4", "Destination" },
    { "src6", "ipv6", "Source" },
    { "dst6", "ipv6", "Destination" },
    { "src_port", "u16", "Source port" },
    { "dst_port", "u16", "Destination port" },
    { "protocol", "u8", "Protocol" },
    { "spi", "u32", "SPI", base = base.HEX },
    { "flow_label", "u32", "Flow label", base = base.HEX, mask = 0xfffff },
    { "timeout", "u32", "Timeout in s" },
    { "client", "u8", "Client", values = client_names },
    { "client.data", "bytes", "Data of the client" },
    { "error", "u32", "Error", values = error_names, base = base.HEX },
    { "cookie_i", "bytes", "Cookie I" },
    { "cookie_r", "bytes", "Cookie R" },
    { "node", "bytes", "Node" },
    { "node.ip_version", "u8", "IP version" },
    { "node.transport", "u8", "Transport", values = transport_names },
    { "node.port", "u16", "Port" },
    { "node.address", "ipv4", "Address" },
    { "node.address6", "ipv6", "Address" },
    { "response_in", "frame", "Response in", frametype = frametype.RESPONSE },
    { "request_in", "frame", "Request in", frametype = frametype.REQUEST },
})

local e = common.experts(casp, "casp.", {
    { "malformed", "A receiver discards the message", "MALFORMED", "ERROR" },
    { "unknown", "Unknown object that a receiver sends on", "UNDECODED", "NOTE" },
    { "truncated", "The capture has only the begin of the message", "UNDECODED", "NOTE" },
    { "empty", "CLIENT_DATA without octets", "PROTOCOL", "WARN" },
    { "error", "Error", "RESPONSE_CODE", "NOTE" },
    { "stream", "A receiver closes the connection", "MALFORMED", "ERROR" },
})

-- Scout requests and responses by the cookie.
local exchanges = common.pairs()
function casp.init()
    exchanges = common.pairs()
end

-- Octets of the contents of FLOW_ID by C-Type, of an address, and what is behind the addresses.
local forms = {
    [1] = { 16, 4, "ports" }, [2] = { 16, 4, "spi" }, [3] = { 36, 16, "label" }, [129] = { 40, 16, "ports" }, [130] = { 40, 16, "spi" },
}

-- A flow, for the clients too, which have their own fields of the same keys. `at` and the form give the octets; the caller has checked them.
function common.casp_flow(fields, tree, tvb, at, form)
    local size, kind = forms[form][2], forms[form][3]
    local version = size == 4 and 4 or 6
    local _, src = common.address(tree, version, fields.src, fields.src6, tvb, at)
    local _, dst = common.address(tree, version, fields.dst, fields.dst6, tvb, at + size)
    at = at + 2 * size
    if kind == "ports" then
        tree:add(fields.src_port, tvb(at, 2))
        tree:add(fields.dst_port, tvb(at + 2, 2))
        tree:add(fields.protocol, tvb(at + 4, 1))
        return src .. ":" .. tvb(at, 2):uint() .. " > " .. dst .. ":" .. tvb(at + 2, 2):uint()
    elseif kind == "spi" then
        tree:add(fields.spi, tvb(at, 4))
        tree:add(fields.protocol, tvb(at + 4, 1))
    else
        tree:add(fields.flow_label, tvb(at, 4))
    end
    return src .. " > " .. dst
end

function common.casp_flow_length(form)
    return forms[form] and forms[form][1]
end

local function malformed(message, item, text)
    item:add_proto_expert_info(e.malformed, text)
    message.malformed = true
end

local function route(message, tree, tvb)
    local length, at, count = tvb:len(), 0, 0
    while at < length do
        local size = length - at >= 8 and common.address_length(tvb(at, 1):uint())
        count = count + 1
        if not size or at + 4 + size > length or count > 64 then return malformed(message, tree, "An entry that cannot be read") end
        local node = tree:add(f.node, tvb(at, 4 + size))
        node:add(f["node.ip_version"], tvb(at, 1))
        node:add(f["node.transport"], tvb(at + 1, 1))
        node:add(f["node.port"], tvb(at + 2, 2))
        local _, address = common.address(node, size == 4 and 4 or 6, f["node.address"], f["node.address6"], tvb, at + 4)
        node:set_text("Node: " .. address)
        at = at + 4 + size
    end
end

local function cookie(key)
    return function(message, tree, tvb, ctype)
        if ctype ~= 1 then return tree:add_proto_expert_info(e.unknown) end
        if tvb:len() ~= 8 then return malformed(message, tree, "A cookie has 8 octets") end
        tree:add(f[key], tvb(0, 8))
        message[key] = tvb(0, 8):bytes():tohex()
    end
end

local objects = {
    [1] = function(message, tree, tvb, ctype)
        local size = common.casp_flow_length(ctype)
        if not size then return malformed(message, tree, "FLOW_ID of unknown C-Type") end
        if tvb:len() ~= size then return malformed(message, tree, "FLOW_ID of " .. tvb:len() .. " octets instead of " .. size) end
        message.flow = common.casp_flow(f, tree, tvb, 0, ctype)
        tree:append_text(": " .. message.flow)
    end,
    [2] = function(message, tree, tvb, ctype)
        if ctype ~= 1 then return tree:add_proto_expert_info(e.unknown) end
        if tvb:len() ~= 4 then return malformed(message, tree, "CASP_TIMEOUT has 4 octets") end
        tree:add(f.timeout, tvb(0, 4))
    end,
    [3] = function(message, tree, tvb, ctype)
        tree:append_text(" of " .. common.name(client_names, ctype))
        message.client, message.client_data = ctype, tvb
    end,
    [4] = function(message, tree, tvb, ctype)
        local code = 0
        if ctype == 1 then
            if tvb:len() ~= 4 then return malformed(message, tree, "ERROR has 4 octets") end
            tree:add(f.error, tvb(0, 4))
            code = tvb(0, 4):uint()
        end
        message.error = common.name(error_names, code)
        tree:append_text(": " .. message.error)
        tree:add_proto_expert_info(e.error, message.error)
    end,
    [5] = cookie("cookie_i"),
    [6] = cookie("cookie_r"),
    [240] = function(message, tree, tvb, ctype)
        if ctype ~= 1 then return tree:add_proto_expert_info(e.unknown) end
        route(message, tree, tvb)
    end,
}
objects[241] = objects[240]

-- Objects from `at` on: each step takes four octets at least.
local function dissect_objects(message, tvb, at)
    local tree, length, seen = message.tree, tvb:len(), {}
    while at < length do
        if length - at < 4 then
            malformed(message, tree, "Octets behind the last object")
            break
        end
        local octets, class, ctype = tvb(at, 2):uint(), tvb(at + 2, 1):uint(), tvb(at + 3, 1):uint()
        local beyond = octets < 4 or at + octets > length
        local item = tree:add(f.object, tvb(at, beyond and length - at or octets))
        item:set_text(common.name(class_names, class))
        item:add(f["object.length"], tvb(at, 2))
        item:add(f["object.class"], tvb(at + 2, 1))
        item:add(f["object.ctype"], tvb(at + 3, 1))
        if class == 3 then item:add(f.client, tvb(at + 3, 1)) end
        if beyond then
            malformed(message, item, "Object length " .. octets)
            break
        end
        local known = objects[class]
        if known then
            if seen[class] then malformed(message, item, "A second " .. class_names[class]) end
            seen[class] = true
            if octets > 4 then
                if class == 3 then item:add(f["client.data"], tvb(at + 4, octets - 4)) end
                known(message, item, tvb(at + 4, octets - 4):tvb(), ctype)
            elseif class == 3 then
                item:add_proto_expert_info(e.empty)
            elseif class < 240 then
                malformed(message, item, "An object without contents")
            end
        else
            item:add_proto_expert_info(e.unknown)
            if octets > 4 then item:add(f["object.value"], tvb(at + 4, octets - 4)) end
        end
        at = at + math.floor((octets + 3) / 4) * 4
    end
    return seen
end

-- One message; with a stream it begins with the Length Header.
local function dissect_message(tvb, pinfo, root, stream)
    local length = tvb:len()
    local tree = root:add(casp, tvb(0, length))
    local message = { tree = tree }
    local at = 0
    if stream then
        tree:add(f.length, tvb(0, 4))
        at = 4
    end
    if length - at < 20 then return malformed(message, tree, "Shorter than the header") end
    local r, d = tvb(at, 1):bitfield(0, 1), tvb(at, 1):bitfield(2, 1)
    for _, name in ipairs({ "reverse", "teardown", "discover", "unsecure" }) do
        tree:add(f["flags." .. name], tvb(at, 1))
    end
    tree:add(f.ttd, tvb(at + 1, 1))
    tree:add(f.hops, tvb(at + 2, 1))
    local kind = tvb(at + 3, 1):uint()
    local type_item = tree:add(f.type, tvb(at + 3, 1))
    tree:add(f.session, tvb(at + 4, 16))
    if not type_names[kind] then return malformed(message, type_item, "Unknown type") end
    local seen = dissect_objects(message, tvb, at + 20)
    if kind == 1 then
        if r == 1 and d == 1 then malformed(message, tree, "R with D") end
        if not seen[1] then malformed(message, tree, "No FLOW_ID") end
        if seen[3] and seen[4] then malformed(message, tree, "CLIENT_DATA with ERROR") end
    else
        if not message.cookie_i or (kind == 3 and not message.cookie_r) then malformed(message, tree, "A cookie is missing") end
        local side = kind == 2 and "requests" or "answers"
        if message.cookie_i then
            if not pinfo.visited then common.remember(exchanges, side, message.cookie_i, pinfo.number) end
            local other = (kind == 2 and exchanges.answers or exchanges.requests)[message.cookie_i]
            if other and other ~= pinfo.number then
                tree:add(kind == 2 and f.response_in or f.request_in, other):set_generated()
            end
        end
    end
    local summary = kind == 1 and (message.client and common.name(client_names, message.client) or message.error or "refresh") or type_names[kind]
    if kind == 1 and tvb(at, 1):bitfield(1, 1) == 1 then summary = "tear-down " .. summary end
    if message.flow then summary = summary .. " " .. message.flow end
    if r == 1 then summary = summary .. ", reverse" end
    tree:append_text(", " .. summary)
    pinfo.cols.info:append(summary .. " ")
    if message.client_data and not message.malformed then
        common.casp_clients:try(message.client, message.client_data, pinfo, root)
    end
end

local function begin(pinfo)
    pinfo.cols.protocol:set("CASP")
    pinfo.cols.info:clear()
    pinfo.cols.info:fence()
end

-- UDP and SCTP: a datagram is a message.
function casp.dissector(tvb, pinfo, root)
    begin(pinfo)
    if tvb:reported_len() > tvb:len() then
        root:add(casp, tvb(0, tvb:len())):add_proto_expert_info(e.truncated)
        return tvb:len()
    end
    dissect_message(tvb, pinfo, root, false)
    return tvb:len()
end

local stream = Proto("casp_stream", "CASP over a stream")

-- A length that a receiver does not take ends the stream: what is there is one message then.
local function message_length(tvb, _, offset)
    local length = tvb(offset, 4):uint()
    if length < 24 or length % 4 ~= 0 or length > 70000 then return tvb:len() - offset end
    return length
end

local function dissect_in_stream(tvb, pinfo, root)
    local length = tvb(0, 4):uint()
    if length ~= tvb:len() then
        local tree = root:add(casp, tvb(0, tvb:len()))
        tree:add(f.length, tvb(0, 4)):add_proto_expert_info(e.stream, "Length Header " .. common.number(length))
        return tvb:len()
    end
    dissect_message(tvb(0, length):tvb(), pinfo, root, true)
    return tvb:len()
end

function stream.dissector(tvb, pinfo, root)
    begin(pinfo)
    dissect_tcp_pdus(tvb, root, 4, message_length, dissect_in_stream)
    return tvb:len()
end

DissectorTable.get("udp.port"):add(50003, casp)
DissectorTable.get("udp.port"):add(50004, casp)
DissectorTable.get("sctp.port"):add(50003, casp)
DissectorTable.get("tcp.port"):add(50003, stream)
DissectorTable.get("tls.port"):add(50005, stream)
