# What people type. The work is in scripts/, the same lists at the desk and in CI.
.PHONY: help demo test lint fuzz deny msrv bench bpf bpf-check

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 16

demo:  ## install what is missing, build, send a first signal through four nodes, reserve for a flow in a flood
	@scripts/demo.sh

test:  ## install what is missing, check and test everything
	@scripts/test.sh

lint:  ## only what needs no running: format, clippy, arrows, conformance, documentation
	@scripts/test.sh lint

fuzz:  ## ten seconds of each fuzz target (SECONDS_EACH=600 for longer)
	@scripts/fuzz.sh

deny:  ## licences, sources, advisories, duplicates
	@scripts/deny.sh

msrv:  ## does it still build with the oldest compiler we promise
	@scripts/msrv.sh

bench:  ## the engine in memory, and a node on the wire against a bare forwarder
	@scripts/bench.sh

bpf:  ## compile the eBPF program again after a change (needs clang; nothing else does)
	@scripts/bpf.sh

bpf-check:  ## was the eBPF object that is checked in compiled from the source that is
	@scripts/bpf.sh check
