"""Thresholds: what load is low, normal or high."""

from __future__ import annotations

from typing import NamedTuple, Self


class Band(NamedTuple):
    """Loads that are normal; below it they are low, above it high.

    What is low or high is brought some way into the band and not just to its edge, where the next
    breath would have it out again.

    Attributes
    ----------
    low, high : float
        The band, its ends included: L_min and L_max.
    into_low, into_high : float
        How far what was low is filled, and what was high emptied.
    """

    low: float
    high: float
    into_low: float
    into_high: float

    @classmethod
    def around(cls, mean: float, theta: float, aim: float) -> Self:
        """Return the band of all loads that are within a part of the mean.

        Parameters
        ----------
        mean : float
            L_avg.
        theta : float
            Half the width of the band, in means.
        aim : float
            How much of that is left when something was moved: 1 for the edge, 0 for the mean.

        Examples
        --------
        >>> Band.around(45.0, 1 / 3, 0.5)
        Band(low=30.0, high=60.0, into_low=37.5, into_high=52.5)

        References
        ----------
        St-Stream, eq. 8 and 9, of which these are the ends.
        """
        reach = theta * mean
        return cls(mean - reach, mean + reach, mean - aim * reach, mean + aim * reach)

    @classmethod
    def between(cls, low: float, high: float, aim: float) -> Self:
        """Return the band with these ends.

        Examples
        --------
        >>> Band.between(30.0, 60.0, 0.5) == Band.around(45.0, 1 / 3, 0.5)
        True
        """
        middle = (low + high) / 2
        return cls.around(middle, (high - low) / 2 / middle, aim)
