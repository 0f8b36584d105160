// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Which reservation is this packet of, does it conform, which queue does it get?
//
// A filter (direct action) of the HTB qdisc that Signalbox makes at an outgoing interface. It runs when a packet is
// about to be queued, under the qdisc's lock: nothing here needs to be atomic. One instance an interface, each with
// maps of its own. Built and checked in by `make bpf`; src/traffic/bpf.rs lays out the same structures.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline))

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*load)(const struct __sk_buff *, __u32 at, void *to, __u32 length) = (void *)BPF_FUNC_skb_load_bytes;
static long (*store)(struct __sk_buff *, __u32 at, const void *from, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_store_bytes;
static long (*l3_checksum)(struct __sk_buff *, __u32 at, __u64 from, __u64 to, __u64 size) =
	(void *)BPF_FUNC_l3_csum_replace;

// Kinds of filters (which fields count) that are tried one after the other, per IP version.
#define SHAPES 16
#define EXTENSION_HEADERS 6
#define NO_MARK 0xff
#define GSO_BY_FRAGS 0xffff
// Tokens are counted in billionths of an octet, so that rate times nanoseconds is exact.
#define TOKENS 1000000000ULL

// What a filter can ask for. Addresses and ports as in the packet; an IPv4 address in the first four octets.
struct key {
	__u8 src[16];
	__u8 dst[16];
	__u32 label;
	__u32 spi;
	__u16 src_port;
	__u16 dst_port;
	__u8 protocol;
	__u8 dscp;
	__u8 shape;
	__u8 pad;
};
#define KEY_WORDS (sizeof(struct key) / 4)

// What is signaling. Each kind has a policy of its own, so that none uses up what another is sure of.
#define OWN 0 // what the daemon of this node sends
#define PASSING 1 // what looks like signaling of others; anybody can make that
#define NEIGHBOURS 2 // what the kernel needs to find the next hop
#define NOTHING 3
struct signaling {
	__u32 mark; // of the daemon's packets; 0: there is no signaling
	__u32 slot; // policy of the first kind
	__u16 port; // as in packets
	__u16 pad;
};

// Per IP version: the shapes in use, the most specific first. `shape` of a mask is its number, not a mask.
struct shapes {
	__u32 count;
	__u32 link_header;
	struct signaling signaling;
	__u32 pad;
	__u64 until; // by ktime: afterwards everything is best effort; 0: always in force
	struct key masks[SHAPES];
};

struct policy {
	__u64 rate; // octets a second
	__u64 depth; // tokens
	__u64 fill_ns; // after this time the bucket is full
	__u64 peak_rate; // 0: none
	__u64 peak_depth;
	__u64 peak_fill_ns;
	__u32 min_policed;
	__u32 max_packet;
	__u16 queue; // minor number of the class
	__u16 excess; // the same for what does not conform; 0: drop
	__u8 dscp; // NO_MARK: leave it
	__u8 pad[3];
};

struct bucket {
	__s64 tokens;
	__u64 last;
};

struct state {
	struct bucket rate, peak;
	__u64 packets, octets; // conforming
	__u64 policed_packets, policed_octets;
};

struct map {
	__u32 type, key_size, value_size, max_entries, flags;
};

// max_entries is set by the loader where it is 0 here.
struct map shapes SECTION("maps") = { BPF_MAP_TYPE_ARRAY, 4, sizeof(struct shapes), 2, 0 };
struct map flows SECTION("maps") = { BPF_MAP_TYPE_HASH, sizeof(struct key), 4, 0, 0 };
struct map policies SECTION("maps") = { BPF_MAP_TYPE_ARRAY, 4, sizeof(struct policy), 0, 0 };
struct map states SECTION("maps") = { BPF_MAP_TYPE_ARRAY, 4, sizeof(struct state), 0, 0 };

INLINE __u16 swap16(__u16 v)
{
	return __builtin_bswap16(v);
}

// Ports, or the SPI; what is not there stays 0, which no filter asks for.
INLINE void transport(const struct __sk_buff *skb, __u32 at, struct key *key)
{
	switch (key->protocol) {
	case 6: // TCP
	case 17: // UDP
	case 33: // DCCP
	case 132: // SCTP
	case 136: // UDP-Lite
		load(skb, at, &key->src_port, 4); // both
		break;
	case 50: // ESP
		load(skb, at, &key->spi, 4);
		break;
	case 51: // AH
		load(skb, at + 4, &key->spi, 4);
		break;
	}
}

// What next hops are found with (RFC 4861) counts only as long as no router passed it on.
INLINE int neighbour_discovery(const struct __sk_buff *skb, __u32 at, __u8 protocol, __u8 hop_limit)
{
	__u8 type;
	return protocol == 58 && hop_limit == 255 && !load(skb, at, &type, 1) && type >= 133 && type <= 137;
}

// The octets of IP and transport header that each further segment has again; 0: not to be read.
INLINE __u32 ipv4(const struct __sk_buff *skb, __u32 at, struct key *key)
{
	__u8 header[20];
	if (load(skb, at, header, sizeof(header)))
		return 0;
	__u32 length = (header[0] & 15) * 4;
	key->dscp = header[1] >> 2;
	key->protocol = header[9];
	__builtin_memcpy(key->src, header + 12, 4);
	__builtin_memcpy(key->dst, header + 16, 4);
	// Of what was larger than some link no part has ports: all of it goes the same way, and none of it conforms.
	if ((header[6] & 0x3f) == 0 && header[7] == 0)
		transport(skb, at + length, key);
	return length;
}

INLINE __u32 ipv6(const struct __sk_buff *skb, __u32 at, struct key *key, int *neighbour)
{
	__u8 header[40];
	if (load(skb, at, header, sizeof(header)))
		return 0;
	key->dscp = (header[0] & 15) << 2 | header[1] >> 6;
	key->label = (header[1] & 15) << 16 | header[2] << 8 | header[3];
	__builtin_memcpy(key->src, header + 8, 16);
	__builtin_memcpy(key->dst, header + 24, 16);
	__u8 next = header[6];
	__u32 from = at, whole = 1;
	at += sizeof(header);
#pragma unroll
	for (int i = 0; i < EXTENSION_HEADERS; i++) {
		__u8 extension[4];
		if (next != 0 && next != 43 && next != 44 && next != 60)
			break;
		if (load(skb, at, extension, sizeof(extension)))
			return 0;
		if (next == 44) {
			whole = extension[2] == 0 && (extension[3] & 0xf9) == 0;
			at += 8;
		} else {
			at += (extension[1] + 1) * 8;
		}
		next = extension[0];
	}
	key->protocol = next;
	if (whole) {
		transport(skb, at, key);
		*neighbour = neighbour_discovery(skb, at, next, header[7]);
	}
	return at - from;
}

INLINE void refill(struct bucket *bucket, __u64 now, __u64 rate, __u64 depth, __u64 fill_ns)
{
	__u64 elapsed = now - bucket->last;
	__s64 tokens = depth;
	if (elapsed < fill_ns) {
		tokens = bucket->tokens + (__s64)(elapsed * rate);
		if (tokens > (__s64)depth)
			tokens = depth;
	}
	bucket->tokens = tokens;
	bucket->last = now;
}

// Several segments in one packet may be more than the bucket holds: they pass when it is full, and leave a debt.
INLINE int holds(const struct bucket *bucket, __s64 cost, __s64 depth, __u32 segments)
{
	return bucket->tokens >= cost || (segments > 1 && bucket->tokens >= depth);
}

// `largest`: octets of the longest segment.
INLINE int conforms(struct state *state, const struct policy *policy, __u32 length, __u32 segments, __u32 largest)
{
	if (largest > policy->max_packet)
		return 0;
	if (length / segments < policy->min_policed)
		length = policy->min_policed * segments;
	__s64 cost = length * TOKENS;
	__u64 now = now_ns();
	refill(&state->rate, now, policy->rate, policy->depth, policy->fill_ns);
	int held = holds(&state->rate, cost, policy->depth, segments);
	if (policy->peak_rate) {
		refill(&state->peak, now, policy->peak_rate, policy->peak_depth, policy->peak_fill_ns);
		held = held && holds(&state->peak, cost, policy->peak_depth, segments);
		if (held)
			state->peak.tokens -= cost;
	}
	if (held)
		state->rate.tokens -= cost;
	return held;
}

// Octets of the header of TCP, whose options each segment has again.
INLINE __u32 tcp_header(const struct __sk_buff *skb, __u32 at)
{
	__u8 words;
	if (load(skb, at + 12, &words, 1) || words < 5 << 4)
		return 20;
	return (words >> 4) * 4;
}

// Writes the code point; the congestion bits stay.
INLINE void mark(struct __sk_buff *skb, __u32 at, int is_ipv6, __u8 dscp)
{
	__u16 old, new;
	if (load(skb, at, &old, 2))
		return;
	if (is_ipv6)
		new = swap16((swap16(old) & 0xf03f) | dscp << 6);
	else
		new = swap16((swap16(old) & 0xff03) | dscp << 2);
	if (old == new || store(skb, at, &new, 2, 0))
		return;
	if (!is_ipv6)
		l3_checksum(skb, at + 10, old, new, 2);
}

// GIST (UDP, and its associations), RSVP.
INLINE int passing(const struct signaling *signaling, const struct key *key)
{
	switch (key->protocol) {
	case 6:
	case 17:
	case 132:
		return key->dst_port == signaling->port || key->src_port == signaling->port;
	}
	return key->protocol == 46;
}

INLINE int kind_of(const struct __sk_buff *skb, const struct signaling *signaling, const struct key *key, int neighbour)
{
	if (!signaling->mark)
		return NOTHING;
	if (skb->mark == signaling->mark)
		return OWN;
	if (neighbour)
		return NEIGHBOURS;
	return passing(signaling, key) ? PASSING : NOTHING;
}

SECTION("classifier") int classify(struct __sk_buff *skb)
{
	__u32 version = skb->protocol == swap16(0x86dd), is_ip = 1;
	if (skb->protocol == swap16(0x0806)) // ARP
		is_ip = 0;
	else if (!version && skb->protocol != swap16(0x0800))
		return TC_ACT_UNSPEC;
	struct shapes *kinds = map_lookup(&shapes, &version);
	if (!kinds || (kinds->count == 0 && !kinds->signaling.mark))
		return TC_ACT_UNSPEC;
	// The daemon that made the reservations has ended, and no other one came in time.
	if (kinds->until && now_ns() > kinds->until)
		return TC_ACT_UNSPEC;
	__u32 at = kinds->link_header;

	struct key key = {};
	__u32 headers = 0;
	int neighbour = !is_ip;
	if (is_ip) {
		headers = version ? ipv6(skb, at, &key, &neighbour) : ipv4(skb, at, &key);
		if (!headers)
			return TC_ACT_UNSPEC;
	}

	__u32 *slot = 0, first;
	int kind = kind_of(skb, &kinds->signaling, &key, neighbour);
	if (kind != NOTHING) {
		first = kinds->signaling.slot + kind;
		slot = &first;
	}
	for (int i = 0; i < SHAPES && is_ip && !slot; i++) {
		if (i >= kinds->count)
			break;
		struct key masked;
		const __u32 *from = (const __u32 *)&key, *mask = (const __u32 *)&kinds->masks[i];
		__u32 *to = (__u32 *)&masked;
#pragma unroll
		for (int word = 0; word < KEY_WORDS; word++)
			to[word] = from[word] & mask[word];
		masked.shape = kinds->masks[i].shape;
		slot = map_lookup(&flows, &masked);
	}
	if (!slot)
		return TC_ACT_UNSPEC;
	struct policy *policy = map_lookup(&policies, slot);
	struct state *state = map_lookup(&states, slot);
	if (!policy || !state)
		return TC_ACT_UNSPEC;

	// The qdisc's size table takes the link layer's header off.
	__u32 length = skb->wire_len, segments = 1, largest = length;
	if (skb->gso_size) {
		headers += key.protocol == 6 ? tcp_header(skb, at + headers) : 8;
		segments = skb->gso_segs;
		// Packets of guests may not say.
		if (segments == 0 && length > headers)
			segments = (length - headers + skb->gso_size - 1) / skb->gso_size;
		if (segments == 0)
			segments = 1;
		length += (segments - 1) * headers;
		// The kernel's SCTP bundles packets of several lengths.
		largest = length / segments;
		if (segments > 1 && skb->gso_size != GSO_BY_FRAGS)
			largest = headers + skb->gso_size;
	}
	if (!conforms(state, policy, length, segments, largest)) {
		state->policed_packets += segments;
		state->policed_octets += length;
		if (!policy->excess)
			return TC_ACT_SHOT;
		skb->tc_classid = policy->excess;
		return TC_ACT_OK;
	}
	state->packets += segments;
	state->octets += length;
	skb->tc_classid = policy->queue;
	if (policy->dscp != NO_MARK)
		mark(skb, at, version, policy->dscp);
	return TC_ACT_OK;
}

char terms[] SECTION("license") = "Apache-2.0 OR MIT";
