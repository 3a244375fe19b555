"""Lesson 5 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import math

def mean_of(x):
    return sum(x) / len(x)

def var_of(x):
    """The mean of the squares of x - mean."""
    mean = mean_of(x)
    return mean_of([(value - mean) ** 2 for value in x])

def normalized(x, eps):
    mean = mean_of(x)
    rstd = 1 / math.sqrt(var_of(x) + eps)
    return [(value - mean) * rstd for value in x]

def show(name, numbers):
    print(f"{name:<7}" + "".join(f" {value:7.3f}" for value in numbers))

x = [1, 3, 4, 5, 7]
show("x", x)
show("mean", [mean_of(x)])
show("var", [var_of(x)])
show("rstd", [1 / math.sqrt(var_of(x))])
show("xhat", normalized(x, 0))

# %% text
weight = [2, 2, 2, 1, 1]
bias = [10, 10, 10, 0, 0]
show("weight", weight)
show("bias", bias)
show("y", [xhat * w + b for xhat, w, b in zip(normalized(x, 0), weight, bias)])

# %% text
root = math.sqrt(mean_of([value ** 2 for value in x]))
rms = [value / root for value in x]
show("RMS", rms)
print(f"mean of RMS norm's output: {mean_of(rms):.3f}, mean square: {mean_of([value ** 2 for value in rms]):.3f}")

# %% text
import norma

def norma_xhat(x, eps):
    """Python's own numbers raise an error for 0 / 0; tensors give what the processor gives, "not a number"."""
    x = norma.tensor(x, dtype=norma.float64)
    centred = x - x.mean()
    return (centred / ((centred * centred).mean() + eps).sqrt()).tolist()

without_eps = norma_xhat([2, 2, 2], 0)[0]
print(f"all elements 2, eps 0:    xhat is {'not a number' if math.isnan(without_eps) else without_eps}")
print(f"all elements 2, eps 1e-5: xhat is {norma_xhat([2, 2, 2], 1e-5)[0]:g}")

# %% text
print(f"var 1e-6, eps 1e-5 inside the root:  rstd {1 / math.sqrt(1e-6 + 1e-5):.1f}")
print(f"var 1e-6, eps 1e-5 outside the root: rstd {1 / (math.sqrt(1e-6) + 1e-5):.1f}")

# %% text
def deviation(tensor):
    return math.sqrt(var_of(tensor.detach().reshape([64]).tolist()))

def drift(scale, with_norm):
    """64 numbers go through 20 layers of random weights, and a gradient comes back."""
    norma.manual_seed(1)
    first = norma.randn([1, 64], dtype=norma.float64)
    first.requires_grad = True
    y, line = first, f"{f'{scale:g}, ' + ('a norm' if with_norm else 'no norm'):<15} deviation after layer"
    for layer in range(1, 21):
        y = y @ (scale * norma.randn([64, 64], dtype=norma.float64))
        if with_norm:
            y = norma.layer_norm(y, [64])
        if layer % 10 == 0:
            line += f" {layer}: {deviation(y):.1f},"
    dy = norma.randn([1, 64], dtype=norma.float64)
    (y * dy).sum().backward()
    print(line + f" gradient: {deviation(first.grad) / deviation(dy):.1f} times")

for scale in [0.2, 0.125]:
    for with_norm in [False, True]:
        drift(scale, with_norm)

# %% text
norma.manual_seed(1)
pixels = norma.randn([3000, 784])
answers = norma.argmax(pixels @ norma.randn([784, 10]), 1)  # of made-up images

def start():
    """The weights of milestone 1's network."""
    norma.manual_seed(1)
    weights = [norma.randn([n, m]) * math.sqrt(2 / n) for n, m in [(784, 128), (128, 64), (64, 10)]]
    for w in weights:
        w.requires_grad = True
    return weights

def scores(weights, inputs, with_norm):
    for w in weights[:-1]:
        inputs = inputs @ w
        inputs = norma.relu(norma.layer_norm(inputs, [w.shape[1]]) if with_norm else inputs)
    return inputs @ weights[-1]

for with_norm in [False, True]:
    size = [(scores([w.detach() * factor] + rest, pixels, with_norm) ** 2).mean().item()
            for w, *rest in [start()] for factor in [1, 10]]
    print(f"{'with' if with_norm else 'without':<7} norm: the first weights times 10 change the mean square of the "
          f"scores by a factor of {size[1] / size[0]:.1f}")

# %% text
def trained(rate, with_norm):
    weights = start()
    for step in range(120):
        at = step % 50 * 50
        loss = norma.cross_entropy(scores(weights, pixels[at:at + 50], with_norm), answers[at:at + 50])
        loss.backward()
        weights = [(w - rate * w.grad).detach() for w in weights]
        for w in weights:
            w.requires_grad = True
    right = norma.argmax(scores(weights, pixels[2500:], with_norm), 1).tolist()
    return 100 * mean_of([float(a == b) for a, b in zip(right, answers[2500:].tolist())])

for rate in [0.01, 0.1, 1, 3]:
    print(f"rate {rate:4g}, measured: without {trained(rate, False):4.1f} % with a norm {trained(rate, True):4.1f} %")

# %% prose
# Here is milestone 1's network of 784, 128, 64 and 10 numbers,
# ->
# Here is milestone 1's network of 784, 128, 64 and 10 numbers on made-up images (the numbers shown are those of Fashion-MNIST),

