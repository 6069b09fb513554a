"""
Trains the network of mlp-spirals.mjs and writes it as mlp-spirals.gguf: two intertwined spirals, told apart by
2 -> 32 -> 32 -> 2 with SiLU between. NumPy only; the same seed gives the same weights.

    pip install numpy
    python examples/mlp-spirals.train.py
"""

import pathlib
import struct

import numpy as np

random = np.random.default_rng(7)
SIZES = [2, 32, 32, 2]
TURNS = 1.75


def spirals(n, noise):
    """n points of each spiral: the second is the first turned by half a turn."""
    t = np.sqrt(random.uniform(0.01, 1, (2, n)))
    angle = 2 * np.pi * TURNS * t + np.array([[0], [np.pi]])
    points = np.stack([t * np.cos(angle), t * np.sin(angle)], axis=-1) + random.normal(0, noise, (2, n, 2))
    return points.reshape(-1, 2), np.repeat([0, 1], n)


def silu(x):
    return x / (1 + np.exp(-x))


def silu_slope(x):
    s = 1 / (1 + np.exp(-x))
    return s * (1 + x * (1 - s))


def forward(points):
    """Inputs and sums of each layer, and the logits."""
    seen, x = [], points
    for i, (w, b) in enumerate(zip(weights, biases)):
        z = x @ w.T + b
        seen.append((x, z))
        x = silu(z) if i + 1 < len(weights) else z
    return seen, x


weights = [random.normal(0, np.sqrt(2 / i), (o, i)) for i, o in zip(SIZES, SIZES[1:])]
biases = [np.zeros(o) for o in SIZES[1:]]
moments = [(np.zeros_like(p), np.zeros_like(p)) for p in weights + biases]

STEPS = 4000
for step in range(1, STEPS + 1):
    points, labels = spirals(128, 0.02)
    seen, logits = forward(points)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    slope = odds / odds.sum(axis=1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    grads = [None] * (2 * len(weights))
    for i in reversed(range(len(weights))):
        x, z = seen[i]
        if i + 1 < len(weights):
            slope = slope * silu_slope(z)
        grads[i], grads[len(weights) + i] = slope.T @ x, slope.sum(axis=0)
        slope = slope @ weights[i]
    # Adam, its rate falling to zero.
    rate = 0.01 * (1 + np.cos(np.pi * step / STEPS)) / 2
    for p, g, (m, v) in zip(weights + biases, grads, moments):
        m += 0.1 * (g - m)
        v += 0.001 * (g * g - v)
        p -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)

points, labels = spirals(5000, 0.02)
accuracy = (forward(points)[1].argmax(axis=1) == labels).mean()
print(f"{accuracy:.2%} of 10,000 fresh points")


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


# GGUF: magic, version, counts; metadata; the table of tensors (shapes fastest dimension first); data at multiples of 32.
F32, STRING, FLOAT32 = 0, 8, 6
tensors = [(f"{i}.{kind}", p.astype("<f4")) for i, (w, b) in enumerate(zip(weights, biases)) for kind, p in (("weight", w), ("bias", b))]
head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 3)
head += text("general.architecture") + struct.pack("<I", STRING) + text("mlp")
head += text("spirals.turns") + struct.pack("<If", FLOAT32, TURNS)
head += text("spirals.accuracy") + struct.pack("<If", FLOAT32, accuracy)
data = b""
for name, p in tensors:
    head += text(name) + struct.pack(f"<I{p.ndim}QIQ", p.ndim, *reversed(p.shape), F32, len(data))
    data += p.tobytes()
    data += bytes(-len(data) % 32)
head += bytes(-len(head) % 32)
path = pathlib.Path(__file__).with_name("mlp-spirals.gguf")
path.write_bytes(head + data)
print(f"{path}: {len(head + data)} bytes")
