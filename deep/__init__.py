"""The deep-network experiments of the papers, rerun; needs torch."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("deep needs torch: pip install 'driftproof[deep]'")
