-- The QoS NSLP (RFC 5974, docs/wire/qos.md), in NSLP-Data of GIST, with tokens of RFC 5981.

local common = require("signalbox.common")

local qos = Proto("qosnslp", "QoS NSLP")

local message_names = { "RESERVE", "QUERY", "RESPONSE", "NOTIFY" }
local object_names = {
    "RII", "RSN", "REFRESH-PERIOD", "BOUND-SESSION-ID", "PACKET-CLASSIFIER", "INFO-SPEC", "SESSION-ID-LIST", "RSN-LIST", "MSG-ID",
    "BOUND-MSG-ID", "QSPEC", [22] = "SESSION_AUTH", [2000] = "hops", [2001] = "note", [2003] = "available rate",
}
local class_names = { "Informational", "Success", "Protocol Error", "Transient Failure", "Permanent Failure", "QoS Model Error" }
local code_names = {
    { "Unknown BOUND-SESSION-ID", "Route Change", "Reduced refreshes not supported", "Congestion situation",
        "Unknown SESSION-ID in SESSION-ID-LIST", "Mismatching RSN in RSN-LIST" },
    { "Reservation successful", "Teardown successful", "Acknowledgement", "Refresh successful" },
    { "Illegal message type", "Wrong message length", "Bad generic flags", "Bad message-specific flags", "Mandatory object missing",
        "Illegal object present", "Unknown object present", "Wrong object length", "RESERVE received from wrong direction",
        "Unknown object field value", "Duplicate object present", "Malformed QSPEC", "Unknown MRI", "Erroneous value", "Incompatible QSPEC" },
    { "No GIST reverse-path forwarding state", "No path state for RESERVE", "RII conflict", "Full QSPEC required",
        "Mismatch synchronization between end-to-end RESERVE and intra-domain RESERVE", "Reservation preempted", "Reservation failure",
        "Path truncated - Next peer dead" },
    { "Internal or system error", "Authorization failure" },
    {},
}
local binding_names = { "tunnel", "bidirectional", "aggregate", "dependent", "preempted" }
local source_names = { [0] = "none", "IPv4", "IPv6", "FQDN" }
local attribute_names = {
    "AUTH_ENT_ID", "SESSION_ID", "SOURCE_ADDR", "DEST_ADDR", "START_TIME", "END_TIME", "NSLP_OBJECT_LIST", "AUTHENTICATION_DATA",
}

