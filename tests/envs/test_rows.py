"""Observations as rows: what is written is what a network reads, bit for bit, and what does not fit is named."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from toy_envs import Catch, Mixed

from rl_training.envs.faults import EnvFault
from rl_training.envs.pool import EnvPool
from rl_training.envs.source import EnvSource
from rl_training.envs.spaces import describe_env, network_space
from rl_training.envs.vector import make_envs
from rl_training.models.encoder import RowCutter
from rl_training.models.normalizer import NumbersNormalizer
from rl_training.rows import ObservationError, RowLayout, as_rows, channels_first, image_shape, layout_of
from rl_training.types import EnvSpec, ObsPart


class Shell(gym.Env):
    """Has a space."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)


def spec_of(space):
    return describe_env(Shell(space), "Some-v0")


def image(*shape, dtype="uint8"):
    return ObsPart((), "box", shape, dtype, high=255.0)


def test_a_row_has_numbers_first_and_images_behind_them():
    spec = spec_of(
        spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (2, 2, 1), np.uint8),
                "choice": spaces.Discrete(3, start=-1),
                "speed": spaces.Box(-1, 1, (1,)),
            }
        )
    )
    layout = layout_of(spec)
    # four floats are sixteen bytes; the image's four come behind
    assert (layout.num_numbers, layout.num_floats, layout.first_byte, layout.width, layout.dtype) == (4, 4, 16, 20, np.uint8)
    rows, single = as_rows({"camera": np.arange(4).reshape(2, 2, 1), "choice": 1, "speed": [0.1]}, layout)
    assert single
    assert layout.floats(rows).tolist() == [[0, 0, 1, np.float32(0.1)]]
    assert rows[0, 16:].tolist() == [0, 1, 2, 3]


def test_rows_of_floats_and_bytes_begin_at_multiples_of_four():
    layout = RowLayout([ObsPart(("a",), "box", (1,)), ObsPart(("b",), "box", (3, 1, 1), "uint8")])
    assert layout.width == 8  # 4 + 3, and one that is nothing
    rows = layout.empty(5)
    assert not rows.any()
    assert RowCutter(layout)(torch.from_numpy(rows))["b"].shape == (5, 1, 3, 1)


def test_an_image_alone_is_its_bytes_and_nothing_else():
    layout = RowLayout([image(84, 84, 4)])
    assert (layout.width, layout.dtype) == (84 * 84 * 4, np.uint8)


SPACES = {
    "vector": spaces.Box(-1, 1, (3,)),
    "matrix": spaces.Box(-1, 1, (2, 3)),
    "number": spaces.Box(-1, 1, ()),
    "choice": spaces.Discrete(4, start=2),
    "choices": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "table of choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "buttons": spaces.MultiBinary(3),
    "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "image first": spaces.Box(0, 255, (3, 4, 5), np.uint8),
    "gray": spaces.Box(0, 255, (4, 5), np.uint8),
    "plane of flags": spaces.Box(0, 1, (4, 5, 6), bool),
    "floats": spaces.Box(0, 1, (4, 5, 3)),
    "stack": spaces.Box(0, 255, (2, 4, 5, 3), np.uint8),
    "dict": spaces.Dict(
        {"b": spaces.Box(0, 255, (4, 5, 3), np.uint8), "a": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 1, (3,))])}
    ),
    "tuple": spaces.Tuple([spaces.Box(0, 1, (4, 5, 3)), spaces.Dict({"x": spaces.MultiBinary(2)})]),
}


def as_network_reads(space, value):  # noqa: PLR0911
    """What Stable-Baselines3's networks are given, written from its description."""
    if isinstance(space, spaces.Dict):
        return {name: as_network_reads(inner, value[name]) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_network_reads(inner, one) for inner, one in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Discrete):
        return np.eye(space.n, dtype=np.float32)[value - space.start]
    if isinstance(space, spaces.MultiDiscrete):
        flat = zip(space.nvec.ravel(), (value - space.start).ravel(), strict=True)
        return np.concatenate([np.eye(n, dtype=np.float32)[i] for n, i in flat])
    value = value.astype(np.float32) / (255 if value.dtype == np.uint8 else 1)
    if len(space.shape) == 2 and space.dtype == np.uint8:
        return value[None]
    if value.ndim == 4:  # a stack of frames
        return np.concatenate([frame.transpose(2, 0, 1) for frame in value])
    return value.transpose(2, 0, 1) if value.ndim == 3 and value.shape[0] >= value.shape[-1] else value


