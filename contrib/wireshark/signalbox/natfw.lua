-- The NATFW NSLP (RFC 5973, docs/wire/natfw.md), in NSLP-Data of GIST.

local common = require("signalbox.common")

local natfw = Proto("natfw", "NATFW NSLP")

local message_names = { "CREATE", "EXTERNAL", "RESPONSE", "NOTIFY" }
local object_names = {
    [12] = "NATFW_LT", [13] = "NATFW_EXTERNAL_IP", [14] = "NATFW_EXTERNAL_BINDING", [15] = "NATFW_EFI", [16] = "NATFW_INFO",
    [17] = "NATFW_NONCE", [18] = "NATFW_MSN", [19] = "NATFW_DTINFO", [20] = "NATFW_ICMP_TYPES", [22] = "SESSION_AUTH",
    [2000] = "hops", [2001] = "note", [2002] = "node", [2004] = "neighbor", [2005] = "publication",
}
local class_names = {
    "Informational", "Success", "Protocol error", "Transient failure", "Permanent failure", [7] = "Signaling session failure",
}
local code_names = {
    [1] = { "Route change", "Re-authentication required", "NATFW node is going down soon", "NATFW signaling session lifetime expired",
        "NATFW signaling session terminated" },
    [2] = { "All successfully processed" },
    [3] = { "Illegal message type", "Wrong message length", "Bad flags value", "Mandatory object missing", "Illegal object present",
        "Unknown object present", "Wrong object length", "Unknown object field value", "Invalid Flag-Field combination",
        "Duplicate object present", "Received EXTERNAL request message on external side" },
    [4] = { "Requested resources temporarily not available" },
    [5] = { "Authentication failed", "Authorization failed", [4] = "Internal or system error", [6] = "No edge-device here",
        [7] = "Did not reach the NR" },
    [7] = { "Session terminated asynchronously", "Requested lifetime is too big",
        "No reservation found matching the MRI of the CREATE request", "Requested policy rule denied due to policy conflict",
        "Unknown policy rule action", "Requested rule action not applicable", "NATFW_DTINFO object is required",
        "Requested value in sub_ports field in NATFW_EFI not permitted", "Requested IP protocol not supported",
        "Plain IP policy rules not permitted", "ICMP type value not permitted", "Source IP address range is too large",
        "Destination IP address range is too large", "Source L4-port range is too large", "Destination L4-port range is too large",
        "Requested lifetime is too small", "Modified lifetime is too big", "Modified lifetime is too small" },
}
local part_names = { [0] = "rate", "end of the flow", "opened", "opened and translates", "keeps a place", "blocks", "passed on" }

local f = common.fields(natfw, "natfw.", {
    { "type", "u8", "Message type", values = message_names },
    { "flags.p", "bool", "P: proxy mode", mask = 0x80 },
    { "flags.e", "bool", "E: end to end", mask = 0x40 },
    { "object", "bytes", "Object" },
    { "object.ab", "u8", "Extensibility", values = common.ab_names, mask = 0xc0 },
    { "object.type", "u16", "Object type", values = object_names, mask = 0x0fff },
    { "object.length", "u16", "Object length in words", mask = 0x0fff },
    { "object.value", "bytes", "Value" },
    { "lifetime", "u32", "Lifetime in s" },
    { "external.port", "u16", "External port" },
    { "external.ip_version", "u8", "IP version", mask = 0xf0 },
    { "external.address", "ipv4", "External address" },
    { "binding.port", "u16", "Port of the binding" },
    { "binding.address", "ipv4", "Address of the binding" },
    { "action", "u16", "Rule action", values = { "allow", "deny" } },
    { "sub_ports", "u16", "sub_ports" },
    { "info.class", "u8", "Class", values = class_names, mask = 0x0f },
    { "info.code", "u8", "Response code", base = base.HEX },
    { "info.object_type", "u16", "Object type concerned", values = object_names, mask = 0x0fff },
    { "nonce", "u32", "Nonce", base = base.HEX },
    { "msn", "u32", "Message sequence number" },
    { "dtinfo.i", "bool", "I: protocol counts", mask = 0x80 },
    { "dtinfo.p", "bool", "P: ports", mask = 0x40 },
    { "dtinfo.s", "bool", "S: SPI", mask = 0x20 },
    { "dtinfo.prefix", "u8", "Prefix of the sender" },
    { "dtinfo.protocol", "u8", "Protocol" },
    { "dtinfo.receiver_port", "u16", "Port of the data receiver" },
    { "dtinfo.sender_port", "u16", "Port of the data sender" },
    { "dtinfo.spi", "u32", "SPI", base = base.HEX },
    { "dtinfo.sender", "ipv4", "Address of the data sender" },
    { "icmp.count", "u8", "Number of ICMP types" },
    { "icmp.type", "u8", "ICMP type" },
    { "node.family", "u8", "Family" },
    { "node.after_gap", "bool", "Routers or other nodes before it", mask = 0x01 },
    { "node.answered", "bool", "Sent the answer", mask = 0x02 },
    { "node.routers", "u8", "Routers before it" },
    { "node.part", "u8", "Part", values = part_names },
    { "node.address", "ipv4", "Node" },
    { "node.address6", "ipv6", "Node" },
    { "note", "string", "Note" },
    { "refused_by", "ipv4", "Node that refused" },
    { "refused_by6", "ipv6", "Node that refused" },
    { "publication.opens", "bool", "O: open at once", mask = 0x80 },
    { "publication.exactly", "bool", "X: exactly the wished port", mask = 0x40 },
    { "publication.port", "u16", "Wished port" },
    { "publication.address", "ipv4", "Wished address" },
    { "publication.lease", "u64", "Lease key", base = base.HEX },
    { "publication.filter.prefix", "u8", "Prefix of senders" },
    { "publication.filter.port", "u16", "Port of senders" },
    { "publication.filter.address", "ipv6", "Address of senders" },
    { "fault.class", "u8", "A receiver answers with class", values = class_names },
    { "fault.code", "u8", "Code of that answer" },
})

