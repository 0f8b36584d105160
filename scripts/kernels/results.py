"""The table of results in a page of the documentation."""
import pathlib
import re


def _parts(page, mark):
    """The page before the table, the lines of the table, and the page behind it."""
    text = pathlib.Path(page).read_text(encoding="utf-8")
    before, rest = text.split(f"<!-- {mark} -->\n", 1)
    lines, after = rest.split(f"<!-- end of {mark} -->\n", 1)
    return before, lines.splitlines(), after


def write(page, mark, heading, table):
    """Writes the results between the marks `mark` and `end of mark` of the page, in place of what stands there.

    `table` has a column for each machine: a dictionary of results by the name of the row.
    """
    before, _, after = _parts(page, mark)
    names = list(dict.fromkeys(name for found in table.values() for name in found))
    rows = [f"| {heading} | " + " | ".join(table) + " |", "|---|" + "---|" * len(table)]
    rows += [f"| {name} | " + " | ".join(found.get(name, "not run") for found in table.values()) + " |" for name in names]
    made = "\n".join(rows)
    pathlib.Path(page).write_text(f"{before}<!-- {mark} -->\n{made}\n<!-- end of {mark} -->\n{after}", encoding="utf-8")


def joined(page, mark, table):
    """The results of the page with those of `table` in their place. Of a kernel's series, like 6.1, one version has a column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _parts(page, mark)[1]]
    whole = {}
    for place, version in enumerate(rows[0][1:] if rows else [], 1):
        whole[version] = {row[0]: row[place] for row in rows[2:] if row[place] != "not run"}
    for version, found in table.items():
        for other in [one for one in whole if _series(one) == _series(version) and one != version]:
            del whole[other]
        whole.setdefault(version, {}).update(found)
    return dict(sorted(whole.items(), key=lambda column: _series(column[0])))


def _series(version):
    return tuple(map(int, re.match(r"(\d+)\.(\d+)", version).groups()))
