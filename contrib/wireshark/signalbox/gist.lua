-- GIST (RFC 5971): messages in UDP datagrams and in messaging associations over TCP, TLS and SCTP.

local common = require("signalbox.common")

local gist = Proto("gist", "General Internet Signalling Transport")

local message_names = { [0] = "Query", "Response", "Confirm", "Data", "Error", "MA-Hello" }
local nslp_names = { [0] = "GIST itself", [1] = "QoS NSLP", [33] = "NATFW NSLP", [32704] = "Ping", [32705] = "NSIS Ping" }
local object_names = {
    [0] = "Message-Routing-Information", "Session-Identifier", "Network-Layer-Information", "Stack-Proposal",
    "Stack-Configuration-Data", "Query-Cookie", "Responder-Cookie", "NAT-Traversal", "NSLP-Data", "Error", "Hello-ID",
}
local mrm_names = { [0] = "path-coupled", "loose-end" }
local ma_names = { "Forwards-TCP", "TLS", "Forwards-SCTP", "DTLS" }
local class_names = { [0] = "Informational", "Success", "Protocol-Error", "Transient-Failure", "Permanent-Failure" }
local code_names = {
    "Common Header Parse Error", "Hop Limit Exceeded", "Incorrect Encapsulation", "Incorrectly Delivered Message", "No Routing State",
    "Unknown NSLPID", "Endpoint Found", "Message Too Large", "Object Type Error", "Object Value Error", "Invalid IP-Layer TTL",
    "MRI Validation Failure",
}
local subcode_names = {
    [1] = { [0] = "Unknown Version", "Unknown Type", "Invalid R-flag", "Incorrect Message Length", "Invalid E-flag", "Invalid C-flag" },
    [9] = { [0] = "Duplicate Object", "Unrecognised Object", "Missing Object", "Invalid Object Type", "Untranslated Object",
        "Invalid Extensibility Flags" },
    [10] = { [0] = "Incorrect Length", "Value Not Supported", "Invalid Flag-Field Combination", "Empty List", "Invalid Cookie",
        "Stack-Proposal - Stack-Configuration-Data Mismatch" },
    [12] = { [0] = "MRI Too Wild", "IP Version Mismatch", "Ingress Filter Failure" },
}
local info_names = { "Message Length Info", "MTU Info", "Object Type Info", "Object Value Info" }
local mode_names = { "D-mode", "Q-mode", "C-mode" }

