#!/usr/bin/python3
"""Starts the systemd units of etc/ under the systemd of Debian's releases, in virtual machines. See docs/operation.md, and --help."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

import image
import machine
import packages
import results

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
# The releases whose systemd is tried, and what is installed there.
RELEASES = {"12": "bookworm", "13": "trixie"}
PACKAGES = ["systemd-sysv", "udev", "kmod", "iproute2", "nftables", "logrotate"]
# What is done in a virtual machine, and the words on its kernel's command line.
PLANS = {"install": "", "boot": "", "without-ipv6": "ipv6.disable=1"}


def arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/units.sh", formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog="examples:\n"
               "  scripts/units.sh --release 12 --plan boot      one boot of one release\n"
               "  scripts/units.sh --report docs/operation.md    all of them; the table of the page is made again\n")
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one; may be repeated")
    parser.add_argument("--plan", action="append", choices=PLANS, help="only this one; may be repeated")
    parser.add_argument("--report", metavar="FILE", help="write the table of results into this page, between its marks")
    return parser.parse_args()


def documented(heading):
    """The blocks of commands below a heading of docs/operation.md, as an operator copies them."""
    text = (PROJECT / "docs/operation.md").read_text(encoding="utf-8")
    section = re.split(r"^#+ ", text.split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return ["".join(line[4:] + "\n" for line in block.splitlines())
            for block in re.findall(r"(?:^    .*\n)+", section, flags=re.MULTILINE)]


def make_archive(release, folder, archive):
    """Writes the first file system: the release as it is installed, modules of its kernel, and Signalbox as it is built.

    Returns the kernel."""
    version, kernel, modules = release.kernel()
    shutil.rmtree(folder, ignore_errors=True)
    tools = packages.Release(packages.archive()[1], release.home.parent).together("busybox-static", "kmod")
    more = folder / "more"
    image.copy_modules(modules, more / "usr", version, tools)
    (more / "src/target/release").mkdir(parents=True)
    for program in ["signalbox", "signalboxd"]:
        subprocess.run(["strip", "--strip-debug", "-o", more / "src/target/release" / program,
                        PROJECT / os.environ["PROGRAMS"] / program], check=True)
    shutil.copytree(PROJECT / "etc", more / "src/etc")
    checks = more / "checks"
    checks.mkdir()
    [install] = documented("## Install")
    [helper, configuration] = documented("### A daemon without privileges")
    for name, text in [("install", install), ("helper", helper), ("helper.toml", configuration)]:
        (checks / name).write_text(text, encoding="utf-8")
    shutil.copytree(HERE / "units", checks, dirs_exist_ok=True)
    root = folder / "root"
    root.mkdir()
    shutil.copy(release.system(*PACKAGES), root / "system.tar")
    with tarfile.open(root / "system.tar", "a") as tar:
        for entry in more.iterdir():
            tar.add(entry, f"./{entry.name}", filter=owned_by_root)
    image.copy_program(packages.one([tools], "bin/busybox", "usr/bin/busybox"), root, "/bin/busybox", tools)
    shutil.copy(HERE / "units/init", root / "init")
    image.write_archive(root, archive)
    shutil.rmtree(folder)
    return kernel


def owned_by_root(entry):
    """An entry of an archive without the owner that the file has here."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def boot(kernel, archive, plan, log):
    """Runs one virtual machine until it switches itself off; returns the result of each check."""
    found = {}
    ended = False
    with open(log, "w", encoding="utf-8") as kept:
        for line in machine.console(kernel, archive, kept, f"{PLANS[plan]} units.plan={plan}".strip()):
            line = line.rstrip()
            if result := re.search(r"units: (ok|FAILED) (\d+) (.*)", line):
                found[result[3]] = result[1]
                print(f"    {result[1]:6}  {result[3]} ({result[2]} s)", flush=True)
            elif output := re.search(r"units: output (.*)", line):
                print(f"            {output[1]}", flush=True)
            elif ready := re.search(r"units: ready (.*)", line):
                print(f"    {ready[1]}", flush=True)
            ended |= "units: done" in line
    if not ended:
        found[f"`{plan}` comes to its end"] = "FAILED"
        print(f"    FAILED  the virtual machine ended before its checks; see {log}", flush=True)
    return found


def main():
    wanted = arguments()
    cache = PROJECT / "target/kernels"
    table = {}
    for label in wanted.release or RELEASES:
        start = time.monotonic()
        print(f"==> Debian {label}", flush=True)
        archive = cache / "units.initrd"
        kernel = make_archive(packages.Release(RELEASES[label], cache), cache / "units", archive)
        column = table[f"Debian {label}"] = {}
        for plan in wanted.plan or PLANS:
            column.update(boot(kernel, archive, plan, cache / f"units-{label}-{plan}.log"))
        failed = sum(result != "ok" for result in column.values())
        print(f"    {len(column) - failed} passed, {failed} failed, {time.monotonic() - start:.0f} s", flush=True)
    if wanted.report:
        results.write(wanted.report, "units", "check", table)
    sys.exit(any(result != "ok" for column in table.values() for result in column.values()))


if __name__ == "__main__":
    main()
