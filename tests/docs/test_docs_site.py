"""The documentation site: it builds without a warning, every page is in it, and it needs no network."""

import os
import re
import subprocess
import sys

import pytest

from conftest import REPOSITORY

pytest.importorskip("mkdocs", reason="the docs extra is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_in_the_site_and_in_its_navigation(site):
    written = {
        path.relative_to(REPOSITORY / "docs").with_suffix(".html").as_posix() for path in REPOSITORY.glob("docs/**/*.md")
    }
    linked = set(re.findall(r'<a href="([^"#:]+\.html)" class="md-nav__link', (site / "index.html").read_text()))
    assert written - {"index.html"} <= linked
    assert all((site / page).is_file() for page in linked)


def test_the_reference_holds_code_configs_commands_and_presets(site):
    pages = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    assert 'id="rl_training.api.managed.ManagedAlgorithm.learn"' in pages["api"]
    assert 'id="rl_training.algorithms.sac.sac_loss"' in pages["learners"]
    assert "<code>checkpoint_interval</code>" in pages["config"]
    assert "rl-training train (PRESET | --config PATH)" in pages["command-line"]
    assert 'id="ppocartpole"' in pages["presets"]


def test_formulas_are_drawn_by_the_browser_itself(site):
    for page in (site / "algorithms").glob("*.html"):
        text = page.read_text()
        assert "arithmatex" not in text, page
        assert page.stem == "index" or "<math" in text, page


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.glob("**/*.html"):
        fetched = re.findall(
            r'<(?:script|img|iframe)[^>]*src="(https?:[^"]+)"|<link[^>]*href="(https?:[^"]+)"', page.read_text()
        )
        assert not fetched, (page, fetched)
