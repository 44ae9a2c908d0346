"""The planner against a slow one written again (`slow_planner`), and facts about what it promises."""

import random
import tracemalloc
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from calculators.predict.clusters import Cluster, Link, Tier, two_tiers
from calculators.predict.devices import DEVICES, Device
from calculators.predict.implementations import MEGATRON
from calculators.predict.links import rung
from calculators.predict.memory import OPTIMIZERS
from calculators.predict.models.catalogue import MODELS
from calculators.predict.planner import (
    AXES,
    COLUMNS,
    MEMORY_COLUMNS,
    TIME_COLUMNS,
    Evaluated,
    Space,
    Task,
    evaluate,
    plan,
    plans,
    why,
)
from calculators.predict.rules import RULES
from calculators.predict.shapes import Experts, LatentAttention, ModelShape, Phase, SlidingWindow
from calculators.predict.timing import FITTED, training_step
from tests.predict import slow_planner
from tests.predict.sentences import exactly
from tests.predict.slow_planner import Split, Work

CLUSTERS = 200
IN_A_TEST = 20
AXES_OF_A_SPACE = tuple(axis.name for axis in fields(Space))


def random_task(seed):
    """A small model on a small cluster, and a space of its own, by a seed."""
    rng = random.Random(seed)
    cluster = random_cluster(rng)
    phase = rng.choice([Phase.TRAINING, Phase.TRAINING, Phase.DECODE])
    shape = random_shape(rng)
    devices = cluster.devices
    sequences = devices if rng.random() < 0.8 else rng.choice(divisors(devices))
    task = Task(
        shape=shape,
        cluster=cluster,
        tokens=rng.choice([1, 7, 48, 64, 96, 480, 1024, 4096]) * rng.choice([1, 2, 3]),
        batch=sequences * rng.choice([1, 2, 4, 6, 12]) if phase is Phase.TRAINING else rng.randint(1, 100),
        phase=phase,
        optimizer=rng.choice(list(OPTIMIZERS.values())),
        reserve=rng.choice([0.0, 0.1, 0.5]) * cluster.device.memory_bytes,
        uneven_stages=rng.random() < 0.4,
    )
    return task, random_space(rng, task)


