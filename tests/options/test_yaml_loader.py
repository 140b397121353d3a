"""Config files mean what they say, and every refusal names file, line and column."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.errors import ConfigError
from rl_training.experiment.yaml_loader import MAX_DEPTH, dump_yaml, load_config_file, load_config_values, load_yaml, parse_yaml

RUN = "algo: ppo\nenv_id: CartPole-v1\nseed: 1\ntotal_timesteps: 1e5\noutput_dir: runs\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e5", 100_000.0),
        ("1E+5", 100_000.0),
        ("1_000", 1_000),
        ("-7", -7),
        ("+7", 7),
        ("0", 0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("[1, a, null]", [1, "a", None]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_scalars_read_as_their_writer_meant_them(text, value):
    parsed = parse_yaml(text, source="x")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "off",
        "yes",
        "No",
        "y",
        "012",
        "0o17",
        "0x1f",
        "1:30",
        "190:20:30",
        "2026-03-12",
        "inf",
        "nan",
        "1_",
        "1__0",
        "tRUE",
        "=",
    ],
)
def test_what_only_looks_like_something_else_stays_text(text):
    assert parse_yaml(text, source="x") == text


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("a: 1\nb: 2\na: 3", "3:1", "the key 'a' stands in line 1 already"),
        ("a: &x 1\nb: 2", "1:4", "anchors and aliases"),
        ("a: 1\nb: *x", "2:4", "anchors and aliases"),
        ("a: !!python/object/apply:os.system [ls]", "1:4", "tags are not used"),
        ("a: !!int 3", "1:4", "tags are not used"),
        ("a: !mine 3", "1:4", "tags are not used"),
        ("a: 1\n1: 2", "2:1", "a key must be text; write '1'"),
        ("true: 2", "1:1", "a key must be text; write 'true'"),
        ("[a]: 2", "1:1", "a key must be text"),
        ("a: 1e400", "1:4", "too large"),
        ("a: " + "9" * 5000, "1:4", "too large"),
        ("a: [1, 2", "1:9", "expected ',' or ']'"),
        ("a: b: c", "1:5", "mapping values are not allowed"),
        ("a: 1\n---\nb: 2", "2:1", "another document"),
        ("a: 1\nb: \x07", "2:4", "U+0007"),
        ("- 1\n- 2", "1:1", "the file holds a list"),
        ("text", "1:1", "the file holds a str"),
        ("", "1:1", "the file holds nothing"),
        ("# only a comment\n", "1:1", "the file holds nothing"),
    ],
)
def test_errors_name_file_line_and_column(tmp_path, text, place, reason):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_yaml(path)
    assert str(caught.value).startswith(f"{path}:{place}: ")
    assert reason in str(caught.value)


def test_a_merge_key_is_an_ordinary_unknown_key():
    assert parse_yaml("<<: {a: 1}", source="x") == {"<<": {"a": 1}}


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_before_it_can_exhaust_the_stack(opening):
    with pytest.raises(ConfigError, match=rf"x:1:\d+: nested deeper than {MAX_DEPTH}"):
        parse_yaml(opening * 100_000, source="x")


def test_nesting_up_to_the_limit_is_read():
    value = parse_yaml("[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1), source="x")
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == 1


def test_a_file_of_more_than_a_megabyte_is_refused(tmp_path):
    path = tmp_path / "big.yaml"
    path.write_bytes(b"#" * 1_000_001)
    with pytest.raises(ConfigError, match="larger than 1,000,000 bytes"):
        load_yaml(path)


def test_bytes_that_are_not_utf8_are_refused_where_they_stand(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"a: 1\nb: \xe9")
    with pytest.raises(ConfigError, match=r"latin.yaml:2:4: the byte 0xE9 is not UTF-8"):
        load_yaml(path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert load_yaml(path) == {"a": 1}


def test_a_folder_or_a_missing_file_is_a_config_error(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_yaml(path)


SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=20)
LOOKALIKES = st.sampled_from(
    ["on", "012", "3e-4", "1_000", "1:30", "null", "~", "", " a", "#", "- b", "a: b", ".inf", "'", '"', "!x"]
)
VALUES = st.recursive(
    SCALARS | LOOKALIKES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | LOOKALIKES, inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.text(max_size=8) | LOOKALIKES, VALUES, max_size=4))
@settings(max_examples=150, deadline=None)
def test_whatever_is_dumped_is_read_back_the_same(values):
    again = parse_yaml(dump_yaml(values), source="x")
    assert again == values
    assert repr(again) == repr(values)  # also the types and the order


@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"#%@,? \n\t1.e_", max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_a_value_or_a_config_error(text):
    try:
        parse_yaml(text, source="x")
    except ConfigError as error:
        assert str(error).startswith("x:")  # noqa: PT017 (either outcome is fine)


def test_a_config_file_becomes_a_train_config(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(f"{RUN}algo_kwargs: {{learning_rate: 3e-4, num_steps: 1_000}}\n")
    config = load_config_file(path)
    assert (config.total_timesteps, config.options.learning_rate, config.options.num_steps) == (100_000, 3e-4, 1_000)


def test_problems_of_a_config_file_are_listed_with_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(f"{RUN}num_env: 2\nalgo_kwargs: {{gama: 0.9}}\n")
    with pytest.raises(ConfigError) as caught:
        load_config_file(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    assert "ppo has no option 'gama'; did you mean 'gamma'?" in lines[0]
    assert "the config has no option 'num_env'; did you mean 'num_envs'?" in lines[1]


def test_a_file_that_names_another_takes_its_values_and_overrides_them(tmp_path):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "run.yaml").write_text(f"{RUN}algo_kwargs: {{gamma: 0.9, num_steps: 8}}\ntags: [a, b]\n")
    (tmp_path / "mine.yaml").write_text("config: base/run.yaml\nseed: 7\nalgo_kwargs: {gamma: 0.5}\ntags: [c]\n")
    values = load_config_values(tmp_path / "mine.yaml")
    assert (values["seed"], values["env_id"], values["tags"]) == (7, "CartPole-v1", ["c"])
    assert values["algo_kwargs"] == {"gamma": 0.5, "num_steps": 8}


def test_a_file_can_name_a_preset(tmp_path):
    (tmp_path / "mine.yaml").write_text("config: configs/ppo/cartpole.yaml\nseed: 7\n")
    assert load_config_file(tmp_path / "mine.yaml") == load_config_file("ppo/cartpole").replace(seed=7)


def test_files_that_name_each_other_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("config: b.yaml\n")
    (tmp_path / "b.yaml").write_text("config: ./a.yaml\n")
    with pytest.raises(ConfigError, match=r"circle: .*a\.yaml -> .*b\.yaml -> .*a\.yaml"):
        load_config_file(tmp_path / "a.yaml")


@pytest.mark.parametrize("line", ["config: 3", "config: null", "config: ''", f"config: ppo/cartpole\n{RUN}"])
def test_a_config_key_that_cannot_be_followed_is_refused(tmp_path, line):
    (tmp_path / "a.yaml").write_text(line)
    with pytest.raises(ConfigError, match="config"):
        load_config_file(tmp_path / "a.yaml")


def test_a_missing_file_is_answered_with_the_nearest_file_or_preset(tmp_path):
    (tmp_path / "halfcheetah.yaml").write_text(RUN)
    with pytest.raises(ConfigError, match=r"there is no config file .*did you mean '.*halfcheetah\.yaml'"):
        load_config_file(tmp_path / "halfcheeta.yaml")
    with pytest.raises(ConfigError, match="did you mean 'ppo/cartpole'"):
        load_config_file("ppo/cartpol")
