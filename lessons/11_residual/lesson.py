"""Lesson 11 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import math

import norma

def row(numbers):
    return norma.tensor(numbers, dtype=norma.float64, requires_grad=True)

def show(name, numbers):
    print(f"{name:<5}" + "".join(f" {value:7.3f}" for value in numbers.tolist()))

x = row([1, 3, 4, 5, 7])
y = norma.rms_norm(x, [5], eps=0)
mean_square = (x * x).mean().item()
print(f"mean square {mean_square:g}, r {1 / math.sqrt(mean_square):.3f}")
show("x", x.detach())
show("y", y.detach())

# %% prose
# It helps to check yours:
# ->
# It is what Norma's tape finds, and helps to check yours:

# %% text
dx = norma.grad(y, [x], row([1, 0, 0, 0, 0]))[0]
show("dx", dx)
print(f"sum(dx) {dx.sum().item():.3f}, sum(dx x) {(dx * x).sum().abs().item():.3f}")

# %% prose
# The program builds a network of 32 blocks.
# ->
# The next cell builds a network of 32 blocks.

# %% text
WIDTH, BATCH = 32, 64  # numbers in the stream, and rows

def random(*sizes):
    return norma.randn(sizes, dtype=norma.float64)

def norm(x):
    return norma.rms_norm(x, [WIDTH])

BLOCKS = {  # the table of formulas
    "none": lambda x, branch: x + branch(x),
    "pre": lambda x, branch: x + branch(norm(x)),
    "post": lambda x, branch: norm(x + branch(x)),
    "peri": lambda x, branch: x + norm(branch(norm(x)))}

class Network:
    """Blocks with a branch of two linear layers and a relu between them. The weights keep the variance of what they
    read, but for `factor`, which is on the result of each branch."""

    def __init__(self, placement, seed, depth, factor=1):
        norma.manual_seed(seed)
        self.placement = placement
        self.weights = []
        for block in range(depth):
            for spread in [1, factor * math.sqrt(2)]:
                self.weights.append((random(WIDTH, WIDTH) * (spread / math.sqrt(WIDTH))).requires_grad_())

    def streams(self, x):
        """The stream before the first block and after each."""
        result = [x]
        for first, second in zip(self.weights[::2], self.weights[1::2]):
            branch = lambda x: (x @ first).relu() @ second
            result.append(BLOCKS[self.placement](result[-1], branch))
        return result

    def end(self, stream):
        """What becomes of the stream after the last block."""
        return norm(stream) if self.placement in ("pre", "peri") else stream

def rms(x):
    return math.sqrt((x * x).mean().item())

def by_depth(placement):
    network = Network(placement, seed=1, depth=32)
    norma.manual_seed(2)
    x, dy = norm(random(BATCH, WIDTH)), random(BATCH, WIDTH)
    streams = network.streams(x)
    network.end(streams[-1]).backward(dy)
    for name, size_at in [("stream  ", lambda depth: rms(streams[depth])),
                          ("gradient", lambda depth: rms(network.weights[2 * depth - 1].grad))]:
        print(f"{placement:<5} {name}" + "".join(f" {size_at(depth):8.3g}" for depth in [1, 8, 16, 32]))

print("block               1        8       16       32")
for placement in BLOCKS:
    by_depth(placement)

# %% prose
# The program trains a network of 16 blocks for 150 steps
# ->
# The next cell takes some seconds. It trains a network of 16 blocks for 150 steps

# %% text
def trained(network, rate):
    """The mean loss of the last 20 of 150 steps of SGD, or "lost": the network learns what a smaller one computes."""
    teacher = Network("pre", seed=6, depth=2)
    norma.manual_seed(4)
    scale = 1 / math.sqrt(WIDTH)
    readout = scale * random(WIDTH, 1)
    own_readout = norma.zeros([WIDTH, 1], dtype=norma.float64, requires_grad=True)
    weights = [*network.weights, own_readout]
    recent = 0
    for step in range(150):
        with norma.no_grad():
            x = norm(random(BATCH, WIDTH))
            goal = teacher.end(teacher.streams(x)[-1]) @ readout
        error = network.end(network.streams(x)[-1]) @ (scale * own_readout) - goal
        loss = (error * error).mean()
        loss.backward()
        with norma.no_grad():
            for weight in weights:
                weight.add_(-rate * weight.grad)
                weight.grad = None
        recent += loss.item() / 20 if step >= 130 else 0
        if not loss.item() < 100:
            return "lost"
    return f"{recent:.2f}" if recent < 2 else "lost"

print("learning rate     0.001    0.01     0.1     0.3       1       3")
# The last two numbers are the factors s of 16 blocks, which your third gap computes.
for name, placement, factor in [*((name, name, 1) for name in BLOCKS), ("none by s", "none", 0.2104),
                                ("pre by s", "pre", 0.25)]:
    losses = [trained(Network(placement, 5, 16, factor), rate) for rate in [0.001, 0.01, 0.1, 0.3, 1, 3]]
    print(f"{name:<9} measured" + "".join(f" {loss:>7}" for loss in losses))

# %% prose
# Fill three gaps in `exercise.cpp`. The program's network is built of gaps 2 and 3.
# ->
# Fill three gaps below. The cell after each gap says whether it is right:

# %% gap 1
def rms_norm_backward(x, weight, dy, eps):
    """dx, a list, for the RMS norm of one row: y[i] = x[i] * r * weight[i] with r = 1 / sqrt(mean(x²) + eps). x, weight
    and dy are lists of the same length."""
    # GAP 1: which of the three terms of lesson 6 are left, when no mean is subtracted?
    ### BEGIN SOLUTION
    n = len(x)
    r = 1 / math.sqrt(sum(v * v for v in x) / n + eps)
    g = [d * w for d, w in zip(dy, weight)]
    mean = sum(g[i] * x[i] * r for i in range(n)) / n
    return [r * (g[i] - x[i] * r * mean) for i in range(n)]
    ### END SOLUTION

# %% check 1
def slip_of(dx, x, weight, dy, eps):
    """Which slip gives this dx, if it is one that many people make."""
    r = ((x * x).mean() + eps).rsqrt()
    xhat, g = x * r, dy * weight
    slips = {"your dx is the formula with the mean term, which a norm has that subtracts the mean":
                 r * (g - g.mean() - xhat * (g * xhat).mean()),
             "your dx is right if r is a constant. But r depends on every x": r * g,
             "mean(g * xhat): divide the sum by n": r * (g - xhat * (g * xhat).sum()),
             "your dx is the formula without the factor r in front": g - xhat * (g * xhat).mean(),
             "your dx is the formula without the weight: g is dy * weight": r * (dy - xhat * (dy * xhat).mean())}
    for slip, formula in slips.items():
        if near(dx, formula.tolist()):
            return slip
    return "compare with lesson 6: dx = r * (g - mean(g) - xhat * mean(g * xhat)), of which a term must go"

def near(a, b):
    return len(a) == len(b) and all(abs(x - y) <= 1e-9 * (1 + abs(y)) for x, y in zip(a, b))

x, weight, dy = row([1, -3, 4, 5, 7]), row([2, 1, 3, 1, -2]), row([1, 2, 0, -1, 1])
for what, eps in [("eps 0", 0), ("with eps 0 you are right; now eps is 0.5", 0.5)]:
    expected = norma.grad(norma.rms_norm(x, [5], weight, eps=eps), [x], dy)[0].tolist()
    yours = rms_norm_backward(x.tolist(), weight.tolist(), dy.tolist(), eps)
    assert near(yours, expected), \
        f"{what}: {slip_of(yours, x, weight, dy, eps)}. Expected {expected}, yours {yours}"

# %% gap 2
def block(x, placement, branch, norm_in, norm_out):
    """One block of a residual network; placement is "none", "pre", "post" or "peri". `norm_in` is for a norm before the
    branch, `norm_out` for one after it; a placement calls those that it has, and no other."""
    # GAP 2: one formula for each placement. (`BLOCKS` above has them, for one norm. Write yours from the table.)
    ### BEGIN SOLUTION
    if placement == "none":
        return x + branch(x)
    if placement == "pre":
        return x + branch(norm_in(x))
    if placement == "post":
        return norm_out(x + branch(x))
    return x + norm_out(branch(norm_in(x)))
    ### END SOLUTION

# %% check 2
# Layers that can be told apart in the result.
for placement, formula, expected, slips in [
        ("none", "x + branch(x)", 41, {}),
        ("pre", "x + branch(norm_in(x))", 167,
         {157: "your block lacks x, the stream",
          209: "your block norms the stream, too: only the branch may read the normed x"}),
        ("post", "norm_out(x + branch(x))", 291,
         {231: "the norm stands outside the sum, over the stream, not on the branch"}),
        ("peri", "x + norm_out(branch(norm_in(x)))", 1113,
         {1173: "your block norms the stream, which only post does",
          797: "norm_in and norm_out are two layers with weights of their own"})]:
    yours = block(10, placement, lambda x: 3 * x + 1, lambda x: 5 * x + 2, lambda x: 7 * x + 4)
    assert yours == expected, \
        f"{placement}: expected {formula}, which is {expected} here, yours is {yours}. {slips.get(yours, '')}"

# %% gap 3
def branch_factor(depth, pre):
    """The factor s on the result of each branch that makes the variance of the stream after `depth` blocks 2, if it is
    1 before the first. `pre`: whether the branch reads a normed stream. A branch gives numbers of the variance that it
    reads, which are independent of the stream, so that variances of stream and branch add up."""
    # GAP 3: what does one block do to the variance of the stream? Then do it `depth` times.
    ### BEGIN SOLUTION
    return 1 / math.sqrt(depth) if pre else math.sqrt(2 ** (1 / depth) - 1)
    ### END SOLUTION

# %% check 3
def variance_after(depth, pre, factor):
    variance = 1
    for i in range(depth):
        variance += factor * factor * (1 if pre else variance)
    return variance

for pre in [True, False]:
    for depth in [1, 8, 100]:
        yours = branch_factor(depth, pre)
        hint = "A block that reads a normed stream adds s² to the variance, whatever it was" if pre else \
            "A block that reads the stream itself multiplies the variance by 1 + s²"
        if depth > 1 and yours > 0 and abs(variance_after(depth, pre, math.sqrt(yours)) - 2) < 1e-9:
            hint = "Your number is its square: a variance grows by the square of a factor"
        variance = variance_after(depth, pre, yours)
        assert abs(variance - 2) <= 1e-9, \
            f"{depth} blocks, {'pre' if pre else 'none'}: with your factor {yours} the variance ends at {variance}, " \
            f"expected 2. {hint}"
