"""What the pages for newcomers from other libraries say about this one is true."""

import ast
import re

import pytest

from conftest import REPOSITORY
from rl_training.experiment.config import TrainConfig
from rl_training.options import algorithm_names, load_options_class

PAGES = sorted((REPOSITORY / "docs" / "howto").glob("coming-from-*.md"))
KNOWN = {name for algo in algorithm_names() for name in load_options_class(algo).model_fields} | set(TrainConfig.model_fields)


def rows(page):
    return [
        [cell.strip() for cell in line.strip("|\n ").split("|")] for line in page.read_text().splitlines() if line[:1] == "|"
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_translated_options_exist(page):
    translated = [row for row in rows(page) if len(row) == 2 and row[0].find("`") >= 0]
    names = {name for row in translated for name in re.findall(r"`(\w+)`", row[1])}
    assert names <= KNOWN
    assert names or "cleanrl" in page.stem  # its differences are told in one table


def test_defaults_in_the_tables_are_the_defaults():
    found = [row for page in PAGES for row in rows(page) if row[0] in algorithm_names() and len(row) == 4]
    assert len(found) >= 8
    for algo, option, _, here in found:
        default = getattr(load_options_class(algo)(), option.strip("`"))
        value = ast.literal_eval(here)
        assert (list(default) if isinstance(default, tuple) else default) == value, (algo, option)