local e = common.experts(natfw, "natfw.", {
    { "fault", "A receiver answers with an error", "MALFORMED", "ERROR" },
    { "refused", "A receiver refuses the request", "PROTOCOL", "WARN" },
    { "ignored", "Unknown object that a receiver deletes", "UNDECODED", "NOTE" },
    { "forwarded", "Unknown object that a receiver forwards unread", "UNDECODED", "NOTE" },
    { "unread", "Object of another make under a type for private use", "UNDECODED", "NOTE" },
    { "failure", "Request refused", "RESPONSE_CODE", "NOTE" },
})

local function fault(message, item, class, code, text)
    -- Class 7 is about what is asked for, not about the form of the message.
    item:add_proto_expert_info(class == 7 and e.refused or e.fault, common.name(code_names[class], code) .. " (" .. text .. ")")
    message.tree:add(f["fault.class"], class):set_generated()
    message.tree:add(f["fault.code"], code):set_generated()
end

local function wrong_length(message, item, words)
    fault(message, item, 3, 7, "length of " .. common.number(words) .. " words")
end

local objects = {}

local function one_word(key)
    return function(message, tree, tvb)
        if tvb:len() ~= 4 then return wrong_length(message, tree, tvb:len() / 4) end
        tree:add(f[key], tvb(0, 4))
    end
end

objects[12] = one_word("lifetime")
objects[17] = one_word("nonce")
objects[18] = one_word("msn")

objects[13] = function(message, tree, tvb)
    if tvb:len() ~= 8 then return wrong_length(message, tree, tvb:len() / 4) end
    tree:add(f["external.port"], tvb(0, 2))
    local item = tree:add(f["external.ip_version"], tvb(2, 1))
    if tvb(2, 1):bitfield(0, 4) ~= 4 then return fault(message, item, 3, 8, "IP version") end
    tree:add(f["external.address"], tvb(4, 4))
    tree:append_text(": " .. tostring(tvb(4, 4):ipv4()) .. ":" .. tvb(0, 2):uint())
end

objects[14] = function(message, tree, tvb)
    -- A request has no address yet.
    local length = tvb:len()
    tree:add(f["binding.port"], tvb(0, 2))
    local item = tree:add(f["external.ip_version"], tvb(2, 1))
    if tvb(2, 1):bitfield(0, 4) ~= 4 then return fault(message, item, 3, 8, "IP version") end
    for at = 4, length - 4, 4 do
        tree:add(f["binding.address"], tvb(at, 4))
    end
end

