"""The same work in NumPy, PyTorch, JAX, FedJAX and pfl-research, beside our engines: time, and accuracy reached."""

from .measure import PEERS, Peer, run
from .work import Work

__all__ = ["PEERS", "Peer", "Work", "run"]
