#!/usr/bin/env python3
"""Checks that the tree has one word for one thing: the field's.

  words_test.py [ROOT]        every other word as "file:line: the word; write ...", exit status 1 if there is one
  words_test.py --self-test   breaks a small tree in every way that must be noticed

Read are identifiers (each part of snake_case and CamelCase is a word), comments, messages and pages. A word that the
field uses in another sense is allowed for a file, with the reason. An allowance that no line needs is a problem.
"""
import collections
import pathlib
import re
import sys

from broken_trees import self_test

# Words -> what to write. A word with underscores stands for several parts of one identifier.
WORDS = {
    "piece pieces": "shard (of a tensor), chunk (of bytes)",
    "slab slabs": "local rows",
    "settle settles settled settling": "reduced, resolve",
    "pending": "partial (sum)",
    "presum presums presummed": "partial-sum fusion",
    "kernel_maker cpu_maker gpu_maker": "KernelSpec, lowering",
    "wants_turn steps_to_turn after_step": "needs_sync, steps_until_sync, on_sync",
    "see_steps unseen show_step": "retire_steps, in_flight, select_step",
    "keep_weights": "snapshot_weights",
    "runs_ahead": "is_async",
    "persistent": "stateful",
    "train_control": "RunPolicy",
    "fitting_change more_zero": "memory_advice, higher_zero_levels",
    "set_aside trash local_copy": "quarantine, deleting, mirror",
    "not_finite": "non_finite",
    "told_error throw_told": "remote_error: serialize, rethrow",
    "agreement by_first from_first by_all": "Coordinator: on_rank_zero, broadcast, on_all_ranks",
    "meeting meetings": "rendezvous",
    "hello": "handshake",
    "check_alike": "check_consistent",
    "control_channel control_desk": "HeartbeatMonitor",
    "known_answer known_answers": "self_test",
    "surroundings": "LocalResources",
    "settle_auto": "resolve_auto_devices",
    "ending endings common_ending": "exit report, remote exit; extension (of a file)",
    "given_run": "model source",
    "stop_at stop_point": "replay stop",
    "let_first_speak": "mute_nonzero_ranks",
    "verb verbs": "subcommand",
    "outline outlines outlined": "dataset spec",
    "k_later": "kUnsupported, kDeferred",
    "sent_part": "bus factor",
    "made_source made_sources": "synthetic_sources",
    "lacks_dim": "factored_dim",
    "plan_report train_report estimate_report": "plan_summary, run_report, estimate_text",
    "told": "error (a variable); programs receive and report",
}
# (pattern of the path, pattern of the line whose group, if there is one, is the word, what to write).
PATTERNS = [
    (r"", r"(?i)\b(?:lies?|lay|lying) on\b", "is stored on"),
    (r"", r"(?i)\b(?:goes|go|going|went) on\b", "resumes, continues"),
    (r"lib/backend/(?!cuda/)", r"\b[Ff]old(?:s|ed|ing)?\b|\bfold_|_fold\b|\bFold[A-Z]", "reduction"),
    (r"lib/(backend|exec)/(?!cuda/)", r"\bJoined\b|\bgpu::join\b", "merge_launches"),
    (r"lib/.*\.h$", r"^[^/]*[&*>\w] (found|made)\b *[;,)=({]", "a noun: error, match, result"),
]
SUFFIXES = {".h", ".cc", ".cuh", ".py", ".sh", ".cmake", ".md", ".yaml", ".txt"}
# Not read: goldens, inputs of tests, what programs write, and this test, which names the words.
IGNORED = re.compile(r"tests/(golden|fuzz/corpus|bench/results|errors/.*\.(txt|yaml)$)|configs/REFERENCE\.md$|"
                     r"tests/words_test\.py$|.*/__pycache__/")
