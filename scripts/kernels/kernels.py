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
import jobs
import machine
import packages
import results

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# The releases whose kernels are tried: Debian 11, 12, 13, and what comes next.
RELEASES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "newest": "sid"}
# What is in the virtual machine beside Signalbox, and the packages that have it, with those on which they depend.
PACKAGES = ["busybox-static", "kmod", "iproute2", "nftables", "wireguard-tools", "bird2", "frr", "libpam-modules"]
SCRIPTS = ["usr/bin/wg-quick"]
PROGRAMS = ["sbin/ip", "sbin/tc", "sbin/bridge", "bin/ss", "usr/sbin/nft", "usr/bin/wg", "usr/sbin/bird", "usr/bin/vtysh",
            "usr/lib/frr/zebra", "usr/lib/frr/ospfd", "usr/lib/frr/isisd"]
# The same of packages without those on which they depend. The shell's own `true` is no program that a dynamic linker can start. Busybox's
# shell prefers its own `ip` and `tc`, whatever PATH is: scripts of scenarios and tests get another one. wg-quick is a script for bash.
ALONE = {"coreutils": "bin/true", "libcap2-bin": "sbin/setcap", "dash": "bin/dash", "bash": "bin/bash", "procps": "sbin/sysctl"}
USERS = """root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
frr:x:100:100:frr:/:/bin/false
"""
# The first column of the table of results.
HEADING = "scenario, or tests of a module"
GROUPS = """root:x:0:
nogroup:x:65534:
frr:x:100:
frrvty:x:101:frr
"""


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/kernels.sh", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog="examples:\n"
               "  scripts/kernels.sh --short                   one kernel, six scenarios, no tests\n"
               "  scripts/kernels.sh --kernel 5.10 quickstart  one scenario on one kernel\n"
               "  scripts/kernels.sh linux::vrf 'signalboxd::*'  groups of tests, on all kernels\n"
               "  scripts/kernels.sh --report docs/kernels.md  all of them; the table of the page is made again\n")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="scenarios, and groups of tests by pattern; otherwise all of scripts/kernels/jobs.tsv and all groups")
    parser.add_argument("--kernel", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--short", action="store_true", help="6.1 only, and only the jobs that are marked `short`")
    parser.add_argument("--report", metavar="FILE",
                        help="write the results into the table of this page, between its marks; what did not run stays as it is there")
    return parser.parse_args()


def make_root(release, folder, listed, programs):
    """Fills `folder` with what the virtual machine needs, `programs` with tests among it; returns version and image of the kernel."""
    version, kernel, modules = release.kernel()
    shutil.rmtree(folder, ignore_errors=True)
    # As distributions have it: what a daemon may read of programs is below /usr.
    for name in ["bin", "sbin", "lib", "lib64"]:
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    # Programs of this machine's own release: Signalbox was built with its libraries.
    own = packages.Release(packages.archive()[1], release.home.parent)
    tools = own.together(*PACKAGES)
    image.copy_modules(modules, folder, version, tools)
    image.copy_program(packages.one([tools], "bin/busybox", "usr/bin/busybox"), folder, "/bin/busybox", tools)
    for program in PROGRAMS:
        image.copy_program(packages.one([tools], program, f"usr/{program}"), folder, f"/{program}", tools)
    for package, program in ALONE.items():
        image.copy_program(packages.one([own.unpacked(package)], program, f"usr/{program}"), folder, f"/{program}", tools)
    (folder / "bin/sh").symlink_to("dash")
    # Scripts with a PATH of their own must not find those of busybox.
    for program in (folder / "usr/sbin").iterdir():
        (folder / "usr/bin" / program.name).symlink_to(f"../sbin/{program.name}")
    for script in SCRIPTS:
        shutil.copy(tools / script, folder / script)
    for program in ["signalbox", "signalbox-lab", "signalboxd"]:
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
    # Names in rules of nftables.
    shutil.copy(own.unpacked("netbase") / "etc/protocols", folder / "etc")
    (folder / "etc/shadow").write_text("root:*:::::::\n", encoding="utf-8")
    (folder / "etc/shadow").chmod(0o600)
    # Those of the programs are the ones of their build. A job may name one that is newer by its file.
    shutil.copytree(PROJECT / "scenarios", folder / "scenarios")
    for program in programs:
        for place in program.files:
            target = folder / str(place).lstrip("/")
            if not target.exists():
                image.copy_program(place, folder, str(place), tools)
                subprocess.run(["strip", "--strip-debug", target], check=True)
        # Tests find the repository where it was when they were built, and read of it what users read.
        project = program.package.parent.parent
        place = folder / str(project).lstrip("/")
        (folder / str(program.package).lstrip("/")).mkdir(parents=True, exist_ok=True)
        if not (place / "docs").exists():
            shutil.copy(project / "README.md", place)
            for name in ["docs", "etc", "scenarios"]:
                shutil.copytree(project / name, place / name)
    (folder / "jobs").write_text("".join(f"{job.limit} {job.name} {job.command}\n" for job in listed), encoding="utf-8")
    shutil.copy(HERE / "init", folder / "init")
    (folder / "init").chmod(0o755)
    return version, kernel


def boot(kernel, archive, listed, log):
    """Runs the jobs in virtual machines, in another one if one ends before its time. Returns the result and the failure of each."""
    found = {}
    while len(found) < len(listed):
        first = len(found)
        with open(log, "a" if first else "w", encoding="utf-8") as kept:
            for job, result, failed, seconds, output in finished(kernel, archive, listed[first:], kept, f"kernels.first={first}"):
                found[job.name] = (result, failed)
                print(f"    {job.name}: {result}, {seconds} s", flush=True)
                if failed:
                    print("".join(f"        {line}\n" for line in output[-60:]), end="", flush=True)
        if len(found) == first:
            # It did not come to the end of one job.
            found[listed[first].name] = ("FAILED: the kernel ended", True)
            print(f"    {listed[first].name}: the virtual machine ended before it; see {log}", flush=True)
    return found


def finished(kernel, archive, listed, log, words):
    """The jobs that end in one virtual machine, each with its result, whether it failed, its seconds and its output."""
    waiting, output = iter(listed), []
    for line in machine.console(kernel, archive, log, words, counted=True):
        _, _, said = line.rstrip().partition("kernels: ")
        word, _, rest = said.partition(" ")
        if word == "ready":
            print(f"    kernel {rest}", flush=True)
        elif word == "start":
            output = []
        elif word == "output":
            output.append(rest)
        elif word == "end" and (ended := re.match(r"\S+ (\d+) (\d+)", rest)):
            job = next(waiting)
            yield job, *job.result(int(ended[1]), output), ended[2], output


def main():
    wanted = arguments()
    cache = PROJECT / "target/kernels"
    programs = jobs.built(os.environ["TESTS"]) if os.environ.get("TESTS") else []
    listed = jobs.chosen(wanted.names, wanted.short, programs)
    if not any(isinstance(job, jobs.Tests) for job in listed):
        programs = []
    failed = 0
    table = {}
    for label in wanted.kernel or (["6.1"] if wanted.short else list(RELEASES)):
        start = time.monotonic()
        print(f"==> Linux {label}", flush=True)
        release = packages.Release(RELEASES[label], cache)
        root, archive = cache / "root", cache / "initrd"
        version, kernel = make_root(release, root, listed, programs)
        image.write_archive(root, archive)
        shutil.rmtree(root)
        found = boot(kernel, archive, listed, cache / f"{label}.log")
        table[version] = {f"`{name}`": result for name, (result, _) in found.items()}
        count = sum(broken for _, broken in found.values())
        failed += count
        print(f"    {len(found) - count} passed or skipped, {count} failed, {time.monotonic() - start:.0f} s; "
              f"log: {cache / f'{label}.log'}", flush=True)
        if wanted.report:
            results.write(wanted.report, "results", HEADING, results.joined(wanted.report, "results", table))
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
