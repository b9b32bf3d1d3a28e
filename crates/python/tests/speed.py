"""Measures the time of exporting and importing an array in Python: `python tests/speed.py [--check] [--quick]`.

With `--check` it fails above 3 µs; this needs an otherwise idle machine. `--quick` only checks that it works.
"""

import sys
import timeit

import numpy as np

import device_runtime as dr

LIMIT = 3.0


def main():
    host = dr.Device("host")
    given = np.arange(1000.0)
    array = host.array(given)
    host.synchronize()
    keywords = {"max_version": (1, 0)}
    cases = {
        "export: __dlpack__": lambda: array.__dlpack__(**keywords),
        "export: __array_interface__": lambda: array.__array_interface__,
        "import: adopt(capsule of NumPy)": lambda: host.adopt(given.__dlpack__(**keywords)),
        "import: adopt(array of NumPy)": lambda: host.adopt(given),
        "there: numpy.from_dlpack(array)": lambda: np.from_dlpack(array),
        "NumPy to NumPy: from_dlpack": lambda: np.from_dlpack(given),
        "NumPy: __array_interface__": lambda: given.__array_interface__,
    }
    repeat = 2 if "--quick" in sys.argv else 20
    slow = 0
    for name, case in cases.items():
        best = min(timeit.repeat(case, number=2000, repeat=repeat)) / 2000 * 1e6
        slow += best > LIMIT and name.startswith(("export", "import"))
        print(f"{name:34} {best:6.2f} µs")
    sys.exit(slow > 0 and "--check" in sys.argv)


if __name__ == "__main__":
    main()
