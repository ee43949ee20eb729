"""What a benchmark's small run reports: a ratio of two figures taken side by side, and its bound."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """``value`` times as good as what it is compared with; below ``at_least`` the run fails.

    Ratios, not seconds, so that the bound holds on any machine; with slack, since machines are noisy.
    """

    name: str
    value: float
    at_least: float = 0.0

    @property
    def holds(self) -> bool:
        return self.value >= self.at_least

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "TOO LOW"
        return f"{self.name:<60} {self.value:>10.2f}  (at least {self.at_least:g})  {verdict}"
