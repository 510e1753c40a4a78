"""When a late turn is looked at: the twin of src/schedule.h."""

MILLISECOND = 1_000_000


def first_point(threshold: int) -> int:
    """The age at which a turn is first looked at."""
    return threshold // 8


def step(threshold: int, age: int) -> int:
    """How long after a sample at `age` the next one is due, before jitter."""
    wanted = threshold // 16
    if age >= 2 * threshold:
        wanted = max(wanted, age // 100 * 3)
    return max(wanted, MILLISECOND)


def jittered(wanted: int, random: int) -> int:
    """A step made up to 25 % longer or shorter; `random`: 32 bits."""
    return wanted - wanted // 4 + (wanted // 2 * (random >> 16)) // 65536