def equal(found, wanted):
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(equal(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, tuple):
        return len(found) == len(wanted) and all(map(equal, found, wanted))
    return torch.equal(found, torch.from_numpy(np.atleast_1d(wanted)))


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_a_network_reads_of_a_row_what_was_observed(name, memory):
    space = SPACES[name]
    space.seed(0)
    layout = layout_of(spec_of(space))
    drawn = [space.sample() for _ in range(3)]
    rows = layout.zeros(3)
    for row, value in enumerate(drawn):
        layout.write(value, rows[row : row + 1], single=True)
    read = RowCutter(layout, memory_format=memory)(torch.from_numpy(rows))
    for row, value in enumerate(drawn):
        one = torch.utils._pytree.tree_map(lambda leaf, row=row: leaf[row], read)
        assert equal(one, as_network_reads(space, value))


@pytest.mark.parametrize("name", SPACES)
def test_the_space_that_a_network_is_told_is_that_of_what_it_reads(name):
    space, told = SPACES[name], network_space(spec_of(SPACES[name]))
    read = as_network_reads(space, space.sample())
    leaf, told_leaf = read, told
    while isinstance(told_leaf, spaces.Dict | spaces.Tuple):
        key = next(iter(leaf)) if isinstance(leaf, dict) else 0
        leaf, told_leaf = leaf[key], told_leaf[key]
    if isinstance(told_leaf, spaces.Box):
        assert told_leaf.shape == np.atleast_1d(leaf).shape


@pytest.mark.parametrize("name", SPACES)
def test_what_is_known_of_a_space_survives_a_checkpoint(name):
    spec = spec_of(SPACES[name])
    assert EnvSpec.from_dict(spec.to_dict()) == spec
    assert ("observation" in spec.to_dict()) == (name != "vector")


@pytest.mark.parametrize(
    ("shape", "first", "seen"),
    [
        ((84, 84, 4), False, (4, 84, 84)),
        ((4, 84, 84), True, (4, 84, 84)),
        ((3, 210, 160), True, (3, 210, 160)),
        ((210, 160, 3), False, (3, 210, 160)),
        ((10, 10, 10), False, (10, 10, 10)),  # of equals the last
        ((4, 84, 84, 3), False, (12, 84, 84)),
        ((4, 3, 84, 84), True, (12, 84, 84)),
        ((84, 84), False, (1, 84, 84)),
    ],
)
def test_the_channels_are_the_shorter_of_the_first_and_the_last_axis(shape, first, seen):
    assert channels_first(image(*shape)) == first
    assert image_shape(image(*shape)) == seen


def test_images_with_channels_last_are_not_moved_for_channels_last_memory():
    layout = RowLayout([image(8, 8, 3)])
    rows = torch.randint(256, (2, layout.width), dtype=torch.uint8)
    read = RowCutter(layout, memory_format=torch.channels_last)(rows)
    assert read.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(read.permute(0, 2, 3, 1).reshape(2, -1), rows / 255)


def test_flags_are_not_divided_and_bytes_by_their_highest_number():
    flags = layout_of(spec_of(spaces.Box(0, 1, (2, 2, 1), np.uint8)))
    assert RowCutter(flags)(torch.ones(1, 4, dtype=torch.uint8)).max() == 1
    assert RowCutter(RowLayout([image(2, 2, 1)]))(torch.full((1, 4), 255, dtype=torch.uint8)).max() == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clue": 9}, "obs.clue = [9]; declared are 3 choices from 5 on"),
        ({"clue": 5.5}, "obs.clue = [5.5]; declared are 3 choices from 5 on"),
        (
            {"camera": np.zeros((8, 9, 3), np.uint8)},
            "obs.camera of shape (8, 9, 3) and dtype uint8; declared are numbers of shape (9, 8, 3)",
        ),
        (
            {"camera": np.full((9, 8, 3), np.nan)},
            "obs.camera of shape (9, 8, 3) and dtype float64; declared is uint8, whole numbers up to 255",
        ),
        ({"camera": np.full((9, 8, 3), 256)}, "and dtype int64; declared is uint8, whole numbers up to 255"),
        ({"inner": {"buttons": [0, 1], "knobs": [0, 3]}}, "obs.inner.knobs = [0, 3]; declared are choices of [2, 3] from 0 on"),
        ({"inner": {"knobs": [0, 1]}}, "an observation with knobs; obs.inner.buttons is declared"),
        (
            {"position": "here"},
            "an observation with obs.position of shape () and dtype <U4; declared are numbers of shape (2,)",
        ),
    ],
)
def test_what_is_not_as_declared_is_named(changes, said):
    env = Mixed()
    layout = layout_of(describe_env(env, "x"))
    with pytest.raises(ObservationError) as error:
        layout.write({**env.reset(seed=0)[0], **changes}, layout.zeros(1), single=True)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("obs", "said"),
    [({"clue": 5}, "an observation with clue; obs.camera is"), (3, "an observation that is a int; obs.camera is")],
)
def test_a_part_that_is_missing_is_named(obs, said):
    with pytest.raises(ObservationError, match=said):
        as_rows(obs, layout_of(describe_env(Mixed(), "x")))


