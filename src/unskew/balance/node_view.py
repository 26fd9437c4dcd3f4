"""Nodes as the reports of all stages show them: what they can do, and how loaded they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.balance.report import NodeLoads, Report
from unskew.errors import BadParameter
from unskew.metrics import node_load


class NodeView(NamedTuple):
    """The nodes that stages share.

    Attributes
    ----------
    names : tuple of str
        Of each node.
    of_instance : list of array of int32
        Node of each instance, of each stage.
    capacity : array of float64
        Cores of each node.
    busy, cpu : array of float64
        Part of its cores that the stages kept busy, and that was busy whoever did it.
    load : array of float64
        CPU, memory, network and disk by their weights.
    """

    names: tuple[str, ...]
    of_instance: list[NDArray[np.int32]]
    capacity: NDArray[np.float64]
    busy: NDArray[np.float64]
    cpu: NDArray[np.float64]
    load: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """The load that all nodes would have if it was shared by what they can do."""
        return float(np.average(self.load, weights=self.capacity))


def node_view(
    reports: Sequence[Report],
    *,
    measure: str,
    q: float,
    weights: Mapping[str, float],
    capacities: Mapping[str, float],
) -> NodeView:
    """Return the nodes of all stages, known by their names; one node where none are known.

    Parameters
    ----------
    reports : sequence of Report
        Of each stage.
    measure : {"cpu", "busy"}
        What the CPU of a node is: as it was measured, or how busy the instances were there.
    q, weights
        Of the parts of the load, as of `unskew.metrics.node_load`.
    capacities : mapping of str to float
        Cores of nodes, by name, or by what is before the last colon of it. Else they are those
        that the report tells, or one for each instance of the stage that has most there.
    """
    known = all(report.nodes is not None for report in reports)
    loads = [
        report.nodes if known and report.nodes is not None else _one_node(report.utilisation.size)
        for report in reports
    ]
    names = tuple(dict.fromkeys(name for each in loads for name in each.names))
    number = {name: place for place, name in enumerate(names)}
    places = [np.array([number[name] for name in each.names], dtype=np.int64) for each in loads]
    of_instance = [
        own[each.of_instance].astype(np.int32) for own, each in zip(places, loads, strict=True)
    ]
    capacity = _capacity(names, loads, places, of_instance, capacities)
    busy = np.zeros(len(names))
    for report, nodes in zip(reports, of_instance, strict=True):
        np.add.at(busy, nodes, report.utilisation)
    busy /= capacity
    cpu = _mean_of("cpu", loads, places, len(names)) if known and measure == "cpu" else busy
    others = [*(["memory"] if q < 1 else []), *weights] if known else []
    measured = {part: _mean_of(part, loads, places, len(names)) for part in others}
    load = node_load({"cpu": cpu, **measured}, q=q, weights=weights) if known else cpu
    return NodeView(names, of_instance, capacity, busy, cpu, load)


def _one_node(instances: int) -> NodeLoads:
    return NodeLoads(("",), np.zeros(instances, dtype=np.int32), np.zeros(1), np.zeros(1))


def _capacity(
    names: Sequence[str],
    loads: Sequence[NodeLoads],
    places: Sequence[NDArray[np.int64]],
    of_instance: Sequence[NDArray[np.int32]],
    given: Mapping[str, float],
) -> NDArray[np.float64]:
    found = np.ones(len(names))
    for nodes in of_instance:
        found = np.maximum(found, np.bincount(nodes, minlength=len(names)))
    for each, own in zip(loads, places, strict=True):
        if each.cores is not None:
            found[own] = each.cores
    for place, name in enumerate(names):
        machine = name.rpartition(":")[0]
        found[place] = given.get(name, given.get(machine, found[place]))
    return found


def _mean_of(
    part: str, loads: Sequence[NodeLoads], places: Sequence[NDArray[np.int64]], nodes: int
) -> NDArray[np.float64]:
    """Return what was measured of each node, the mean of what stages tell that were there."""
    total, told = np.zeros(nodes), np.zeros(nodes)
    for each, own in zip(loads, places, strict=True):
        measured = getattr(each, part)
        if measured is None:
            raise BadParameter(
                f"weights= has {part}, which was not measured of every node; leave it away"
            )
        total[own] += measured
        told[own] += 1
    return total / np.maximum(told, 1)
