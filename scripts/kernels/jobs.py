"""What runs in a virtual machine, one job after the other: scenarios, and groups of tests of the kernel."""
import fnmatch
import json
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# The longest time of a job by the clock of the virtual machine, in seconds.
SCENARIO, TESTS = 600, 900


class Scenario:
    """A scenario of the lab."""

    limit = SCENARIO

    def __init__(self, name, command):
        self.name, self.command = name, command

    def result(self, status, output):
        """The result, and whether it is a failure."""
        if status != 0:
            return "FAILED", True
        return ("skipped" if any('"skip":"' in line for line in output) else "ok"), False


class Tests:
    """The tests of one module of a program with tests of the kernel."""

    limit = TESTS

    def __init__(self, name, program, tests):
        self.name = name
        # One after the other: the virtual machine has one processor.
        self.command = f"cd {program.package} && exec {program.place} --exact --test-threads=1 --show-output {' '.join(tests)}"

    def result(self, status, output):
        """The result, and whether it is a failure."""
        # The list of names behind the output of the tests; what their programs print stands between the words of the line of a test.
        named = {"successes:": [], "failures:": []}
        left_out, names, section = set(), [], None
        for line in output:
            if line in named:
                names = named[line]
            elif name := re.fullmatch(r"    (\w+(?:::\w+)+)", line):
                names.append(name[1])
            elif heading := re.match(r"---- (\S+) stdout ----", line):
                section = heading[1]
            elif line.startswith("skipped: "):
                left_out.add(section)
        failed = [name.split("::", 1)[1] for name in named["failures:"]]
        left_out &= set(named["successes:"])
        passed = len(named["successes:"]) - len(left_out)
        words = [f"{passed} ok"] if passed else []
        words += [f"{len(left_out)} skipped"] if left_out else []
        words += [f"FAILED: {', '.join(f'`{name}`' for name in failed)}"] if failed else []
        if status != 0 and not failed:
            words += ["FAILED: the program ended"]
        return ", ".join(words), status != 0


class Program:
    """A program with tests of the kernel, which runs in the folder of its package."""

    def __init__(self, package, place, files):
        # It starts other programs of its package at the place where they were built.
        self.package, self.place, self.files = package, place, files

    def groups(self):
        """The names of its tests by module; without those that other tests start as processes."""
        def listed(*words):
            lines = subprocess.run([self.place, "--list", "--format", "terse", *words], check=True, capture_output=True, text=True)
            return [line.removesuffix(": test") for line in lines.stdout.splitlines()]
        ignored = set(listed("--ignored"))
        groups = {}
        for name in listed():
            if name not in ignored:
                groups.setdefault(name.split("::")[0], []).append(name)
        return groups


def built(messages):
    """The programs with tests of the kernel that cargo names in its messages."""
    places = {}
    for line in pathlib.Path(messages).read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["executable"]:
            package = pathlib.Path(message["manifest_path"]).parent
            [kind] = message["target"]["kind"]
            places.setdefault(package, {}).setdefault(kind, []).append(pathlib.Path(message["executable"]))
    return [Program(package, kinds["test"][0], [place for files in kinds.values() for place in files])
            for package, kinds in sorted(places.items()) if "test" in kinds]


def scenarios(short=False):
    """Those of scripts/kernels/jobs.tsv."""
    listed = []
    for line in (HERE / "jobs.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, length, command = line.split("\t")
        if not short or length == "short":
            listed.append(Scenario(name, command))
    return listed


def chosen(wanted, short, programs):
    """The jobs to run: those that are named, or all."""
    if short and not wanted:
        return scenarios(short)
    groups = [Tests(f"{program.package.name}::{module}", program, tests)
              for program in programs for module, tests in program.groups().items()]
    if not wanted:
        return scenarios() + groups
    listed = []
    for name in wanted:
        if "::" in name:
            found = [group for group in groups if fnmatch.fnmatchcase(group.name, name)]
            if not found:
                raise SystemExit(f"error: no group of tests is named {name}")
        else:
            found = [one for one in scenarios() if one.name == name]
            # Or the path of one in the virtual machine.
            found = found or [Scenario(pathlib.PurePath(name).stem, f"signalbox lab run {name} --json")]
        listed += found
    return listed