local f = common.fields(gist, "gist.", {
    { "magic", "u32", "Magic number", base = base.HEX },
    { "mode", "string", "Encapsulation" },
    { "version", "u8", "Version" },
    { "hops", "u8", "GIST hops" },
    { "length", "u16", "Message length in words" },
    { "nslpid", "u16", "NSLPID", values = nslp_names },
    { "flags.c", "bool", "C: without routing state", mask = 0x80 },
    { "type", "u8", "Message type", values = message_names, mask = 0x7f },
    { "flags.s", "bool", "S: source address is that of the signaling source", mask = 0x80 },
    { "flags.r", "bool", "R: reply requested", mask = 0x40 },
    { "flags.e", "bool", "E: explicitly routed", mask = 0x20 },
    { "object", "bytes", "Object" },
    { "object.ab", "u8", "Extensibility", values = { [0] = "mandatory", "ignore", "forward", "reserved" }, mask = 0xc0 },
    { "object.type", "u16", "Object type", values = object_names, mask = 0x0fff },
    { "object.length", "u16", "Object length in words", mask = 0x0fff },
    { "object.value", "bytes", "Value" },
    { "session", "bytes", "Session identifier" },
    { "mri", "bytes", "Routing information" },
    { "mri.mrm", "u8", "Message routing method", values = mrm_names },
    { "mri.n", "bool", "N: NATs need not translate", mask = 0x80 },
    { "mri.ip_version", "u8", "IP version", mask = 0xf0 },
    { "mri.p", "bool", "P: protocol counts", width = 16, mask = 0x0800 },
    { "mri.t", "bool", "T: DS field counts", width = 16, mask = 0x0400 },
    { "mri.f", "bool", "F: flow label", width = 16, mask = 0x0200 },
    { "mri.s", "bool", "S: SPI", width = 16, mask = 0x0100 },
    { "mri.a", "bool", "A: source port", width = 16, mask = 0x0080 },
    { "mri.b", "bool", "B: destination port", width = 16, mask = 0x0040 },
    { "mri.upstream", "bool", "D: upstream", width = 16, mask = 0x0020 },
    { "mri.from_edge", "bool", "D: from the edge", width = 16, mask = 0x0800 },
    { "mri.src", "ipv4", "Source" },
    { "mri.dst", "ipv4", "Destination" },
    { "mri.src6", "ipv6", "Source" },
    { "mri.dst6", "ipv6", "Destination" },
    { "mri.src_prefix", "u8", "Source prefix" },
    { "mri.dst_prefix", "u8", "Destination prefix" },
    { "mri.protocol", "u8", "Protocol" },
    { "mri.dscp", "u8", "DS field", mask = 0xfc },
    { "mri.flow_label", "u32", "Flow label", base = base.HEX, mask = 0xfffff },
    { "mri.spi", "u32", "SPI", base = base.HEX },
    { "mri.src_port", "u16", "Source port" },
    { "mri.dst_port", "u16", "Destination port" },
    { "nli.pi_length", "u8", "Length of the peer identity" },
    { "nli.ip_ttl", "u8", "IP TTL" },
    { "nli.ip_version", "u8", "IP version", mask = 0xf0 },
    { "nli.validity", "u32", "Routing state validity in ms" },
    { "nli.peer", "bytes", "Peer identity" },
    { "nli.interface", "ipv4", "Interface address" },
    { "nli.interface6", "ipv6", "Interface address" },
    { "stack.profiles", "u8", "Number of profiles" },
    { "stack.profile", "bytes", "Profile" },
    { "stack.protocol", "u8", "Protocol", values = ma_names },
    { "scd.options", "u8", "Number of options" },
    { "scd.hold_time", "u32", "MA hold time in ms" },
    { "scd.option", "bytes", "Options of a protocol" },
    { "scd.protocol", "u8", "Protocol", values = ma_names },
    { "scd.profile", "u8", "Profile" },
    { "scd.length", "u8", "Length of the options data" },
    { "scd.disabled", "bool", "D: must not be used", mask = 0x80 },
    { "scd.data", "bytes", "Options data" },
    { "scd.port", "u16", "Port" },
    { "query_cookie", "bytes", "Query cookie" },
    { "responder_cookie", "bytes", "Responder cookie" },
    { "nat.mri_length", "u8", "Length of the original MRI in words" },
    { "nat.types", "u8", "Number of translated types" },
    { "nat.count", "u8", "Number of NATs" },
    { "nat.type", "u16", "Translated object type", values = object_names, mask = 0x0fff },
    { "nat.replaced_length", "u16", "Length of the replaced information" },
    { "nat.replaced", "bytes", "Information replaced by a NAT" },
    { "data", "bytes", "NSLP data" },
    { "error.class", "u8", "Error class", values = class_names },
    { "error.code", "u16", "Error code", values = code_names },
    { "error.subcode", "u8", "Error subcode" },
    { "error.s", "bool", "S: session identifier", mask = 0x80 },
    { "error.m", "bool", "M: MRI", mask = 0x40 },
    { "error.c", "bool", "C: comment", mask = 0x20 },
    { "error.d", "bool", "D: original message in D-mode", mask = 0x10 },
    { "error.q", "bool", "Q: original message in Q-mode", mask = 0x08 },
    { "error.mri_length", "u8", "MRI length in words" },
    { "error.infos", "u8", "Number of additional informations" },
    { "error.header", "bytes", "Common header of the original message" },
    { "error.session", "bytes", "Session identifier of the original message" },
    { "error.info", "bytes", "Additional information" },
    { "error.info.type", "u16", "Type", values = info_names },
    { "error.info.length", "u16", "Length in words" },
    { "error.info.calculated", "u16", "Calculated length in words" },
    { "error.info.mtu", "u16", "Link MTU" },
    { "error.info.object_type", "u16", "Object type", base = base.HEX },
    { "error.info.real_length", "u16", "Real object length in words", mask = 0x0fff },
    { "error.info.offset", "u16", "Offset of the fault" },
    { "error.info.value", "bytes", "Value" },
    { "error.comment", "string", "Comment" },
    { "hello_id", "u32", "Hello ID" },
    { "fault.code", "u16", "A receiver answers with error code", values = code_names },
    { "fault.subcode", "u8", "Subcode of that error" },
    { "response_in", "frame", "Response in", frametype = frametype.RESPONSE },
    { "query_in", "frame", "Query in", frametype = frametype.REQUEST },
})

local e = common.experts(gist, "gist.", {
    { "fault", "A receiver answers with an error", "MALFORMED", "ERROR" },
    { "ignored", "Unknown object that a receiver deletes", "UNDECODED", "NOTE" },
    { "forwarded", "Unknown object that a receiver forwards unread", "UNDECODED", "NOTE" },
    { "error", "Error message", "RESPONSE_CODE", "NOTE" },
    { "truncated", "The capture has only the begin of the message", "UNDECODED", "NOTE" },
})

-- Query and Response by the query cookie.
local exchanges = common.pairs()
-- Addresses and ports at which nodes take messaging associations, from the Responses of this capture.
local offered = {}

function gist.init()
    exchanges = common.pairs()
    offered = {}
end

