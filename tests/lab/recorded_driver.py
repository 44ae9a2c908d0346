"""An NVIDIA driver that answers from a recorded sequence, below the real pynvml: its C functions, and nothing above.

Steps stand for moments; a test moves from one to the next. What the meters and pynvml do with the answers is real.
"""

import ctypes
import json
from pathlib import Path

import pynvml

RECORDED = Path(__file__).with_name("recorded")


class RecordedDriver:
    """libnvidia-ml, as far as the meters call it, over `recorded/nvml.json`."""

    def __init__(self, *, start=0):
        self.gpus = json.loads((RECORDED / "nvml.json").read_text(encoding="utf-8"))["gpus"]
        self.start = start
        self.step = 0
        self.opened = 0
        self.kept = []  # what pointers point to must outlive them

    def nvmlInitWithFlags(self, flags):
        if not self.start:
            self.opened += 1
        return self.start

    def nvmlShutdown(self):
        self.opened -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        ctypes.memmove(
            ctypes.addressof(handle._obj),
            ctypes.byref(ctypes.c_uint64(index.value)),
            ctypes.sizeof(ctypes.c_void_p),
        )
        return 0

    def nvmlDeviceGetNvLinkState(self, handle, link, active):
        states = self._gpu(handle)["link_states"]
        if link >= len(states):
            return pynvml.NVML_ERROR_INVALID_ARGUMENT if states else pynvml.NVML_ERROR_NOT_SUPPORTED
        active._obj.value = states[link]
        return 0

    def nvmlDeviceGetFieldValues(self, handle, count, values):
        fields = self._gpu(handle)["fields"]
        for place in range(count.value):
            asked = values._obj[place]
            field = next(
                (f for f in fields if f["id"] == asked.fieldId and asked.scopeId in f["scopes"]), None
            )
            asked.nvmlReturn, number = (
                self._at(field["values"]) if field else (pynvml.NVML_ERROR_NOT_SUPPORTED, 0)
            )
            if field:
                asked.valueType = field["type"]
                setattr(asked.value, {1: "uiVal", 3: "ullVal"}[field["type"]], number)
        return 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle, millijoules):
        refused, millijoules._obj.value = self._at(self._gpu(handle)["energy"])
        return refused

    def nvmlGpmQueryDeviceSupport(self, handle, support):
        support._obj.isSupportedDevice = int("gpm" in self._gpu(handle))
        return 0

    def nvmlGpmSampleAlloc(self, sample):
        memory = ctypes.c_uint64(2**32)
        self.kept.append(memory)
        address = ctypes.c_void_p(ctypes.addressof(memory))
        ctypes.memmove(ctypes.addressof(sample._obj), ctypes.byref(address), ctypes.sizeof(address))
        return 0

    def nvmlGpmSampleGet(self, handle, sample):
        ctypes.cast(sample, ctypes.POINTER(ctypes.c_uint64))[0] = self._index(handle)
        return 0

    def nvmlGpmMetricsGet(self, asked):
        gpus = {
            ctypes.cast(s, ctypes.POINTER(ctypes.c_uint64))[0]
            for s in (asked._obj.sample1, asked._obj.sample2)
        }
        assert len(gpus) == 1, "two samples of one GPU are compared"
        averages = self.gpus[str(gpus.pop())]["gpm"]
        for place in range(asked._obj.numMetrics):
            metric = asked._obj.metrics[place]
            metric.nvmlReturn = 0 if str(metric.metricId) in averages else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = averages.get(str(metric.metricId), 0.0)
        return 0

    def nvmlGpmSampleFree(self, sample):
        return 0

    def _index(self, handle):
        return ctypes.cast(handle, ctypes.c_void_p).value or 0

    def _gpu(self, handle):
        return self.gpus[str(self._index(handle))]

    def _at(self, values):
        now = values[min(self.step, len(values) - 1)]
        return (now["refused"], 0) if isinstance(now, dict) else (0, now)


def install(driver, monkeypatch):
    """Put `driver` where pynvml keeps the library that it has loaded."""
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


def refuse(monkeypatch, name, code):
    """From now on the C function of this name, already looked up or not, answers with an error."""
    monkeypatch.setitem(pynvml._nvmlGetFunctionPointer_cache, name, lambda *_: code)
