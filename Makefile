# What people type. The work is in scripts/, the same at the desk and in continuous integration.
.PHONY: help demo test lint fuzz deny msrv install uninstall package bench kernels kernels-short units rounds dashboards site image bpf bpf-check buf wireshark generated hooks release-check crates semver

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo:  ## install what is missing, build, send a first signal through four nodes, reserve for a flow in a flood
	@scripts/demo.sh

test:  ## install what is missing, check and test everything
	@scripts/test.sh

lint:  ## only the checks that run nothing: format, clippy, crate dependencies, conformance, documentation
	@scripts/test.sh lint

hooks:  ## install the git hooks: format and conformance ids before a commit, the form of its subject
	@scripts/pre-commit --install

fuzz:  ## ten seconds of each fuzz target (SECONDS_EACH=600 for longer)
	@scripts/fuzz.sh

deny:  ## licences, sources, advisories, duplicates of dependencies, by cargo-deny
	@scripts/deny.sh

msrv:  ## build everything, tests too, with the oldest compiler that is promised
	@scripts/msrv.sh

install:  ## install the release build; PREFIX (/usr/local), DESTDIR
	@scripts/install.sh

uninstall:  ## remove what `make install` installed; what was changed, or belongs to a package, stays
	@scripts/install.sh --uninstall

package:  ## packages for Debian 12 and newer in target/package; scripts/package.sh --test installs and purges them
	@scripts/package.sh

bench:  ## the engine in memory, and a node on the wire against a bare forwarder
	@scripts/bench.sh

kernels:  ## scenarios and tests of the kernel on Linux 5.10, 6.1, 6.12 and the newest, in virtual machines; the table of docs/kernels.md
	@scripts/kernels.sh --report docs/kernels.md

kernels-short:  ## the same on Linux 6.1 with six scenarios, in some minutes
	@scripts/kernels.sh --short

units:  ## the systemd units under the systemd of Debian 12 and 13, in virtual machines; the table of docs/operation.md
	@scripts/units.sh --report docs/operation.md

rounds:  ## the tests of the kernel and all scenarios COUNT times from one build, beside BUSY busy processors; log: target/rounds.log
	@scripts/rounds.sh $(or $(COUNT),3) $(or $(BUSY),0)

dashboards:  ## the dashboard for Grafana and the alert rules, tried with Prometheus on the metrics of a network of the lab; some two minutes
	@scripts/dashboards.sh

image:  ## the image of a container from the packages, and two nodes of it that reserve for each other, by podman; as root
	@scripts/image.sh

site:  ## the documentation as a site by mdBook, target/site/book/index.html; each link followed, each command of the tutorials run
	@scripts/site.sh

generated:  ## make the Rust code of the gRPC API after a change of a proto file, and docs/config.md
	@scripts/generated.sh
	@SIGNALBOX_WRITE=1 cargo test --quiet -p signalbox-config --test language the_page_is_current

buf:  ## the proto files by the rules of buf, which npm provides
	@scripts/buf.sh

wireshark:  ## the Wireshark dissectors against `signalbox decode`, over captures of 33 scenarios and changed seeds of the fuzz targets
	@scripts/wireshark.sh

bpf:  ## compile the eBPF program after a change (needs clang; nothing else does)
	@scripts/bpf.sh

bpf-check:  ## compare the eBPF object that is checked in with its source
	@scripts/bpf.sh check

crates:  ## the libraries as a registry takes them, each compiled from its archive; needs cargo 1.90
	@scripts/crates.sh

semver:  ## what the libraries offer, compared with the last release, by cargo-semver-checks
	@scripts/semver.sh

release-check:  ## what a release of this commit still lacks (RELEASING.md)
	@scripts/release.sh --check
