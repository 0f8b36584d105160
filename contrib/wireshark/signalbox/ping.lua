-- The Ping application (docs/wire/ping.md) and the NSIS Ping tool (docs/wire/nsis-ping.md), in NSLP-Data of GIST.

local common = require("signalbox.common")

local ping = Proto("gist_ping", "GIST Ping")

local kinds = { "echo request", "echo reply" }

local f = common.fields(ping, "gist_ping.", {
    { "version", "u8", "Version", mask = 0xf0 },
    { "kind", "u8", "Kind", values = kinds, mask = 0x0f },
    { "flags.end", "bool", "E: turned round at the end of the flow", mask = 0x80 },
    { "flags.no_next", "bool", "N: turned round, no node further on", mask = 0x40 },
    { "flags.not_sent", "bool", "S: turned round, no route or not sent", mask = 0x20 },
    { "flags.padding", "bool", "P: padding", mask = 0x10 },
    { "flags.there_full", "bool", "T: a node on the way there found no room", mask = 0x02 },
    { "flags.back_full", "bool", "B: a node on the way back found no room", mask = 0x01 },
    { "there", "u8", "Records of the way there" },
    { "back", "u8", "Records of the way back" },
    { "sequence", "u32", "Sequence" },
    { "identifier", "u64", "Identifier", base = base.HEX },
    { "sent", "u64", "Time sent in µs since 1970" },
    { "record", "bytes", "Record" },
    { "record.family", "u8", "Family", mask = 0xf0 },
    { "record.distance", "u16", "IP distance", mask = 0x0ff0 },
    { "record.received", "u64", "Time received in µs since 1970" },
    { "record.held", "u32", "Time held in µs" },
    { "record.address", "ipv4", "Address" },
    { "record.address6", "ipv6", "Address" },
    { "padding", "bytes", "Padding" },
    { "padding.length", "u32", "Length of the padding" },
})

local e = common.experts(ping, "gist_ping.", {
    { "malformed", "A receiver drops the message", "MALFORMED", "ERROR" },
    { "kind", "Unknown kind, which a receiver drops", "PROTOCOL", "WARN" },
    { "version", "Another version, which a receiver drops", "MALFORMED", "ERROR" },
})

-- The records of one way from `at` on. The result is the place behind them, or nil if the message ends before.
local function records(tree, tvb, at, count, way)
    local length = tvb:len()
    for index = 1, count do
        if at + 16 > length then return nil end
        local family = tvb(at, 1):bitfield(0, 4)
        local size = common.address_length(family)
        if not size or at + 12 + size > length then return nil end
        local record = tree:add(f.record, tvb(at, 12 + size))
        record:add(f["record.family"], tvb(at, 1))
        record:add(f["record.distance"], tvb(at, 2))
        record:add(f["record.received"], tvb(at, 8), tvb(at, 8):uint64():band(UInt64(0xffffffff, 0x000fffff)))
        record:add(f["record.held"], tvb(at + 8, 4))
        local _, address = common.address(record, family, f["record.address"], f["record.address6"], tvb, at + 12)
        record:set_text(way .. " " .. index .. ": " .. address)
        at = at + 12 + size
    end
    return at
end

function ping.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(ping, tvb(0, length))
    if length < 24 then
        tree:add_proto_expert_info(e.malformed, "Shorter than the header")
        return length
    end
    tree:add(f.version, tvb(0, 1))
    tree:add(f.kind, tvb(0, 1))
    local kind = kinds[tvb(0, 1):bitfield(4, 4)]
    if tvb(0, 1):bitfield(0, 4) ~= 1 then
        tree:add_proto_expert_info(e.version)
        return length
    end
    for _, name in ipairs({ "end", "no_next", "not_sent", "padding", "there_full", "back_full" }) do
        tree:add(f["flags." .. name], tvb(1, 1))
    end
    tree:add(f.there, tvb(2, 1))
    tree:add(f.back, tvb(3, 1))
    tree:add(f.sequence, tvb(4, 4))
    tree:add(f.identifier, tvb(8, 8))
    tree:add(f.sent, tvb(16, 8))
    if not kind then tree:add_proto_expert_info(e.kind) end
    local summary = (kind or "unknown") .. " " .. tvb(4, 4):uint()
    tree:append_text(", " .. summary)
    pinfo.cols.info:append(", " .. summary)
    local at = records(tree, tvb, 24, tvb(2, 1):uint(), "There")
    at = at and records(tree, tvb, at, tvb(3, 1):uint(), "Back")
    if not at then
        tree:add_proto_expert_info(e.malformed, "Records that the message does not have, or of another family")
        return length
    end
    if tvb(1, 1):bitfield(3, 1) == 1 then
        if at + 4 > length then
            tree:add_proto_expert_info(e.malformed, "No length of the padding")
            return length
        end
        local octets = tvb(at, 4):uint()
        tree:add(f["padding.length"], tvb(at, 4))
        at = at + 4
        if octets % 4 ~= 0 or octets > length - at then
            tree:add_proto_expert_info(e.malformed, "Length of the padding")
            return length
        end
        if octets > 0 then tree:add(f.padding, tvb(at, octets)) end
        at = at + octets
    end
    if at ~= length then tree:add_proto_expert_info(e.malformed, "Octets behind the message") end
    return length
