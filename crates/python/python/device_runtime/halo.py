"""Halo exchange: any fields, any layout, any rotation, packed where the fields are, over threads or an mpi4py communicator."""

from ._native import Communicator, Dim, FieldSpec, HaloExchange, Progress, Quantity, Topology

__all__ = ["Communicator", "Dim", "FieldSpec", "HaloExchange", "Progress", "Quantity", "Topology"]
