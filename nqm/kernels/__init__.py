"""The compiled loops behind the `steps` and `collapsed` engines, and a compiled twin of the exact recursion.

Everything is in the eigenbasis, padded to whole vectors of eight. `nqm.reference` is the slow, readable twin
of `steps`. Loops over directions touch few arrays each, because the compiler gives up on a loop whose arrays it can't
keep apart.
"""
