"""The barrier semantics as a machine without time: which tasks may start now, and what starting and finishing does.

It is used to prove that a program runs to completion, and by tests that run programs in unfriendly orders.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.schedule.errors import ScheduleBroken
from npuc.tasks.program import Barrier, EntryProgram, Sync


class BarrierMachine:
    """Queues, barrier table and physical barriers of one entry while it runs (npuc.tasks.program has the rules)."""

    def __init__(self, queues: Sequence[str], barriers: Sequence[Barrier], sync: Sequence[Sync]) -> None:
        self.barriers, self.sync = barriers, sync
        self.pending: dict[str, list[int]] = {}  # tasks of each queue that have not finished, the next one last
        for task in reversed(range(len(queues))):
            self.pending.setdefault(queues[task], []).append(task)
        self.pending = dict(sorted(self.pending.items()))
        self.running: dict[str, int] = {}
        self.programmed = 0
        self.producers: dict[int, int] = {}  # counts left of the barrier that holds the id; absent: the id is free
        self.consumers: dict[int, int] = {}
        self._program()

    def startable(self) -> list[str]:
        """Queues whose next task may start now, in order of name."""
        return [queue for queue in self.pending if self._may_start(queue)]

    def start(self, queue: str) -> int:
        """Starts the queue's next task and returns it."""
        task = self.pending[queue][-1]
        self.running[queue] = task
        for number in self.sync[task].wait:
            self.consumers[number] -= 1
            self._release(number)
        self._program()
        return task

    def finish(self, queue: str) -> int:
        """Completes the running task of the queue and returns it."""
        task = self.running.pop(queue)
        self.pending[queue].pop()
        for number in self.sync[task].post:
            self.producers[number] -= 1
            self._release(number)
        self._program()
        return task

    def dump(self) -> str:
        """Where every queue and barrier stands: for the message of a deadlock."""
        lines = [f"{self.programmed} of {len(self.barriers)} barriers programmed"]
        for queue, tasks in self.pending.items():
            if tasks:
                sync = self.sync[tasks[-1]]
                lines.append(
                    f"  {queue}: task {tasks[-1]} waits {sync.wait} posts {sync.post} start_after {sync.start_after}"
                )
        for number in sorted(self.producers):
            lines.append(f"  id {number}: {self.producers[number]} producers, {self.consumers[number]} consumers left")
        return "\n".join(lines)

    def _may_start(self, queue: str) -> bool:
        tasks = self.pending[queue]
        if not tasks or queue in self.running:
            return False
        sync = self.sync[tasks[-1]]
        return sync.start_after <= self.programmed and all(self.producers.get(number) == 0 for number in sync.wait)

    def _release(self, number: int) -> None:
        if self.producers[number] == 0 and self.consumers[number] == 0:
            del self.producers[number], self.consumers[number]

    def _program(self) -> None:
        while self.programmed < len(self.barriers):
            barrier = self.barriers[self.programmed]
            if barrier.id in self.producers:
                return
            self.producers[barrier.id], self.consumers[barrier.id] = barrier.producers, barrier.consumers
            self.programmed += 1


def run_to_completion(program: EntryProgram) -> None:
    """Runs the entry's queues as far as each one goes, in turn. Raises ScheduleBroken at a deadlock, with the
    machine's state.
    """
    machine = BarrierMachine(program.queues, program.barriers, program.sync)
    moved = True
    while moved:
        moved = False
        for queue in machine.startable():
            machine.start(queue)
            machine.finish(queue)
            moved = True
    left = sum(len(tasks) for tasks in machine.pending.values())
    if left or machine.producers:
        raise ScheduleBroken(f"entry {program.entry}: deadlock with {left} tasks left\n{machine.dump()}")