objects[15] = function(message, tree, tvb)
    if tvb:len() ~= 4 then return wrong_length(message, tree, tvb:len() / 4) end
    local action, ports = tvb(0, 2):uint(), tvb(2, 2):uint()
    local item = tree:add(f.action, tvb(0, 2))
    if action ~= 1 and action ~= 2 then fault(message, item, 7, 5, "action " .. action) end
    item = tree:add(f.sub_ports, tvb(2, 2))
    if ports > 1 then fault(message, item, 7, 8, "sub_ports " .. ports) end
end

objects[16] = function(message, tree, tvb)
    if tvb:len() ~= 4 then return wrong_length(message, tree, tvb:len() / 4) end
    local class, code = tvb(0, 1):bitfield(4, 4), tvb(1, 1):uint()
    tree:add(f["info.class"], tvb(0, 1))
    local item = tree:add(f["info.code"], tvb(1, 1))
    tree:add(f["info.object_type"], tvb(2, 2))
    local text = common.name(class_names, class) .. ": " .. common.name(code_names[class] or {}, code)
    item:append_text(" (" .. text .. ")")
    tree:append_text(": " .. text)
    message.summary = message.summary .. " " .. text
    message.success = class == 2
    if class >= 3 then tree:add_proto_expert_info(e.failure, text) end
end

objects[19] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 8 or length > 12 then return wrong_length(message, tree, length / 4) end
    local i, p, s = tvb(0, 1):bitfield(0, 1), tvb(0, 1):bitfield(1, 1), tvb(0, 1):bitfield(2, 1)
    tree:add(f["dtinfo.i"], tvb(0, 1))
    tree:add(f["dtinfo.p"], tvb(0, 1))
    tree:add(f["dtinfo.s"], tvb(0, 1))
    local prefix = tree:add(f["dtinfo.prefix"], tvb(2, 1))
    if (p == 1 and s == 1) or (i == 0 and (p == 1 or s == 1)) then return fault(message, tree, 3, 9, "I, P and S") end
    if length ~= 8 + 4 * (p + s) then return wrong_length(message, tree, length / 4) end
    if tvb(2, 1):uint() > 32 then fault(message, prefix, 3, 8, "prefix longer than an address") end
    if i == 1 then tree:add(f["dtinfo.protocol"], tvb(3, 1)) end
    if p == 1 then
        tree:add(f["dtinfo.receiver_port"], tvb(4, 2))
        tree:add(f["dtinfo.sender_port"], tvb(6, 2))
    elseif s == 1 then
        tree:add(f["dtinfo.spi"], tvb(4, 4))
    end
    tree:add(f["dtinfo.sender"], tvb(length - 4, 4))
end

objects[20] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 4 then return wrong_length(message, tree, 0) end
    local count = tvb(0, 1):uint()
    tree:add(f["icmp.count"], tvb(0, 1))
    if math.floor((count + 4) / 4) * 4 ~= length then return wrong_length(message, tree, length / 4) end
    for index = 1, count do
        tree:add(f["icmp.type"], tvb(index, 1))
    end
end

