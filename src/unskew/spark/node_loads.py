"""How loaded nodes were in a batch, out of what its tasks have seen of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.balance import NodeLoads
from unskew.operators.task_report import TaskReport
from unskew.spark.node_busy import busy_of, shares_machine
from unskew.spark.readings import DISK_BYTES, NETWORK_BYTES, in_use, machine_of
from unskew.state import Manifest


def node_loads(tasks: Sequence[TaskReport], manifest: Manifest, interval: float) -> NodeLoads:
    """Return where the tasks of a stage ran, and how loaded these nodes were by all stages.

    A node that has its machine to itself is loaded as that is, whoever does it, in the interval and
    not only while tasks run. Of a machine that several share, each has the busy time of its
    instances as its CPU, and that part of the disk and the network in use that it has of the bytes.
    CPU is in parts of the cores that its instances can use, as its capacity is: of a machine with
    more, all that is done there counts, up to the whole of these cores.

    Parameters
    ----------
    tasks : sequence of TaskReport
        Of the stage.
    manifest : Manifest
        Of the batch, with the tasks of all stages.
    interval : float
        Seconds that the batch is given.
    """
    names, of_instance = np.unique([task.node["name"] for task in tasks], return_inverse=True)
    memory = np.zeros(names.size)
    np.maximum.at(memory, of_instance, [task.node["memory"] for task in tasks])
    batch = _Batch(manifest, interval)
    return NodeLoads(
        names=tuple(names.tolist()),
        of_instance=of_instance.astype(np.int32),
        cpu=batch.cpu(names.tolist()),
        memory=memory,
        network=batch.part("network", NETWORK_BYTES, names.tolist()),
        disk=batch.part("disk", DISK_BYTES, names.tolist()),
        cores=batch.cores(names.tolist()),
    )


class _Batch:
    """The tasks of all stages, and what they say of nodes."""

    def __init__(self, manifest: Manifest, interval: float) -> None:
        self.tasks = [TaskReport.from_json(each) for each in manifest.facts["tasks"]]
        self.interval = interval
        # Manifests of earlier versions have neither.
        self.elsewhere: Mapping[str, float] = manifest.facts.get("elsewhere", {})
        self.used = in_use(self.tasks, manifest.facts.get("since", {}), interval)
        self.told = {task.node["name"]: task.node.get("cores") for task in self.tasks}
        known = sorted({*(task.node["name"] for task in self.tasks), *self.elsewhere})
        self.shared = dict(zip(known, shares_machine(known).tolist(), strict=True))

    def cpu(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return the part of its cores that each node had in use.

        What other pipelines do there counts as far as it takes more than the cores that are left
        for it: an executor may have more of them than instances of this one.
        """
        busy = busy_of(self.tasks)
        cores = self.cores(names)
        room = self._slots(names) if cores is None else cores
        found = []
        for name, each in zip(names, room.tolist(), strict=True):
            elsewhere = self.elsewhere.get(name, 0.0) / self.interval
            spare = 0.0 if cores is None else self.told[name] - each
            beside = min(elsewhere, spare)
            if self.shared[name]:
                found.append((busy.get(name, 0.0) / self.interval + elsewhere - beside) / each)
            elif machine_of(name) in self.used:
                used = self.used[machine_of(name)]["cpu"]
                found.append(min(1.0, max(0.0, used - beside) / each))
            else:
                found.append(self._seen_by_tasks(name))
        return np.array(found)

    def part(self, kind: str, counted: str, names: Sequence[str]) -> NDArray[np.float64] | None:
        """Return what each node had in use of its disk or network, None where one cannot tell."""
        sizes: Counter[str] = Counter()
        for task in self.tasks:
            sizes[task.node["name"]] += task.node.get(counted, 0)
        found = []
        for name in names:
            machine = machine_of(name)
            used = self.used.get(machine, {}).get(kind)
            if used is None:
                return None
            on_it = [size for other, size in sizes.items() if machine_of(other) == machine]
            share = sizes[name] / sum(on_it) if any(on_it) else 1 / len(on_it)
            found.append(used * (share if self.shared[name] else 1.0))
        return np.array(found)

    def cores(self, names: Sequence[str]) -> NDArray[np.float64] | None:
        """Return the cores of each node that instances can use, None where one does not tell."""
        found = [self.told[name] for name in names]
        if not all(found):
            return None
        return np.minimum(np.array(found, dtype=np.float64), self._slots(names))

    def _slots(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Return the instances of the stage that has most on each node."""
        most: Counter[str] = Counter()
        for (_, name), count in Counter(
            (task.stage, task.node["name"]) for task in self.tasks
        ).items():
            most[name] = max(most[name], count)
        return np.array([most[name] for name in names], dtype=np.float64)

    def _seen_by_tasks(self, name: str) -> float:
        """Return what tasks of earlier versions tell: what they have seen while they ran."""
        own = [task for task in self.tasks if task.node["name"] == name]
        seconds = np.array([max(task.seconds, 1e-9) for task in own])
        seen = float(np.average([task.node["cpu"] for task in own], weights=seconds))
        return seen * min(1.0, float(seconds.max()) / self.interval)
