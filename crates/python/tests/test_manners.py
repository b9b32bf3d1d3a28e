"""What Python programs expect of any object: help, texts, copies, references that do not keep alive, and plain errors."""

import copy
import gc
import inspect
import pickle
import pydoc
import re
import weakref

import numpy as np
import pytest
from conftest import opened, values

import device_runtime as dr
from device_runtime.halo import Communicator, Dim, FieldSpec, HaloExchange, Quantity, Topology

FIELD = FieldSpec("height", "float32", [Dim.axis(1, 6, 2), Dim.axis(0, 8, (1, 3), allocated=4, staggered=True), Dim.free(5)])
DESCRIPTIONS = {
    "Topology.cartesian((8, 6), (2, 1), (True, False))": Topology.cartesian([8, 6], [2, 1], [True, False]),
    "Topology.cubed_sphere(12, (2, 3))": Topology.cubed_sphere(12, (2, 3)),
    "Topology.of_blocks(1, [[4, 1, 1]], [(0, [1, 0, 0], 0, 'identity'), (0, [-1, 0, 0], 0, 'identity')])":
        Topology.of_blocks(1, [(4, 1, 1)], [(0, (1, 0, 0), 0, "identity"), (0, (-1, 0, 0), 0, "identity")]),
    "Dim.axis(0, 8, (1, 3), allocated=(4, 4), staggered=True)": Dim.axis(0, 8, (1, 3), allocated=4, staggered=True),
    "Dim.free(5)": Dim.free(5),
    "FieldSpec('height', 'float32', (Dim.axis(1, 6, (2, 2)), Dim.axis(0, 8, (1, 3), allocated=(4, 4), "
    "staggered=True), Dim.free(5)))": FIELD,
    "FieldSpec('f', 'int64', (Dim.axis(0, 4, (1, 1)), Dim.free(3)), order=(1, 0))":
        FieldSpec("f", int, [Dim.axis(0, 4, 1), Dim.free(3)], order=[1, 0]),
    "FieldSpec('f', 'float64', (Dim.free(3),), strides=(16,))": FieldSpec("f", float, [Dim.free(3)], strides=[16]),
    f"Quantity.scalar({FIELD!r})": Quantity.scalar(FIELD),
    f"Quantity.vector({FIELD!r}, {FIELD!r})": Quantity.vector(FIELD, FIELD),
    f"Quantity('vector', ({FIELD!r}, {FIELD!r}))": Quantity("vector", [FIELD, FIELD]),
}  # fmt: skip


@pytest.mark.parametrize("text", DESCRIPTIONS)
def test_descriptions_are_shown_copied_and_pickled_as_they_were_made(text):
    given = DESCRIPTIONS[text]
    assert repr(given) == text
    names = {"Topology": Topology, "Dim": Dim, "FieldSpec": FieldSpec, "Quantity": Quantity}
    for made in [eval(text, names), copy.copy(given), copy.deepcopy(given), *map(pickle.loads, dumped(given))]:
        assert type(made) is type(given) and repr(made) == text


def dumped(given):
    return [pickle.dumps(given, protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]


def test_an_exchange_is_made_of_pickled_descriptions():
    host, topology = opened("host"), pickle.loads(pickle.dumps(Topology.cartesian([4], [1], [True])))
    field = pickle.loads(pickle.dumps(FieldSpec("f", "float64", [Dim.axis(0, 4, 1)])))
    assert field.shape == (6,) and field.owned == (slice(1, 5, 1),) and field.dtype == np.float64
    ranks = Communicator.threads(1)[0]
    halo = HaloExchange(ranks, topology, [Quantity.scalar(field)], host)
    array = host.array([0.0, 1, 2, 3, 4, 0])
    halo.exchange([array])
    assert array.get().tolist() == [4, 1, 2, 3, 4, 1]


def test_arrays_are_copied_and_not_pickled(device):
    array = device.array(values((2, 3)))
    for made in [copy.copy(array), copy.deepcopy([array])[0]]:
        array.fill(0)
        assert np.array_equal(made.get(), values((2, 3))) and made.device == device
        array.set(values((2, 3)))
    for thing in [array, device, device.stream(), dr.ArrayBuffer(values(3))]:
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(thing)


def test_weak_references_keep_nothing_alive(host):
    things = [
        host.zeros(3), host.pinned(3), host.stream(), host.stream().record(), dr.Device("host"),
        dr.ArrayBuffer(values(3)), Communicator.threads(1)[0], Dim.free(3),
    ]  # fmt: skip
    seen = [weakref.ref(thing) for thing in things]
    assert all(ref() is thing for ref, thing in zip(seen, things))
    del things
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)


