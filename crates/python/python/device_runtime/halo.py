"""Halo exchange over threads or an mpi4py communicator: any fields, layouts and rotations, packed on the device."""

from ._native import Communicator, Dim, FieldSpec, HaloExchange, Progress, Quantity, Topology

__all__ = ["Communicator", "Dim", "FieldSpec", "HaloExchange", "Progress", "Quantity", "Topology"]
