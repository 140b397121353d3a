"""The shape of the code: layers import downwards, no body stands twice, nothing is ever unpickled."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import rl_training

SOURCE = Path(rl_training.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# a module may import from its own row and from rows below; `runtime` is named in strings only by those it is above
LAYERS = {
    "errors": set(),
    "types": set(),
    "_lazy": set(),
    "forms": {"errors"},
    "resources": {"errors"},
    "options": {"errors"},
    "kernels": set(),
    "models": {"forms", "kernels", "types", "errors"},
    "planning": {"forms", "models", "kernels", "types", "errors"},
    "algorithms": {"forms", "planning", "models", "kernels", "types", "errors"},
    "data": {"forms", "types", "errors"},
    "envs": {"forms", "types", "errors"},
    "experiment": {"forms", "kernels", "options", "resources", "types", "errors", "_lazy"},
    "reports": {"experiment", "options", "resources", "types", "errors"},
    "runtime": {
        "forms",
        "algorithms",
        "planning",
        "models",
        "kernels",
        "data",
        "envs",
        "experiment",
        "options",
        "resources",
        "types",
        "errors",
    },
    "cluster": {"runtime", "envs", "experiment", "options", "types", "errors"},
    "shipping": {"runtime", "reports", "models", "envs", "experiment", "options", "types", "errors"},
    "bench": {"cluster", "runtime", "reports", "envs", "experiment", "options", "resources", "types", "errors"},
    "tuning": {"bench", "runtime", "experiment", "options", "types", "errors"},
    "api": {"shipping", "runtime", "envs", "experiment", "options", "types", "errors"},
    "cli": {
        "api",
        "tuning",
        "bench",
        "shipping",
        "cluster",
        "runtime",
        "reports",
        "kernels",
        "data",
        "envs",
        "experiment",
        "options",
        "resources",
        "types",
        "errors",
        "__init__",
    },
}


def layer_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_layers(path):
    tree = ast.parse(path.read_text())
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "rl_training" else [f"rl_training.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.split(".")[0] == "rl_training":
                yield [*name.split("."), "__init__"][1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_downwards(path):
    layer = layer_of(path)
    if layer in ("__init__", "__main__"):
        return
    allowed = LAYERS[layer] | {layer} | ({"__init__"} if layer == "cli" else set())
    upwards = {name for name in imported_layers(path) if name in LAYERS or name == "__init__"} - allowed - {"__version__"}
    assert not upwards, f"{layer} may not import {upwards}"


def test_algorithms_and_models_know_tensors_only():
    for path in (SOURCE / "algorithms").glob("*.py"), (SOURCE / "models").glob("*.py"):
        for file in path:
            text = file.read_text()
            assert not re.search(r"^\s*(import|from) (gymnasium|json|os|pathlib|time)\b", text, re.MULTILINE), file


def bodies(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            text = "\n".join(ast.unparse(statement) for statement in body)
            if text.count("\n") >= 5:
                yield f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}", text


def test_no_function_body_of_six_lines_stands_twice():
    places = defaultdict(list)
    for path in FILES:
        for where, text in bodies(path):
            places[text].append(where)
    assert [where for where in places.values() if len(where) > 1] == []


FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "yaml.full_load"}
FORBIDDEN_CALLS |= {"torch.load", "torch.save", "torch.package", "pandas.read_pickle"}


def code_runners(text):
    """What in a source could run code out of a file, with its line."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute | ast.Name):
            names = [ast.unparse(node).removeprefix("builtins.")]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            names = ["allow_pickle"]
        for name in names:
            if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS | {"allow_pickle"}:
                yield f"{name} at line {getattr(node, 'lineno', '?')}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_is_ever_unpickled_or_evaluated(path):
    assert list(code_runners(path.read_text())) == []


# what a setting names is imported at these places, and nowhere else; `experiment/trust.py` says when
DOORS = {"experiment/sinks.py", "planning/known_functions.py"}
OWN_NAMES = {"_lazy.py", "cli/parser.py", "envs/__init__.py", "experiment/registry.py", "options/__init__.py"}


def test_what_a_setting_names_is_imported_at_few_places():
    """The others are of modules of our own, by names that no file gives."""
    found = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            called = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
                "import_module",
                "import_string",
            )
            if called and not isinstance(node.args[0], ast.Constant):
                found.add(path.relative_to(SOURCE).as_posix())
    assert found == DOORS | OWN_NAMES


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import cloudpickle as safe",
        "from pickle import loads",
        "from torch import load",
        "import torch\nread = torch.load",
        "torch.save({}, 'x')",
        "eval('1')",
        "builtins.exec('1')",
        "list(map(eval, words))",
        "np.load('x', allow_pickle=True)",
        "np.load('x', allow_pickle=trusted)",
        "yaml.load(text)",
        "__import__('os')",
    ],
)
def test_the_search_for_code_runners_finds_them(text):
    assert list(code_runners(text))


def test_files_stay_short_enough_to_read():
    long = {str(path.relative_to(SOURCE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 300}
    assert long == {}
