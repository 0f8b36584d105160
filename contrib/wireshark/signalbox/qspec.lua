-- The QSPEC (RFC 5975, 5976), in messages of the QoS NSLP.

local common = require("signalbox.common")

local qspec = Proto("qspec", "QoS specification")

local type_names = { [0] = "default", "Y.1541", "RMD" }
local object_names = { [0] = "QoS Desired", "QoS Available", "QoS Reserved", "Minimum QoS" }
local parameter_names = {
    "TMOD-1", "TMOD-2", "Path Latency", "Path Jitter", "Path PLR", "Path PER", "Slack Term", "Preemption and Defending Priority",
    "Admission Priority", "RPH Priority", "Excess Treatment", "PHB Class", "DSTE Class Type", "Y.1541 QoS Class", "TMOD Extension",
    "Restoration Priority", "PHR_Resource_Request", "PHR_Release_Request", "PHR_Refresh_Update", "PDR_Reservation_Request",
    "PDR_Refresh_Request", "PDR_Release_Request", "PDR_Reservation_Report", "PDR_Refresh_Report", "PDR_Release_Report",
    "PDR_Congestion_Report",
}

local f = common.fields(qspec, "qspec.", {
    { "version", "u8", "Version", mask = 0xf0 },
    { "local", "bool", "I: local QSPEC", mask = 0x08 },
    { "type", "u16", "QSPEC type", values = type_names, mask = 0x07c0 },
    { "procedure", "u8", "QSPEC procedure", base = base.HEX },
    { "length", "u16", "Length in words", mask = 0x0fff },
    { "object", "bytes", "QSPEC object" },
    { "object.e", "bool", "E: error", mask = 0x80 },
    { "object.type", "u16", "Object type", values = object_names, mask = 0x0fff },
    { "object.length", "u16", "Object length in words", mask = 0x0fff },
    { "parameter", "bytes", "Parameter" },
    { "parameter.m", "bool", "M: must be interpreted", mask = 0x80 },
    { "parameter.e", "bool", "E: error", mask = 0x40 },
    { "parameter.n", "bool", "N: not supported", mask = 0x20 },
    { "parameter.id", "u16", "Parameter", values = parameter_names, mask = 0x0fff },
    { "parameter.length", "u16", "Parameter length in words", mask = 0x0fff },
    { "parameter.value", "bytes", "Value" },
    { "tmod.rate", "float", "Rate in octets/s" },
    { "tmod.bucket", "float", "Bucket size in octets" },
    { "tmod.peak", "float", "Peak data rate in octets/s" },
    { "tmod.min_policed", "u32", "Minimum policed unit" },
    { "tmod.max_packet", "u32", "Maximum packet size" },
    { "latency", "u32", "Path latency in µs" },
    { "jitter.variance", "u32", "Path jitter: variance" },
    { "jitter.percentile", "u32", "Path jitter: 99.9 percentile" },
    { "jitter.minimum_latency", "u32", "Path jitter: minimum latency" },
    { "plr", "float", "Path packet loss ratio" },
    { "per", "float", "Path packet error ratio" },
    { "slack", "u32", "Slack term in µs" },
    { "preemption", "u16", "Preemption priority" },
    { "defending", "u16", "Defending priority" },
    { "admission.y2171", "u8", "Y.2171 admission priority" },
    { "admission", "u8", "Admission priority" },
    { "rph.namespace", "u16", "RPH namespace" },
    { "rph.priority", "u8", "RPH priority" },
    { "excess", "u8", "Excess treatment", values = { [0] = "drop", "shape", "re-mark", "no metering or policing is permitted" } },
    { "excess.remark", "u8", "Re-mark value", mask = 0xfc },
    { "phb", "u16", "PHB field", base = base.HEX },
    { "dste", "u8", "DSTE class type" },
    { "y1541", "u8", "Y.1541 QoS class" },
    { "tmod.peak_bucket", "float", "Peak bucket size in octets" },
    { "restoration", "u8", "Restoration priority", values = { [0] = "best effort", "normal", "high" } },
    { "restoration.ttr", "u8", "Time to restore", mask = 0xf0 },
    { "restoration.eor", "u8", "Extent of restoration", mask = 0x0f },
})

local e = common.experts(qspec, "qspec.", {
    { "malformed", "QSPEC that cannot be read", "MALFORMED", "ERROR" },
    { "fault", "Parameter that RFC 5975 does not allow", "MALFORMED", "ERROR" },
    { "error", "A node could not meet or read this", "RESPONSE_CODE", "NOTE" },
    { "unknown", "Unknown parameter", "UNDECODED", "NOTE" },
})

-- RFC 5975 §5.2.1: not negative, and no exponent below 127 except that of 0.
local function rate(tree, key, range)
    local item = tree:add(f[key], range)
    local sign, exponent, rest = range:bitfield(0, 1), range:bitfield(1, 8), range:bitfield(9, 23)
    if sign == 1 or (exponent < 127 and not (exponent == 0 and rest == 0)) or (exponent == 255 and rest ~= 0) then
        item:add_proto_expert_info(e.fault, "A number that is not allowed")
    end
end

local function tmod(tree, tvb)
    rate(tree, "tmod.rate", tvb(0, 4))
    rate(tree, "tmod.bucket", tvb(4, 4))
    rate(tree, "tmod.peak", tvb(8, 4))
    tree:add(f["tmod.min_policed"], tvb(12, 4))
    tree:add(f["tmod.max_packet"], tvb(16, 4))
    tree:append_text(string.format(": %.0f octets/s", tvb(0, 4):float()))
end

local function fields(...)
    local rows = { ... }
    return function(tree, tvb)
        for _, row in ipairs(rows) do
            tree:add(f[row[1]], tvb(row[2], row[3]))
        end
    end
