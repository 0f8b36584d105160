-- The client of CASP for firewalls and NATs (docs/wire/casp-natfw.md), in CLIENT_DATA.

local common = require("signalbox.common")

local natfw = Proto("casp_natfw", "CASP NATFW client")

local message_names = { "PATH", "CREATE", "RELEASE", "RESPONSE", "QUERY", "TRIGGER" }
local object_names = {
    [0x11] = "LOGGING_ACTION", [0x12] = "APPLICATION_ID", [0x13] = "NEXT", [0x14] = "AUTH_TOKEN", [0x15] = "CMS_CREDENTIAL",
    [0x16] = "TIME", [0x17] = "AGE", [0x18] = "STATUS", [0x19] = "PACKET_FILTER", [0x1a] = "NAT_OBJECT", [0x1b] = "LIFETIME",
    [0x1c] = "SCOPE", [0x1d] = "MSG_ID", [0x1e] = "NODE_ID", [0x1f] = "CHALLENGE", [0x20] = "NOTE", [0x21] = "HOPS",
}
local status_names = {
    [0] = "done", "authentication required", "policy", "application id required", "filter not understood", "granularity", "not delivered",
    "token required", "token invalid", "credentials not accepted", "traffic", "no such state", "not the owner", "binding not available",
    "no resources", "malformed", "unknown type", "start time", "scope", "logging not permitted", "NEXT not permitted",
    "ended by the administrator",
}
local identity_names = { [0] = "left out", "IPv4", "IPv6", "domain name", "URI", "ASCII", "UTF-8" }

local f = common.fields(natfw, "casp_natfw.", {
    { "type", "u16", "Message type", values = message_names },
    { "length", "u16", "Length in words" },
    { "object", "bytes", "Object" },
    { "object.type", "u16", "Object type", base = base.HEX, values = object_names },
    { "object.length", "u16", "Object length in words" },
    { "object.value", "bytes", "Value" },
    { "logging.count", "u16", "Number of filters" },
    { "logging.filter", "u16", "Filter" },
    { "application", "string", "Application" },
    { "next", "u16", "Next message", values = message_names },
    { "token.id", "u32", "Token" },
    { "token.time", "bytes", "Time of the token" },
    { "token.algorithm", "u8", "Algorithm", values = { "HMAC-MD5", "HMAC-SHA-1", "HMAC-SHA-256" } },
    { "token.hmac", "bytes", "HMAC" },
    { "cms", "bytes", "Credential" },
    { "time", "bytes", "Start" },
    { "age", "bytes", "Age" },
    { "status", "u16", "Status", values = status_names },
    { "status.reached", "bool", "The target was reached", mask = 0x80 },
    { "status.removed", "bool", "State removed", mask = 0x40 },
    { "status.request", "u8", "Type of the request", values = message_names },
    { "status.msg_id", "bytes", "MSG_ID of the request" },
    { "filter.ip_version", "u8", "IP version" },
    { "filter.src_prefix", "u8", "Prefix of the source" },
    { "filter.dst_prefix", "u8", "Prefix of the destination" },
    { "filter.has_label", "bool", "Flow label", mask = 0x80 },
    { "filter.src", "ipv4", "Source" },
    { "filter.dst", "ipv4", "Destination" },
    { "filter.src6", "ipv6", "Source" },
    { "filter.dst6", "ipv6", "Destination" },
    { "filter.flow_label", "u32", "Flow label", base = base.HEX, mask = 0xfffff },
    { "filter.protocol", "u8", "Protocol" },
    { "filter.src_port.first", "u16", "First source port" },
    { "filter.src_port.last", "u16", "Last source port" },
    { "filter.dst_port.first", "u16", "First destination port" },
    { "filter.dst_port.last", "u16", "Last destination port" },
    { "filter.spi", "u32", "SPI", base = base.HEX },
    { "lifetime", "u32", "Lifetime in s" },
    { "scope", "u16", "Scope", values = { [0] = "end to end", "local network", "domain" } },
    { "scope.domain", "string", "Domain" },
    { "msg_id", "bytes", "MSG_ID" },
    { "identity.kind", "u8", "Kind of identity", values = identity_names },
    { "identity.address", "ipv4", "Identity" },
    { "identity.address6", "ipv6", "Identity" },
    { "identity.name", "string", "Identity" },
    { "challenge", "bytes", "Challenge" },
    { "note", "string", "Note" },
    { "hops.last", "u8", "Hop count at the last node" },
    { "node.after_gap", "bool", "Routers or other nodes before it", mask = 0x01 },
    { "node.routers", "u8", "Routers before it" },
    { "node.part", "u8", "Part" },
    { "node.address", "ipv4", "Node" },
    { "node.address6", "ipv6", "Node" },
})