-- The message that is dissected: its tree, the number of its faults.
local function fault(message, item, code, subcode, text)
    local names = subcode_names[code]
    local name = code_names[code] .. (names and (": " .. names[subcode]) or "")
    item:add_proto_expert_info(e.fault, name .. " (" .. text .. ")")
    message.tree:add(f["fault.code"], code):set_generated()
    message.tree:add(f["fault.subcode"], subcode):set_generated()
    message.faults = message.faults + 1
end

-- The routing information, without object header; `what` is the item of faults. Only that of an object is judged as a receiver does.
local function dissect_mri(message, tree, tvb, judged)
    local flow = {}
    local function wrong(subcode, text)
        if judged then fault(message, tree, 10, subcode, text) end
        return nil
    end
    local length = tvb:len()
    if length < 4 then return wrong(0, "routing information of " .. length .. " octets") end
    tree:add(f["mri.mrm"], tvb(0, 1))
    tree:add(f["mri.n"], tvb(1, 1))
    local method = tvb(0, 1):uint()
    if method > 1 then return wrong(1, "message routing method " .. method) end
    local version = tvb(2, 1):bitfield(0, 4)
    tree:add(f["mri.ip_version"], tvb(2, 1))
    local size = common.address_length(version)
    if not size then return wrong(1, "IP version " .. version) end
    local flags = tvb(2, 2)
    local path_coupled = method == 0
    local has = { p = false, f = false, s = false, a = false, b = false }
    if path_coupled then
        for _, name in ipairs({ "p", "t", "f", "s", "a", "b" }) do
            tree:add(f["mri." .. name], flags)
        end
        tree:add(f["mri.upstream"], flags)
        has.p, has.f, has.s = flags:bitfield(4, 1) == 1, flags:bitfield(6, 1) == 1, flags:bitfield(7, 1) == 1
        has.t = flags:bitfield(5, 1) == 1
        has.a, has.b = flags:bitfield(8, 1) == 1, flags:bitfield(9, 1) == 1
        flow.upstream = flags:bitfield(10, 1) == 1
    else
        tree:add(f["mri.from_edge"], flags)
        flow.upstream = flags:bitfield(4, 1) == 1
        if flow.upstream and message.mode == "Q-mode" then wrong(1, "from the edge in Q-mode") end
    end
    local bad_flags = (has.f and version ~= 6) or (not has.p and (has.s or has.a or has.b))
    local needed = 4 + 2 * size
    if path_coupled then
        needed = needed + 4 + (has.f and 4 or 0) + (has.s and 4 or 0) + ((has.a or has.b) and 4 or 0)
    end
    if bad_flags then wrong(2, "flags of the routing information") end
    local at = 4 + 2 * size
    if path_coupled and length >= at + 4 and (tvb(at, 1):uint() > size * 8 or tvb(at + 1, 1):uint() > size * 8) then
        wrong(1, "prefix longer than the address")
    end
    if length < needed then return wrong(0, "routing information of " .. length .. " octets instead of " .. needed) end
    if length > needed then wrong(0, "routing information of " .. length .. " octets instead of " .. needed) end
    local _
    _, flow.src = common.address(tree, version, f["mri.src"], f["mri.src6"], tvb, 4)
    _, flow.dst = common.address(tree, version, f["mri.dst"], f["mri.dst6"], tvb, 4 + size)
    flow.version = version
    if not path_coupled then return flow end
    tree:add(f["mri.src_prefix"], tvb(at, 1))
    tree:add(f["mri.dst_prefix"], tvb(at + 1, 1))
    if has.p then tree:add(f["mri.protocol"], tvb(at + 2, 1)) end
    if has.t then tree:add(f["mri.dscp"], tvb(at + 3, 1)) end
    at = at + 4
    if has.f then
        tree:add(f["mri.flow_label"], tvb(at, 4))
        at = at + 4
    end
    if has.s then
        tree:add(f["mri.spi"], tvb(at, 4))
        at = at + 4
    end
    if has.a then
        tree:add(f["mri.src_port"], tvb(at, 2))
        flow.src = flow.src .. ":" .. tvb(at, 2):uint()
    end
    if has.b then
        tree:add(f["mri.dst_port"], tvb(at + 2, 2))
        flow.dst = flow.dst .. ":" .. tvb(at + 2, 2):uint()
    end
    return flow
end

local objects = {}

objects[0] = function(message, tree, tvb)
    local flow = dissect_mri(message, tree, tvb, true)
    if flow then
        message.flow = flow
        tree:append_text(": " .. flow.src .. " > " .. flow.dst .. (flow.upstream and ", upstream" or ""))
    end
end

objects[1] = function(message, tree, tvb)
    if tvb:len() ~= 16 then return fault(message, tree, 10, 0, "a session identifier has 4 words") end
    tree:add(f.session, tvb(0, 16))
    message.session = tvb(0, 16):bytes():tohex()
