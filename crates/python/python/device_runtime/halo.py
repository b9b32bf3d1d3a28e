"""Halo exchange over threads or an mpi4py communicator: any fields, layouts and rotations, packed on the device."""

from ._native import Communicator, Dim, FieldSpec, HaloExchange, Progress, Quantity, Topology

__all__ = ["Communicator", "Dim", "FieldSpec", "HaloExchange", "Progress", "Quantity", "Topology"]


def _made(cls, method, arguments, keywords):
    """Makes the description that was pickled or copied."""
    made = globals()[cls]
    return (getattr(made, method) if method else made)(*arguments, **keywords)