# Another sense: (pattern of the path, word, reason).
ALLOWED = [
    (r"lib/data/(tokenizer/.*|sentencepiece/.*|CMakeLists\.txt|README\.md)|lib/dependencies\.cmake|scripts/package\.sh|"
     r"tests/unit/data/tokenizer_test\.cc|(configs/|tests/reference/)?README\.md$|"
     r"tests/reference/(tokenizers|sentencepiece)_golden\.py", "piece",
     "WordPiece and SentencePiece"),
    (r"app/subcommands/inspect\.cc$|lib/checkpoint/(format\.(h|cc)|part\.cc)$|tests/(fuzz/bombs|e2e/resume)_test\.cc$", "pieces",
     "the key in manifest.json"),
    (r"lib/checkpoint/(format\.h|folder\.cc)$|tests/unit/checkpoint/", "trash", "folders on the disk: trash.STEP.RUN"),
    (r"lib/record/run_list\.cc$", "pending", "disable_recursion_pending() of the standard library"),
    (r"lib/comm/mpi/exchange\.h$", "persistent", "MPI's persistent requests"),
    (r"tests/unit/data/(image|windows)_test\.cc$", "hello", "a text that is read"),
]
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
TOKEN = re.compile(r"[A-Za-z_]\w*")
USE = {f"_{word}_": (word, use) for words, use in WORDS.items() for word in words.split()}


def words_in(name, line):
    """(word, what to write) for each word of a line that shall be another one."""
    for token in TOKEN.findall(line):
        parts = f"_{'_'.join(PARTS.findall(token)).lower()}_"
        yield from (entry for key, entry in USE.items() if key in parts)
    for place, pattern, use in PATTERNS:
        if re.match(place, name):
            for match in re.finditer(pattern, line):
                yield match.group(match.lastindex or 0).strip("_"), use


def files(root):
    for folder in ("lib", "app", "tests", "scripts", "configs", "README.md"):
        for path in sorted((root / folder).rglob("*")) or [root / folder]:
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and path.is_file() and not IGNORED.match(name):
                yield name


def check_tree(root, allowed=None):
    """(number of files read, problems)."""
    allowed = ALLOWED if allowed is None else allowed
    count, problems, used = 0, [], set()
    for name in files(root):
        count += 1
        for number, line in enumerate((root / name).read_text(errors="replace").splitlines(), 1):
            for word, use in words_in(name, line):
                entries = [entry for entry in allowed if entry[1] == word and re.match(entry[0], name)]
                used.update(entries)
                if not entries:
                    problems.append(f"{name}:{number}: {word}; write {use}")
    problems += [f"{path}: {word} need not be allowed" for path, word, _ in allowed if (path, word, _) not in used]
    return count, problems


SELF_TEST_ALLOWED = [("lib/a\\.cc$", "pieces", "a key")]
SELF_TEST_TREE = {
    "lib/a.cc": 'json["pieces"];  // of a masterpiece\n',
    "lib/base/b.h": "int found_;  // was found (among others), made of these\nint unfolded = 0;\n",
    "README.md": "It goes by the rules, lies in memory and on disks.\n",
    "tests/golden/c.txt": "pieces\n",
}
# What is changed in the tree above -> what the one complaint must contain.
SELF_TEST_BREAKS = [
    ({"lib/base/b.h": "int num_pieces;\n"}, "lib/base/b.h:1: pieces; write shard"),
    ({"lib/base/b.cc": "\nclass PieceMap {};\n"}, "lib/base/b.cc:2: piece; write shard"),
    ({"lib/base/b.cc": "// Sums are pending.\n"}, "lib/base/b.cc:1: pending; write partial (sum)"),
    ({"tests/b.py": "def stop_when_not_finite(): pass\n"}, "tests/b.py:1: not_finite"),
    ({"lib/base/b.cc": "kLater\n"}, "lib/base/b.cc:1: k_later; write kUnsupported"),
    ({"README.md": "A\nrun\ngoes on.\n"}, "README.md:3: goes on; write resumes"),
    ({"configs/a.yaml": "# each lies on a device\n"}, "configs/a.yaml:1: lies on; write is stored on"),
    ({"lib/backend/gpu/b.cc": "Fold x;\n"}, "lib/backend/gpu/b.cc:1: Fold; write reduction"),
    ({"lib/base/b.h": "bool read(const Text& found);\n"}, "lib/base/b.h:1: found; write a noun"),
    ({"lib/a.cc": "\n"}, "pieces need not be allowed"),
]


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test(SELF_TEST_TREE, SELF_TEST_BREAKS, lambda root: check_tree(root, SELF_TEST_ALLOWED), most=1)
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    count, problems = check_tree(root)
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
