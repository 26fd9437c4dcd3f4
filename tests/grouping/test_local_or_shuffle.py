"""Local-or-shuffle grouping against a turn that goes round the instances of a node."""

from __future__ import annotations

import numpy as np
import pytest
from grouping.plain import Keys, answers, instance_counts, seeds, sources, streams, zipf
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import BadParameter
from unskew.grouping import LocalOrShuffle, Shuffle


class Oracle:
    """Send tuples in turn to those on the node, or to all, beginning with the source's own."""

    def __init__(self, instances: int, local: list[int], source: int) -> None:
        self.takers = local or list(range(instances))
        place = int(source * 0.6180339887498949 % 1.0 * instances)
        self.turn = place * len(self.takers) // instances

    def send(self, key: int) -> int:
        instance = self.takers[self.turn % len(self.takers)]
        self.turn += 1
        return instance


@given(streams, instance_counts, seeds, sources, st.data())
def test_agrees_with_the_oracle(
    keys: Keys, instances: int, seed: int, source: int, data: st.DataObject
) -> None:
    local = data.draw(st.lists(st.integers(0, instances - 1), unique=True, max_size=8))
    router = LocalOrShuffle(instances, seed=seed, source=source, local=local)
    oracle = Oracle(instances, local, source)
    assert router.route(keys).tolist() == answers(oracle, keys)
    assert router.route(keys).tolist() == answers(oracle, keys)
    assert router.fan_out == (len(local) or instances)
    used = router.loads[local] if local else router.loads
    assert used.sum() == 2 * keys.size
    assert np.ptp(used) <= 1


@given(streams, instance_counts, sources)
def test_a_source_without_instances_of_its_own_shuffles(
    keys: Keys, instances: int, source: int
) -> None:
    local, shuffle = (cls(instances, source=source) for cls in (LocalOrShuffle, Shuffle))
    assert local.route(keys).tolist() == shuffle.route(keys).tolist()


def test_a_new_batch_begins_where_the_source_begins() -> None:
    router = LocalOrShuffle(9, source=2, local=[1, 5, 7])
    first = router.route(zipf(1.0, 7))
    router.begin_batch()
    assert router.route(zipf(1.0, 7)).tolist() == first.tolist()


@pytest.mark.parametrize(
    ("local", "told"),
    [
        pytest.param([4], "local must be .* not 4", id="an instance that there is not"),
        pytest.param([-1], "local must be .* not -1", id="a number below all"),
        pytest.param([1.5], "local must be .* not 1.5", id="half an instance"),
        pytest.param([2, 2], "named once each", id="one of them twice"),
        pytest.param(3, "a sequence of instances, not 3", id="no sequence"),
    ],
)
def test_instances_that_are_none_are_refused(local: object, told: str) -> None:
    with pytest.raises(BadParameter, match=told):
        LocalOrShuffle(4, local=local)  # type: ignore[arg-type]
