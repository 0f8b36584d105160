#!/usr/bin/python3
"""Lists what the programs of a release are made of, as CycloneDX 1.5 JSON: `cargo metadata … | sbom.py LOCK TIME PROGRAM…`.

LOCK is Cargo.lock, which has the SHA-256 of each crate, TIME the time of the release in RFC 3339, and PROGRAM a crate of the workspace.
Crates that only the build or the tests need are left out, and so are crates with procedural macros: they run in the compiler. The same
input gives the same octets.
"""
import json
import sys
import tomllib


def component(package, sums):
    name, version = package["name"], package["version"]
    purl = f"pkg:cargo/{name}@{version}"
    row = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if package.get("description"):
        row["description"] = package["description"].strip()
    if package.get("license"):
        # An old form of SPDX expressions has a slash for OR.
        row["licenses"] = [{"expression": " OR ".join(part.strip() for part in package["license"].split("/"))}]
    if (name, version) in sums:
        row["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
    if package.get("repository"):
        row["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return row


def main(lock, time, *programs):
    metadata = json.load(sys.stdin)
    with open(lock, "rb") as file:
        locked = tomllib.load(file)["package"]
    sums = {(one["name"], one["version"]): one["checksum"] for one in locked if "checksum" in one}
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ours = {packages[id]["name"]: id for id in metadata["workspace_members"]}

    def is_linked(id):
        return not any("proc-macro" in target["kind"] for target in packages[id]["targets"])

    # What a node needs to run: "normal" dependencies have no kind.
    def used(id):
        normal = [one["pkg"] for one in nodes[id]["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])]
        return [id for id in normal if is_linked(id)]

    found, waiting = set(), [ours[name] for name in programs]
    while waiting:
        id = waiting.pop()
        if id not in found:
            found.add(id)
            waiting.extend(used(id))
    rows = {id: component(packages[id], sums) for id in found}
    for name in programs:
        rows[ours[name]]["type"] = "application"
    version = packages[ours[programs[0]]]["version"]
    release = {"type": "application", "bom-ref": "release", "name": "signalbox", "version": version}
    refs = {id: row["bom-ref"] for id, row in rows.items()}
    order = sorted(found, key=refs.get)
    dependencies = [{"ref": "release", "dependsOn": sorted(refs[ours[name]] for name in programs)}]
    dependencies += [{"ref": refs[id], "dependsOn": sorted({refs[one] for one in used(id)})} for id in order]
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time, "component": release},
        "components": [rows[id] for id in order],
        "dependencies": dependencies,
    }
    json.dump(sbom, sys.stdout, indent=1, ensure_ascii=False)
    print()


main(*sys.argv[1:])
