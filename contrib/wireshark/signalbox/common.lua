-- What the dissectors of this folder share: declarations of fields, objects of GIST and the NSLPs, limits.
-- Wireshark runs each file of the folder; the others get this one by `require`, which runs it once.

local M = {}

local function dissector_table(name, title, kind)
    local found, existing = pcall(DissectorTable.get, name)
    if found and existing then return existing end
    return DissectorTable.new(name, title, kind, base.DEC)
end

-- Applications of GIST by NSLPID, and clients of CASP by C-Type; dissectors of others can register here too.
M.nslps = dissector_table("gist.nslpid", "GIST NSLPID", ftypes.UINT16)
M.casp_clients = dissector_table("casp.client", "CASP client", ftypes.UINT8)

local kinds = {
    u8 = ftypes.UINT8, u16 = ftypes.UINT16, u24 = ftypes.UINT24, u32 = ftypes.UINT32, u64 = ftypes.UINT64,
    bytes = ftypes.BYTES, string = ftypes.STRING, ipv4 = ftypes.IPv4, ipv6 = ftypes.IPv6, float = ftypes.FLOAT,
}

-- Declares fields: rows of { key, kind, name, values = names of values, base = …, mask = …, width = … }.
-- The result has the fields by key; the filter of a field is the prefix and its key.
function M.fields(proto, prefix, rows)
    local by_key, all = {}, {}
    for _, row in ipairs(rows) do
        local key, kind, name = prefix .. row[1], row[2], row[3]
        local field
        if kind == "bool" then
            field = row.mask and ProtoField.bool(key, name, row.width or 8, nil, row.mask) or ProtoField.bool(key, name)
        elseif kind == "frame" then
            field = ProtoField.framenum(key, name, base.NONE, row.frametype)
        elseif kind == "bytes" or kind == "string" or kind == "ipv4" or kind == "ipv6" or kind == "float" then
            field = ProtoField.new(name, key, kinds[kind])
        else
            field = ProtoField.new(name, key, kinds[kind], row.values, row.base or base.DEC, row.mask)
        end
        by_key[row[1]] = field
        all[#all + 1] = field
    end
    proto.fields = all
    return by_key
end

-- Declares expert information: rows of { key, text, group, severity }.
function M.experts(proto, prefix, rows)
    local by_key, all = {}, {}
    for _, row in ipairs(rows) do
        local entry = ProtoExpert.new(prefix .. "expert." .. row[1], row[2], expert.group[row[3]], expert.severity[row[4]])
        by_key[row[1]] = entry
        all[#all + 1] = entry
    end
    proto.experts = all
    return by_key
end

-- A number below 2^53 as text, without the ".0" that newer versions of Lua write.
function M.number(value)
    return string.format("%.0f", value)
end

function M.name(names, value)
    return names[value] or ("unknown (" .. M.number(value) .. ")")
end

-- Adds an address of the IP version 4 or 6 at `offset`. The caller has checked the length.
function M.address(tree, version, field4, field6, tvb, offset)
    if version == 4 then
        return tree:add(field4, tvb(offset, 4)), tostring(tvb(offset, 4):ipv4())
    end
    return tree:add(field6, tvb(offset, 16)), tostring(tvb(offset, 16):ipv6())
end

function M.address_length(version)
    if version == 4 then return 4 elseif version == 6 then return 16 end
    return nil
end

-- Text in UTF-8, without the zeros behind it. Octets that are no text are replaced.
function M.text(range)
    return (range:string(ENC_UTF_8):gsub("\0*$", ""))
end

-- Remembers frames of requests by a text that their answers have too, so that each names the other. What is kept is limited.
M.most_requests = 100000
function M.pairs()
    return { requests = {}, answers = {}, count = 0 }
end

function M.remember(pairs_of, side, key, number)
    local frames = pairs_of[side]
    if frames[key] == nil and pairs_of.count < M.most_requests then
        frames[key] = number
        pairs_of.count = pairs_of.count + 1
    end
end

-- Walks over objects that have the header of GIST: AB, 12 bits type, 12 bits length in words. Each step takes four octets at least.
-- `each(at, type, ab, words, complete)` is called for each header; the result says where the walk ended, and whether a length led beyond the end.
function M.walk(tvb, offset, each)
    local length = tvb:len()
    while length - offset >= 4 do
        local first = tvb(offset, 1):uint()
        local ab = math.floor(first / 64)
        local kind = tvb(offset, 2):bitfield(4, 12)
        local words = tvb(offset + 2, 2):bitfield(4, 12)
        local complete = offset + 4 + words * 4 <= length
        each(offset, kind, ab, words, complete)
        if not complete then return offset, true end
        offset = offset + 4 + words * 4
    end
    return offset, false
end

M.ab_names = { [0] = "mandatory", [1] = "ignore", [2] = "forward", [3] = "refresh" }

return M