# %% text
def sets_of(name, sizes, set_of):
    """How many sets there are, and of how many elements; set_of(n, c, h, w) tells sets apart."""
    N, C, H, W = sizes
    sets = {}
    for n in range(N):
        for c in range(C):
            for h in range(H):
                for w in range(W):
                    sets.setdefault(set_of(n, c, h, w), []).append((n, c, h, w))
    lengths = {len(elements) for elements in sets.values()}
    print(f"{name:<20} {len(sets):2} sets of {lengths.pop():2}")

sizes = (2, 4, 3, 5)
sets_of("batch norm", sizes, lambda n, c, h, w: c)
sets_of("instance norm", sizes, lambda n, c, h, w: (n, c))
sets_of("group norm, 2 groups", sizes, lambda n, c, h, w: (n, c // 2))
sets_of("layer norm", sizes, lambda n, c, h, w: n)
sets_of("layer norm 2d", sizes, lambda n, c, h, w: (n, h, w))

# %% text
def tensor(numbers):
    return norma.tensor(numbers, dtype=norma.float64)

show("Norma", norma.layer_norm(tensor(x), [5], tensor(weight), tensor(bias), eps=0).tolist())

# %% prose
# Fill three gaps in `exercise.cpp`:
# ->
# Fill three gaps below. The cell after each gap says whether it is right:

# %% gap 1
def statistics_of(x, eps):
    """Mean, variance and rstd of a list of numbers."""
    # GAP 1: the mean first, since the variance needs it. return mean, var, rstd
    ### BEGIN SOLUTION
    mean = sum(x) / len(x)
    var = sum((value - mean) ** 2 for value in x) / len(x)
    return mean, var, 1 / math.sqrt(var + eps)
    ### END SOLUTION

# %% check 1
def check_near(what, yours, expected):
    assert abs(yours - expected) <= 1e-9 * (1 + abs(expected)), f"{what}: expected {expected:.6g}, yours {yours:.6g}"

mean, var, rstd = statistics_of([1, 3, 4, 5, 7], 0)
check_near("1 3 4 5 7, the mean", mean, 4)
check_near("1 3 4 5 7, the variance. The squares add up to 20: divide by 5, not by 4", var, 4)
check_near("1 3 4 5 7, rstd with eps 0", rstd, 0.5)
check_near("1 3 4 5 7, rstd with eps 5: 1 / sqrt(4 + 5). Is eps inside the root?",
           statistics_of([1, 3, 4, 5, 7], 5)[2], 1 / 3)
check_near("2 2 2, rstd with eps 0.25: the variance is 0", statistics_of([2, 2, 2], 0.25)[2], 2)

# %% gap 2
def layer_norm_of(x, weight, bias, eps):
    """The layer norm of one row: y[i] = (x[i] - mean) * rstd * weight[i] + bias[i]. All have the same length."""
    # GAP 2: all elements share one mean, and each has its own weight.
    ### BEGIN SOLUTION
    mean, _, rstd = statistics_of(x, eps)
    return [(value - mean) * rstd * w + b for value, w, b in zip(x, weight, bias)]
    ### END SOLUTION

# %% check 2
def some(count, middle):
    """Numbers that are not special, about `middle`."""
    norma.manual_seed(7)
    return (norma.randn([count], dtype=norma.float64) + middle).tolist()

def check_all(what, yours, expected):
    assert len(yours) == len(expected), f"{what}: expected {len(expected)} numbers, yours {len(yours)}"
    for i in range(len(yours)):
        check_near(f"{what}, element {i}", yours[i], expected[i])

check_all("the page's row with eps 0", layer_norm_of(x, weight, bias, 0), [7, 9, 10, 0.5, 1.5])
row, row_weight, row_bias = some(7, 3), some(7, 1), some(7, -1)
check_all("7 random numbers with eps 0.1, beside Norma's layer_norm", layer_norm_of(row, row_weight, row_bias, 0.1),
          norma.layer_norm(tensor(row), [7], tensor(row_weight), tensor(row_bias), eps=0.1).tolist())

# %% gap 3
def group_norm_of(x, sizes, groups, weight, bias, eps):
    """Group norm of the elements of a batch of images, a list in the order of memory; sizes is (n, c, h, w). weight and
    bias have an element for each channel. Returns such a list."""
    n, c, h, w = sizes
    count = c // groups * h * w  # elements that share a mean: one run of memory
    # GAP 3: the runs lie one after the other, first the groups of image 0, then those of image 1. x[a:b] is a run.
    ### BEGIN SOLUTION
    y = []
    for run in range(n * groups):
        elements = x[run * count:(run + 1) * count]
        mean, _, rstd = statistics_of(elements, eps)
        for i, value in enumerate(elements):
            channel = run % groups * (c // groups) + i // (h * w)
            y.append((value - mean) * rstd * weight[channel] + bias[channel])
    return y
    ### END SOLUTION

# %% check 3
images = some(2 * 6 * 3 * 4, 2)
for groups in [1, 2, 3, 6]:
    for w, b, what in [([1] * 6, [0] * 6, "weight 1 and bias 0"),
                       (some(6, 1), some(6, -1), "a weight for each channel. Element i is of channel i // 12 % 6")]:
        expected = norma.group_norm(tensor(images).reshape([2, 6, 3, 4]), groups, tensor(w), tensor(b), eps=1e-5)
        check_all(f"sizes (2, 6, 3, 4), {groups} groups, {what}",
                  group_norm_of(images, (2, 6, 3, 4), groups, w, b, 1e-5), expected.reshape([144]).tolist())
