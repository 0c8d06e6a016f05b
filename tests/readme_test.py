#!/usr/bin/env python3
"""Runs what README.md and pages of configs/ say, so that it stays true.

  ```sh        every line is a command that must succeed
  ```yaml      saved under the name in its first comment line; `meshtrain validate` must accept it.
               Fragments of a config, without a name, are for configs/README.md alone
  ```console   `$ command`, then what it must print on a terminal; times, rates, threads may differ
  ```text      is not run

Everything runs in one scratch folder, in the order of the pages, with `meshtrain` of
build/release on the PATH (or of the folder in MESHTRAIN_BIN). scripts/test.sh is the one command
that is only looked at, because it runs this test.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("README.md", "configs/README.md", "configs/RUN.md", "configs/COMING_FROM.md")
WITH_FRAGMENTS = {"configs/README.md"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What may differ between two runs of the same command.
VARIABLE = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b\d+(\.\d+)?(us|ms|s)/step"), "T/step"),
    (re.compile(r"\b\d+(\.\d+)? ?(us|ms|s|min)\b"), "T"),
    (re.compile(r"\bon \d+ threads?\b"), "on N threads"),
    (re.compile(r"\b\d{4}-?\d\d-?\d\d[T_-]\d\d[:-]?\d\d[:-]?\d\d\w*"), "RUN"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]
DECIMAL = re.compile(r"-?\d+\.(\d+)(?:e([+-]?\d+))?")
LEARNED = re.compile(r"(loss|accuracy): $")
TOLERANCE = 0.02  # vector width and library version change the last digits of what was learned


def plain(text):
    for pattern, replacement in VARIABLE:
        text = pattern.sub(replacement, text)
    return text.strip()


def tolerance(text, match):
    """Of losses and accuracies as they are, of other numbers relative, but half of their last digit."""
    if LEARNED.search(text, 0, match.start()):
        return TOLERANCE
    last_digit = 10.0 ** (int(match[2] or 0) - len(match[1]))
    return max(TOLERANCE * abs(float(match[0])), last_digit / 2)


def same_output(expected, got):
    """Equal but for times; printed decimals may differ by their tolerance."""
    expected, got = plain(expected), plain(got)
    if DECIMAL.sub("#", expected) != DECIMAL.sub("#", got):
        return False
    pairs = zip(DECIMAL.finditer(expected), DECIMAL.finditer(got))
    return all(abs(float(a[0]) - float(b[0])) <= tolerance(expected, a) for a, b in pairs)


def parse(text):
    """(line number, kind, content) of every fenced block."""
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def console_entries(content):
    """(command, expected output) of a console block; output before the first command is an error."""
    entries = []
    for line in content.splitlines():
        if line.startswith("$ "):
            entries.append((line[2:], []))
        elif not entries:
            raise SystemExit(f"console block begins without '$ ': {line}")
        else:
            entries[-1][1].append(line)
    return [(command, "\n".join(lines)) for command, lines in entries]


class Readme:
    def __init__(self, folder):
        self.folder = folder
        self.page = None
        self.count = 0
        self.problems = []
        binary = pathlib.Path(os.environ.get("MESHTRAIN_BIN", ROOT / "build/release/app")).resolve()
        for name in ("configs", "scripts"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "build/release").mkdir(parents=True)
        (folder / "build/release/app").symlink_to(binary)
        self.environment = os.environ | {"PATH": f"{binary}:{os.environ['PATH']}"}

    def run(self, command, line):
        """What a command prints, or None when it failed. A first word scripts/... is a script of ours."""
        self.count += 1
        words = command.split()
        script = ROOT / words[0]
        if words[0].startswith("scripts/"):
            if not os.access(script, os.X_OK):
                self.problems.append(f"{self.page}:{line}: {words[0]} cannot be executed")
                return None
            if words[0] == "scripts/test.sh":
                return None
            command = f"{script} {' '.join(words[1:])}"
        done = subprocess.run(["sh", "-ec", command], cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            self.problems.append(f"{self.page}:{line}: `{command}` exits with {done.returncode}:\n"
                                 f"{done.stdout}")
            return None
        return done.stdout

    def block(self, line, kind, content):
        if kind == "sh":
            for number, command in enumerate(content.splitlines(), line + 1):
                command = re.sub(r"\s+#\s.*$", "", command).strip()
                if command and not command.startswith("#"):
                    self.run(command, number)
        elif kind == "yaml":
            name = re.match(r"#\s*([\w.-]+\.yaml)\b", content)
            if not name and self.page in WITH_FRAGMENTS:
                return
            if not name:
                self.problems.append(f"{self.page}:{line}: a YAML block needs its name: # NAME.yaml")
                return
            (self.folder / name.group(1)).write_text(content)
            self.run(f"meshtrain validate {name.group(1)}", line)
        elif kind == "console":
            for command, expected in console_entries(content):
                got = self.run(command, line)
                if got is not None and not same_output(expected, got):
                    self.problems.append(f"{self.page}:{line}: `{command}` prints\n{got}\n"
                                         f"where the page has\n{expected}")
        elif kind != "text":
            self.problems.append(f"{self.page}:{line}: a block of kind '{kind}' is tested by nothing")


def main():
    with tempfile.TemporaryDirectory() as folder:
        readme = Readme(pathlib.Path(folder))
        for readme.page in PAGES:
            for line, kind, content in parse((ROOT / readme.page).read_text()):
                readme.block(line, kind, content)
        for problem in readme.problems:
            print(problem)
        print(f"{' and '.join(PAGES)}: {readme.count} commands, {len(readme.problems)} problems")
        return 1 if readme.problems or not readme.count else 0


if __name__ == "__main__":
    sys.exit(main())
