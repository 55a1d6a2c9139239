"""Data sets in memory, read from the files their home pages publish.

from deep.data import load
train, test = load("digits", "train"), load("digits", "test")
"""

from .images import Images, invert, normalise, resize, rotate
from .sets import NAMES, domains, load, present

__all__ = ["NAMES", "Images", "domains", "invert", "load", "normalise", "present", "resize", "rotate"]
