"""What happens at a beat: users, time, and everything that can go wrong.

Each act returns what it did, in words; nothing where there was nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sim.bodies import body_of
from sim.explore.failing import PARTS
from sim.explore.promises import NONSENSE
from sim.explore.schedule import USER_ACTS
from sim.explore.world import LINKS, ExploredShard
from sim.journal import Fate

from stepwell.actors import messages as m
from stepwell.core.limits import PASSIVATE_LEAST, Limits
from stepwell.core.status import STEP_RUNNING
from stepwell.store.replies import Refused

if TYPE_CHECKING:
    from sim.explore.run import Exploration

Act = Callable[["Exploration"], str]

NAMES: Final = ("a/0", "a/1", "b/0", "c/0")
REFUSED: Final = Refused("loading the dataset in memory", "LOADING")


# Time.


def nothing(run: Exploration) -> str:
    if run.world.weather.down:
        run.world.weather.down = False
        return "Redis is back"
    return ""


def rest(run: Exploration) -> str:
    run.world.settle()
    return "all rest"


def pass_time(run: Exploration) -> str:
    seconds = run.chance.choice([0.01, 0.3, 1.0, 2.5, 6.0, 12.0, 45.0])
    run.world.run_for(seconds)
    return f"{seconds:g} s pass"


def jump(run: Exploration) -> str:
    """To the next instant at which something is due, without letting it happen."""
    world = run.world
    due = world.next_due()
    if due is None or due > world.clock.monotonic() + 100:
        return ""
    world.clock.advance_to(max(due, world.clock.monotonic()))
    return "the next due instant"


# Shards that come and go.


def join(run: Exploration) -> str:
    world = run.world
    taken = {shard.shard_id for shard in (*world.shards, *world.frozen)}
    free = [name for name in NAMES if name not in taken]
    if not free or len(world.shards) >= (3 if world.setting.sharing else 1) or world.weather.down:
        return ""
    chance = run.chance
    limits = Limits(
        running=chance.choice([1, 2, 3, 1000, 1000]),
        steps=chance.choice([1, 2, 1000, 1000]),
        in_memory=chance.choice([1, 3, 1000, 1000]),
        passivate_after=chance.choice([PASSIVATE_LEAST, 30]),
    )
    shard = world.shard(shard_id=chance.choice(free), limits=limits, ingress=True)
    return f"shard {shard!r} joins ({limits.running} run, {limits.steps} steps, {limits.in_memory} in memory)"


def leave(run: Exploration) -> str:
    staying = run.staying()
    if len(staying) < 2 and (run.world.setting.gentle or not staying):
        return ""
    shard = run.chance.choice(staying)
    shard.leave()
    run.leaving.append(shard)
    return f"shard {shard!r} leaves: it hands over what it has"


def crash(run: Exploration) -> str:
    shard = _some_shard(run)
    if shard is None:
        return ""
    run.world.crash(shard)
    return f"shard {shard!r} crashes" + ("; its parent has read its black box" if run.world.parents else "")


def machine_dies(run: Exploration) -> str:
    """Nobody can see that it is dead: its leases lapse."""
    if not run.world.setting.sharing:
        return crash(run)
    shard = _some_shard(run)
    if shard is None:
        return ""
    world = run.world
    parents, world.parents = world.parents, False
    world.crash(shard)
    world.parents = parents
    world.dead_hosts.discard(shard.host)
    return f"the machine of shard {shard!r} dies"


def dies_in_a_turn(run: Exploration) -> str:
    run.world.doomed = True
    return "the next shard that takes a turn dies in it"


def freeze(run: Exploration) -> str:
    shard = _some_shard(run)
    if shard is None or not run.world.setting.sharing:
        return ""
    run.world.freeze(shard)
    return f"shard {shard!r} freezes"


def thaw(run: Exploration) -> str:
    world = run.world
    if not world.frozen or len(world.shards) >= 3:
        return ""
    shard = run.chance.choice(world.frozen)
    world.thaw(shard)
    return f"shard {shard!r} goes on"


def zombie(run: Exploration) -> str:
    """It stands still until others have taken what it has; where there is one, one that was about to begin a step."""
    world = run.world
    shards = run.shards()
    if len(shards) < 2 or not world.setting.sharing:
        return ""
    about_to = [shard for shard in shards if any(body_of(each).run is None for _, _, each in shard.runner._heap)]
    shard = run.chance.choice(about_to or shards)
    world.freeze(shard)
    world.run_for(run.chance.choice([11.0, 13.0]))
    world.thaw(shard)
    return f"shard {shard!r} stands still for longer than its leases last, and goes on"


# Slow ones.


def slow(run: Exploration) -> str:
    shard = _some_shard(run)
    if shard is None:
        return ""
    if shard.slow:
        shard.slow.clear()
        return f"all actors of {shard!r} get their turns again"
    names = [":dispatcher", ":supervisor", ":healer", *shard.in_memory, *shard.in_memory]
    name = run.chance.choice(names)
    shard.slow.add(name)
    run.entries_may_lie = run.executions_may_lie = True
    return f"{name} in {shard!r} gets no turns"


def slow_part(run: Exploration) -> str:
    shard = _some_shard(run)
    if shard is None:
        return ""
    if shard.paused != shard.failing.parts:
        shard.paused = set(shard.failing.parts)
        return f"all threads of {shard!r} get their turns again"
    part = run.chance.choice(["mirror", "mirror", "reader", "leases", "ingress"])
    shard.paused.add(part)
    run.entries_may_lie = run.executions_may_lie = True  # what waits in a thread that hangs looks as if nobody had it
    return f"the {part} thread of {shard!r} gets no turns"


def part_fails(run: Exploration) -> str:
    """By a bug, in or after one of its next turns or exchanges: then the process ends, as soon as it can."""
    sound = [shard for shard in run.shards() if not shard.failing.parts]
    if not sound:
        return ""
    chance = run.chance
    shard, part, after = chance.choice(sound), chance.choice(PARTS), chance.choice([0, 0, 0, 1, 4])
    late, amid = chance.random() < 0.5, chance.random() < 0.7
    if not shard.bug.plant(part, after, late, amid):
        return ""
    when = f"{'after' if late else 'before'} what it does next but {after}{' while steps run' if amid else ''}"
    return f"the {part} of {shard!r} will fail {when}"


# Connections.


def _break(fate: Fate, said: str) -> Act:
    def act(run: Exploration) -> str:
        link = run.chance.choice(["mirror", "mirror", *LINKS])
        after = run.chance.choice([0, 0, 1, 2, 5])
        run.world.weather.doom(link, fate, after)
        return f"{said} on the {link} link, after {after} more exchanges" if after else f"{said} on the {link} link"

    return act


def dies_at_a_commit(run: Exploration) -> str:
    fate: Fate = run.chance.choice(["dies before", "dies after"])
    after = run.chance.choice([0, 0, 0, 1, 2, 4])
    run.world.weather.doom("mirror", fate, after)
    return f"a shard {fate} it has sent its next batch" if not after else f"a shard {fate} its batch number {after + 1}"


def down(run: Exploration) -> str:
    run.world.weather.down = not run.world.weather.down
    return "Redis is away" if run.world.weather.down else "Redis is back"


def refused(run: Exploration) -> str:
    shard = _some_shard(run)
    if shard is None:
        return ""
    left = run.chance.choice([1, 2, 5])

    def judge(_request: object) -> Refused | None:
        nonlocal left
        left -= 1
        return REFUSED if left >= 0 else None

    shard.judge(judge)
    return f"Redis refuses the next {left} requests of {shard!r}"


def forgotten_scripts(run: Exploration) -> str:
    run.world.server.script_cache.clear()
    return "Redis has forgotten all scripts"


def lost_lease(run: Exploration) -> str:
    world = run.world
    part = run.chance.choice(world.keys.parts)
    if not world.client.delete(part.lease):
        return ""
    run.promises.lost_leases = True
    return f"the lease of partition {part.number} vanishes"


def foreign(run: Exploration) -> str:
    """Somebody who is no owner writes a row; not where the server forgets, or it might pass for what was lost."""
    shard = _some_shard(run)
    if shard is None or not shard.in_memory or run.world.setting.loses:
        return ""
    name = run.chance.choice(shard.in_memory)
    key = run.world.keys.row(name)
    if not run.world.client.exists(key):
        return ""
    rev = run.world.client.hincrby(key, "rev", 1)
    run.world.client.hset(key, "commit", f"foreign-{rev}")
    run.promises.touched.add(name)
    run.interruptions.forget()  # whoever reads the row again may not know any more what its last owner left
    return f"a foreign program writes the row of {name}, now at rev {rev}"


# Actors.


def out_of_memory(run: Exploration) -> str:
    return _tell_some(run, m.Passivate(), "is asked to leave memory")


def broken_actor(run: Exploration) -> str:
    return _tell_some(run, NONSENSE, "fails and is built anew")


def _tell_some(run: Exploration, message: object, said: str) -> str:
    shard = _some_shard(run)
    if shard is None or not shard.in_memory:
        return ""
    name = run.chance.choice(shard.in_memory)
    ref = shard.ref(name)
    if ref is None:
        return ""
    ref.tell(message)
    return f"{name} in {shard!r} {said}"


def late_result(run: Exploration) -> str:
    """A body that was given up returns after all."""
    shard = _some_shard(run)
    if shard is None:
        return ""
    running = [
        (name, path, op.attempt)
        for name in shard.in_memory
        if (actor := shard.actor(name)) is not None and actor._machine is not None
        for path, op in actor._machine.checkpoint.open.items()
        if op.status == STEP_RUNNING and op.attempt > 1
    ]
    if not running:
        return ""
    name, path, attempt = run.chance.choice(running)
    ref = shard.ref(name)
    assert ref is not None
    now = run.world.clock.now_ms()
    ref.tell(m.StepDone(path, attempt - 1, now, now, b'"late"'))
    return f"attempt {attempt - 1} of {path} in {name} returns while attempt {attempt} runs"


# The server's memory and clock.


def clock_step(run: Exploration) -> str:
    ms = run.chance.choice([-9_000, -5_000, -300, 300, 5_000, 3_600_000])
    if not run.world.setting.drifts:
        return ""
    run.world.stepped_ms += ms
    run.world.stepped = run.entries_may_lie = run.executions_may_lie = True
    run.promises.lost_leases = True
    return f"the clock of Redis steps by {ms} ms"


def mark(run: Exploration) -> str:
    run.tail.mark()
    return ""


def lost_second(run: Exploration) -> str:
    """No connection breaks: entries that are there again under smaller ids than what was read, only a sweep finds."""
    said = _lose_second(run)
    run.entries_may_lie = run.entries_may_lie or bool(said)
    return said


def _lose_second(run: Exploration) -> str:
    losses, world = run.tail.losses, run.world
    run.tail.lose(run.chance.choice([0.5, 1.0, 2.0]))
    if run.tail.losses == losses:
        return ""
    world.clock.advance(0.002)  # no entry that comes from now on gets the id of one that is lost
    run.forgot()
    run.executions_may_lie = True
    for shard in [] if world.setting.sharing else run.shards():
        shard.leases.hurry()  # nobody renews there, and a renewal is what notices
    return "Redis loses its last second"


def failover(run: Exploration) -> str:
    said = _lose_second(run)
    if not said:
        return ""
    for link in LINKS:
        run.world.weather.doom(link, "cut")
    return "a replica takes over that had not got the last second; all connections break"


def _users(name: str) -> Act:
    def act(run: Exploration) -> str:
        return "" if run.world.weather.down else run.verbs.do(name, run.chance)

    return act


def _some_shard(run: Exploration) -> ExploredShard | None:
    shards = run.shards()
    return run.chance.choice(shards) if shards else None


ACTS: Final[dict[str, Act]] = {
    **{name: _users(name) for name in USER_ACTS},
    "nothing": nothing,
    "rest": rest,
    "pass": pass_time,
    "jump": jump,
    "join": join,
    "leave": leave,
    "crash": crash,
    "machine dies": machine_dies,
    "dies in a turn": dies_in_a_turn,
    "dies at a commit": dies_at_a_commit,
    "freeze": freeze,
    "thaw": thaw,
    "zombie": zombie,
    "slow": slow,
    "slow part": slow_part,
    "part fails": part_fails,
    "cut": _break("cut", "the connection breaks before it is used"),
    "lost reply": _break("lost", "a reply is lost"),
    "torn": _break("torn", "the connection breaks in the middle of a batch"),
    "repeated": _break("repeated", "a batch arrives twice"),
    "down": down,
    "refused": refused,
    "forgotten scripts": forgotten_scripts,
    "lost lease": lost_lease,
    "foreign": foreign,
    "out of memory": out_of_memory,
    "broken actor": broken_actor,
    "late result": late_result,
    "clock step": clock_step,
    "mark": mark,
    "lost second": lost_second,
    "failover": failover,
}
