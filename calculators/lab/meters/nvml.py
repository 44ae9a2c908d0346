"""NVLink and PCIe bytes of one GPU, by the driver's cumulative counters (NVML fields).

NVLink, KiB: 138/139 sent and received payload, 140/141 the same with protocol. Newer links count bytes (202/204).
A field is asked for a link: with none named NVML takes link 0, which reads as an idle fabric; 2³² − 1 means all.

PCIe, bytes: 197/198, which newer drivers have; “can be wrapped”, says nvml.h. `nvmlDeviceGetPcieThroughput` is not
read: it is a rate over 20 ms, and adding up rates counts what lies between them as if it were known.

These counters see everything that the GPU moves, whoever asked. With reduction in the switch (NVLS) they show about
half of what a ring moves, and LL and LL128 write flags beside the data (`calculators.lab.nccl_log.wire_factor`).
"""

import time
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

from calculators.lab.meters import counters, driver
from calculators.lab.meters.counters import Count, Reading
from calculators.lab.meters.counters import each_moved as each_moved
from calculators.lab.meters.counters import moved as moved
from calculators.lab.meters.problems import CannotSee

KIB = 1024.0
ALL_LINKS = 2**32 - 1
"""The scope that stands for the sum of all links (nvml.h: UINT_MAX)."""
_Field = tuple[int, str, str, float]

# Field, quantity, what it counts, bytes of one. Ids and units as nvml.h and pynvml.py document them.
_NVLINK: tuple[tuple[_Field, _Field], ...] = (
    (
        (138, counters.NVLINK_SENT, "payload (field 138)", KIB),
        (139, counters.NVLINK_RECEIVED, "payload (field 139)", KIB),
    ),
    (
        (140, counters.NVLINK_SENT, "with protocol (field 140)", KIB),
        (141, counters.NVLINK_RECEIVED, "with protocol (field 141)", KIB),
    ),
    (
        (202, counters.NVLINK_SENT, "bytes on the link (field 202)", 1.0),
        (204, counters.NVLINK_RECEIVED, "bytes on the link (field 204)", 1.0),
    ),
)
_PCIE: tuple[_Field, ...] = (
    (197, counters.PCIE_SENT, "bytes at the PCIe port (field 197)", 1.0),
    (198, counters.PCIE_RECEIVED, "bytes at the PCIe port (field 198)", 1.0),
)


class _Fields(ABC):
    """Counters of one GPU, each a field and a scope."""

    def __init__(self, gpu: int, what: str) -> None:
        self.gpu, self._what = gpu, what
        self._nvml: ModuleType
        self._nvml, self._handle = driver.open_gpu(gpu)
        try:
            self._asked: list[tuple[_Field, int, str]] = self._find()
        except BaseException:
            self.close()
            raise

    def read(self) -> Reading:
        """Every counter at this moment; `CannotSee` when the GPU or one of them is not there any more."""
        values = self._ask([(field[0], scope) for field, scope, _ in self._asked])
        counts = []
        for (field, _, place), value in zip(self._asked, values, strict=True):
            if isinstance(value, Exception):
                raise CannotSee(driver.why(value, f"{self._what} ({field[2]})", self.gpu)) from value
            raw, full = value
            # Such a counter can come round and end up higher than it was, which no subtraction shows.
            source = field[2] + (
                ", 32 bits: 4 GiB are unseen each time it wraps" if full == 2**32 - 1 else ""
            )
            counts.append(
                Count(quantity=field[1], source=source, place=place, raw=raw, unit=field[3], full=full)
            )
        return Reading(at=time.monotonic(), counts=tuple(counts))

    def close(self) -> None:
        """Let go of NVML."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return  # it is shut down already, or the GPU that it held is gone

    @abstractmethod
    def _find(self) -> list[tuple[_Field, int, str]]:
        """Each field that this GPU counts, its scope, and the place that it is of."""

    def _ask(self, asked: list[tuple[int, int]]) -> list[tuple[int, int] | Exception]:
        """For each field and scope its number and the number at which it wraps, or what NVML says instead."""
        with driver.asked_for(self._what, self.gpu):
            values = self._nvml.nvmlDeviceGetFieldValues(self._handle, asked)
        return [
            self._nvml.NVMLError(value.nvmlReturn) if value.nvmlReturn else _number(self._nvml, value)
            for value in values
        ]


class NvlinkMeter(_Fields):
    """NVLink bytes of one GPU, link by link, at every level that its driver counts."""

    def __init__(self, gpu: int) -> None:
        super().__init__(gpu, "cumulative NVLink counters")

    def _find(self) -> list[tuple[_Field, int, str]]:
        links = self._active_links()
        if not links:
            raise CannotSee(f"GPU {self.gpu} has no active NVLink")
        refusals: list[Exception] = []
        for scopes in (links, [ALL_LINKS]):
            found = []
            for pair in _NVLINK:
                asked = [
                    (field, scope, "" if scope == ALL_LINKS else f"link {scope}")
                    for field in pair
                    for scope in scopes
                ]
                answers = self._ask([(field[0], scope) for field, scope, _ in asked])
                refused = [answer for answer in answers if isinstance(answer, Exception)]
                refusals += refused
                if not refused:
                    found += asked
            if found:
                return found
        # A field that is not supported says less than a GPU that is lost.
        worst = max(refusals, key=lambda refusal: not isinstance(refusal, self._nvml.NVMLError_NotSupported))
        raise CannotSee(driver.why(worst, self._what, self.gpu))

    def _active_links(self) -> list[int]:
        nvml, links = self._nvml, []
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if nvml.nvmlDeviceGetNvLinkState(self._handle, link) == nvml.NVML_NVLINK_STATE_ACTIVE:
                    links.append(link)
            except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
                break  # no NVLink at all, or no link of this number
            except nvml.NVMLError as error:
                raise CannotSee(driver.why(error, self._what, self.gpu)) from error
        return links


class PcieMeter(_Fields):
    """PCIe bytes of one GPU, where its driver counts them up."""

    def __init__(self, gpu: int) -> None:
        super().__init__(gpu, "cumulative PCIe counters (fields 197 and 198)")

    def _find(self) -> list[tuple[_Field, int, str]]:
        asked = [(field, 0, "") for field in _PCIE]
        for answer in self._ask([(field[0], scope) for field, scope, _ in asked]):
            if isinstance(answer, Exception):
                raise CannotSee(driver.why(answer, self._what, self.gpu)) from answer
        return asked


def _number(nvml: ModuleType, value: Any) -> tuple[int, int]:
    """A field's number in the type that the driver says it has, and the largest of that type."""
    of_type = {
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: (value.value.uiVal, 2**32 - 1),
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: (value.value.ulVal, 2**64 - 1),
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: (value.value.ullVal, 2**64 - 1),
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: (value.value.sllVal, 2**63 - 1),
    }
    if value.valueType not in of_type:
        raise CannotSee(f"the NVIDIA driver gives field {value.fieldId} in a type that no counter has")
    return of_type[value.valueType]
