"""A run that goes on in the folder of an earlier one: only with the same stream and sink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unskew.apps.base import Options
from unskew.apps.files import folder_of
from unskew.apps.word_counts import NAME
from unskew.errors import BadParameter
from unskew.spark.redis_url import redis_address

FILE = "run.json"


def check_same_stream(app: str, options: Options, checkpoint: Path) -> None:
    """Note what a first run was asked for; refuse a later one that asks for another stream.

    Parameters
    ----------
    app : str
        Name of the app.
    options : Options
        What is asked for.
    checkpoint : Path
        Spark's, of the query.
    """
    asked = {"app": app, **_stream(options)}
    if options.sink is not None:
        # Counts of earlier batches are not in another one.
        asked["sink"] = redis_address(options.sink)
        asked["sink-name"] = options.sink_name or NAME
    path = options.out / FILE
    # Of pipelines Spark's checkpoint is a folder further down: another app's run counts, too.
    places = {checkpoint, options.out / "checkpoint", options.out / "checkpoint" / "spark"}
    if not any(any((place / "offsets").glob("[0-9]*")) for place in places):
        # Nothing has been read yet.
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asked, indent=1))
        return
    earlier = json.loads(path.read_text()) if path.exists() else {}
    # Runs of earlier versions: the checkpoint knows its shards, and names were left out.
    earlier.pop("shards", None)
    if "sink" in earlier:
        earlier.setdefault("sink-name", NAME)
    for name in dict.fromkeys((*asked, *earlier)):
        value = asked.get(name)
        if earlier.get(name) != value:
            raise BadParameter(
                f"{options.out} has a run with {name}={earlier.get(name)!r}, which cannot go on "
                f"with {value!r}; give the same, or another folder with --out"
            )


def _stream(options: Options) -> dict[str, Any]:
    """Return what says which rows come: with others, windows of two streams would be mixed."""
    if options.source == "rate":
        asked = {"source": "rate", "rows": options.rows, "seed": options.seed}
        return {**asked, "stable": True} if options.stable else asked
    if options.source.partition(":")[0] != "files":
        return {"source": options.source}
    return {
        "source": f"files:{folder_of(options.source)}",
        "key": options.key,
        "time": options.time,
        "value": options.value,
    }
