"""Writes search.bin: values and the blocks that ggml's CPU backend made of them, for the types whose scale is searched.

    make_search_fixture.py GOLDEN_FOLDER search.bin [BLOCKS]

The source is the full set of golden cases (the format is __test__/golden/README.md's): of the CPY and SET_ROWS cases into
each type, up to BLOCKS blocks (4) of each case. Per type, little-endian: u32 ggml type, u32 blocks, the values as f32,
the blocks.
"""

import json
import pathlib
import sys

import numpy as np

TYPES = {"q2_K": (10, 256, 84), "q3_K": (11, 256, 110), "q4_K": (12, 256, 144), "q5_K": (13, 256, 176),
         "q6_K": (14, 256, 210), "iq4_nl": (20, 32, 18), "iq4_xs": (23, 256, 136)}

folder = pathlib.Path(sys.argv[1])
limit = int(sys.argv[3]) if len(sys.argv) > 3 else 4
data = (folder / "data.bin").read_bytes()


def blob(d):
    return data[d["offset"]:d["offset"] + d["nbytes"]]


def floats(leaf):
    raw = blob(leaf["data"])
    if leaf["type"] == "bf16":
        values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif leaf["type"] in ("f16", "f32"):
        values = np.frombuffer(raw, {"f16": "<f2", "f32": "<f4"}[leaf["type"]]).astype(np.float32)
    else:
        return None
    return values.reshape(leaf["ne"][::-1])


def viewed(array, node, element):
    """The values a VIEW or PERMUTE node names."""
    strides = [n // element * array.itemsize for n in node["nb"][::-1]]
    start = array.reshape(-1)[node.get("view_offs", 0) // element:]
    return np.lib.stride_tricks.as_strided(start, node["ne"][::-1], strides)


def pairs(case, ty):
    """Rows of values with the rows of blocks they became."""
    _, length, size = TYPES[ty]
    arrays = {}
    for leaf in case["leaves"]:
        if leaf["type"] in ("i32", "i64"):
            ids = np.frombuffer(blob(leaf["data"]), "<" + leaf["type"].replace("i32", "i4").replace("i64", "i8"))
            arrays[leaf["id"]] = (ids.reshape(leaf["ne"][::-1]), ids.itemsize)
        else:
            arrays[leaf["id"]] = (floats(leaf), 4 if leaf["type"] == "f32" else 2)
    for node in case["nodes"][:-1]:
        array, element = arrays[node["src"][0]]
        arrays[node["id"]] = (None if array is None else viewed(array, node, element), element)
    last, out = case["nodes"][-1], case["output"]
    source = arrays[last["src"][0]][0]
    if source is None or out["type"] != ty:
        return []
    row = out["ne"][0] // length * size
    blocks = np.frombuffer(blob(out["data"]), np.uint8).reshape(*out["ne"][:0:-1], row)
    if case["op"] == "CPY":
        return list(zip(source.reshape(-1, source.shape[-1]), blocks.reshape(-1, row)))
    ids = arrays[last["src"][1]][0]
    found = []
    for k, j, i in np.ndindex(*source.shape[:3]):
        at = ids[0, k % ids.shape[1], j % ids.shape[2], i]
        found.append((source[k, j, i], blocks[k, j, at]))
    return found


made = {ty: ([], []) for ty in TYPES}
for line in (folder / "cases.jsonl").open():
    case = json.loads(line)
    if case["op"] in ("CPY", "SET_ROWS") and case["output"]["type"] in TYPES:
        ty = case["output"]["type"]
        _, length, size = TYPES[ty]
        taken = 0
        for values, blocks in pairs(case, ty):
            n = min(len(values) // length, limit - taken)
            made[ty][0].append(values[:n * length])
            made[ty][1].append(blocks[:n * size])
            taken += n
        print(case["name"], case["params"], taken)

with open(sys.argv[2], "wb") as file:
    for ty, (values, blocks) in made.items():
        number, length, _ = TYPES[ty]
        values = np.concatenate(values).astype("<f4")
        file.write(np.array([number, len(values) // length], "<u4").tobytes() + values.tobytes() + np.concatenate(blocks).tobytes())
        print(ty, len(values) // length)