end

objects[2] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 8 then return fault(message, tree, 10, 0, "too short") end
    local identity = tvb(0, 1):uint()
    local version = tvb(2, 1):bitfield(0, 4)
    tree:add(f["nli.pi_length"], tvb(0, 1))
    tree:add(f["nli.ip_ttl"], tvb(1, 1))
    tree:add(f["nli.ip_version"], tvb(2, 1))
    local validity = tree:add(f["nli.validity"], tvb(4, 4))
    if tvb(4, 4):uint() == 0 then fault(message, validity, 10, 1, "validity time 0 is reserved") end
    local size = common.address_length(version)
    if not size then return fault(message, tree, 10, 1, "IP version " .. version) end
    local padded = math.floor((identity + 3) / 4) * 4
    if length ~= 8 + padded + size then return fault(message, tree, 10, 0, length .. " octets instead of " .. 8 + padded + size) end
    if identity > 0 then tree:add(f["nli.peer"], tvb(8, identity)) end
    local _
    _, message.interface = common.address(tree, version, f["nli.interface"], f["nli.interface6"], tvb, 8 + padded)
    tree:append_text(": " .. message.interface)
end

objects[3] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 4 then return fault(message, tree, 10, 0, "too short") end
    local count = tvb(0, 1):uint()
    tree:add(f["stack.profiles"], tvb(0, 1))
    message.layers = {}
    if count == 0 then return fault(message, tree, 10, 1, "no profile") end
    local at = 4
    for number = 1, count do
        if at >= length then return fault(message, tree, 10, 0, "fewer profiles than announced") end
        local layers = tvb(at, 1):uint()
        local size = math.floor((1 + layers + 3) / 4) * 4
        if layers == 0 then return fault(message, tree, 10, 3, "empty profile") end
        if at + size > length then return fault(message, tree, 10, 0, "profile beyond the object") end
        local profile = tree:add(f["stack.profile"], tvb(at, size))
        local names = {}
        for layer = 1, layers do
            local item = profile:add(f["stack.protocol"], tvb(at + layer, 1))
            local protocol = tvb(at + layer, 1):uint()
            if protocol == 0 then fault(message, item, 10, 1, "protocol 0 is reserved") end
            message.layers[number .. " " .. protocol], message.layers["0 " .. protocol] = true, true
            names[#names + 1] = common.name(ma_names, protocol)
        end
        profile:set_text("Profile: " .. table.concat(names, " over "))
        at = at + size
    end
    if at ~= length then fault(message, tree, 10, 0, "octets behind the profiles") end
end

objects[4] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 8 then return fault(message, tree, 10, 0, "too short") end
    local count = tvb(0, 1):uint()
    tree:add(f["scd.options"], tvb(0, 1))
    local hold = tree:add(f["scd.hold_time"], tvb(4, 4))
    if tvb(4, 4):uint() == 0 then fault(message, hold, 10, 1, "hold time 0 is reserved") end
    local at = 8
    for _ = 1, count do
        if at + 4 > length then return fault(message, tree, 10, 0, "fewer options than announced") end
        local octets = tvb(at + 2, 1):uint()
        local size = 4 + math.floor((octets + 3) / 4) * 4
        if at + size > length then return fault(message, tree, 10, 0, "options beyond the object") end
        local option = tree:add(f["scd.option"], tvb(at, size))
        local protocol = tvb(at, 1):uint()
        option:set_text("Options of " .. common.name(ma_names, protocol))
        option:add(f["scd.protocol"], tvb(at, 1))
        local profile = option:add(f["scd.profile"], tvb(at + 1, 1))
        if message.layers and not message.layers[tvb(at + 1, 1):uint() .. " " .. protocol] then
            fault(message, profile, 10, 5, "protocol " .. protocol .. " is not in this profile")
        end
        option:add(f["scd.length"], tvb(at + 2, 1))
        option:add(f["scd.disabled"], tvb(at + 3, 1))
        if octets > 0 then
            option:add(f["scd.data"], tvb(at + 4, octets))
            if (protocol == 1 or protocol == 3) and octets >= 2 then
                option:add(f["scd.port"], tvb(at + 4, 2))
                option:append_text(", port " .. tvb(at + 4, 2):uint())
                message.port = tvb(at + 4, 2):uint()
            end
        end
        at = at + size
    end
    if at ~= length then fault(message, tree, 10, 0, "octets behind the options") end
end

objects[5] = function(message, tree, tvb)
    tree:add(f.query_cookie, tvb(0, tvb:len()))
    message.query_cookie = tvb(0, tvb:len()):bytes():tohex()
end

objects[6] = function(_, tree, tvb)
    tree:add(f.responder_cookie, tvb(0, tvb:len()))
end

objects[7] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 4 then return fault(message, tree, 10, 0, "too short") end
    local mri, types, nats = tvb(0, 1):uint() * 4, tvb(1, 1):uint(), tvb(2, 1):uint()
    tree:add(f["nat.mri_length"], tvb(0, 1))
    tree:add(f["nat.types"], tvb(1, 1))
    tree:add(f["nat.count"], tvb(2, 1))
    local at = 4
    if at + mri > length then return fault(message, tree, 10, 0, "routing information beyond the object") end
    if mri > 0 then
        dissect_mri(message, tree:add(f.mri, tvb(at, mri)):set_text("Original routing information"), tvb(at, mri):tvb(), false)
    end
    at = at + mri
    if at + math.floor((types + 1) / 2) * 4 > length then return fault(message, tree, 10, 0, "types beyond the object") end
    for index = 0, types - 1 do
        tree:add(f["nat.type"], tvb(at + index * 2, 2))
    end
    at = at + math.floor((types + 1) / 2) * 4
    for _ = 1, nats do
        if at + 2 > length then return fault(message, tree, 10, 0, "fewer NATs than announced") end
        local octets = tvb(at, 2):uint()
        local size = math.floor((2 + octets + 3) / 4) * 4
        if at + size > length then return fault(message, tree, 10, 0, "replaced information beyond the object") end
        tree:add(f["nat.replaced_length"], tvb(at, 2))
        if octets > 0 then tree:add(f["nat.replaced"], tvb(at + 2, octets)) end
        at = at + size
    end
    if at ~= length then fault(message, tree, 10, 0, "octets behind the last NAT") end
end

objects[8] = function(message, tree, tvb)
    tree:add(f.data, tvb(0, tvb:len()))
    message.payload = tvb
end

-- What an Error has behind its flags, fixed fields first.
objects[9] = function(message, tree, tvb)
    local length = tvb:len()
    if length < 16 then return fault(message, tree, 10, 0, "too short") end
    local class, code, subcode = tvb(0, 1):uint(), tvb(1, 2):uint(), tvb(3, 1):uint()
    tree:add(f["error.class"], tvb(0, 1))
    tree:add(f["error.code"], tvb(1, 2))
    local names = subcode_names[code]
    local item = tree:add(f["error.subcode"], tvb(3, 1))
    if names and names[subcode] then item:append_text(" (" .. names[subcode] .. ")") end
    message.error = common.name(code_names, code) .. ((names and names[subcode]) and (": " .. names[subcode]) or "")
    tree:append_text(": " .. message.error)
    tree:add_proto_expert_info(e.error, common.name(class_names, class) .. ": " .. message.error)
    local flags = tvb(4, 1)
    for _, name in ipairs({ "s", "m", "c", "d", "q" }) do
        tree:add(f["error." .. name], flags)
    end
    local has_session, has_mri, has_comment = flags:bitfield(0, 1) == 1, flags:bitfield(1, 1) == 1, flags:bitfield(2, 1) == 1
    if flags:bitfield(4, 1) == 1 and flags:bitfield(3, 1) == 0 then fault(message, tree, 10, 2, "Q without D") end
    local mri, infos = tvb(6, 1):uint() * 4, tvb(7, 1):uint()
    tree:add(f["error.mri_length"], tvb(6, 1))
    tree:add(f["error.infos"], tvb(7, 1))
    tree:add(f["error.header"], tvb(8, 8))
    local at = 16
    if has_session then
        if at + 16 > length then return fault(message, tree, 10, 0, "session identifier beyond the object") end
        tree:add(f["error.session"], tvb(at, 16))
        at = at + 16
    end
    if has_mri then
        if at + mri > length then return fault(message, tree, 10, 0, "routing information beyond the object") end
        if mri > 0 then
            dissect_mri(message, tree:add(f.mri, tvb(at, mri)):set_text("Original routing information"), tvb(at, mri):tvb(), false)
        end
        at = at + mri
    end
    for _ = 1, infos do
        if at + 4 > length then return fault(message, tree, 10, 0, "fewer additional informations than announced") end
        local kind, size = tvb(at, 2):uint(), tvb(at + 2, 2):uint() * 4
        if at + 4 + size > length then return fault(message, tree, 10, 0, "additional information beyond the object") end
        local info = tree:add(f["error.info"], tvb(at, 4 + size))
        info:set_text(common.name(info_names, kind))
        info:add(f["error.info.type"], tvb(at, 2))
        info:add(f["error.info.length"], tvb(at + 2, 2))
        if kind == 1 and size == 4 then
            info:add(f["error.info.calculated"], tvb(at + 4, 2))
        elseif kind == 2 and size == 4 then
            info:add(f["error.info.mtu"], tvb(at + 4, 2))
        elseif kind == 3 and size == 4 then
            info:add(f["error.info.object_type"], tvb(at + 4, 2))
        elseif kind == 4 and size > 4 then
            info:add(f["error.info.real_length"], tvb(at + 4, 2))
            info:add(f["error.info.offset"], tvb(at + 6, 2))
            info:add(f["error.info.value"], tvb(at + 8, size - 4))
        elseif size > 0 then
            info:add(f["error.info.value"], tvb(at + 4, size))
        end
        at = at + 4 + size
    end
    if has_comment then
        local text = at < length and tvb(at, length - at):raw() or ""
        if at < length then tree:add(f["error.comment"], tvb(at, length - at), common.text(tvb(at, length - at))) end
        -- It ends with a zero, and zeros fill the word.
        local zero = text:find("\0", 1, true)
        if not zero or math.floor((zero + 3) / 4) * 4 ~= #text then fault(message, tree, 10, 0, "comment and its padding") end
    elseif at ~= length then
        fault(message, tree, 10, 0, "octets behind the last information")
    end
end

objects[10] = function(message, tree, tvb)
    if tvb:len() ~= 4 then return fault(message, tree, 10, 0, "a Hello-ID has one word") end
    local item = tree:add(f.hello_id, tvb(0, 4))
    if message.r and tvb(0, 4):uint() == 0 then fault(message, item, 10, 1, "a request has another Hello-ID than 0") end
end

-- What each message has (RFC 5971 §5.1), in its order: 1 always, 0 maybe.
local grammar = {
    [0] = { { 7, 0 }, { 0, 1 }, { 1, 1 }, { 2, 1 }, { 5, 1 }, { 3, 0 }, { 4, 0 }, { 8, 0 } },
    [1] = { { 7, 0 }, { 0, 1 }, { 1, 1 }, { 2, 1 }, { 5, 1 }, { 6, 0 }, { 3, 0 }, { 4, 0 }, { 8, 0 } },
    [2] = { { 0, 1 }, { 1, 1 }, { 2, 1 }, { 6, 0 }, { 3, 0 }, { 4, 0 }, { 8, 0 } },
    [3] = { { 7, 0 }, { 0, 1 }, { 1, 1 }, { 2, 0 }, { 8, 1 } },
    [4] = { { 7, 0 }, { 2, 0 }, { 9, 1 } },
    [5] = { { 10, 1 } },
}

local function judge_objects(message, seen)
    local rows = grammar[message.type]
    if not rows then return end
    local allowed, position, last = {}, {}, 0
    for index, row in ipairs(rows) do
        allowed[row[1]], position[row[1]] = row[2], index
    end
    -- The NLI is that of messages outside of associations.
    if message.type == 3 or message.type == 4 then
        if message.mode == "C-mode" then
            if message.type == 3 then allowed[2] = nil end
        else
            allowed[2] = 1
        end
    end
    if message.type == 2 and seen[3] and not seen[6] then allowed[6] = 1 end
    if message.type == 1 and (seen[3] or seen[4]) then allowed[6] = 1 end
    if (message.type == 0 or message.type == 1) and (seen[3] or seen[4]) then allowed[3], allowed[4] = 1, 1 end
    if message.type == 2 and seen[4] then allowed[3] = 1 end
    for _, row in ipairs(seen.list) do
        local kind, item = row[1], row[2]
        if allowed[kind] == nil then
            fault(message, item, 9, 3, object_names[kind] .. " in a " .. message_names[message.type])
        else
            if position[kind] < last then fault(message, item, 9, 3, object_names[kind] .. " in another order than that of RFC 5971") end
            last = position[kind]
        end
    end
    for kind, need in pairs(allowed) do
        if need == 1 and not seen[kind] then fault(message, message.tree, 9, 2, object_names[kind]) end
    end
end

local function dissect_objects(message, tvb)
    local tree, seen = message.tree, { list = {} }
    local at, beyond = common.walk(tvb, 8, function(at, kind, ab, words, complete)
        local size = complete and 4 + words * 4 or tvb:len() - at
        local item = tree:add(f.object, tvb(at, size))
        item:set_text(common.name(object_names, kind))
        item:add(f["object.ab"], tvb(at, 1))
        item:add(f["object.type"], tvb(at, 2))
        item:add(f["object.length"], tvb(at + 2, 2))
        if not complete then return end
        if ab == 3 then fault(message, item, 9, 5, "AB=11") end
        local known = objects[kind]
        if not known then
            if words > 0 then item:add(f["object.value"], tvb(at + 4, words * 4)) end
            if ab == 0 then
                fault(message, item, 9, 1, "type " .. kind)
            elseif ab == 1 then
                item:add_proto_expert_info(e.ignored)
            elseif ab == 2 then
                item:add_proto_expert_info(e.forwarded)
            end
            return
        end
        if seen[kind] then
            fault(message, item, 9, 0, object_names[kind])
        end
        seen[kind] = true
        seen.list[#seen.list + 1] = { kind, item }
        if words > 0 then
            known(message, item, tvb(at + 4, words * 4):tvb())
        elseif kind ~= 8 then
            fault(message, item, 10, 0, "an object without value")
        end
    end)
    if beyond or at ~= tvb:len() then
        fault(message, tree, 1, 3, beyond and "an object beyond the message" or "octets behind the last object")
    end
    judge_objects(message, seen)
    return seen
end

local function judge_header(message, seen)
    local kind, item = message.type, message.tree
    if not message_names[kind] then return fault(message, item, 1, 1, "type " .. kind) end
    local r_wrong = (kind == 0 and not message.r) or (message.r and (kind == 2 or kind == 3 or kind == 4))
        or (kind == 1 and not message.r and seen[6])
    if r_wrong then fault(message, item, 1, 2, "R=" .. (message.r and 1 or 0) .. " in a " .. message_names[kind]) end
    if message.e and kind ~= 3 then fault(message, item, 1, 4, "E=1 in a " .. message_names[kind]) end
    if message.c then
        if kind ~= 0 and not (kind == 3 and message.mode == "Q-mode") then
            fault(message, item, 1, 5, "C=1 in a " .. message_names[kind])
        end
    elseif kind == 0 then
        fault(message, item, 1, 5, "C=0 in a Query")
    end
    if kind == 0 and message.mode == "C-mode" then fault(message, item, 3, 0, "a Query comes in Q-mode") end
    if kind == 5 and message.mode ~= "C-mode" then fault(message, item, 3, 0, "an MA-Hello comes over an association") end
    if kind == 2 and message.mode ~= "C-mode" and seen[3] then
        fault(message, item, 3, 0, "the Confirm of an association comes over it")
    end
end

local function link_exchange(message, pinfo)
    local cookie = message.query_cookie
    if not cookie or message.type > 1 then return end
    if not pinfo.visited then
        common.remember(exchanges, message.type == 0 and "requests" or "answers", cookie, pinfo.number)
        if message.type == 1 and message.port and message.interface then
            offered[message.interface .. " " .. message.port] = true
        end
    end
    local frames = message.type == 0 and exchanges.answers or exchanges.requests
    local other = frames[cookie]
    if other and other ~= pinfo.number then
        message.tree:add(message.type == 0 and f.response_in or f.query_in, other):set_generated()
    end
end

local describe = {
    [4] = function(message) return message.error or "" end,
}

-- Dissects one message that begins with the common header. `tvb` has the message and nothing else, or the begin of it.
local function dissect_message(tvb, pinfo, root, mode, magic, truncated)
    local whole = magic or tvb(0, tvb:len())
    local tree = root:add(gist, whole)
    local message = { tree = tree, faults = 0 }
    if magic then tree:add(f.magic, magic(0, 4)) end
    if tvb:len() < 8 then
        if not truncated then fault(message, tree, 1, 3, "shorter than the common header") end
        return
    end
    message.c, message.type = tvb(6, 1):bitfield(0, 1) == 1, tvb(6, 1):bitfield(1, 7)
    if mode == "D-mode" and message.c then mode = "Q-mode" end
    message.mode = mode
    message.r, message.e = tvb(7, 1):bitfield(1, 1) == 1, tvb(7, 1):bitfield(2, 1) == 1
    tree:add(f.mode, mode):set_generated()
    tree:add(f.version, tvb(0, 1))
    tree:add(f.hops, tvb(1, 1))
    tree:add(f.length, tvb(2, 2))
    tree:add(f.nslpid, tvb(4, 2))
    tree:add(f["flags.c"], tvb(6, 1))
    tree:add(f.type, tvb(6, 1))
    tree:add(f["flags.s"], tvb(7, 1))
    tree:add(f["flags.r"], tvb(7, 1))
    tree:add(f["flags.e"], tvb(7, 1))
    local name = common.name(message_names, message.type)
    local nslpid = tvb(4, 2):uint()
    if tvb(0, 1):uint() ~= 1 then
        return fault(message, tree, 1, 0, "version " .. tvb(0, 1):uint())
    end
    local announced = tvb(2, 2):uint() * 4 + 8
    local objects_of = tvb
    if truncated then
        tree:add_proto_expert_info(e.truncated)
    elseif announced ~= tvb:len() then
        fault(message, tree, 1, 3, announced .. " octets announced, " .. tvb:len() .. " there")
    end
    local seen = dissect_objects(truncated and { tree = tree, faults = 0, type = -1, mode = mode, r = message.r } or message, objects_of)
    if not truncated then
        judge_header(message, seen)
        link_exchange(message, pinfo)
    end
    local summary = name
    if message.type ~= 5 then summary = summary .. " " .. (nslp_names[nslpid] or ("NSLPID " .. nslpid)) end
    if message.flow then summary = summary .. " " .. message.flow.src .. " > " .. message.flow.dst end
    local more = describe[message.type]
    if more then summary = summary .. " " .. more(message) end
    tree:append_text(", " .. summary)
    if message.faults > 0 then summary = summary .. " [faulty]" end
    pinfo.cols.info:append((pinfo.cols.info_begun and ", " or "") .. summary)
    if message.payload and message.faults == 0 then
        common.nslps:try(nslpid, message.payload, pinfo, root)
    end
end

local magic_number = 0x4e04bda5

local function begin(pinfo)
    pinfo.cols.protocol:set("GIST")
    pinfo.cols.info:clear()
    pinfo.cols.info:fence()
end

-- UDP: messages with a magic number. Several datagrams that a node sent by one call are one packet in a capture on that node.
function gist.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local truncated = tvb:reported_len() > length
    if length < 4 or tvb(0, 4):uint() ~= magic_number then return 0 end
    begin(pinfo)
    local at = 0
    while length - at >= 12 and tvb(at, 4):uint() == magic_number do
        local size = tvb(at + 6, 2):uint() * 4 + 12
        local rest = length - at
        local follows = size + 4 <= rest and tvb(at + size, 4):uint() == magic_number
        local this = (follows or size == rest) and size or rest
        dissect_message(tvb(at + 4, this - 4):tvb(), pinfo, root, "D-mode", tvb(at, this), truncated and this == rest)
        at = at + this
    end
    if at == 0 then
        -- Too short for a common header.
        if length > 4 then dissect_message(tvb(4, length - 4):tvb(), pinfo, root, "D-mode", tvb(0, length), truncated) end
        return length
    end
    return length
end

-- Messages of an association have no magic number; the header has the length.
local associated = Proto("gist_ma", "GIST messaging association")

local function message_length(tvb, _, offset)
    return tvb(offset + 2, 2):uint() * 4 + 8
end

local function dissect_associated(tvb, pinfo, root)
    dissect_message(tvb(0, tvb:len()):tvb(), pinfo, root, "C-mode", nil, false)
    return tvb:len()
end

-- Content types of TLS records.
local function is_tls(tvb)
    local first = tvb:len() > 0 and tvb(0, 1):uint() or 0
    return first >= 20 and first <= 23
end

function associated.dissector(tvb, pinfo, root)
    if is_tls(tvb) then
        local tls = Dissector.get("tls")
        pcall(tls.call, tls, tvb, pinfo, root)
        return tvb:len()
    end
    begin(pinfo)
    dissect_tcp_pdus(tvb, root, 8, message_length, dissect_associated)
    return tvb:len()
end

-- Does a stream begin with a message of RFC 5971? Without a magic number the first object decides: routing information of a size that is
-- possible, or the Hello-ID.
local function looks_like_message(tvb)
    if tvb:len() < 12 or tvb(0, 1):uint() ~= 1 then return false end
    local kind = tvb(6, 1):uint()
    if kind < 1 or kind > 5 then return false end
    local words, first, size = tvb(2, 2):uint(), tvb(8, 2):uint(), tvb(10, 2):uint()
    if kind == 5 then return words == 2 and first == 10 and size == 1 end
    if kind == 4 then return first == 2 or first == 9 or first == 7 end
    return (first == 0 and size >= 3 and size <= 12 and words > size) or (first == 7 and words > size)
end

local function associated_heuristic(tvb, pinfo, root)
    local known = offered[tostring(pinfo.dst) .. " " .. pinfo.dst_port] or offered[tostring(pinfo.src) .. " " .. pinfo.src_port]
    if not known and not looks_like_message(tvb) then return false end
    -- TLS and other things that this port may have.
    if tvb:len() >= 1 and tvb(0, 1):uint() ~= 1 then return false end
    pinfo.conversation = associated
    associated.dissector(tvb, pinfo, root)
    return true
end

associated:register_heuristic("tcp", associated_heuristic)
associated:register_heuristic("tls", associated_heuristic)
-- One user message of SCTP is one message.
associated:register_heuristic("sctp", function(tvb, pinfo, root)
    if not looks_like_message(tvb) or message_length(tvb, pinfo, 0) ~= tvb:len() then return false end
    begin(pinfo)
    dissect_associated(tvb, pinfo, root)
    return true
end)

DissectorTable.get("udp.port"):add(270, gist)
DissectorTable.get("tcp.port"):add(270, associated)
-- Queries from a port of their own, and Responses to it.
gist:register_heuristic("udp", function(tvb, pinfo, root)
    if tvb:len() < 12 or tvb(0, 4):uint() ~= magic_number then return false end
    gist.dissector(tvb, pinfo, root)
    return true
end)