-- The list of nodes that granted: as of QoS and CASP, from `at` on. An error is not one of the message: the object may be of another make.
local function nodes(tree, tvb)
    local length, at, entries = tvb:len(), 0, {}
    while at < length do
        if length - at < 8 then return false end
        local size = common.address_length(tvb(at, 1):uint())
        local part = tvb(at + 3, 1):uint()
        if not size or part > 6 then return false end
        local whole = 4 + size + (part == 0 and 8 or 0)
        if at + whole > length then return false end
        entries[#entries + 1] = { at, size }
        at = at + whole
    end
    for _, entry in ipairs(entries) do
        local from, size = entry[1], entry[2]
        tree:add(f["node.family"], tvb(from, 1))
        tree:add(f["node.after_gap"], tvb(from + 1, 1))
        tree:add(f["node.answered"], tvb(from + 1, 1))
        tree:add(f["node.routers"], tvb(from + 2, 1))
        tree:add(f["node.part"], tvb(from + 3, 1))
        common.address(tree, size == 4 and 4 or 6, f["node.address"], f["node.address6"], tvb, from + 4)
    end
    return true
end

-- This suite's own objects: by type the extensibility that they have, and the contents.
local own = {
    [2000] = { 2, function(tree, tvb) return nodes(tree, tvb) end },
    [2001] = { 2, function(tree, tvb)
        tree:add(f.note, tvb(0, tvb:len()), common.text(tvb(0, tvb:len())))
        return true
    end },
    [2002] = { 2, function(tree, tvb)
        if tvb:len() ~= 4 and tvb:len() ~= 16 then return false end
        common.address(tree, tvb:len() == 4 and 4 or 6, f.refused_by, f.refused_by6, tvb, 0)
        return true
    end },
    [2004] = { 1, function() return true end },
    [2005] = { 0, function(tree, tvb, message)
        local length = tvb:len()
        if length < 16 or (length - 16) % 20 ~= 0 or (length - 16) / 20 > 8 then return false end
        tree:add(f["publication.opens"], tvb(0, 1))
        tree:add(f["publication.exactly"], tvb(0, 1))
        tree:add(f["publication.port"], tvb(2, 2))
        tree:add(f["publication.address"], tvb(4, 4))
        tree:add(f["publication.lease"], tvb(8, 8))
        for at = 16, length - 20, 20 do
            local prefix = tree:add(f["publication.filter.prefix"], tvb(at + 1, 1))
            if tvb(at + 1, 1):uint() > 128 then fault(message, prefix, 3, 8, "prefix longer than an address") end
            tree:add(f["publication.filter.port"], tvb(at + 2, 2))
            tree:add(f["publication.filter.address"], tvb(at + 4, 16))
        end
        return true
    end },
}

-- What each message has (RFC 5973 §4.3): 1 always, 0 maybe.
local grammar = {
    { [12] = 1, [15] = 1, [18] = 1, [17] = 0, [20] = 0 },
    { [12] = 1, [18] = 1, [15] = 1, [19] = 1, [17] = 0, [20] = 0, [14] = 0 },
    { [12] = 0, [18] = 1, [16] = 1, [13] = 0, [14] = 0 },
    { [16] = 1 },
}

function natfw.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(natfw, tvb(0, length))
    local message = { tree = tree, summary = "" }
    if length < 4 then
        fault(message, tree, 3, 2, "shorter than the header")
        return length
    end
    local kind = tvb(0, 1):uint()
    local type_item = tree:add(f.type, tvb(0, 1))
    tree:add(f["flags.p"], tvb(1, 1))
    tree:add(f["flags.e"], tvb(1, 1))
    if not message_names[kind] then
        fault(message, type_item, 3, 1, "type " .. kind)
        return length
    end
    local rows, seen = grammar[kind], {}
    local at, beyond = common.walk(tvb, 4, function(from, object, ab, words, complete)
        local size = complete and 4 + words * 4 or length - from
        local item = tree:add(f.object, tvb(from, size))
        item:set_text(common.name(object_names, object))
        item:add(f["object.ab"], tvb(from, 1))
        item:add(f["object.type"], tvb(from, 2))
        item:add(f["object.length"], tvb(from + 2, 2))
        if not complete then return fault(message, item, 3, 7, "object beyond the message") end
        local value = words > 0 and tvb(from + 4, words * 4):tvb() or nil
        if ab == 3 then return fault(message, item, 3, 9, "AB=11") end
        if objects[object] then
            if seen[object] then fault(message, item, 3, 10, object_names[object]) end
            seen[object] = true
            if rows[object] == nil then fault(message, item, 3, 5, object_names[object]) end
            if value then
                objects[object](message, item, value)
            else
                wrong_length(message, item, 0)
            end
            return
        end
        local ours = own[object]
        if ours and ours[1] == ab and (value == nil and (object == 2000 or object == 2004) or value and ours[2](item, value, message)) then return end
        if value then item:add(f["object.value"], tvb(from + 4, words * 4)) end
        if object == 22 and ab == 2 then return end
        if ours then item:add_proto_expert_info(e.unread) end
        if ab == 0 then
            fault(message, item, 3, 6, "type " .. object)
        elseif ab == 1 then
            item:add_proto_expert_info(e.ignored)
        else
            item:add_proto_expert_info(e.forwarded)
        end
    end)
    if not beyond and at ~= length then fault(message, tree, 3, 2, "octets behind the last object") end
    for object, need in pairs(rows) do
        local must = need == 1 or (object == 17 and kind <= 2 and tvb(1, 1):bitfield(0, 1) == 1) or (object == 12 and message.success)
        if must and not seen[object] and not beyond then fault(message, tree, 3, 4, object_names[object]) end
    end
    local summary = message_names[kind] .. message.summary
    tree:append_text(", " .. summary)
    pinfo.cols.info:append(", " .. summary)
    return length
end

common.nslps:add(33, natfw)
