"""The gaps between the looks of a profile: the twin of src/profile/pace.h, with the logarithm of the library."""

import math

LONGEST = 16


def gap(mean: int, random: int) -> float:
    """Distributed exponentially; `random`: 32 bits."""
    return mean * min(float(LONGEST), -math.log((random | 1) / 2**32))