local f = common.fields(qos, "qosnslp.", {
    { "type", "u8", "Message type", values = message_names },
    { "flags.tear", "bool", "T: tear", mask = 0x02 },
    { "flags.replace", "bool", "R: replace", mask = 0x01 },
    { "flags.reserve_init", "bool", "R: the receiver shall reserve", mask = 0x01 },
    { "flags.break", "bool", "B: break", width = 16, mask = 0x0008 },
    { "flags.ack", "bool", "A: acknowledgement requested", width = 16, mask = 0x0004 },
    { "flags.proxy", "bool", "P: proxy", width = 16, mask = 0x0002 },
    { "flags.scoping", "bool", "S: next hop only", width = 16, mask = 0x0001 },
    { "object", "bytes", "Object" },
    { "object.ab", "u8", "Extensibility", values = common.ab_names, mask = 0xc0 },
    { "object.type", "u16", "Object type", values = object_names, mask = 0x0fff },
    { "object.length", "u16", "Object length in words", mask = 0x0fff },
    { "object.value", "bytes", "Value" },
    { "rii", "u32", "Request identification" },
    { "rsn", "u32", "Reservation sequence number" },
    { "epoch", "u32", "Epoch" },
    { "refresh_period", "u32", "Refresh period in ms" },
    { "bound.code", "u32", "Binding code", values = binding_names, mask = 0xff },
    { "bound.session", "bytes", "Bound session" },
    { "classifier.x", "bool", "X: source address", mask = 0x80 },
    { "classifier.y", "bool", "Y: destination address", mask = 0x40 },
    { "classifier.p", "bool", "P: protocol", mask = 0x20 },
    { "classifier.t", "bool", "T: DS field", mask = 0x10 },
    { "classifier.f", "bool", "F: flow label", mask = 0x08 },
    { "classifier.s", "bool", "S: SPI", mask = 0x04 },
    { "classifier.a", "bool", "A: source port", mask = 0x02 },
    { "classifier.b", "bool", "B: destination port", mask = 0x01 },
    { "info.code", "u8", "Error code", base = base.HEX },
    { "info.class", "u8", "Error class", values = class_names, mask = 0xf0 },
    { "info.source_type", "u8", "Kind of the source", values = source_names, mask = 0x0f },
    { "info.source_length", "u8", "Length of the source in words" },
    { "info.source", "ipv4", "Source" },
    { "info.source6", "ipv6", "Source" },
    { "info.source_name", "string", "Source" },
    { "info.specific", "bytes", "Specific information" },
    { "session", "bytes", "Session identifier in a list" },
    { "list.rsn", "u32", "Reservation sequence number in a list" },
    { "message_id.bidirectional", "bool", "D: bidirectional", width = 32, mask = 1 },
    { "message_id", "bytes", "Message ID" },
    { "bound_message_id", "bytes", "Bound message ID" },
    { "auth", "bytes", "Attribute of the authorization" },
    { "auth.length", "u16", "Length in octets" },
    { "auth.type", "u8", "X-Type", values = attribute_names },
    { "auth.subtype", "u8", "SubType" },
    { "auth.value", "bytes", "Value" },
    { "node.after_gap", "bool", "G: routers without the application before it", mask = 0x01 },
    { "node.routers", "u8", "Routers before it" },
    { "node.address", "ipv4", "Node" },
    { "node.address6", "ipv6", "Node" },
    { "node.rate", "u64", "Rate in octets/s" },
    { "note", "string", "Note" },
    { "available", "u64", "Available rate in octets/s" },
    { "fault.code", "u8", "A receiver answers with code" },
    { "response_in", "frame", "Response in", frametype = frametype.RESPONSE },
    { "request_in", "frame", "Request in", frametype = frametype.REQUEST },
})

local e = common.experts(qos, "qosnslp.", {
    { "fault", "A receiver answers with an error", "MALFORMED", "ERROR" },
    { "unknown", "Unknown object", "UNDECODED", "NOTE" },
    { "unread", "Object of another make under a type for private use", "UNDECODED", "NOTE" },
    { "failure", "Request refused", "RESPONSE_CODE", "NOTE" },
})

-- Requests and responses by the RII.
local exchanges = common.pairs()
function qos.init()
    exchanges = common.pairs()
end

local function fault(message, item, code, text)
    item:add_proto_expert_info(e.fault, common.name(code_names[3], code) .. " (" .. text .. ")")
    message.tree:add(f["fault.code"], code):set_generated()
end

local objects = {}

-- An object of so many octets, or a fault.
local function sized(size, read)
    return function(message, tree, tvb)
        if tvb:len() ~= size then return fault(message, tree, 8, tvb:len() .. " octets instead of " .. size) end
        read(message, tree, tvb)
    end
end

