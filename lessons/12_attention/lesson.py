"""Lesson 12 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import math

import norma

def rows(numbers):
    return norma.tensor(numbers, dtype=norma.float64)

def show(name, numbers):
    print(f"{name:<9}" + "".join(f" {value:7.3f}" for value in numbers.reshape([numbers.numel()]).tolist()))

def logits(q, k):
    return q @ k.transpose(0, 1) / math.sqrt(q.size(1))

q, k, v = rows([[1]]), rows([[0], [math.log(2)], [math.log(4)]]), rows([[7], [14], [0]])
z = logits(q, k)
p = norma.softmax(z)
show("z", z)
show("p", p)
show("y", p @ v)

# %% prose
# Powers of $e$ leave the range of a double soon.
# ->
# Powers of $e$ leave the range of Python's numbers soon.

# %% text
e = norma.exp(rows([1000, 999]))  # Python's own exp() raises an error; tensors give what the processor gives, infinity
large = "not a number" if math.isnan((e[0] / (e[0] + e[1])).item()) else "a number"
print(f"exp(1000) / (exp(1000) + exp(999)) is {large}; exp(0) / (exp(0) + exp(-1)) is {1 / (1 + math.exp(-1)):.3f}")

# %% text
def random(sizes, seed):
    norma.manual_seed(seed)
    return norma.randn(sizes, dtype=norma.float64)

tokens = norma.arange(5)
seen = tokens.view(1, 5) <= tokens.view(5, 1)  # key j by query i
q, k, v = (random([5, 4], seed) for seed in [1, 2, 3])
p = norma.softmax(norma.where(seen, logits(q, k), rows(-math.inf)))
for i in range(5):
    show(f"query {i}", p[i])
norma_y = norma.scaled_dot_product_attention(*(x.view(1, 1, 5, 4) for x in [q, k, v]), is_causal=True)
worst = (norma_y.view(5, 4) - p @ v).abs().max().item()
print(f"the result differs from Norma's by {'less' if worst < 1e-12 else 'more'} than 1e-12")

# %% text
q, k, v = rows([[1]]), rows([[0], [math.log(2)], [math.log(4)]]), rows([[7], [14], [0]])

def gradient_of_z(p, dp):
    return p * (dp - (p * dp).sum([1], keepdim=True))

p, dp = norma.softmax(logits(q, k)), rows([[1]]) @ v.transpose(0, 1)
dz = gradient_of_z(p, dp)
show("dp", dp)
show("dz", dz)
show("sum(dz)", dz.sum().abs())

# %% text
def growth(factor, qk_norm):
    """32 random tokens, when the weights of q and k are larger by a factor."""
    q, k = (factor * random([32, 16], seed) for seed in [1, 2])
    if qk_norm:
        q, k = norma.rms_norm(q, [16]), norma.rms_norm(k, [16])
    z = logits(q, k)
    p = norma.softmax(z)
    dz = gradient_of_z(p, random([32, 16], 4) @ random([32, 16], 5).transpose(0, 1))
    entropy = -(p * (p + 1e-300).log()).sum() / 32  # 0 has no logarithm
    print(f"× {factor:<6} {'yes' if qk_norm else 'no':<7} {z.abs().max().item():10.1f} "
          f"{p.amax([1]).mean().item():10.2f} {entropy.item():8.2f} {dz.abs().mean().item():11.4f}")

print("weights  QK-norm  largest z  largest p  entropy  size of dz")
for qk_norm in [False, True]:
    for factor in [1, 2, 4, 8]:
        growth(factor, qk_norm)

# %% prose
# The program trains one head to find
# ->
# The next cell trains one head to find

# %% text
def train_head(qk_norm, rate):
    """One head learns, in 300 steps of SGD, to find the token that a query names: the query is one of 16 tokens, a
    little changed. Returns the mean loss of the last 20 steps, and the largest logit of the last one."""
    weights = [random([8, 8], 8) / math.sqrt(8), random([8, 8], 9) / math.sqrt(8)]
    weights += [norma.ones([8], dtype=norma.float64) for norm in "qk"]
    for weight in weights:
        weight.requires_grad = True
    norma.manual_seed(7)
    recent = 0
    for step in range(300):
        keys = norma.randn([32, 16, 8], dtype=norma.float64)
        target = norma.randint(0, 16, [32])
        asked = keys.view(32 * 16, 8)[16 * norma.arange(32) + target].view(32, 1, 8)
        queries = asked + 0.1 * norma.randn([32, 1, 8], dtype=norma.float64)
        q, k = queries @ weights[0], keys @ weights[1]
        if qk_norm:
            q, k = norma.rms_norm(q, [8], weights[2]), norma.rms_norm(k, [8], weights[3])
        z = (q @ k.transpose(1, 2)).view(32, 16) / math.sqrt(8)
        loss = norma.cross_entropy(z, target)
        loss.backward()
        with norma.no_grad():
            for weight in weights:
                if weight.grad is not None:
                    weight.add_(-rate * weight.grad)
                    weight.grad = None
        recent += loss.item() / 20 if step >= 280 else 0
    return recent, z.abs().max().item()

print("learning rate                0.01            0.1              1")
for name, qk_norm in [("no norm", False), ("QK-norm", True)]:
    line = f"{name:<10} measured"
    for rate in [0.01, 0.1, 1]:
        loss, largest_logit = train_head(qk_norm, rate)
        line += f"  {loss:5.2f} {largest_logit:7.1f}"
    print(line)

# %% prose
# A vision
# transformer takes both as options, and the study compares them over rates and seeds:
# ->
# A vision
# transformer takes both as options, and the study compares them over rates and seeds. In a shell:

# %% prose
# ./run train --model vit_tiny
# ->
# norma train --model vit_tiny

# %% prose
# ./run compare --study qk-norm
# ->
# norma compare --study qk-norm

# %% prose
# Fill three gaps in `exercise.cpp`. A matrix is a vector of rows, so `q[i]` is a query, and `dot(q[i], k[j])` is there.
# ->
# Fill three gaps below, with plain numbers: the cells above compute with whole tensors. A matrix is a list of rows, so
# `q[i]` is a query, and `dot(q[i], k[j])` is there. The cell after each gap says whether it is right:

# %% gap 1
def dot(a, b):
    return sum(x * y for x, y in zip(a, b))

def softmax_of(z, seen):
    """The softmax of the first `seen` numbers of the list z; what is not seen has the probability 0, whatever its
    number. If nothing is seen, all are 0."""
    # GAP 1: e to the power of 1000 is no number of a computer any more. What may you subtract, and from which numbers?
    # return a list as long as z
    ### BEGIN SOLUTION
    powers = [math.exp(value - max(z[:seen])) for value in z[:seen]]
    return [power / sum(powers) for power in powers] + [0] * (len(z) - seen)
    ### END SOLUTION

# %% check 1
def near(a, b):
    """Of two matrices."""
    return len(a) == len(b) and all(len(c) == len(d) and all(abs(x - y) <= 1e-9 * (1 + abs(y)) for x, y in zip(c, d))
                                    for c, d in zip(a, b))

for what, z, seen, expected in [
        ("ln 1, ln 2, ln 4", [0, math.log(2), math.log(4)], 3, [1 / 7, 2 / 7, 4 / 7]),
        ("the same, of which only two are seen", [0, math.log(2), math.log(4)], 2, [1 / 3, 2 / 3, 0]),
        ("1000 and 1000: exp(1000) is too large", [1000, 1000], 2, [0.5, 0.5]),
        ("-1000 and -1000: both powers are 0, and nothing may be divided by 0", [-1000, -1000], 2, [0.5, 0.5]),
        ("a hidden 2000: what is hidden must not matter, also not as the largest", [0, 0, 2000], 2, [0.5, 0.5, 0]),
        ("nothing is seen: zeros", [1, 2], 0, [0, 0])]:
    yours = softmax_of(z, seen)
    assert near([yours], [expected]), f"{what}: expected {expected}, yours {yours}"

# %% gap 2
def attend(q, k, v, causal):
    """Attention of one head: q (L, E), k (S, E), v (S, Ev). The products are scaled by 1 / sqrt(E). `causal`: query i
    sees the keys 0 to i alone. Returns p (L, S) and y (L, Ev)."""
    p, y = [], []
    # GAP 2: a row of p and a row of y for each query, with gap 1. Then: return p, y
    ### BEGIN SOLUTION
    for i, query in enumerate(q):
        z = [dot(query, key) / math.sqrt(len(query)) for key in k]
        p.append(softmax_of(z, min(i + 1, len(k)) if causal else len(k)))
        y.append([dot(p[i], column) for column in zip(*v)])
    return p, y
    ### END SOLUTION

# %% check 2
def head(queries, keys):
    """More keys than queries, or fewer, and E is not Ev."""
    norma.manual_seed(7)
    return [norma.randn([1, 1, *sizes], dtype=norma.float64, requires_grad=True)
            for sizes in [(queries, 4), (keys, 4), (keys, 2)]]

def shown(matrix):
    return [[round(value, 4) for value in row] for row in matrix]

def lists(tensors):
    return [x.tolist()[0][0] for x in tensors]

for queries, keys, causal in [(3, 5, False), (4, 4, True), (3, 5, True), (5, 3, True)]:
    def by_norma(scale, is_causal=causal):
        return lists([norma.scaled_dot_product_attention(*head(queries, keys), scale=scale, is_causal=is_causal)])[0]

    p, y = attend(*lists(head(queries, keys)), causal)
    hint = "compare with the formula"
    for slip, wrong in [("yours are not scaled by 1 / sqrt(E)", by_norma(1)),
                        ("yours are scaled by 1 / E, not by 1 / sqrt(E)", by_norma(0.25)),
                        ("E is the length of a query, not that of a value", by_norma(math.sqrt(0.5))),
                        ("your queries see the keys after them", by_norma(0.5, False))]:
        hint = slip if near(y, wrong) else hint
    if causal and abs(sum(p[0]) - 1) > 1e-9:
        hint = "your probabilities do not add up to 1: hide keys before the softmax, not after it"
    assert near(y, by_norma(0.5)), \
        f"{'causal, ' * causal}{queries} queries and {keys} keys: {hint}. " \
        f"y: expected {shown(by_norma(0.5))}, yours {shown(y)}"
    assert len(p) == queries and all(abs(sum(row) - 1) < 1e-9 for row in p), \
        "y is right, but the rows of p must be the probabilities: they add up to 1"

# %% gap 3
def attend_backward(q, k, v, p, dy):
    """The gradients of q, k and v, each of the sizes of what it belongs to; p is that of attend(), dy (L, Ev) the
    gradient of y."""
    dq, dk, dv = ([[0] * len(row) for row in matrix] for matrix in [q, k, v])
    # GAP 3: the page has the gradient of a softmax. Where do q, k and v stand in the sums of the way forward? And does
    # the mask need a line of its own here? Then: return dq, dk, dv
    ### BEGIN SOLUTION
    scale = 1 / math.sqrt(len(q[0]))
    for i in range(len(q)):
        dp = [dot(dy[i], value) for value in v]
        for j in range(len(k)):
            dz = p[i][j] * (dp[j] - dot(p[i], dp))
            for e in range(len(v[j])):
                dv[j][e] += p[i][j] * dy[i][e]
            for e in range(len(q[i])):
                dq[i][e] += dz * scale * k[j][e]
                dk[j][e] += dz * scale * q[i][e]
    return dq, dk, dv
    ### END SOLUTION

# %% check 3
for causal in [False, True]:
    inputs = head(3, 5)
    dy = random([1, 1, 3, 2], 8)
    norma.scaled_dot_product_attention(*inputs, is_causal=causal).backward(dy)
    expected = lists([x.grad for x in inputs])
    p, y = attend(*lists(inputs), causal)
    yours = attend_backward(*lists(inputs), p, lists([dy])[0])
    hints = ["is it scaled by 1 / sqrt(E), and is the mean that is subtracted from dp weighted with p?",
             "k[j] stands in z[i][j] for every query i: add up over the queries.",
             "v[j] stands in y[i] with the factor p[i][j], for every query i."]
    for i in [2, 0, 1]:
        assert near(yours[i], expected[i]), \
            f"{'causal, ' * causal}d{'qkv'[i]}: {hints[i]} Expected {shown(expected[i])}, yours {shown(yours[i])}"
