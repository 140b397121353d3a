"""Every block of code that a user can read is run, page by page, in an empty folder and with a small budget."""

import sys

import pytest
from doc_blocks import KINDS, Runner, blocks_of, pages, parse_blocks

from conftest import REPOSITORY
from rl_training.runtime.evaluation import PolicyEvaluator
from rl_training.runtime.session import Session

# the README has a test of its own, in which it learns as it promises
PAGES = [page for page in pages() if blocks_of(page) and page != REPOSITORY / "README.md"]
UPDATES = 2  # after which a run of a page ends, as if something had asked it to


@pytest.fixture
def small_budgets(monkeypatch):
    """Trainings end after their first updates, and evaluations are one episode: what is tested is that all of it works."""
    began: dict[int, int] = {}
    spent, evaluate = Session._budget_spent, PolicyEvaluator.__call__

    def soon_spent(session):
        first = began.setdefault(id(session), session.progress.updates)
        return spent(session) or session.progress.updates >= first + UPDATES

    def briefly(evaluator, algorithm, *, num_episodes):
        return evaluate(evaluator, algorithm, num_episodes=min(num_episodes, 1))

    monkeypatch.setattr(Session, "_budget_spent", soon_spent)
    monkeypatch.setattr(PolicyEvaluator, "__call__", briefly)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch, small_budgets):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runner, modules = Runner(), set(sys.modules)
    try:
        for block in blocks_of(page):
            runner.run(block)
    finally:  # modules of this page's own are not the next one's
        for name in set(sys.modules) - modules:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_blocks_are_of_a_kind_that_is_run_or_say_why_not(page):
    for block in blocks_of(page):
        assert block.kind in KINDS, f"{block.where}: {block.kind!r} is none of {', '.join(KINDS)}"
        assert block.reason is None or len(block.reason.split()) >= 3, f"{block.where}: say why it is not run"


def test_a_block_knows_its_place_its_file_and_why_it_is_left_out():
    titled = '    ```python title="x.py"\n    if 1:\n        2\n    ```\n'
    text = f"a\n\n{titled}\n<!-- not run: it would take days -->\n```bash\nls\n```\n"
    first, second = parse_blocks(text, "page")
    assert (first.where, first.title, first.text) == ("page:3", "x.py", "if 1:\n    2\n")
    assert (second.kind, second.reason) == ("bash", "it would take days")


def test_every_block_of_a_page_is_seen():
    for page in pages():
        lines = page.read_text(encoding="utf-8").splitlines()
        assert sum(line.lstrip().startswith("```") for line in lines) == 2 * len(blocks_of(page)), page