end

-- By identifier: words, and what is in them.
local parameters = {
    { 5, tmod },
    { 5, tmod },
    { 1, fields({ "latency", 0, 4 }) },
    { 4, fields({ "jitter.variance", 0, 4 }, { "jitter.percentile", 4, 4 }, { "jitter.minimum_latency", 8, 4 }) },
    { 1, fields({ "plr", 0, 4 }) },
    { 1, fields({ "per", 0, 4 }) },
    { 1, fields({ "slack", 0, 4 }) },
    { 1, fields({ "preemption", 0, 2 }, { "defending", 2, 2 }) },
    { 1, fields({ "admission.y2171", 0, 1 }, { "admission", 1, 1 }) },
    { 1, fields({ "rph.namespace", 0, 2 }, { "rph.priority", 2, 1 }) },
    { 1, fields({ "excess", 0, 1 }, { "excess.remark", 1, 1 }) },
    { 1, fields({ "phb", 0, 2 }) },
    { 1, fields({ "dste", 0, 1 }) },
    { 1, fields({ "y1541", 0, 1 }) },
    { 1, fields({ "tmod.peak_bucket", 0, 4 }) },
    { 1, fields({ "restoration", 0, 1 }, { "restoration.ttr", 1, 1 }, { "restoration.eor", 1, 1 }) },
}

local function dissect_parameters(tree, tvb)
    local seen = {}
    local at, beyond = common.walk(tvb, 0, function(from, id, _, words, complete)
        local size = complete and 4 + words * 4 or tvb:len() - from
        local item = tree:add(f.parameter, tvb(from, size))
        item:set_text(common.name(parameter_names, id))
        item:add(f["parameter.m"], tvb(from, 1))
        item:add(f["parameter.e"], tvb(from, 1))
        item:add(f["parameter.n"], tvb(from, 1))
        item:add(f["parameter.id"], tvb(from, 2))
        item:add(f["parameter.length"], tvb(from + 2, 2))
        if tvb(from, 1):bitfield(1, 1) == 1 then item:add_proto_expert_info(e.error) end
        if not complete then return end
        if seen[id] then item:add_proto_expert_info(e.fault, "A parameter that is there twice") end
        seen[id] = true
        local known = parameters[id]
        if known and known[1] == words then
            known[2](item, tvb(from + 4, words * 4):tvb())
        else
            if known then
                item:add_proto_expert_info(e.fault, words .. " words instead of " .. known[1])
            elseif id > #parameter_names or id == 0 then
                item:add_proto_expert_info(e.unknown)
            end
            if words > 0 then item:add(f["parameter.value"], tvb(from + 4, words * 4)) end
        end
    end)
    if beyond or at ~= tvb:len() then tree:add_proto_expert_info(e.malformed, "A parameter beyond its object") end
end

local function dissect_object(tree, tvb, seen)
    local kind = tvb(0, 2):bitfield(4, 12)
    local item = tree:add(f.object, tvb(0, tvb:len()))
    item:set_text(common.name(object_names, kind))
    item:add(f["object.e"], tvb(0, 1))
    item:add(f["object.type"], tvb(0, 2))
    item:add(f["object.length"], tvb(2, 2))
    if seen[kind] then item:add_proto_expert_info(e.malformed, "An object that is there twice") end
    seen[kind] = true
    if not object_names[kind] and (kind < 64 or kind > 67) then item:add_proto_expert_info(e.malformed, "Object type " .. kind) end
    if tvb:len() == 4 then
        item:add_proto_expert_info(e.malformed, "Empty object")
    else
        dissect_parameters(item, tvb(4, tvb:len() - 4):tvb())
    end
end

-- One QSPEC. The last element of a local one is that of the initiator, which is the result (RFC 5975 figure 3).
local function dissect_one(root, tvb, within)
    local length = tvb:len()
    if length < 4 then
        root:add(qspec, tvb(0, length)):add_proto_expert_info(e.malformed, "Shorter than the header")
        return nil
    end
    local tree = root:add(qspec, tvb(0, length))
    local is_local = tvb(0, 1):bitfield(4, 1) == 1
    tree:add(f.version, tvb(0, 1))
    tree:add(f["local"], tvb(0, 1))
    tree:add(f.type, tvb(0, 2))
    tree:add(f.procedure, tvb(1, 2), tvb(0, 4):bitfield(12, 8))
    tree:add(f.length, tvb(2, 2))
    local function malformed(text)
        tree:add_proto_expert_info(e.malformed, text)
        return nil
    end
    if tvb(0, 1):bitfield(0, 4) ~= 0 then return malformed("Version " .. tvb(0, 1):bitfield(0, 4)) end
    if within and is_local then return malformed("A local QSPEC within a local one") end
    if 4 + 4 * tvb(2, 2):bitfield(4, 12) ~= length then return malformed("Length of " .. tvb(2, 2):bitfield(4, 12) .. " words") end
    if length == 4 then return malformed("Empty QSPEC") end
    local initiator, seen = nil, {}
    local at, beyond = common.walk(tvb, 4, function(from, _, _, words, complete)
        if not complete then return end
        local part = tvb(from, 4 + words * 4):tvb()
        if is_local and from + part:len() == length then
            initiator = part
            if from == 4 then malformed("A local QSPEC without objects of its own") end
        else
            dissect_object(tree, part, seen)
        end
    end)
    if beyond or at ~= length then return malformed("An object beyond the QSPEC") end
    return initiator
end

function qspec.dissector(tvb, _, root)
    local initiator = dissect_one(root, tvb, false)
    if initiator then dissect_one(root, initiator, true) end
    return tvb:len()
end

common.qspec = qspec
