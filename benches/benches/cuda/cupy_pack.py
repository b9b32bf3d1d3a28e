"""The packed faces of the benchmark, by CuPy with fancy indexing and with slices: for a machine that has CuPy."""

import sys

try:
    import cupy

    cupy.cuda.runtime.getDeviceCount()
except Exception as error:  # Without a device or a driver, too.
    print(f"left out: {error}")
    sys.exit(0)

EDGE, HALO, APART, COPIES = 512, 3, 16, 32
SAMPLES = 3 if "--quick" in sys.argv else 15
field = cupy.arange(EDGE**3, dtype=cupy.float64).reshape(EDGE, EDGE, EDGE)
flat = field.ravel()
print(f"CuPy {cupy.__version__}, runtime {cupy.cuda.runtime.runtimeGetVersion()}")


def microseconds(pack):
    """Median of the time that one of a row of faces takes, each at another place, as the benchmark's."""
    times = []
    for sample in range(SAMPLES + 1):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        for place in range(COPIES):
            pack(place * APART)
        end.record()
        end.synchronize()
        # The first one compiles.
        if sample > 0:
            times.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3 / COPIES)
    times.sort()
    return times[len(times) // 2]


for name, thin in ("slowest", 0), ("middle", 1), ("fastest", 2):
    extents = [EDGE] * 3
    extents[thin] = HALO
    strides = [EDGE**2, EDGE, 1]
    stride = strides[thin]
    planes, rows, columns = (cupy.arange(extent) * step for extent, step in zip(extents, strides))
    index = (planes[:, None, None] + rows[:, None] + columns).ravel()

    def by_index(start):
        return flat[start * stride :][index]

    def by_slice(start):
        box = [slice(None)] * 3
        box[thin] = slice(start, start + HALO)
        return field[tuple(box)].copy()

    assert (by_index(APART) == by_slice(APART).ravel()).all()
    told = ", ".join(f"{way.__name__} {microseconds(way):.2f} us" for way in (by_index, by_slice))
    print(f"{HALO} wide of {EDGE}^3 f64, {name} dimension: {told}")
