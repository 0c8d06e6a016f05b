#!/usr/bin/env python3
"""Checks that no type of namespace meshtrain is defined twice in lib/ and app/.

Two definitions of one name violate the one-definition rule wherever they are linked together, and
the compiler need not say so. Types of anonymous namespaces, types inside of types and
specializations of templates do not count.

  type_names.py [ROOT]       every name with its files, exit status 1 if there is one
  type_names.py --self-test  reads texts with and without such names
"""
import collections
import pathlib
import re
import sys

IGNORED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^\s*#[^\n]*|template\s*<[^{};]*?>\s*(?=\w)',
                     re.S | re.M)
NAMESPACE = re.compile(r"\bnamespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:alignas\([^)]*\)\s*)?(\w+)\b(?!\s*(?:::|<))[^()=]*$")


def defined_types(text):
    """Names of the types that a source defines in named namespaces, with these before them."""
    scopes = []  # of each open brace the namespace; None: of a type or a function
    head = ""
    for token in re.findall(r"[{};]|[^{};]+", IGNORED.sub(" ", text)):
        if token == "{":
            namespace, defined = NAMESPACE.search(head), TYPE.search(head)
            if defined and all(scopes):
                yield "::".join([*scopes, defined.group(1)])
            scopes.append(namespace.group(1) if namespace else None)
        elif token == "}" and scopes:
            scopes.pop()
        head = token if token not in "{};" else ""


def check_tree(root):
    places = collections.defaultdict(list)
    files = [p for folder in ("lib", "app") for p in sorted((root / folder).rglob("*"))
             if p.suffix in {".h", ".cc"}]
    for path in files:
        for name in defined_types(path.read_text()):
            places[name].append(str(path.relative_to(root)))
    return len(files), [f"{name} is defined in {' and in '.join(paths)}"
                        for name, paths in sorted(places.items()) if len(paths) > 1]


SELF_TEST = [
    ("namespace a {\nstruct B {\n  enum class C { kD };\n};\n}", ["a::B"]),
    ("namespace a {\nnamespace {\nstruct B {};\n}\nclass C final : public D<E> {};\n}", ["a::C"]),
    ("namespace a::b {\nenum class C : int { kD };\nstruct E;\n}", ["a::b::C"]),
    ("namespace a {\nstruct B::C {\n  int d;\n};\nvoid f(struct G* g) {}\n}", []),
    ("namespace a {\n// struct B {\ntemplate <class T>\nstruct C {\n  T d = {};\n};\n}", ["a::C"]),
    ("namespace a {\ntemplate <class T>\nstruct B {};\ntemplate <>\nstruct B<C<int>> {};\n}", ["a::B"]),
    ('namespace a {\ntemplate <class T, class U = X<T>>\nvoid f() { g("struct B {"); }\n}', []),
]


def self_test():
    wrong = [f"{text}\n  has {list(defined_types(text))}, expected {expected}"
             for text, expected in SELF_TEST if list(defined_types(text)) != expected]
    print("\n".join([*wrong, f"self-test: {len(SELF_TEST)} texts, {len(wrong)} problems"]))
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).parent.parent)
    count, problems = check_tree(root)
    print("\n".join([*problems, f"{count} files, {len(problems)} problems"]))
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