class Bad(gym.Wrapper):
    """Spoils one number of one part at the third step."""

    def __init__(self, env, part=None):
        super().__init__(env)
        self.part, self.steps = part, 0

    def step(self, action):
        obs, *rest = self.env.step(action)
        self.steps += 1
        if self.steps == 3:
            spoilt = obs if self.part is None else obs[self.part]
            spoilt = np.array(spoilt, dtype=np.float32)
            spoilt.flat[1] = np.nan
            obs = spoilt if self.part is None else {**obs, self.part: spoilt}
        return (obs, *rest)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            lambda: Bad(Catch(dtype="float32")),
            r"environment 0, episode 0, step 3: returned an observation with nan in obs\[0, 0, 1\]",
        ),
        (lambda: Bad(Mixed(), "position"), r"step 3: returned an observation with nan in obs.position\[1\]"),
        (lambda: Bad(Catch()), r"step 3: returned an observation of shape \(10, 10, 4\) and dtype float32; declared is uint8"),
        (
            lambda: Bad(Mixed(), "camera"),
            r"step 3: returned an observation with obs.camera of shape .* and dtype float32; declared is uint8",
        ),
    ],
)
def test_a_number_that_is_not_finite_is_named_wherever_it_stands(env, said):
    source = EnvSource(env=env)
    pool = EnvPool(source, source.spec(), num_envs=1, seed=0, stream=0)
    for _ in range(2):
        pool.step(np.array([0]))
    with pytest.raises(EnvFault, match=said):
        pool.step(np.array([0]))
    pool.close()


@pytest.mark.parametrize("env_id", ["toy_envs:ToyCatch-v0", "toy_envs:ToyMixed-v0"])
def test_workers_give_the_same_rows_as_the_loop(env_id):
    source = EnvSource(env_id)
    spec = source.spec()
    assert layout_of(spec).dtype == np.uint8
    loop, workers = (make_envs(source, spec, num_envs=3, backend=backend) for backend in ("local_sync", "local_async"))
    try:
        assert loop.reset(range(3), [5, 6, 7]).tobytes() == workers.reset(range(3), [5, 6, 7]).tobytes()
        for actions in np.random.default_rng(0).integers(3, size=(5, 3)):
            here, there = loop.step(actions), workers.step(actions)
            assert [array.tobytes() for array in here] == [array.tobytes() for array in there]
            assert here.obs.dtype == there.obs.dtype == np.uint8
    finally:
        loop.close()
        workers.close()


def test_a_pool_of_images_goes_on_where_it_was_saved():
    source = EnvSource(env=Mixed)
    spec = source.spec()
    pool, again = (EnvPool(source, spec, num_envs=2, seed=1, stream=0) for _ in range(2))
    for actions in np.random.default_rng(0).integers(3, size=(9, 2)):
        pool.step(actions)
    again.load_state_dict(pool.state_dict())
    assert again.exact
    assert again.obs.tobytes() == pool.obs.tobytes()
    assert again.obs.dtype == np.uint8


def test_a_normaliser_of_rows_with_images_touches_numbers_alone():
    layout = layout_of(describe_env(Mixed(), "x"))
    normalizer = NumbersNormalizer(layout)
    rows = layout.zeros(64)
    rng = np.random.default_rng(0)
    layout.floats(rows)[:] = rng.normal(3.0, 2.0, size=(64, layout.num_floats))
    rows[:, layout.first_byte :] = rng.integers(256, size=(64, layout.width - layout.first_byte))
    given = torch.from_numpy(rows.copy())
    normalizer.observe(given)
    seen = normalizer(given).numpy()
    numbers = layout.floats(seen)
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(numbers.std(axis=0), 1, atol=1e-4)
    assert seen[:, layout.first_byte :].tobytes() == rows[:, layout.first_byte :].tobytes()
    assert torch.equal(given, torch.from_numpy(rows))