end

local nsis = Proto("nsis_ping", "NSIS Ping")

local nf = common.fields(nsis, "nsis_ping.", {
    { "version", "u8", "Version" },
    { "hops", "u8", "Hops" },
    { "length", "u8", "Length in octets" },
    { "objects", "u8", "Object count" },
    { "sequence", "u32", "Sequence number" },
    { "object.type", "u16", "Object type", values = { "IP address", "timestamp" } },
    { "object.length", "u16", "Object length in octets" },
    { "record", "bytes", "Record" },
    { "record.address", "ipv4", "Address" },
    { "record.address6", "ipv6", "Address" },
    { "record.seconds", "u32", "Seconds since 1970" },
    { "record.microseconds", "u32", "Microseconds" },
    { "record.other", "bytes", "Data of another object" },
})

local ne = common.experts(nsis, "nsis_ping.", {
    { "malformed", "A receiver drops the message", "MALFORMED", "ERROR" },
})

-- The address in 16 octets: IPv4 as ::ffff:a.b.c.d, or with twelve zeros in front of it or behind it.
local function nsis_address(tree, tvb, at)
    local zeros = string.rep("\0", 12)
    local raw = tvb:raw(at, 16)
    if raw:sub(1, 12) == string.rep("\0", 10) .. "\255\255" then
        return tree:add(nf["record.address"], tvb(at + 12, 4))
    elseif raw:sub(1, 12) == zeros then
        return tree:add(nf["record.address"], tvb(at + 12, 4))
    elseif raw:sub(5, 16) == zeros then
        return tree:add(nf["record.address"], tvb(at, 4))
    end
    return tree:add(nf["record.address6"], tvb(at, 16))
end

function nsis.dissector(tvb, pinfo, root)
    local length = tvb:len()
    local tree = root:add(nsis, tvb(0, length))
    local function malformed(text)
        tree:add_proto_expert_info(ne.malformed, text)
        return length
    end
    if length < 8 then return malformed("Shorter than the header") end
    tree:add(nf.version, tvb(0, 1))
    tree:add(nf.hops, tvb(1, 1))
    tree:add(nf.length, tvb(2, 1))
    tree:add(nf.objects, tvb(3, 1))
    tree:add(nf.sequence, tvb(4, 4))
    pinfo.cols.info:append(", hops " .. tvb(1, 1):uint() .. ", number " .. tvb(4, 4):uint())
    local announced, count = tvb(2, 1):uint(), tvb(3, 1):uint()
    if tvb(0, 1):uint() ~= 1 then return malformed("Another version") end
    if announced > length or 8 + 4 * count > announced then return malformed("Length of the message") end
    local sizes, size = {}, 0
    for index = 0, count - 1 do
        tree:add(nf["object.type"], tvb(8 + 4 * index, 2))
        tree:add(nf["object.length"], tvb(10 + 4 * index, 2))
        sizes[#sizes + 1] = { tvb(8 + 4 * index, 2):uint(), tvb(10 + 4 * index, 2):uint() }
        size = size + tvb(10 + 4 * index, 2):uint()
    end
    local at = 8 + 4 * count
    if size == 0 then
        if at ~= announced then return malformed("Records without objects") end
        return length
    end
    if (announced - at) % size ~= 0 then return malformed("A record that is not whole") end
    while at + size <= announced do
        local record = tree:add(nf.record, tvb(at, size))
        for _, object in ipairs(sizes) do
            if object[1] == 1 and object[2] == 16 then
                nsis_address(record, tvb, at)
            elseif object[1] == 2 and object[2] == 8 then
                record:add(nf["record.seconds"], tvb(at, 4))
                record:add(nf["record.microseconds"], tvb(at + 4, 4))
            elseif object[2] > 0 then
                record:add(nf["record.other"], tvb(at, object[2]))
            end
            at = at + object[2]
        end
    end
    return length
end

common.nslps:add(32704, ping)
common.nslps:add(32705, nsis)