def random_cluster(rng):
    """1 to 64 devices in hosts of 1 to 8, some of them in racks, of made-up speeds."""
    sizes = [rng.randint(1, 8)]
    while sizes[-1] * 2 <= 64 and len(sizes) < 3 and rng.random() < 0.8:
        sizes.append(sizes[-1] * rng.randint(2, min(8, 64 // sizes[-1])))
    speed = 10 ** rng.uniform(10, 12)
    tiers = []
    for size in sizes:
        link = Link(name="link", bytes_per_second=speed, latency_seconds=10 ** rng.uniform(-6, -4))
        tiers.append(Tier(devices=size, link=link))
        speed /= rng.choice([1, 2, 8, 50])
    device = Device(
        key="some",
        name="Some",
        memory_bytes=10 ** rng.uniform(6, 9),
        memory_bytes_per_second=10 ** rng.uniform(11, 12.7),
        flops_per_second=10 ** rng.uniform(13, 15),
        source="made up",
    )
    return Cluster(device=device, tiers=tuple(tiers))


def random_shape(rng):
    """Of up to 24 layers: ordinary, grouped or latent attention, windows, experts."""
    heads = rng.choice([4, 6, 8, 12, 24, 60])
    layers = rng.choice([1, 2, 3, 4, 6, 8, 9, 12, 16, 24])
    experts = latent = window = None
    if rng.random() < 0.5:
        routed = rng.choice([2, 4, 6, 8, 16])
        experts = Experts(
            routed=routed,
            per_token=rng.randint(1, min(routed, 4)),
            width=rng.choice([24, 96, 256]),
            shared_width=rng.choice([0, 0, 96]),
            dense_layers=rng.randint(0, layers - 1),
        )
    if rng.random() < 0.25:
        latent = LatentAttention(
            kv_rank=rng.choice([32, 64]),
            rope_dim=16,
            query_rank=rng.choice([0, 48]),
            value_dim=rng.choice([32, 64]),
        )
    if rng.random() < 0.25:
        window = SlidingWindow(tokens=rng.choice([16, 128, 1000]), layers=rng.randint(1, layers))
    return ModelShape(
        name="small",
        hidden_size=rng.choice([64, 192, 512, 1024]),
        layers=layers,
        attention_heads=heads,
        kv_heads=rng.choice(divisors(heads)),
        head_dim=rng.choice([16, 32, 64]),
        ffn_width=rng.choice([128, 384, 2048]),
        vocab_size=rng.choice([97, 512, 5000]),
        bytes_per_element=rng.choice([1, 2, 2, 4]),
        source="made up",
        gated=rng.random() < 0.6,
        tied_embeddings=rng.random() < 0.3,
        positions=rng.choice([0, 0, 1024]),
        experts=experts,
        latent=latent,
        window=window,
    )


def random_space(rng, task):
    """A few values of each axis, some of which nothing divides by."""
    sizes = sorted({*divisors(task.cluster.devices), 2, 3, 5})

    def some(values, most):
        plain = set(values[:1]) if rng.random() < 0.95 else set()
        return tuple(sorted(plain | set(rng.sample(values, min(len(values), rng.randint(1, most))))))

    sparse = task.shape.experts is not None
    return Space(
        tp=some(sizes, 4),
        cp=some(sizes, 2),
        pp=some(sizes, 4),
        ep=some(sizes, 3) if sparse else some([1, 2], 2),
        etp=some(sizes, 2) if sparse else (1,),
        sp=some([False, True], 2),
        vpp=some([1, 2, 3, 4], 2),
        micro_batch=some([1, 2, 3, 4], 2),
        zero=some([0, 1, 2, 3], 2),
        recompute=some([0, 1, 2], 2),
    )


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


def slow_work(task):
    """The task as the slow planner takes it."""
    return Work(
        shape=task.shape,
        cluster=task.cluster,
        tokens=task.tokens,
        batch=task.batch,
        training=task.phase is Phase.TRAINING,
        uneven_stages=task.uneven_stages,
        weight=task.optimizer.weight_bytes,
        gradient=task.optimizer.gradient_bytes,
        state=sum(size for _, size in task.optimizer.state),
        exchanged=task.optimizer.exchanged_gradient_bytes,
        matmul=FITTED.matmul,
        bandwidth=FITTED.bandwidth,
    )


def splits_of(found):
    """The layouts of some columns, one by one."""
    columns = [found[axis].astype(int).tolist() for axis in Split._fields]
    return [Split(*values)._replace(sp=bool(values[6])) for values in zip(*columns, strict=True)]


def values_of(space):
    """A space as the slow planner takes it."""
    return {axis: getattr(space, axis) for axis in AXES_OF_A_SPACE}


def hosts(devices, *, device="h100", host=8):
    """Hosts of eight with NVLink and InfiniBand."""
    return two_tiers(
        DEVICES[device],
        devices=devices,
        devices_per_host=host,
        inside=Link.on(rung("nvlink-4")),
        between=Link.on(rung("infiniband-ndr")),
    )


def task_of(model="llama-3.1-70b", *, devices=64, tokens=8192, batch=128, **given):
    return Task(shape=MODELS[model].shape, cluster=hosts(devices), tokens=tokens, batch=batch, **given)


def together(found):
    """All chunks in one."""
    chunks = list(found)
    return Evaluated(columns={name: np.concatenate([chunk[name] for chunk in chunks]) for name in COLUMNS})


def by_axes(found):
    """The same layouts in the order of their axes."""
    return found.rows(np.lexsort([found[axis] for axis in AXES]))


# --- Against the slow planner ---------------------------------------------------------------------------------------


# One more than the 200: chunks of a decoding model whose experts begin on a stage that neither opens nor ends it.
@pytest.mark.parametrize(
    "seeds", [*(range(first, first + IN_A_TEST) for first in range(0, CLUSTERS, IN_A_TEST)), (5391,)], ids=str
)
def test_a_slow_planner_finds_the_same_legal_layouts_and_the_same_best(seeds):
    for seed in seeds:
        task, space = random_task(seed)
        slow = slow_planner.plan(slow_work(task), values_of(space))

        found = list(evaluate(task, space))
        best = plan(task, space, count=5)

        rows = [
            (split, dict(zip(COLUMNS, values, strict=True)))
            for chunk in found
            for split, *values in zip(
                splits_of(chunk), *(chunk[name].tolist() for name in COLUMNS), strict=True
            )
        ]
        assert len(rows) == best.legal == len(slow)
        fast = dict(rows)
        assert set(fast) == {split for split, _ in slow}, seed
        for split, expected in slow:
            mine = {name: fast[split][name] for name in expected}
            assert mine == pytest.approx(expected, rel=1e-9, abs=0), (seed, split)
        limit = task.cluster.device.memory_bytes - task.reserve
        fitting = [split for split, row in slow if row["memory_bytes"] <= limit]
        assert (splits_of(best.best), best.fitting) == (fitting[:5], len(fitting)), seed


def test_the_random_clusters_reach_every_rule_and_every_kind_of_model():
    largest = dict.fromkeys(Split._fields, 0)
    phases, sizes_of_hosts, kinds, numbers = set(), set(), set(), []

    for seed in range(CLUSTERS):
        task, space = random_task(seed)
        shape, splits = task.shape, list(slow_planner.legal_splits(slow_work(task), values_of(space)))
        numbers.append(len(splits))
        if splits:
            phases.add((task.phase, task.uneven_stages))
            sizes_of_hosts.add(task.cluster.devices_per_host)
            kinds |= {
                kind
                for kind in ("latent", "window", "experts", "gated", "tied_embeddings")
                if getattr(shape, kind)
            }
            kinds |= {"grouped"} if shape.kv_heads < shape.attention_heads else {"plain"}
            for axis in largest:
                largest[axis] = max(largest[axis], *(getattr(split, axis) for split in splits))

    assert len(phases) == 4
    assert sizes_of_hosts == set(range(1, 9))
    assert len(kinds) == 7
    assert 0 < numbers.count(0) < 40
    assert sum(numbers) > 4_000
    assert (
        min(largest[axis] for axis in ("dp", "tp", "cp", "pp", "ep", "etp", "vpp", "micro_batch", "zero"))
        >= 3
    )
    assert (largest["sp"], largest["recompute"]) == (True, 2)


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize(
    ("devices", "layers", "experts"),
    [
        (8, 8, None),
        (6, 12, None),
        (12, 7, None),
        (8, 6, Experts(routed=6, per_token=2, width=96)),
        (1, 3, None),
    ],
)
def test_the_space_of_a_task_leaves_nothing_out_that_is_legal(devices, layers, experts, uneven):
    shape = replace(
        random_shape(random.Random(1)),
        layers=layers,
        attention_heads=12,
        kv_heads=4,
        experts=experts,
        latent=None,
    )
    task = Task(shape=shape, cluster=hosts(devices, host=2), tokens=96, batch=24, uneven_stages=uneven)
    sizes = range(1, devices + 1)
    everything = {
        **dict.fromkeys(("tp", "cp", "pp", "ep"), sizes),
        "etp": [n for n in sizes if experts is None or experts.width % n == 0],
        "sp": (0, 1),
        "vpp": (1, 2, 4, 8, 16) if uneven else range(1, 17),
        "micro_batch": (1, 2, 4, 8, 16, 32),
        "zero": range(4),
        "recompute": range(3),
    }

    found = [split for chunk in evaluate(task) for split in splits_of(chunk)]

    assert len(found) == len(set(found))
    assert set(found) == set(slow_planner.legal_splits(slow_work(task), everything))


# --- What holds of every evaluation ---------------------------------------------------------------------------------


TASKS = {
    "dense": task_of(),
    "experts, uneven stages": task_of("mixtral-8x7b", devices=16, batch=16, uneven_stages=True),
    "decode": task_of("mixtral-8x7b", devices=16, batch=100, phase=Phase.DECODE),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("chunk", [1, 500])
def test_the_size_of_a_chunk_changes_nothing(task, chunk):
    small, usual = (by_axes(together(evaluate(task, **given))) for given in ({"chunk": chunk}, {}))

    for axis in AXES:
        assert small[axis].tolist() == usual[axis].tolist(), axis
    for name in COLUMNS:  # the last bit depends on which parts of a sum are the smaller arrays
        np.testing.assert_allclose(small[name], usual[name], rtol=1e-14, err_msg=name)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_layout_uses_all_devices_and_its_columns_add_up(task):
    found = together(evaluate(task))

    assert set(found.columns) == set(COLUMNS)
    assert set(found["dp"] * found["tp"] * found["cp"] * found["pp"]) == {task.cluster.devices}
    assert sum(found[name] for name in MEMORY_COLUMNS) == pytest.approx(found["memory_bytes"], rel=1e-12)
    assert sum(found[name] for name in TIME_COLUMNS) == pytest.approx(found["step_seconds"], rel=1e-12)
    assert all(np.all(values >= 0) and np.all(np.isfinite(values)) for values in found.columns.values())
    if task.phase is Phase.TRAINING:
        assert set(found["micro_batches"] * found["micro_batch"] * found["dp"]) == {task.batch}
        tokens = task.batch * task.tokens
    else:
        tokens = task.batch
    assert found["tokens_per_second"] * found["step_seconds"] == pytest.approx(np.full(len(found), tokens))


def test_columns_are_written_out_flat_and_of_one_length():
    for found in evaluate(TASKS["experts, uneven stages"]):
        for name in COLUMNS:
            assert found[name].shape == (len(found),)
            assert found[name].strides == (8,), name


def test_some_rows_are_those_of_the_columns_whether_these_were_written_out_or_not():
    rows = np.array([5, 0, 3])
    for found, again in zip(evaluate(TASKS["dense"]), evaluate(TASKS["dense"]), strict=True):
        some = again.rows(rows)
        for name in COLUMNS:
            assert some[name].tolist() == found[name][rows].tolist()


def test_a_row_is_a_layout_that_can_be_calculated_on_with():
    task = TASKS["dense"]
    best = plan(task).best

    program = replace(MEGATRON, gradient_bytes=task.optimizer.exchanged_gradient_bytes)
    step = training_step(
        task.shape,
        best.layout(1),
        task.cluster,
        tokens=task.tokens,
        batch=task.batch,
        implementation=program,
    )

    assert step.total.item() == pytest.approx(best["step_seconds"][1], rel=1e-12)


# --- Plans ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_best_fit_and_come_in_order_and_none_is_left_out(task):
    found, everything = plan(task, count=7), together(evaluate(task))

    fits = everything["memory_bytes"] <= task.limit_bytes
    assert (found.legal, found.fitting) == (len(everything), fits.sum())
    assert found.best["step_seconds"] == pytest.approx(
        np.sort(everything["step_seconds"][fits])[:7], rel=1e-9
    )
    assert found.best["memory_bytes"].max() <= task.limit_bytes
    assert found.smallest["memory_bytes"].tolist() == [everything["memory_bytes"].min()]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_frontier_is_what_nothing_beats_in_both_memory_and_time(task):
    edge, everything = plan(task).frontier, together(evaluate(task))
    memory, seconds = everything["memory_bytes"], everything["step_seconds"]

    assert np.all(np.diff(edge["memory_bytes"]) > 0)
    assert np.all(np.diff(edge["step_seconds"]) < 0)
    for row in range(len(edge)):
        needs, takes = edge["memory_bytes"][row], edge["step_seconds"][row]
        assert not np.any((memory < needs * (1 - 1e-8)) & (seconds <= takes))
        assert not np.any((memory <= needs) & (seconds < takes * (1 - 1e-8)))
    for needs, takes in zip(memory, seconds, strict=True):
        beaten = (edge["memory_bytes"] <= needs * (1 + 1e-8)) & (edge["step_seconds"] <= takes * (1 + 1e-8))
        assert beaten.any()


def test_where_two_take_the_same_time_the_one_that_needs_less_is_first_then_the_one_that_splits_less():
    # One device: no ZeRO stage changes anything, and micro-batches of a sequence each take what they take.
    task = Task(shape=random_shape(random.Random(3)), cluster=hosts(1), tokens=64, batch=1)

    best = plan(task, Space(zero=(0, 1, 2, 3))).best

    assert len(set(best["step_seconds"])) == 1
    assert best["zero"].tolist() == [0, 1, 2, 3]
    tied = plan(task_of(devices=8, batch=8), Space(tp=(8,), zero=(1, 2), sp=(True,), recompute=(2,)))
    assert tied.legal == 2
    assert tied.smallest["zero"].tolist() == tied.frontier["zero"].tolist() == [1]


def test_times_and_memories_that_agree_to_ten_digits_are_the_same(monkeypatch):
    # The same parts added up in another order differ in the last bit; that is no reason to need twice the memory.
    columns = {name: np.ones(4) for name in COLUMNS}
    columns["step_seconds"] = np.array([1.0, 1 - 1e-14, 1 + 1e-14, 2.0])
    columns["memory_bytes"] = np.array([3e9, 1e9, 1e9 * (1 + 1e-14), 2e9])
    columns["tp"] = np.array([1.0, 4.0, 2.0, 8.0])
    monkeypatch.setattr(plans, "evaluate", lambda task, space: iter([Evaluated(columns=columns)]))

    [quickest] = plan(TASKS["dense"], count=1).best["tp"]
    found = plan(TASKS["dense"], count=4)

    assert quickest == 2
    assert found.best["tp"].tolist() == [2, 4, 1, 8]
    assert len(found.frontier) == 1


def test_a_limit_that_the_quickest_exceed_leaves_the_quickest_that_fit():
    task = TASKS["dense"]
    everything = together(evaluate(task))
    least = everything["step_seconds"].min() * (1 + 1e-9)
    quickest = everything["memory_bytes"][everything["step_seconds"] <= least].min()
    device = replace(task.cluster.device, memory_bytes=0.99 * quickest)

    found = plan(replace(task, cluster=replace(task.cluster, device=device)))

    assert found.best["memory_bytes"][0] < quickest
    assert found.best["step_seconds"][0] > least
    fits = everything["memory_bytes"] <= 0.99 * quickest
    assert found.best["step_seconds"][0] == everything["step_seconds"][fits].min()
    assert found.frontier["step_seconds"].min() <= least


def test_where_nothing_fits_the_smallest_is_named():
    task = task_of(devices=8, reserve=79.9 * 2**30)

    found = plan(task)

    assert (len(found.best), found.fitting, found.reasons) == (0, 0, ())
    assert found.legal > 0
    assert found.smallest["memory_bytes"][0] > task.limit_bytes
    assert len(found.frontier)


def test_where_nothing_is_legal_nothing_is_named():
    # Seven sequences cannot be shared by 2, 4 or 8 replicas, nor 31 heads or layers by any group.
    shape = replace(random_shape(random.Random(3)), layers=31, attention_heads=31, kv_heads=31, experts=None)
    found = plan(Task(shape=shape, cluster=hosts(8), tokens=31, batch=7))

    assert (found.legal, found.fitting, len(found.best), len(found.frontier)) == (0, 0, 0, 0)
    assert found.smallest is None
    assert found.reasons == ()


@pytest.mark.parametrize(
    "space", [Space(micro_batch=(8,)), Space(vpp=(2,)), Space(sp=(True,)), Space(cp=(3,))]
)
def test_a_space_without_a_legal_value_of_an_axis_is_empty(space):
    task = task_of(devices=64, batch=64)

    assert list(evaluate(task, space)) == []
    assert plan(task, space).legal == 0


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "llama-3.1-70b"])
def test_twice_as_many_devices_never_take_longer(model):
    times = []
    for devices in (16, 32, 64, 128):
        [best] = plan(task_of(model, devices=devices, batch=256), count=1).best["step_seconds"]
        times.append(best)

    assert all(more < fewer for fewer, more in pairwise(times))


@pytest.mark.timeout(60)
def test_sixteen_thousand_devices_are_planned_at_once():
    task = task_of("llama-3.1-405b", devices=16_384, batch=2048)

    found = plan(task)

    assert found.legal > 30_000
    assert 0 < found.fitting < found.legal
    assert found.best.layout(0).world_size == 16_384
    assert len(found.reasons) == 9


def test_memory_grows_with_the_chunk_and_not_with_the_space():
    few = task_of("deepseek-v3", devices=16, batch=16, tokens=4096, uneven_stages=True)
    many = task_of("deepseek-v3", devices=512, batch=512, tokens=4096, uneven_stages=True)

    (small, needed), (large, needed_by_many) = held_by(few, chunk=10_000), held_by(many, chunk=10_000)
    _, needed_by_large_chunks = held_by(many, chunk=40_000)

    assert large > 30 * small > 1_000_000
    assert needed_by_many < 2 * needed
    assert needed_by_large_chunks > 2 * needed_by_many


def held_by(task, *, chunk):
    """How many layouts there are, and the most memory held [bytes] while all their columns are looked at in turn."""
    tracemalloc.start()
    try:
        layouts = 0
        for found in evaluate(task, chunk=chunk):
            layouts += len(found)
            for name in COLUMNS:
                assert len(found[name]) == len(found)
        return layouts, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_plan_of_more_than_a_million_layouts_holds_a_chunk_of_them():
    tracemalloc.start()
    try:
        found = plan(task_of("deepseek-v3", devices=512, batch=2048, tokens=4096, uneven_stages=True))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 25e6 < 8 * len(COLUMNS) * found.legal / 10


def test_no_rule_speaks_of_zero_or_of_recomputation():
    # The planner asks the rules about the other axes only.
    axes = {axis for rule in RULES for axis in rule.axes}

    assert {"tp", "sp", "micro_batch"} < axes
    assert not axes & {"zero", "recompute"}


# --- Reasons --------------------------------------------------------------------------------------------------------


def compared(*, memory=(1e9, 1e9), **parts):
    """Two layouts of which only the named parts of the time are not 0: (this, the other)."""
    columns = {name: np.zeros(2) for name in COLUMNS}
    columns["memory_bytes"] = np.array(memory)
    for name, seconds in parts.items():
        columns[f"{name}_seconds"] = np.array(seconds)
    columns["step_seconds"] = sum(columns[name] for name in TIME_COLUMNS)
    return Evaluated(columns=columns)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            compared(compute=(8.0, 8.0), bubble=(1.0, 2.0)),
            "It saves 10.00% of the step, most of it in the pipeline's bubble.",
        ),
        (
            compared(compute=(8.0, 8.0), tensor=(1.0, 2.5), data=(0.5, 0.0)),
            "It saves 9.52% of the step, most of it in tensor-parallel exchanges, and pays a part of that back in "
            "exchanging gradients and weights.",
        ),
        (
            compared(compute=(8.0, 8.0), recompute=(0.0, 2.0), optimizer=(0.01, 0.0)),
            "It saves 19.90% of the step, most of it in recomputation.",
        ),
        (
            compared(compute=(8.0, 8.0), expert=(0.0, 1e-4)),
            "It saves less than 0.01% of the step, most of it in expert exchanges.",
        ),
        (compared(memory=(1e9, 2e9), compute=(8.0, 8.0)), "It takes as long and needs less memory."),
        (
            compared(memory=(1e9, 2e9), compute=(8.0, 8.0 * (1 + 1e-14))),
            "It takes as long and needs less memory.",
        ),
        (compared(compute=(8.0, 8.0)), "It costs the same and splits less."),
    ],
)
def test_why_one_beats_another_is_said(found, sentence):
    assert why(found, 0, 1) == sentence