objects[1] = sized(4, function(message, tree, tvb)
    tree:add(f.rii, tvb(0, 4))
    message.rii = common.number(tvb(0, 4):uint())
end)
objects[2] = sized(8, function(_, tree, tvb)
    tree:add(f.rsn, tvb(0, 4))
    tree:add(f.epoch, tvb(4, 4))
end)
objects[3] = sized(4, function(_, tree, tvb)
    tree:add(f.refresh_period, tvb(0, 4))
end)
objects[4] = sized(20, function(_, tree, tvb)
    tree:add(f["bound.code"], tvb(0, 4))
    tree:add(f["bound.session"], tvb(4, 16))
end)
objects[5] = sized(4, function(_, tree, tvb)
    for _, name in ipairs({ "x", "y", "p", "t", "f", "s", "a", "b" }) do
        tree:add(f["classifier." .. name], tvb(0, 1))
    end
end)
objects[6] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 4 then return fault(message, tree, 8, "too short") end
    local code, class = tvb(1, 1):uint(), tvb(2, 1):bitfield(0, 4)
    local kind, size = tvb(2, 1):bitfield(4, 4), tvb(3, 1):uint() * 4
    local text = common.name(class_names, class) .. ": " .. common.name(code_names[class] or {}, code)
    tree:add(f["info.code"], tvb(1, 1)):append_text(" (" .. text .. ")")
    tree:add(f["info.class"], tvb(2, 1))
    tree:add(f["info.source_type"], tvb(2, 1))
    tree:add(f["info.source_length"], tvb(3, 1))
    tree:append_text(": " .. text)
    message.summary = message.summary .. " " .. text
    if class >= 3 then tree:add_proto_expert_info(e.failure, text) end
    if 4 + size > length then return fault(message, tree, 8, "source beyond the object") end
    if kind == 1 and size == 4 then
        tree:add(f["info.source"], tvb(4, 4))
    elseif kind == 2 and size == 16 then
        tree:add(f["info.source6"], tvb(4, 16))
    elseif kind == 3 and size > 0 then
        local name = common.text(tvb(4, size))
        tree:add(f["info.source_name"], tvb(4, size), name)
        if name ~= (tvb(4, size):raw():gsub("\0*$", "")) then fault(message, tree, 14, "a name that is no UTF-8") end
    elseif kind == 1 or kind == 2 or (kind == 0 and size > 0) then
        fault(message, tree, 14, "kind and length of the source")
    end
    if 4 + size < length then tree:add(f["info.specific"], tvb(4 + size, length - 4 - size)) end
end
objects[7] = function(message, tree, tvb)
    if tvb:len() % 16 ~= 0 then return fault(message, tree, 8, "no whole session identifiers") end
    for at = 0, tvb:len() - 16, 16 do
        tree:add(f.session, tvb(at, 16))
    end
end
objects[8] = function(_, tree, tvb)
    tree:add(f.epoch, tvb(0, 4))
    for at = 4, tvb:len() - 4, 4 do
        tree:add(f["list.rsn"], tvb(at, 4))
    end
end
local function message_id(key)
    return sized(20, function(_, tree, tvb)
        tree:add(f["message_id.bidirectional"], tvb(0, 4))
        tree:add(f[key], tvb(4, 16))
    end)
end
objects[9] = message_id("message_id")
objects[10] = message_id("bound_message_id")
objects[11] = function(message, tree, tvb)
    common.qspec.dissector(tvb, message.pinfo, tree)
end
-- Attributes: length in octets with the header, without padding.
objects[22] = function(message, tree, tvb)
    local length, at = tvb:len(), 0
    while at + 4 <= length do
        local octets = tvb(at, 2):uint()
        local size = math.floor((octets + 3) / 4) * 4
        if octets < 4 or at + size > length then return fault(message, tree, 14, "length of an attribute") end
        local item = tree:add(f.auth, tvb(at, size))
        item:set_text(common.name(attribute_names, tvb(at + 2, 1):uint()))
        item:add(f["auth.length"], tvb(at, 2))
        item:add(f["auth.type"], tvb(at + 2, 1))
        item:add(f["auth.subtype"], tvb(at + 3, 1))
        if octets > 4 then item:add(f["auth.value"], tvb(at + 4, octets - 4)) end
        at = at + size
    end
end

