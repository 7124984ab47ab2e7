"""plaita's flows, as documents."""

SLOW = """
import sys
sys.path.insert(0, {kit!r})
import peerkit
def run(input):
    peerkit.slow_step(input, {k})
    return input
"""


def document(name, nodes):
    """A flow of these nodes in a row."""
    return {
        "flow_id": name,
        "version": "1",
        "name": name,
        "inputType": {"dataType": "object"},
        "nodes": [
            {"type": "start", "id": "start", "next": nodes[0]["id"]},
            *nodes,
            {"type": "end", "id": "end", "output": f"$NODE.{nodes[-1]['id']}", "resultType": "success"},
        ],
    }


def place(k, letter):
    """Where node k gets its value, and where it goes on."""
    value = "$INPUT.n" if k == 1 else f"$NODE.{letter}{k - 1}"
    return value, f"{letter}{k + 1}" if k < 5 else "end"


def five():
    """Five assignments, the cheapest nodes that there are."""
    nodes = []
    for k in range(1, 6):
        value, after = place(k, "a")
        node = {"type": "assignment", "id": f"a{k}", "next": after, "outputType": {"dataType": "any"}, "output": value}
        nodes.append(node)
    return document("five", nodes)


def five_slow(kit):
    """Five code nodes that take their time."""
    nodes = []
    for k in range(1, 6):
        value, after = place(k, "c")
        code = SLOW.format(kit=kit, k=k)
        nodes.append({"type": "code", "id": f"c{k}", "next": after, "language": "python", "code": code, "input": value})
    return document("five_slow", nodes)
