"""The kinds of layouts that somebody may expect to be the quickest."""

from calculators.predict.planner import Evaluated, Kind, Task
from calculators.predict.shapes import Phase


def kinds_of(task: Task) -> dict[str, Kind]:
    """The kinds of layouts that somebody may expect, by their names on the page."""
    one = (1, 1)
    devices, in_a_host = task.cluster.devices, task.cluster.devices_per_host
    if devices == 1:
        return {}
    alone = dict.fromkeys(("tp", "cp", "pp", "ep", "etp"), one)
    training = task.phase is Phase.TRAINING
    kinds: dict[str, Kind] = {}
    if training:
        kinds["Plain replicas, nothing cut"] = alone | {"zero": (0, 0)}
        kinds["Sharded replicas alone (ZeRO-3, FSDP)"] = alone | {"zero": (3, 3)}
    else:
        kinds["A whole model on each device"] = alone
    kinds["No tensor parallelism"] = {"tp": one}
    if in_a_host == devices:
        kinds["Tensor parallelism over all devices"] = {"tp": (devices, devices)}
    else:
        if in_a_host > 1:
            kinds["Tensor parallelism inside hosts"] = {"tp": (2, in_a_host)}
        kinds["Tensor parallelism across hosts"] = {"tp": (in_a_host + 1, devices)}
    kinds["No pipeline"] = {"pp": one}
    if training:
        kinds["No context parallelism"] = {"cp": one}
        kinds["No recomputation"] = {"recompute": (0, 0)}
    if task.shape.experts:
        kinds["No expert parallelism"] = {"ep": one}
    return kinds


def is_of(best: Evaluated, kind: Kind) -> bool:
    """Whether the first of these layouts is of a kind."""
    return all(least <= best[name][0] <= most for name, (least, most) in kind.items())
