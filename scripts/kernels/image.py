"""The first file system of a virtual machine: an archive in the format newc of cpio, which the kernel unpacks into memory."""
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess

import packages

# What a router may have on its path, and what the programs need of the kernel.
MODULES = ["net", "drivers/net/bonding", "drivers/net/wireguard", "drivers/net/vxlan", "drivers/net/ipvlan", "crypto", "lib",
           "arch/x86/crypto"]
DEVICES = r"(veth|vrf|dummy|ifb|macvlan|tun|net_failover|bareudp|geneve|vxlan|wireguard)\.ko.*"


def copy_modules(source, root, version, tools):
    """Copies modules into `root`, not compressed, and lists them for `modprobe` with the kmod of the folder `tools`."""
    target = root / "lib/modules" / version
    wanted = [path for folder in MODULES for path in (source / "kernel" / folder).rglob("*.ko*")]
    drivers = source / "kernel/drivers/net"
    wanted += [path for path in drivers.glob("*.ko*") if re.fullmatch(DEVICES, path.name)]
    for path in wanted:
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".xz":
            place.with_suffix("").write_bytes(lzma.decompress(path.read_bytes()))
        elif path.suffix == ".ko":
            shutil.copy(path, place)
        else:
            raise SystemExit(f"error: {path.name} has a compression that this script does not know")
    for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"]:
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    library = next(tools.rglob("libkmod.so.2")).parent
    # The program is the one by whose name it is called.
    subprocess.run(["depmod", "-b", root, version], executable=packages.one([tools], "bin/kmod", "usr/bin/kmod"), check=True,
                   env={**os.environ, "LD_LIBRARY_PATH": str(library)}, stderr=subprocess.DEVNULL)


LIBRARIES = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/frr"]


def copy_program(program, root, place, tools):
    """Copies a program to `place`, and its libraries, those of the folder `tools` first."""
    target = root / place.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, target)
    search = ":".join(str(tools / folder) for folder in LIBRARIES)
    listed = subprocess.run(["ldd", program], capture_output=True, text=True,
                            env={**os.environ, "LD_LIBRARY_PATH": search}).stdout
    if lost := re.search(r"(\S+) => not found", listed):
        raise SystemExit(f"error: {program} needs {lost[1]}, which is not among the packages")
    for library in map(pathlib.Path, re.findall(r"(/\S+) \(0x", listed)):
        # The linker stands at the place that programs name; other libraries in one folder.
        copy = root / str(library).lstrip("/") if library.name.startswith("ld-") else root / "lib/x86_64-linux-gnu" / library.name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, copy)


def write_archive(root, path):
    """Writes all of `root` as an archive. The owner of everything is root."""
    with open(path, "wb") as out:
        number = 0
        for folder, folders, names in sorted(os.walk(root)):
            entries = [pathlib.Path(folder)] if pathlib.Path(folder) != root else []
            entries += [pathlib.Path(folder) / name for name in sorted(names)]
            entries += [pathlib.Path(folder) / name for name in folders if (pathlib.Path(folder) / name).is_symlink()]
            for entry in entries:
                number += 1
                mode = entry.lstat().st_mode
                if stat.S_ISLNK(mode):
                    data = os.readlink(entry).encode()
                else:
                    data = entry.read_bytes() if stat.S_ISREG(mode) else b""
                _entry(out, number, str(entry.relative_to(root)), mode, data)
        _entry(out, number + 1, "TRAILER!!!", 0, b"")


def _entry(out, number, name, mode, data):
    encoded = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    for part in [header + encoded, data]:
        out.write(part + b"\0" * (-len(part) % 4))