local e = common.experts(natfw, "casp_natfw.", {
    { "fault", "A receiver answers that the message is malformed, or consumes it", "MALFORMED", "ERROR" },
    { "unknown", "Unknown object that is sent on", "UNDECODED", "NOTE" },
    { "unread", "A list that cannot be read", "UNDECODED", "NOTE" },
    { "failure", "Request refused", "RESPONSE_CODE", "NOTE" },
    { "deep", "Objects within objects are not read further", "UNDECODED", "NOTE" },
})

local function fault(tree, text)
    tree:add_proto_expert_info(e.fault, text)
    return nil
end

local function padded(octets)
    return math.floor((octets + 3) / 4) * 4
end

-- A string at `at`: the range of its octets or nil if it is empty, and the place behind it. Nil alone: beyond the object.
local function string_at(tvb, at)
    if at + 2 > tvb:len() then return nil end
    local octets = tvb(at, 2):uint()
    local size = padded(2 + octets)
    if at + size > tvb:len() then return nil end
    return at + size, octets > 0 and tvb(at + 2, octets) or nil
end

-- An identity at `at`; the result is the place behind it.
local function identity(tree, tvb, at)
    if at + 4 > tvb:len() then return fault(tree, "identity beyond the object") end
    local octets, kind = tvb(at, 2):uint(), tvb(at + 2, 1):uint()
    if at + padded(4 + octets) > tvb:len() then return fault(tree, "identity beyond the object") end
    tree:add(f["identity.kind"], tvb(at + 2, 1))
    if (kind == 1 and octets ~= 4) or (kind == 2 and octets ~= 16) then return fault(tree, "length of an identity") end
    if kind == 1 then
        tree:add(f["identity.address"], tvb(at + 4, 4))
    elseif kind == 2 then
        tree:add(f["identity.address6"], tvb(at + 4, 16))
    elseif octets > 0 then
        tree:add(f["identity.name"], tvb(at + 4, octets), common.text(tvb(at + 4, octets)))
    end
    return at + padded(4 + octets)
end

local function filter(tree, tvb)
    local length = tvb:len()
    if length < 4 then return fault(tree, "filter of " .. length .. " octets") end
    local version, label = tvb(0, 1):uint(), tvb(3, 1):bitfield(0, 1) == 1
    tree:add(f["filter.ip_version"], tvb(0, 1))
    tree:add(f["filter.src_prefix"], tvb(1, 1))
    tree:add(f["filter.dst_prefix"], tvb(2, 1))
    tree:add(f["filter.has_label"], tvb(3, 1))
    local size = common.address_length(version)
    if not size then return fault(tree, "IP version " .. version) end
    local at = 4 + 2 * size + (label and 4 or 0)
    if at + 4 > length then return fault(tree, "filter of " .. length .. " octets") end
    if tvb(1, 1):uint() > size * 8 or tvb(2, 1):uint() > size * 8 then fault(tree, "prefix longer than the address") end
    local _, src = common.address(tree, version, f["filter.src"], f["filter.src6"], tvb, 4)
    local _, dst = common.address(tree, version, f["filter.dst"], f["filter.dst6"], tvb, 4 + size)
    if label then tree:add(f["filter.flow_label"], tvb(4 + 2 * size, 4)) end
    tree:append_text(": " .. src .. " > " .. dst)
    local protocols, sources, destinations, spis = tvb(at, 1):uint(), tvb(at + 1, 1):uint(), tvb(at + 2, 1):uint(), tvb(at + 3, 1):uint()
    at = at + 4
    if at + padded(protocols) + 4 * (sources + destinations + spis) ~= length then return fault(tree, "lists of the filter") end
    for index = 0, protocols - 1 do
        tree:add(f["filter.protocol"], tvb(at + index, 1))
    end
    at = at + padded(protocols)
    for index = 1, sources + destinations do
        local name = index <= sources and "filter.src_port" or "filter.dst_port"
        tree:add(f[name .. ".first"], tvb(at, 2))
        tree:add(f[name .. ".last"], tvb(at + 2, 2))
        if tvb(at, 2):uint() > tvb(at + 2, 2):uint() then fault(tree, "range that is not in order") end
        at = at + 4
    end
    for _ = 1, spis do
        tree:add(f["filter.spi"], tvb(at, 4))
        at = at + 4
    end
    return length
