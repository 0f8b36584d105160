#!/usr/bin/python3
"""Runs scenarios and namespace tests on other kernels, in virtual machines. See docs/kernels.md, and --help."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import image
import machine
import packages
from results import write

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# The releases whose kernels are tried: Debian 11, 12, 13, and what comes next.
RELEASES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "newest": "sid"}
# What is in the virtual machine beside Signalbox, and the packages that have it.
PACKAGES = ["busybox-static", "kmod", "iproute2", "nftables", "wireguard-tools", "bird2", "frr", "libpam-modules"]
PROGRAMS = ["sbin/ip", "sbin/tc", "sbin/bridge", "bin/ss", "usr/sbin/nft", "usr/bin/wg", "usr/sbin/bird", "usr/bin/vtysh",
            "usr/lib/frr/zebra", "usr/lib/frr/ospfd", "usr/lib/frr/isisd"]
USERS = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
frr:x:100:100:frr:/:/bin/false
"""
GROUPS = """root:x:0:
nogroup:x:65534:
frr:x:100:
frrvty:x:101:frr
"""


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/kernels.sh", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog="examples:\n"
               "  scripts/kernels.sh --short                   one kernel, six scenarios\n"
               "  scripts/kernels.sh --kernel 5.10 quickstart  one scenario on one kernel\n"
               "  scripts/kernels.sh --report docs/kernels.md  all of them; the table of the page is made again\n")
    parser.add_argument("scenarios", nargs="*", help="names of scenarios; otherwise those of scripts/kernels/jobs.tsv")
    parser.add_argument("--kernel", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--short", action="store_true", help="6.1 only, and only the jobs that are marked `short`")
    parser.add_argument("--report", metavar="FILE", help="write the table of results into this page, between its marks")
    return parser.parse_args()


def jobs(wanted, short):
    """The names and commands to run, as scripts/kernels/jobs.tsv lists them."""
    listed = []
    for line in (HERE / "jobs.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, length, command = line.split("\t")
        if wanted and name not in wanted or short and length != "short":
            continue
        listed.append((name, command))
    known = {name for name, _ in listed}
    listed += [(name, f"signalbox lab run {name} --json") for name in wanted if name not in known]
    return listed


def make_root(release, folder, listed):
    """Fills `folder` with what the virtual machine needs; returns version and image of the kernel."""
    version, kernel, modules = release.kernel()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Programs of this machine's own release: Signalbox was built with its libraries.
    tools = packages.Release(packages.archive()[1], release.home.parent).together(*PACKAGES)
    image.copy_modules(modules, folder, version, tools)
    image.copy_program(packages.one([tools], "bin/busybox", "usr/bin/busybox"), folder, "/bin/busybox", tools)
    for program in PROGRAMS:
        image.copy_program(packages.one([tools], program, f"usr/{program}"), folder, f"/{program}", tools)
    for program in ["signalbox", "signalboxd"]:
        image.copy_program(PROJECT / os.environ["PROGRAMS"] / program, folder, f"/usr/local/bin/{program}", tools)
        subprocess.run(["strip", "--strip-debug", folder / f"usr/local/bin/{program}"], check=True)
    (folder / "etc/iproute2").mkdir(parents=True)
    # FRR's shell asks PAM who it is.
    permit = packages.one([tools], "lib/x86_64-linux-gnu/security/pam_permit.so", "usr/lib/x86_64-linux-gnu/security/pam_permit.so")
    image.copy_program(permit, folder, "/lib/x86_64-linux-gnu/security/pam_permit.so", tools)
    (folder / "etc/pam.d").mkdir()
    (folder / "etc/pam.d/frr").write_text("auth sufficient pam_permit.so\naccount sufficient pam_permit.so\n", encoding="utf-8")
    (folder / "etc/frr").mkdir()
    (folder / "etc/frr/vtysh.conf").touch()
    (folder / "etc/passwd").write_text(USERS, encoding="utf-8")
    (folder / "etc/group").write_text(GROUPS, encoding="utf-8")
    (folder / "jobs").write_text("".join(f"{name} {command}\n" for name, command in listed), encoding="utf-8")
    shutil.copy(HERE / "init", folder / "init")
    (folder / "init").chmod(0o755)
    return version, kernel


def boot(kernel, archive, listed, log):
    """Runs one virtual machine until it switches itself off; returns result and seconds of each job."""
    results = {}
    for line in machine.console(kernel, archive, log):
        if found_line := re.search(r"kernels: result (\S+) (\S+) (\d+)", line):
            results[found_line[1]] = (found_line[2], int(found_line[3]))
            print(f"    {found_line[1]} {found_line[2]}, {found_line[3]} s", flush=True)
        elif found_line := re.search(r"kernels: output (.*)", line):
            print(f"        {found_line[1].rstrip()}", flush=True)
        elif found_line := re.search(r"kernels: ready (.*)", line):
            print(f"    kernel {found_line[1].strip()}", flush=True)
    for name, _ in listed:
        results.setdefault(name, ("not run", 0))
    return results


def main():
    wanted = arguments()
    chosen = wanted.kernel or (["6.1"] if wanted.short else list(RELEASES))
    cache = PROJECT / "target/kernels"
    listed = jobs(wanted.scenarios, wanted.short)
    failed = 0
    table = {}
    for label in chosen:
        start = time.monotonic()
        print(f"==> Linux {label}", flush=True)
        release = packages.Release(RELEASES[label], cache)
        root, archive = cache / "root", cache / "initrd"
        version, kernel = make_root(release, root, listed)
        image.write_archive(root, archive)
        shutil.rmtree(root)
        results = boot(kernel, archive, listed, cache / f"{label}.log")
        table[version] = {f"`{name}`": status for name, (status, _) in results.items()}
        count = sum(status not in ("ok", "skipped") for status, _ in results.values())
        failed += count
        print(f"    {len(results) - count} passed or skipped, {count} failed, {time.monotonic() - start:.0f} s; "
              f"log: {cache / f'{label}.log'}", flush=True)
    if wanted.report:
        write(wanted.report, "results", "scenario", table)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
