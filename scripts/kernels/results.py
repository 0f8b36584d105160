"""The table of results in a page of the documentation."""
import pathlib


def write(page, mark, heading, table):
    """Writes the results between the marks `mark` and `end of mark` of the page, in place of what stands there.

    `table` has a column for each machine: a dictionary of results by the name of the row.
    """
    text = pathlib.Path(page).read_text(encoding="utf-8")
    before, rest = text.split(f"<!-- {mark} -->\n", 1)
    _, after = rest.split(f"<!-- end of {mark} -->\n", 1)
    names = list(dict.fromkeys(name for results in table.values() for name in results))
    rows = [f"| {heading} | " + " | ".join(table) + " |", "|---|" + "---|" * len(table)]
    rows += [f"| {name} | " + " | ".join(results.get(name, "not run") for results in table.values()) + " |" for name in names]
    made = "\n".join(rows)
    pathlib.Path(page).write_text(f"{before}<!-- {mark} -->\n{made}\n<!-- end of {mark} -->\n{after}", encoding="utf-8")