end

local function nodes(tree, tvb)
    local length, at, entries = tvb:len(), 4, {}
    while at < length do
        local size = length - at >= 8 and common.address_length(tvb(at, 1):uint())
        local whole = size and 4 + size + (tvb(at + 3, 1):uint() == 0 and 8 or 0)
        if not size or at + whole > length then return tree:add_proto_expert_info(e.unread) end
        entries[#entries + 1] = { at, size }
        at = at + whole
    end
    tree:add(f["hops.last"], tvb(0, 1))
    for _, entry in ipairs(entries) do
        local from, size = entry[1], entry[2]
        tree:add(f["node.after_gap"], tvb(from + 1, 1))
        tree:add(f["node.routers"], tvb(from + 2, 1))
        tree:add(f["node.part"], tvb(from + 3, 1))
        common.address(tree, size == 4 and 4 or 6, f["node.address"], f["node.address6"], tvb, from + 4)
    end
end

local function fixed(key, size)
    return function(tree, tvb)
        if tvb:len() ~= size then return fault(tree, tvb:len() .. " octets instead of " .. size) end
        tree:add(f[key], tvb(0, size))
    end
end

-- By type: what is in the object. A result is a place from which objects follow within it.
local objects = {
    [0x11] = function(tree, tvb)
        local count = tvb(0, 2):uint()
        if padded(2 + 2 * count) ~= tvb:len() then return fault(tree, "number of filters") end
        tree:add(f["logging.count"], tvb(0, 2))
        for index = 1, count do
            tree:add(f["logging.filter"], tvb(2 * index, 2))
        end
    end,
    [0x12] = function(tree, tvb)
        local after, text = string_at(tvb, 0)
        if after ~= tvb:len() then return fault(tree, "string") end
        if text then tree:add(f.application, text, common.text(text)) end
    end,
    [0x13] = function(tree, tvb)
        tree:add(f.next, tvb(0, 2))
        tree:append_text(": " .. common.name(message_names, tvb(0, 2):uint()))
        return 4
    end,
    [0x14] = function(tree, tvb)
        tree:add(f["token.id"], tvb(0, 4))
        local at = 4
        for _ = 1, 5 do
            at = at and identity(tree, tvb, at)
        end
        if not at then return nil end
        if at + 32 > tvb:len() then return fault(tree, "token beyond the object") end
        tree:add(f["token.time"], tvb(at, 8))
        tree:add(f["token.algorithm"], tvb(at + 8, 1))
        tree:add(f["token.hmac"], tvb(at + 9, 20))
        return at + 32
    end,
    [0x15] = function(tree, tvb)
        local octets = tvb(0, 4):uint()
        if octets > tvb:len() - 4 or padded(octets) + 4 ~= tvb:len() then return fault(tree, "length of the credential") end
        if octets > 0 then tree:add(f.cms, tvb(4, octets)) end
    end,
    [0x16] = fixed("time", 8),
    [0x17] = fixed("age", 8),
    [0x18] = function(tree, tvb)
        if tvb:len() < 12 then return fault(tree, "status of " .. tvb:len() .. " octets") end
        local code = tvb(0, 2):uint()
        tree:add(f.status, tvb(0, 2))
        tree:add(f["status.reached"], tvb(2, 1))
        tree:add(f["status.removed"], tvb(2, 1))
        tree:add(f["status.request"], tvb(3, 1))
        tree:add(f["status.msg_id"], tvb(4, 8))
        tree:append_text(": " .. common.name(status_names, code))
        if code ~= 0 then tree:add_proto_expert_info(e.failure, common.name(status_names, code)) end
        return 12
    end,
    [0x19] = function(tree, tvb) filter(tree, tvb) end,
    [0x1a] = function(tree, tvb) filter(tree, tvb) end,
    [0x1b] = fixed("lifetime", 4),
    [0x1c] = function(tree, tvb)
        local octets = tvb(2, 2):uint()
        if padded(4 + octets) ~= tvb:len() then return fault(tree, "scope") end
        tree:add(f.scope, tvb(0, 2))
        if octets > 0 then tree:add(f["scope.domain"], tvb(4, octets), common.text(tvb(4, octets))) end
    end,
    [0x1d] = fixed("msg_id", 8),
    [0x1e] = function(tree, tvb) identity(tree, tvb, 0) end,
    [0x1f] = function(tree, tvb)
        local after, text = string_at(tvb, 0)
        if after ~= tvb:len() then return fault(tree, "string") end
        if text then tree:add(f.challenge, text) end
    end,
    [0x20] = function(tree, tvb) tree:add(f.note, tvb(0, tvb:len()), common.text(tvb(0, tvb:len()))) end,
    [0x21] = function(tree, tvb) nodes(tree, tvb) end,
}
local may_be_empty = { [0x1a] = true, [0x20] = true }

-- What each message has, and which objects may be there more than once.
local required = { { 0x1d, 0x17 }, { 0x1d, 0x17 }, { 0x1d }, { 0x18 }, { 0x1d }, { 0x1d, 0x19 } }
local repeated = { [0x14] = true, [0x15] = true, [0x19] = true, [0x18] = true }

local deepest = 4

-- Objects have objects within them. What is left is in a list, so that a message cannot choose how deep a call goes.
-- What NEXT of a message may ask for; that of a RESPONSE is ignored.
local next_of = {
    { [2] = true, [4] = true }, { [1] = true, [2] = true, [4] = true }, { [4] = true }, nil, { [4] = true }, { [1] = true, [2] = true },
}

-- The result has the types of the outermost objects.
local function dissect_objects(tree, tvb, start, message)
    local outermost = {}
    local left = { { tree, start, tvb:len(), 1 } }
    while #left > 0 do
        local part = table.remove(left, 1)
        local within, at, stop, depth = part[1], part[2], part[3], part[4]
        local seen = depth == 1 and outermost or {}
        while at < stop do
            local words = stop - at >= 4 and tvb(at + 2, 2):uint() or 0
            if words == 0 or at + 4 * words > stop then
                fault(within, "object beyond what it is in")
                break
            end
            local kind, size = tvb(at, 2):uint(), 4 * words
            local item = within:add(f.object, tvb(at, size))
            item:set_text(common.name(object_names, kind))
            item:add(f["object.type"], tvb(at, 2))
            item:add(f["object.length"], tvb(at + 2, 2))
            local known = objects[kind]
            if known and seen[kind] and not repeated[kind] then fault(item, "a second " .. object_names[kind]) end
            seen[kind] = true
            local allowed = depth == 1 and kind == 0x13 and size >= 8 and next_of[message]
            if allowed and not allowed[tvb(at + 4, 2):uint()] then fault(item, "NEXT not permitted") end
            if known and size > 4 then
                local more = known(item, tvb(at + 4, size - 4):tvb())
                if more and at + 4 + more < at + size then
                    if depth < deepest then
                        left[#left + 1] = { item, at + 4 + more, at + size, depth + 1 }
                    else
                        item:add_proto_expert_info(e.deep)
                    end
                end
            elseif known and not may_be_empty[kind] then
                fault(item, "an object without contents")
            elseif not known then
                item:add_proto_expert_info(e.unknown)
                if size > 4 then item:add(f["object.value"], tvb(at + 4, size - 4)) end
            end
            at = at + size
        end
    end
    return outermost
end

function natfw.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(natfw, tvb(0, length))
    if length < 4 then
        fault(tree, "shorter than the header")
        return length
    end
    local kind = tvb(0, 2):uint()
    tree:add(f.type, tvb(0, 2))
    tree:add(f.length, tvb(2, 2))
    tree:append_text(", " .. common.name(message_names, kind))
    pinfo.cols.info:append("(" .. common.name(message_names, kind) .. ") ")
    if not message_names[kind] then fault(tree, "unknown type") end
    if tvb(2, 2):uint() * 4 ~= length then
        fault(tree, "length of the message")
        return length
    end
    local seen = dissect_objects(tree, tvb, 4, kind)
    for _, object in ipairs(required[kind] or {}) do
        if not seen[object] then fault(tree, "no " .. object_names[object]) end
    end
    return length
end

common.casp_clients:add(2, natfw)