def test_every_part_of_a_step_has_words():
    for part in TIME_COLUMNS:
        name = part.removesuffix("_seconds")
        assert why(compared(**{name: (1.0, 2.0)}), 0, 1).startswith(
            "It saves 50.00% of the step, most of it in "
        )


def test_a_plan_has_a_reason_for_each_but_the_last():
    found = plan(TASKS["dense"], count=4)

    assert found.reasons == tuple(why(found.best, row, row + 1) for row in range(3))


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tokens": 0}, "tokens is 0, but it must be a whole number from 1 to 10¹²."),
        ({"tokens": 1.5}, "tokens is 1.5, but it must be a whole number from 1 to 10¹²."),
        ({"batch": -1}, "batch is -1, but it must be a whole number from 1 to 10¹²."),
        ({"batch": float("nan")}, "batch is nan, but it must be a whole number from 1 to 10¹²."),
        ({"batch": 10**13}, "batch is 10000000000000, but it must be a whole number from 1 to 10¹²."),
        ({"reserve": -1.0}, "reserve is -1, but it must be 0 bytes or more."),
        ({"reserve": float("inf")}, "reserve is inf, but it must be 0 bytes or more."),
        (
            {"devices": 32_768},
            "The cluster has 32,768 devices, but the planner goes to 16,384. Use fewer.",
        ),
        (
            {"phase": Phase.PREFILL},
            "phase is prefill, but plans are made for training and for decode. Use one of those.",
        ),
    ],
)
def test_a_task_that_cannot_be_planned_is_refused(given, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        task_of(**given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tp": ()}, "tp has no values, but a layout needs one. Give at least one."),
        (
            {"pp": (0, 1)},
            "pp is 0, 1, but its values are whole numbers from 1 to 16,384, ascending. Change them, and give each "
            "once.",
        ),
        (
            {"zero": (1, 1)},
            "zero is 1, 1, but its values are whole numbers from 0 to 3, ascending. Change them, and give each once.",
        ),
        (
            {"micro_batch": (1.5,)},
            "micro_batch is 1.5, but its values are whole numbers from 1 to 16,384, ascending. Change them, and give "
            "each once.",
        ),
        (
            {"recompute": (3,)},
            "recompute is 3, but its values are whole numbers from 0 to 2, ascending. Change them, and give each once.",
        ),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(given, sentence):
    with pytest.raises(ValueError, match=exactly(sentence)):
        Space(**given)


def test_a_plan_of_no_layouts_is_refused():
    with pytest.raises(
        ValueError, match=exactly("count is 0, but a plan names at least the quickest layout. Use 1 or more.")
    ):
        plan(task_of(), count=0)


def test_gradients_travel_as_wide_as_the_optimizer_s_sums_are():
    # plain replicas of a dense model: only the all-reduce of the gradients differs between the two
    task, space = task_of(), Space(micro_batch=(1,))
    sixteen, thirty_two = (
        next(evaluate(replace(task, optimizer=OPTIMIZERS[key]), space))["data_seconds"].item()
        for key in ("mixed-adam", "megatron-adam")
    )

    assert 0 < sixteen < thirty_two
