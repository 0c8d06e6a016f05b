#!/usr/bin/env python3
"""Checks that #include lines follow the dependencies that CMake has.

Each folder of lib/ is a module; its CMakeLists.txt lists the modules it uses after DEPS. A file may
include its own module, those modules, and what they use in turn; nothing else, and no module may
reach itself. One include root (-Ilib) would otherwise let any file include any other unnoticed.

  include_direction.py [ROOT]     every violation as file:line, exit status 1 if there is one
  include_direction.py --self-test  breaks a small tree in every way that must be noticed
"""
import pathlib
import re
import sys

from broken_trees import self_test

SOURCE_SUFFIXES = {".h", ".cc", ".cuh", ".cu"}
KEYWORDS = {"COLD", "WARM", "SOURCES", "SHARED", "HEADERS", "DEPS", "LIBS"}


def cmake_tokens(path):
    """The words of a CMake file, without comments; parentheses are words of their own."""
    text = re.sub(r"#[^\n]*", "", path.read_text())
    return re.findall(r'[()]|"[^"]*"|[^\s()]+', text)


def linked_words(tokens):
    """Every word inside a target_link_libraries(...) call."""
    words = set()
    for start, token in enumerate(tokens):
        if token == "target_link_libraries":
            words.update(tokens[start + 2:tokens.index(")", start)])
    return words


def direct_dependencies(lib):
    """{module: set of modules after DEPS} for every folder of lib/ with a CMakeLists.txt."""
    result = {}
    for cmake in sorted(lib.glob("*/CMakeLists.txt")):
        tokens = cmake_tokens(cmake)
        if "meshtrain_module" not in tokens:
            continue
        words = tokens[tokens.index("meshtrain_module") + 2:]  # after the name and "("
        words = words[:words.index(")")]
        name, section, deps = words[0], None, set()
        if name != cmake.parent.name:
            raise SystemExit(f"{cmake}: module '{name}' is not named like its folder")
        for word in words[1:]:
            if word in KEYWORDS:
                section = word
            elif section == "DEPS":
                deps.add(word)
        # A module linked outside meshtrain_module() counts as well; the module's own helpers do not.
        helpers = {tokens[i + 2] for i, word in enumerate(tokens) if word == "add_library"}
        deps |= {w[len("meshtrain_"):] for w in linked_words(tokens) - helpers
                 if w.startswith("meshtrain_")}
        result[name] = deps - {name, f"{name}_shared", "options"}
    return result


def transitive(direct):
    """(closure, problems): what each module reaches; unknown modules and circles are problems."""
    problems = []
    for module, deps in sorted(direct.items()):
        for dep in sorted(deps - direct.keys()):
            problems.append(f"lib/{module}/CMakeLists.txt: DEPS names '{dep}', which is no module")
    closure = {}
    for module in direct:
        reached, open_modules = set(), list(direct[module])
        while open_modules:
            dep = open_modules.pop()
            if dep not in reached:
                reached.add(dep)
                open_modules.extend(direct.get(dep, ()))
        closure[module] = reached
        if module in reached:
            problems.append(f"lib/{module}/CMakeLists.txt: '{module}' depends on itself")
    return closure, problems


