"""Python imports this at the start of every process of a metered program; it arms the meter and gets out of the way.

Whatever goes wrong here must not reach the program, and another sitecustomize, if there is one, still has its turn.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _arm() -> None:
    spec = importlib.util.spec_from_file_location(
        "_sixfold_hook", os.path.join(os.path.dirname(_HERE), "hook.py")
    )
    if spec is not None and spec.loader is not None:
        hook = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(hook)
        hook.install()


def _hand_over() -> None:
    """Import the sitecustomize that would have been imported without the meter."""
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _arm()
except Exception as error:
    print(f"The meter could not start in process {os.getpid()}: {error}", file=sys.stderr)
_hand_over()
