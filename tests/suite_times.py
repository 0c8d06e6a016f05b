#!/usr/bin/env python3
"""The table of tests/README.md from logs of ctest: suite_times.py NAME=LOG.xml...

  ctest --test-dir build/release -L cpu -j 2 --output-junit release.xml
  tests/suite_times.py release=build/release/release.xml sanitize=build/sanitize/sanitize.xml

One row for each suite, the slowest first; one column of seconds for each log; a dash where a suite did not run.
"""
import sys
import xml.etree.ElementTree as xml


def seconds_of(path):
    """Suite -> seconds; None for a suite that was skipped or did not run."""
    out = {}
    for case in xml.parse(path).getroot().iter("testcase"):
        ran = case.get("status") in ("run", "fail")
        out[case.get("name")] = float(case.get("time")) if ran else None
    if not out:
        raise SystemExit(f"suite_times.py: {path} has no test case; is it a log of `ctest --output-junit`?")
    return out


def table(columns):
    """Markdown; `columns`: name -> {suite: seconds}."""
    def cell(seconds):
        return "-" if seconds is None else f"{seconds:.1f}"

    suites = sorted({suite for column in columns.values() for suite in column},
                    key=lambda suite: (-max(column.get(suite) or 0 for column in columns.values()), suite))
    lines = ["| suite | " + " | ".join(f"{name}, s" for name in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for suite in suites:
        lines.append(f"| {suite} | " + " | ".join(cell(column.get(suite)) for column in columns.values()) + " |")
    sums = [sum(seconds or 0 for seconds in column.values()) for column in columns.values()]
    lines.append("| all | " + " | ".join(f"{total:.0f}" for total in sums) + " |")
    return "\n".join(lines)


def main(words):
    if not words or any("=" not in word for word in words):
        raise SystemExit(__doc__.strip())
    print(table({name: seconds_of(path) for name, path in (word.split("=", 1) for word in words)}))


if __name__ == "__main__":
    main(sys.argv[1:])
