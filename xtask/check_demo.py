"""Reads the demo's array with NumPy and checks it against the input: same shape, same mass, no new extremes."""

import pathlib
import sys

import numpy

folder = pathlib.Path(sys.argv[1])
data = pathlib.Path(__file__).parent.parent / "crates/runtime/examples/terrain/data"
before = numpy.load(data / "jacksboro_fault_dem.npy").astype(numpy.float64)
after = numpy.load(folder / "smoothed.npy")

assert after.shape == before.shape, (after.shape, before.shape)
assert after.dtype == numpy.float64, after.dtype
assert not numpy.array_equal(after, before), "nothing was smoothed"
assert abs(after.sum() - before.sum()) <= 1e-9 * before.sum(), (after.sum(), before.sum())
assert before.min() <= after.min() and after.max() <= before.max(), (after.min(), after.max())
print(f"numpy {numpy.__version__} reads {after.shape[0]} x {after.shape[1]} cells, mass kept")
