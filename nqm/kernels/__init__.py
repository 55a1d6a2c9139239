"""The compiled loops behind the `steps` and `collapsed` engines, and a compiled twin of the exact recursion.

Everything is in the eigenbasis, padded to whole vectors of eight. `nqm.reference` is the slow, readable twin
of `steps`. Loops over directions touch few arrays each, because the compiler gives up on a loop whose arrays it can't
keep apart.

Numba notices a change of the file that a cached function stands in, but not of another that it calls into. So the cache
lies in a folder named by all of them.
"""

import hashlib
from pathlib import Path

from numba.core import config

_here = Path(__file__).parent
_sources = [*sorted(_here.glob("*.py")), _here.parent / "draws.py"]
_digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources)).hexdigest()[:16]
_chosen = config.CACHE_DIR
if not _chosen:  # unless NUMBA_CACHE_DIR is set
    config.CACHE_DIR = str(_here / "__pycache__" / f"compiled-{_digest}")

from . import finite, folded, model, moments, random, servers, steps  # noqa: E402

config.CACHE_DIR = _chosen

__all__ = ["finite", "folded", "model", "moments", "random", "servers", "steps"]
