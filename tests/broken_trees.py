"""The self-test of scripts that check the tree: a sound small tree, and changes that must be noticed."""
import pathlib
import tempfile


def problems_of(files, check_tree):
    """What check_tree(root) complains of in a tree of these {name: text}."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return check_tree(root)[1]


def self_test(tree, breaks, check_tree, most=None):
    """The exit status. `breaks`: what is changed in the tree, and a text of the complaint; `most`: how many
    complaints a change may cause."""
    wrong = [f"the sound tree: {problem}" for problem in problems_of(tree, check_tree)]
    for change, expected in breaks:
        found = problems_of({**tree, **change}, check_tree)
        if not any(expected in problem for problem in found) or (most is not None and len(found) > most):
            wrong.append(f"{change}: not the complaint '{expected}', but {found}")
    for line in wrong:
        print(line)
    print(f"self-test: {len(breaks)} broken trees, {len(wrong)} problems")
    return 1 if wrong else 0
