#!/usr/bin/python3
"""The pages of the site, and its links.

usage: site.py lay PLACE PROGRAMS   lays out in PLACE/src the pages that docs/site/SUMMARY.md names, at their paths in the repository, with
                                    each file that they link to, and the page of the commands, which is their help; a page that is linked
                                    and not named is an error
       site.py check PLACE          follows each link of the site in PLACE/book, to the heading that it names
"""
import html
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUMMARY = ROOT / "docs/site/SUMMARY.md"
# Made of the help of the programs.
COMMANDS = ROOT / "docs/commands.md"
# Links and pictures of Markdown; a title may follow the address.
LINK = re.compile(r"(\]\()([^)\s]+)((?:\s+\"[^\"]*\")?\))")
FENCE = re.compile(r"^(```|~~~)")


def is_elsewhere(link):
    return re.match(r"[a-z]+:", link) is not None


def outside_code(text):
    """Each line of a page, and whether it is outside of blocks of code."""
    inside = False
    for line in text.splitlines():
        fence = FENCE.match(line.lstrip()) is not None
        yield line, not inside and not fence
        inside ^= fence


def links(text):
    for line, outside in outside_code(text):
        if outside:
            for match in LINK.finditer(re.sub(r"`[^`]*`", "", line)):
                yield match.group(2)


def laid(text):
    """The page with its links to README.md as mdBook names these pages: index."""
    readme = re.compile(r"(\]\((?:[^)\s]*/)?)README\.md(?=[)#])")
    return "".join(
        (readme.sub(lambda match: f"{match.group(1)}index.md", line) if outside else line) + "\n"
        for line, outside in outside_code(text)
    )


def list_of(directory, pages):
    """A page for a linked folder that has none: the names of its files."""
    rows = []
    for path in sorted(directory.iterdir()):
        name = path.name
        if path in pages:
            rows.append(f'<li><a href="{html.escape(name.removesuffix(".md"))}.html">{html.escape(name)}</a></li>')
        elif path.is_file():
            rows.append(f'<li><a href="{html.escape(name)}">{html.escape(name)}</a></li>')
        else:
            rows.append(f'<li><a href="{html.escape(name)}/index.html">{html.escape(name)}/</a></li>')
    name = html.escape(str(directory.relative_to(ROOT)))
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{name}</title></head><body><h1>{name}</h1><ul>{''.join(rows)}</ul></body></html>\n"
    )


def commands(programs):
    """The help of all commands, as a page."""
    found = []

    def ask(*command):
        text = subprocess.run([programs / command[0], *command[1:], "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
        found.append((" ".join(command), text))
        listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
        for line in listed.group(1).splitlines() if listed else []:
            name = re.match(r"  ([a-z]\S*)", line)
            if name and name.group(1) != "help":
                ask(*command, name.group(1))

    ask("signalbox")
    ask("signalboxd")
    parts = [f"{'##' if ' ' not in name else '###'} {name}\n\n```text\n{text.rstrip()}\n```\n" for name, text in found]
    return "# Commands\n\nThis page is the help of the programs: `--help` behind any command prints it.\n\n" + "\n".join(parts)


class Layout:
    def __init__(self, place, programs):
        self.to = place / "src"
        self.programs = programs
        self.pages = [ROOT / link for link in links(SUMMARY.read_text())]
        self.wrong = []

    def put(self, path, text=None):
        """A file at its path of the repository."""
        to = self.to / path.relative_to(ROOT)
        to.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            shutil.copyfile(path, to)
        else:
            to.write_text(text)

    def folder(self, path):
        self.put(path / "index.html", list_of(path, self.pages))
        for entry in sorted(path.iterdir()):
            if entry.is_dir():
                self.folder(entry)
            elif entry not in self.pages:
                self.put(entry)

    def follow(self, page, link):
        """Lays out what a page links to."""
        address = urllib.parse.unquote(link.partition("#")[0])
        if is_elsewhere(link) or not address:
            return
        target = (page.parent / address).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            self.wrong.append(f"{page.relative_to(ROOT)}: {link}: there is no such file")
        elif target.is_dir():
            if target / "README.md" not in self.pages:
                self.folder(target)
        elif target.suffix != ".md":
            self.put(target)
        elif target not in self.pages:
            self.wrong.append(f"{page.relative_to(ROOT)}: {link}: docs/site/SUMMARY.md does not name this page")

    def all(self):
        if self.to.exists():
            shutil.rmtree(self.to)
        self.to.mkdir(parents=True)
        shutil.copyfile(ROOT / "docs/site/book.toml", self.to.parent / "book.toml")
        (self.to / "SUMMARY.md").write_text(SUMMARY.read_text())
        for page in self.pages:
            text = commands(self.programs) if page == COMMANDS else page.read_text()
            self.put(page, laid(text))
            for link in links(text):
                self.follow(page, link)
        for twice in sorted({str(page) for page in self.pages if self.pages.count(page) > 1}):
            self.wrong.append(f"SUMMARY.md names {twice} twice")
        missing = set((ROOT / "docs").rglob("*.md")) - set(self.pages) - {SUMMARY}
        self.wrong += [f"docs/site/SUMMARY.md lacks {path.relative_to(ROOT)}" for path in sorted(missing)]
        return self.wrong


class Page(html.parser.HTMLParser):
    """The links of a page of the site, and the places in it to which a link can lead."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def check(book):
    # The page for what is not found begins at the root of a server.
    pages = {path: Page(path) for path in book.rglob("*.html") if path != book / "404.html"}
    wrong, followed = [], 0
    for path, page in sorted(pages.items()):
        for link in page.links:
            if is_elsewhere(link) or link.startswith("//"):
                continue
            address, _, place = link.partition("#")
            target = (path.parent / urllib.parse.unquote(address)).resolve() if address else path
            if target.is_dir():
                target /= "index.html"
            followed += 1
            name = path.relative_to(book)
            if not target.exists():
                wrong.append(f"{name}: {link}: there is no such page")
            elif place and target in pages and urllib.parse.unquote(place) not in pages[target].places:
                wrong.append(f"{name}: {link}: the page has no such heading")
    if not followed:
        wrong.append(f"{book} has no links")
    print(f"{len(pages)} pages, {followed} links followed, {len(wrong)} lead nowhere")
    return wrong


if __name__ == "__main__":
    what, place, *programs = [sys.argv[1], *(pathlib.Path(path).resolve() for path in sys.argv[2:])]
    wrong = Layout(place, *programs).all() if what == "lay" else check(place / "book")
    sys.exit("\n".join(wrong) if wrong else 0)
