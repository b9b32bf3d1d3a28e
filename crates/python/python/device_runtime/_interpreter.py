"""Refuses subinterpreters: the extension module, NumPy and drivers have one state for the whole process."""

import ctypes
import sys

if sys.implementation.name == "cpython":
    _current = ctypes.pythonapi.PyInterpreterState_Get
    _current.restype = ctypes.c_void_p
    _number = ctypes.pythonapi.PyInterpreterState_GetID
    _number.restype, _number.argtypes = ctypes.c_int64, [ctypes.c_void_p]
    if _number(_current()) != 0:
        raise ImportError(
            "device_runtime works in the main interpreter only, not in subinterpreters: use threads or processes",
            name="device_runtime",
        )
