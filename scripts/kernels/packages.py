"""Packages of the distribution's releases, fetched by apt into a cache and unpacked there. Nothing is installed."""
import pathlib
import re
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def archive():
    """The address of the archive from which this machine takes its packages, and the name of its release."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
        check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        uri, release, component = line.split()
        if component == "main" and re.fullmatch(r"[a-z]+", release) and uri.rstrip("/").endswith("/debian"):
            return uri, release
    raise SystemExit("error: apt has no source of Debian's packages: add one, then try again")


class Release:
    """One release of the distribution, with lists and downloads of its own under `cache`."""

    def __init__(self, suite, cache):
        self.suite = suite
        self.home = pathlib.Path(cache) / suite
        for folder in ["etc/preferences.d", "state/lists/partial", "cache/archives/partial", "debs"]:
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        (self.home / "status").touch()
        source = f"deb [signed-by={KEYRING}] {archive()[0]} {suite} main\n"
        (self.home / "etc/sources.list").write_text(source, encoding="utf-8")
        self.options = [word for key, value in {
            "Dir::Etc": self.home / "etc",
            "Dir::Etc::sourcelist": self.home / "etc/sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": self.home / "state",
            "Dir::State::status": self.home / "status",
            "Dir::Cache": self.home / "cache",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
        }.items() for word in ["-o", f"{key}={value}"]]
        if not list((self.home / "state/lists").glob("*Packages*")):
            self._apt("apt-get", "-qq", "update")

    def _apt(self, program, *words, folder=None):
        done = subprocess.run([program, *self.options, *words], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"error: {program} {' '.join(words)} ({self.suite}): {done.stderr.strip()}")
        return done.stdout

    def dependency(self, package, pattern):
        """The first package on which `package` depends and whose name is of the pattern."""
        for line in self._apt("apt-cache", "depends", package).splitlines():
            found = re.fullmatch(r"\s*Depends: (\S+)", line)
            if found and re.fullmatch(pattern, found[1]):
                return found[1]
        raise SystemExit(f"error: {package} of {self.suite} depends on no package like {pattern}")

    def unpacked(self, package):
        """The folder with the contents of one package."""
        folder = self.home / "unpacked" / package
        if not folder.exists():
            self._apt("apt-get", "-qq", "download", package, folder=self.home / "debs")
            [deb] = (self.home / "debs").glob(f"{package}_*.deb")
            partial = folder.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "-x", deb, partial], check=True)
            partial.rename(folder)
        return folder

    def together(self, *names):
        """The folder with the contents of these packages and of all on which they depend."""
        folder = self.home / "unpacked" / "+".join(names)
        if not folder.exists():
            self._apt("apt-get", "-qq", "-y", "--download-only", "install", *names)
            partial = folder.with_suffix(".partial")
            partial.mkdir(parents=True, exist_ok=True)
            for deb in sorted((self.home / "cache/archives").glob("*.deb")):
                subprocess.run(["dpkg", "-x", deb, partial], check=True)
            partial.rename(folder)
        return folder

    def system(self, *names):
        """An archive of the release as it is installed with these packages, by the packages' own scripts."""
        path = self.home / "system.tar"
        wanted = self.home / "system.packages"
        if not path.exists() or not wanted.exists() or wanted.read_text(encoding="utf-8") != " ".join(names):
            partial = path.with_suffix(".partial.tar")
            source = (self.home / "etc/sources.list").read_text(encoding="utf-8")
            done = subprocess.run(
                ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(names)}",
                 *[f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ["doc", "locale", "man"]],
                 self.suite, str(partial), "-"], input=source, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"error: mmdebstrap ({self.suite}): {done.stderr.strip()}")
            partial.rename(path)
            wanted.write_text(" ".join(names), encoding="utf-8")
        return path

    def kernel(self):
        """Returns the version, the image and the folder of modules of the release's kernel for virtual machines."""
        package = self.dependency("linux-image-cloud-amd64", r"linux-image-\d.*")
        version = package.removeprefix("linux-image-")
        folders = [self.unpacked(package)]
        if not (folders[0] / "boot").is_dir():
            # Newer releases divide the kernel into packages.
            folders = [self.unpacked(f"linux-{part}-{version}") for part in ["binary", "modules"]]
        image = one(folders, f"boot/vmlinuz-{version}", f"usr/lib/modules/{version}/vmlinuz")
        modules = one(folders, f"lib/modules/{version}/kernel", f"usr/lib/modules/{version}/kernel").parent
        return version, image, modules


def one(folders, *names):
    """The first of these paths that exists in one of the folders."""
    for folder in folders:
        for name in names:
            if (folder / name).exists():
                return folder / name
    raise SystemExit(f"error: {names[0]} is in no package")
