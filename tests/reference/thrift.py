"""What the watchdog may spend on turns that are no stalls: the twin of src/watch/thrift.h."""

FULL = 20_000_000
PART = 20000


class Thrift:
    def __init__(self) -> None:
        self.spent = 0
        self.at = 0

    def allows(self, now: int) -> bool:
        earned = max(0, now - self.at) // PART
        if earned:
            self.spent = max(0, self.spent - earned)
            self.at = now
        return self.spent < FULL

    def spend(self, cost: int) -> None:
        self.spent = min(2 * FULL, self.spent + cost)
