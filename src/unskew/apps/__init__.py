"""Apps: whole jobs on Spark, built on the public API alone; `unskew run APP` runs one."""

from unskew.apps.base import App, Batch, Options, Summary
from unskew.apps.bayes import Bayes
from unskew.apps.regions import TrendsByRegion
from unskew.apps.rides import NearbyTaxis
from unskew.apps.trending import Trending
from unskew.apps.words import Words
from unskew.errors import BadParameter

APPS: dict[str, type[App]] = {
    app.name: app for app in (Trending, NearbyTaxis, TrendsByRegion, Bayes, Words)
}
"""By name."""


def app(name: str) -> App:
    """Return an app by its name."""
    if name not in APPS:
        raise BadParameter(f"there is no app {name!r}; choose one of {', '.join(APPS)}")
    return APPS[name]()


__all__ = ["APPS", "App", "Batch", "Options", "Summary", "app"]