-- This suite's own objects, with AB=10. An error is not one of the message: the object may be of another make.
local own = {
    [2000] = function(tree, tvb)
        local length, at, entries = tvb:len(), 0, {}
        while at < length do
            local size = length - at >= 16 and common.address_length(tvb(at, 1):uint())
            if not size or at + 12 + size > length then return false end
            entries[#entries + 1] = { at, size }
            at = at + 12 + size
        end
        for _, entry in ipairs(entries) do
            local from, size = entry[1], entry[2]
            tree:add(f["node.after_gap"], tvb(from + 1, 1))
            tree:add(f["node.routers"], tvb(from + 2, 1))
            common.address(tree, size == 4 and 4 or 6, f["node.address"], f["node.address6"], tvb, from + 4)
            tree:add(f["node.rate"], tvb(from + 4 + size, 8))
        end
        return true
    end,
    [2001] = function(tree, tvb)
        tree:add(f.note, tvb(0, tvb:len()), common.text(tvb(0, tvb:len())))
        return true
    end,
    [2003] = function(tree, tvb)
        if tvb:len() ~= 8 then return false end
        tree:add(f.available, tvb(0, 8))
        return true
    end,
}

-- What each message has (RFC 5974 §5.1.2). Tokens may be in all of them.
local grammar = {
    { 2, 1, 3, 4, 7, 8, 9, 10, 6, 5, 11 },
    { 1, 4, 5, 6, 11 },
    { 2, 1, 6, 7, 8, 11 },
    { 6, 11, 4, 7, 8 },
}
local must = { { 2 }, { 11 }, { 6 }, { 6 } }
-- Objects that may be in a message more than once; of a QSPEC two in a QUERY.
local repeated = { [4] = true }

local function link_exchange(message, pinfo, kind)
    if not message.rii or kind > 3 then return end
    local answer = kind == 3
    if not pinfo.visited then common.remember(exchanges, answer and "answers" or "requests", message.rii, pinfo.number) end
    local other = (answer and exchanges.requests or exchanges.answers)[message.rii]
    if other and other ~= pinfo.number then
        message.tree:add(answer and f.request_in or f.response_in, other):set_generated()
    end
end

function qos.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(qos, tvb(0, length))
    local message = { tree = tree, pinfo = pinfo, summary = "" }
    if length < 4 then
        fault(message, tree, 2, "shorter than the header")
        return length
    end
    local kind = tvb(0, 1):uint()
    local type_item = tree:add(f.type, tvb(0, 1))
    if kind == 1 then
        tree:add(f["flags.tear"], tvb(1, 1))
        tree:add(f["flags.replace"], tvb(1, 1))
    elseif kind == 2 then
        tree:add(f["flags.reserve_init"], tvb(1, 1))
    end
    for _, name in ipairs({ "break", "ack", "proxy", "scoping" }) do
        tree:add(f["flags." .. name], tvb(2, 2))
    end
    if not message_names[kind] then
        fault(message, type_item, 1, "type " .. kind)
        return length
    end
    local allowed, seen = {}, {}
    for _, object in ipairs(grammar[kind]) do allowed[object] = true end
    local at, beyond = common.walk(tvb, 4, function(from, object, ab, words, complete)
        local size = complete and 4 + words * 4 or length - from
        local item = tree:add(f.object, tvb(from, size))
        item:set_text(common.name(object_names, object))
        item:add(f["object.ab"], tvb(from, 1))
        item:add(f["object.type"], tvb(from, 2))
        item:add(f["object.length"], tvb(from + 2, 2))
        if not complete then return fault(message, item, 8, "object beyond the message") end
        local value = words > 0 and tvb(from + 4, words * 4):tvb() or nil
        if objects[object] then
            local before = seen[object] or 0
            seen[object] = before + 1
            local most = object == 11 and kind == 2 and 2 or 1
            if before >= most and not repeated[object] and object ~= 22 then fault(message, item, 11, object_names[object]) end
            if not allowed[object] and object ~= 22 then fault(message, item, 6, object_names[object]) end
            if value then
                objects[object](message, item, value)
            elseif object ~= 7 then
                fault(message, item, 8, "no value")
            end
            return
        end
        if own[object] and ab == 2 and value and own[object](item, value) then return end
        if value then item:add(f["object.value"], tvb(from + 4, words * 4)) end
        if own[object] then item:add_proto_expert_info(e.unread) end
        if ab == 0 then
            fault(message, item, 7, "type " .. object)
        else
            item:add_proto_expert_info(e.unknown, "Unknown object: " .. common.ab_names[ab])
        end
    end)
    if not beyond and at ~= length then fault(message, tree, 2, "octets behind the last object") end
    if not beyond then
        for _, object in ipairs(must[kind]) do
            if not seen[object] then fault(message, tree, 5, object_names[object]) end
        end
    end
    link_exchange(message, pinfo, kind)
    local summary = message_names[kind] .. message.summary
    tree:append_text(", " .. summary)
    pinfo.cols.info:append(", " .. summary)
    return length
end

common.nslps:add(1, qos)
