#!/usr/bin/env python3
"""Checks the pages: every *.md file of the tree.

  pages_test.py [ROOT]      every problem as "file:line: what is wrong", exit status 1 if there is one
  pages_test.py --self-test   breaks a small tree in every way that must be noticed

Lines have at most 120 characters, sentences at most 40 words, README.md at most 150 lines. Relative links, headings
that they name, and paths that begin with a folder of the tree or end like a source file, exist.
"""
import pathlib
import re
import sys

from broken_trees import self_test

LONGEST_LINE = 120
LONGEST_SENTENCE = 40
LONGEST_README = 150
# Not read: the program writes it, and a suite compares it with what the program would write.
GENERATED = {"configs/REFERENCE.md"}
# Lines that may be longer: pattern -> reason.
LONG_LINES = {
    r"^\s*\|": "a row of a table cannot be broken",
    r"https?://\S+": "an address cannot be broken",
}
FOLDERS = ("app", "configs", "datasets", "lib", "scripts", "tests")
SUFFIXES = ("cc", "h", "json", "md", "py", "sh", "txt", "yaml")
PLACEHOLDER = re.compile(r"NAME|MODULE|TARGET|\.\.\.|[<>$]")
PATH = re.compile(rf"(?<![\w./~-])(?:{'|'.join(FOLDERS)})/[\w./*{{}},-]*?\.(?:{'|'.join(SUFFIXES)})\b")
# In backticks a path may also begin at the page's own folder, in lib/, or in a module's folder.
QUOTED = re.compile(rf"`([\w.*-]+/[\w./*-]+\.(?:{'|'.join(SUFFIXES)}))`")
MADE_BY_RUNS = re.compile(r"^(runs|build|best|ckpt)/")  # what the program or a build writes
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*```")


def marked_lines(text):
    """(number, line, kind) with kind "code", "table", "heading", "item", "empty" or "prose"."""
    fenced, before = False, "empty"
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced, kind = not fenced, "code"
        elif fenced:
            kind = "code"
        elif not line.strip():
            kind = "empty"
        elif line.startswith("    ") and before in ("empty", "code"):
            kind = "code"
        elif line.lstrip().startswith("|"):
            kind = "table"
        elif line.startswith("#"):
            kind = "heading"
        elif re.match(r"\s*([-*]|\d+\.)\s", line):
            kind = "item"
        else:
            kind = "prose"
        yield number, line, kind
        before = kind if kind != "empty" or before != "code" else before


def sentences(text):
    """(line number, sentence) of the prose: paragraphs and items, cut where a sentence ends."""
    paragraph = []  # (line number, word)
    for number, line, kind in [*marked_lines(text), (0, "", "empty")]:
        if kind != "prose":
            yield from cut(paragraph)
            paragraph = []
        if kind in ("prose", "item"):
            words = re.sub(r"`[^`]*`", "`code`", line) if line.count("`") % 2 == 0 else line
            paragraph += [(number, word) for word in words.split() if re.search(r"\w", word)]


def cut(paragraph):
    sentence = []
    for number, word in paragraph:
        sentence.append((number, word))
        if re.search(r"[.!?][)\"'*]*$", word):
            yield sentence[0][0], [w for _, w in sentence]
            sentence = []
    if sentence:
        yield sentence[0][0], [w for _, w in sentence]


def exists(root, path):
    """True when a path, in which * and {a,b} stand for several, names something below `root`."""
    choice = re.search(r"\{([^{}]*)\}", path)
    if choice:
        return all(exists(root, path.replace(choice.group(0), word, 1)) for word in choice.group(1).split(","))
    return any(root.glob(path)) if "*" in path else (root / path).exists()


def anchors(page):
    """The names under which the headings of a page can be linked to."""
    for _, line, kind in marked_lines(page.read_text()):
        if kind == "heading":
            yield re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


def missing_paths(root, page, line):
    """What a line links to or names and is not there."""
    here = page.parent
    for target in LINK.findall(line):
        place, _, heading = target.partition("#")
        if re.match(r"[a-z]+:", place):
            continue
        file = (here / place).resolve() if place else page
        if file.is_relative_to(root) and file.relative_to(root).as_posix() in GENERATED:
            continue
        if not file.exists() or (heading and heading not in anchors(file)):
            yield f"the link to {target} leads nowhere"
    line = LINK.sub("]", line)
    for path in PATH.findall(line):
        if not PLACEHOLDER.search(path) and path not in GENERATED and not exists(root, path):
            yield f"{path} does not exist"
    for path in QUOTED.findall(line):
        if PLACEHOLDER.search(path) or MADE_BY_RUNS.match(path) or PATH.fullmatch(path):
            continue
        if not any(exists(place, path) for place in (here, root / "lib", *sorted((root / "lib").glob("*/")))):
            yield f"{path} does not exist"


def check_page(root, page):
    """Every problem of one page."""
    name, text = page.relative_to(root).as_posix(), page.read_text()
    count = len(text.splitlines())
    if name == "README.md" and count > LONGEST_README:
        yield f"{name}:{count}: {count} lines; at most {LONGEST_README}"
    for number, line, _ in marked_lines(text):
        if len(line) > LONGEST_LINE and not any(re.search(pattern, line) for pattern in LONG_LINES):
            yield f"{name}:{number}: {len(line)} characters; at most {LONGEST_LINE}"
        for problem in missing_paths(root, page, line):
            yield f"{name}:{number}: {problem}"
    for number, words in sentences(text):
        if len(words) > LONGEST_SENTENCE:
            yield (f"{name}:{number}: a sentence of {len(words)} words; at most {LONGEST_SENTENCE}: "
                   f"{' '.join(words[:8])} ...")


def pages(root):
    """The pages of the tree: neither of builds and runs nor of hidden folders."""
    for page in sorted(root.rglob("*.md")):
        place = page.relative_to(root)
        hidden = any(part.startswith(".") for part in place.parts)
        if not hidden and not re.match(r"build|runs$", place.parts[0]) and place.as_posix() not in GENERATED:
            yield page


def check_tree(root):
    """(number of pages, problems)."""
    read = list(pages(root))
    return len(read), [problem for page in read for problem in check_page(root, page)]


LONG = "word " * 39
SELF_TEST_TREE = {
    "README.md": "# A title\n\nIt reads [the other page](lib/README.md#top), `base/text.h` and lib/base/text.h.\n",
    "lib/README.md": f"# Top\n\n{LONG[:100]}\nend.\n\n    a line of code\n\n```sh\nmeshtrain train configs/NAME.yaml\n```\n",
    "lib/base/text.h": "",
    "configs/REFERENCE.md": "x" * 200 + "\n",
    "tests/README.md": f"| a row | {'wide ' * 40}|\n|---|---|\n\n- {'one ' * 29}\n- {'two ' * 29}\n\nhttps://{'x' * 120}\n"
                       "`tests/*.md` and [what is generated](../configs/REFERENCE.md)\n",
}
# What is changed in the tree above -> the one complaint that must come of it.
SELF_TEST_BREAKS = [
    ({"README.md": "# line\n" * 151}, "README.md:151: 151 lines"),
    ({"README.md": "\n" + "x" * 121 + "\n"}, "README.md:2: 121 characters"),
    ({"lib/README.md": "# Top\n```sh\n" + "x " * 61 + "\n```\n"}, "lib/README.md:3: 122 characters"),
    ({"lib/README.md": "# Top\nA word.\n" + f"{LONG}\nand these.\n".replace("word ", "w ")}, "lib/README.md:3: a sentence of 41"),
    ({"lib/README.md": "# Top\n- An item.\n- " + "w " * 40 + "\n  end\n"}, "lib/README.md:3: a sentence of 41"),
    ({"README.md": "[gone](lib/gone.md)\n"}, "README.md:1: the link to lib/gone.md"),
    ({"README.md": "# Some heading, here\n\n[it](#some-heading-here) [gone](lib/README.md#end)\n"},
     "README.md:3: the link to lib/README.md#end"),
    ({"tests/README.md": "[gone](gone/)\n"}, "tests/README.md:1: the link to gone/"),
    ({"README.md": "See tests/gone.py there.\n"}, "README.md:1: tests/gone.py"),
    ({"README.md": "    tests/gone_*.py --flag\n"}, "README.md:1: tests/gone_*.py"),
    ({"README.md": "Begin with `base/gone.h`.\n"}, "README.md:1: base/gone.h"),
    ({"tests/README.md": "`lib/base/{text,gone}.h`\n"}, "lib/base/{text,gone}.h"),
]


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test(SELF_TEST_TREE, SELF_TEST_BREAKS, check_tree, most=1)
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent).resolve()
    count, problems = check_tree(root)
    for problem in problems:
        print(problem)
    print(f"{count} pages, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
