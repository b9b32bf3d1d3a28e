"""Devices, coherent arrays and halo exchange: the host, CUDA, HIP, OpenCL and embedded processors behind one interface."""

from ._native import *  # noqa: F403
from ._native import __all__  # noqa: F401