def test_help_of_a_kernel_says_how_to_launch_it():
    text = pydoc.plain(pydoc.render_doc(dr.Kernel))
    for word in ["kernel(stream, grid, block, arguments=()", "relaxed", "shared_bytes", "NumPy number"]:
        assert word in text
    assert list(inspect.signature(dr.Device.zeros).parameters.values())[3].default == "C"


@pytest.mark.parametrize("kind", ["host array", "device array", "list", "pinned"])
def test_assignment_repeats_values_as_numpy_does(device, kind):
    def source(array):
        if kind == "device array":
            return device.array(array)
        if kind == "pinned":
            pinned = device.pinned(array.shape, array.dtype)
            pinned[...] = array
            return pinned
        return array.tolist() if kind == "list" else array

    array, expected = device.zeros((4, 3)), np.zeros((4, 3))
    shapes = [(4, 3)] if kind == "pinned" else [(4, 3), (3,), (4, 1), (1, 3), (1, 1), (1,)]
    for shape in shapes:
        given = values(shape)
        array[...] = source(given)
        expected[...] = given
        assert np.array_equal(array.get(), expected), shape
    for shape in [(2, 3), (4,), (4, 2)]:
        with pytest.raises(ValueError):
            array[...] = source(values(shape))
    with pytest.raises(ValueError, match="float64"):
        device.zeros((4, 3)).set(values(3))


def test_errors_are_in_words_of_python(host):
    errors = []
    for fail in [
        lambda: host.zeros((4, 3))[:, ::2].reshape(8),
        lambda: host.zeros(3).set(values(3, "float32")),
        lambda: dr.Device("sim:0").default_stream.wait(host.stream().record()),
        lambda: host.zeros(3, "complex64").set(values(3, "int8")),
    ]:
        with pytest.raises(dr.Error) as raised:
            fail()
        errors.append(str(raised.value))
    assert "strides of [24, 16] bytes" in errors[0] and "Event.synchronize" in errors[2]
    for error in errors:
        assert not re.search(r"::|\b[fciu](8|16|32|64|128)\b", error), error


def test_numbers_of_things_that_are_negative_are_value_errors(host):
    ranks = Communicator.threads(1)[0]
    topology, field = Topology.cartesian([4], [1], [True]), FieldSpec("f", "float64", [Dim.axis(0, 4, 1)])
    for fail in [
        lambda: Topology.cartesian([-4], [1], [True]),
        lambda: Topology.cartesian([4], [-1], [True]),
        lambda: Topology.cubed_sphere(-1, (1, 1)),
        lambda: Topology.cubed_sphere(4, (1, -1)),
        lambda: topology.block(-1),
        lambda: Dim.axis(0, -4),
        lambda: Dim.axis(0, 4, -1),
        lambda: Dim.axis(0, 4, (1, -1)),
        lambda: Dim.axis(-1, 4),
        lambda: Dim.free(-3),
        lambda: Communicator.threads(-1),
        lambda: HaloExchange(ranks, topology, [Quantity.scalar(field)], host, channel=-1),
        lambda: host.zeros(-3),
        lambda: HaloExchange(ranks, topology, [Quantity.scalar(field)], host, missing_corners="avg"),
        lambda: HaloExchange(ranks, topology, [Quantity.scalar(field)], host, missing_corners=True),
    ]:
        with pytest.raises(dr.InvalidArgumentError):
            fail()