def quoted_includes(path):
    """(line number, included path) of every #include "..."."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if match:
            yield number, match.group(1)


def check_file(path, place, lib, allowed, app):
    """Problems of one source; `allowed` are modules, `app` says that bare names are fine."""
    problems = []
    for number, included in quoted_includes(path):
        head, slash, _ = included.partition("/")
        where = f"{place}:{number}: "
        if app and (not slash or head == "app"):
            continue
        if not slash:
            problems.append(f'{where}"{included}" does not name its module; write "module/file.h"')
        elif not (lib / head).is_dir():
            problems.append(f'{where}"{included}" is in no module of lib/')
        elif head not in allowed:
            problems.append(f'{where}"{included}" is not allowed: this module uses '
                            f"{', '.join(sorted(allowed))}")
        elif not (lib / included).is_file():
            problems.append(f'{where}"{included}" does not exist')
    return problems


def check_tree(root):
    """(number of files read, problems) of lib/ and app/ under `root`."""
    lib, app = root / "lib", root / "app"
    direct = direct_dependencies(lib)
    closure, problems = transitive(direct)
    count = 0
    for folder in sorted(p for p in lib.iterdir() if p.is_dir()):
        sources = [p for p in sorted(folder.rglob("*")) if p.suffix in SOURCE_SUFFIXES]
        if sources and folder.name not in closure:
            problems.append(f"lib/{folder.name}: no meshtrain_module({folder.name} ...)")
            continue
        for path in sources:
            allowed = closure[folder.name] | {folder.name}
            problems += check_file(path, path.relative_to(root), lib, allowed, app=False)
            count += 1
    if app.is_dir():
        linked = {w[len("meshtrain_"):] for f in app.glob("CMakeLists.txt")
                  for w in linked_words(cmake_tokens(f)) if w.startswith("meshtrain_")} & closure.keys()
        allowed = linked.union(*(closure[m] for m in linked))
        for path in sorted(p for p in app.rglob("*") if p.suffix in SOURCE_SUFFIXES):
            problems += check_file(path, path.relative_to(root), lib, allowed, app=True)
            count += 1
    return count, problems


SELF_TEST_TREE = {
    "lib/base/CMakeLists.txt": "meshtrain_module(base\n  SOURCES text.cc)\n",
    "lib/base/text.h": "",
    "lib/base/text.cc": '#include "base/text.h"\n',
    "lib/tensor/CMakeLists.txt": "meshtrain_module(tensor  # host side\n  SOURCES\n  DEPS base)\n",
    "lib/tensor/shape.h": '#include <vector>\n#include "base/text.h"\n',
    "lib/mesh/CMakeLists.txt": "meshtrain_module(mesh DEPS tensor LIBS fmt::fmt)\n"
                               "add_library(meshtrain_mesh_avx STATIC avx.cc)\n"
                               "target_link_libraries(meshtrain_mesh_avx PRIVATE meshtrain_options)\n"
                               "target_link_libraries(meshtrain_mesh PRIVATE meshtrain_mesh_avx)\n",
    "lib/mesh/mesh.h": '#include "base/text.h"\n#include "tensor/shape.h"\n',
    "app/CMakeLists.txt": "add_executable(x main.cc)\ntarget_link_libraries(x meshtrain_tensor)\n",
    "app/main.cc": '#include "commands.h"\n#include "base/text.h"\n',
}
# What is changed in the tree above -> what the one complaint must contain.
SELF_TEST_BREAKS = [
    ({"lib/base/text.cc": '\n#include "tensor/shape.h"\n'}, "lib/base/text.cc:2"),
    ({"lib/tensor/shape.h": '# include "mesh/mesh.h"\n'}, "lib/tensor/shape.h:1"),
    ({"lib/mesh/mesh.h": '#include "shape.h"\n'}, "does not name its module"),
    ({"lib/mesh/mesh.h": '#include "tensor/gone.h"\n'}, "does not exist"),
    ({"lib/mesh/mesh.h": '#include "mash/mesh.h"\n'}, "in no module"),
    ({"lib/base/CMakeLists.txt": "meshtrain_module(base DEPS mesh)\n"}, "depends on itself"),
    ({"lib/mesh/CMakeLists.txt": "meshtrain_module(mesh DEPS tensor tree)\n"}, "no module"),
    ({"lib/base/CMakeLists.txt": "meshtrain_module(base)\n"
                                 "target_link_libraries(meshtrain_base PUBLIC meshtrain_mesh)\n"},
     "depends on itself"),
    ({"lib/loose/loose.h": ""}, "lib/loose"),
    ({"app/main.cc": '#include "mesh/mesh.h"\n'}, "app/main.cc:1"),
]


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test(SELF_TEST_TREE, SELF_TEST_BREAKS, check_tree)
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    count, problems = check_tree(root)
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
