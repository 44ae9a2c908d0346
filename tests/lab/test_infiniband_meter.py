"""InfiniBand and RoCE counters, from a recorded sequence laid out as the kernel lays it out."""

import json
import shutil

import pytest

from calculators.lab.meters import CannotSee, infiniband
from calculators.lab.meters.counters import Seen
from tests.lab.recorded_driver import RECORDED


def lay_out(root, step):
    files = json.loads((RECORDED / "infiniband.json").read_text(encoding="utf-8"))["files"]
    for name, contents in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents[step])


@pytest.fixture
def root(tmp_path):
    lay_out(tmp_path, 0)
    return tmp_path


def test_ports_that_are_up_are_read_in_words_of_four_bytes_or_in_bytes(root):
    meter = infiniband.InfinibandMeter(root)
    before = meter.read()
    lay_out(root, 1)

    seen = infiniband.moved(before, meter.read())

    sent, received = "InfiniBand bytes sent", "InfiniBand bytes received"
    roce = "mlx5_1 port 1, RoCE, with headers"
    assert seen == (
        Seen(quantity=sent, detail="mlx5_0 port 1, with headers (port_xmit_data)", value=262_144 * 4),
        Seen(quantity=received, detail="mlx5_0 port 1, with headers (port_rcv_data)", value=256 * 4),
        Seen(quantity=sent, detail=f"{roce} (port_xmit_data)", value=40),  # 64 bits, to the last word
        Seen(quantity=received, detail=f"{roce} (port_rcv_data)", value=0),
        Seen(quantity=sent, detail="rdmap0s6 port 1, with headers (tx_bytes)", value=4_096),
        Seen(quantity=received, detail="rdmap0s6 port 1, with headers (rx_bytes)", value=1),
    )


def test_a_counter_of_32_bits_that_rests_on_its_end_gives_no_number(root):
    meter = infiniband.InfinibandMeter(root)
    before = meter.read()
    (root / "mlx5_0/ports/1/counters/port_xmit_data").write_text("4294967295\n")

    with pytest.raises(CannotSee) as blind:
        infiniband.moved(before, meter.read())

    assert str(blind.value) == (
        "the counter of InfiniBand bytes sent, mlx5_0 port 1, with headers (port_xmit_data), stands at its end, "
        "4,294,967,295, and counts no further; reset it or its device"
    )


def test_a_counter_that_was_reset_gives_no_number(root):
    meter = infiniband.InfinibandMeter(root)
    before = meter.read()
    (root / "mlx5_0/ports/1/counters/port_rcv_data").write_text("3\n")

    with pytest.raises(CannotSee, match="went back from 2,000 to 3: it wrapped or was reset"):
        infiniband.moved(before, meter.read())


def test_an_adapter_that_goes_away_or_writes_nonsense_is_said(root):
    meter = infiniband.InfinibandMeter(root)
    data = root / "mlx5_0/ports/1/counters/port_xmit_data"
    data.write_text("N/A (no PMA)\n")
    with pytest.raises(CannotSee) as nonsense:
        meter.read()
    shutil.rmtree(root / "mlx5_0")
    with pytest.raises(CannotSee) as gone:
        meter.read()

    assert str(nonsense.value) == f"{data} holds no whole number"
    assert str(gone.value) == f"{data} cannot be read any more: No such file or directory"


def test_where_there_is_nothing_to_read_the_reason_is_said(tmp_path):
    with pytest.raises(CannotSee) as none:
        infiniband.InfinibandMeter(tmp_path / "none")
    lay_out(tmp_path, 0)
    for port in tmp_path.glob("*/ports/*"):
        (port / "state").write_text("1: DOWN\n")
    with pytest.raises(CannotSee) as down:
        infiniband.InfinibandMeter(tmp_path)
    (tmp_path / "mlx5_2/ports/1/state").write_text("4: ACTIVE\n")
    shutil.rmtree(tmp_path / "mlx5_2/ports/1/counters")
    with pytest.raises(CannotSee) as silent:
        infiniband.InfinibandMeter(tmp_path)

    assert str(none.value) == f"there is no InfiniBand or RoCE adapter ({tmp_path / 'none'} has no ports)"
    assert str(down.value) == (
        "no InfiniBand or RoCE port is up: mlx5_0 port 1, mlx5_1 port 1, mlx5_2 port 1, rdmap0s6 port 1"
    )
    assert str(silent.value) == (
        "mlx5_2 port 1: the driver counts neither counters/port_xmit_data nor hw_counters/tx_bytes"
    )
