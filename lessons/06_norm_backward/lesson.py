"""Lesson 6 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import norma

def row(numbers):
    return norma.tensor([numbers], dtype=norma.float64)

class Forward:
    """What the forward pass makes of rows x (rows, n): mean, var, rstd (rows, 1), and xhat (rows, n)."""

    def __init__(self, x, eps):
        self.mean = x.mean([1], keepdim=True)
        centred = x - self.mean
        self.var = (centred * centred).mean([1], keepdim=True)
        self.rstd = (self.var + eps).rsqrt()
        self.xhat = centred * self.rstd

def show(name, numbers):
    numbers = numbers.reshape([numbers.numel()]).tolist()
    print(f"{name:<7}" + "".join(f" {value + 0.0:7.3f}" for value in numbers))  # + 0.0: no -0

x = row([1, 3, 4, 5, 7])
forward = Forward(x, eps=0)
show("x", x)
show("mean", forward.mean)
show("var", forward.var)
show("rstd", forward.rstd)
show("xhat", forward.xhat)

# %% text
weight = row([2, 1, 3, 1, 2])
dy = row([1, 2, 0, -1, 1])
g = dy * weight
show("weight", weight)
show("dy", dy)
show("g", g)

# %% text
def terms_of(forward, g):
    """The three terms of dx, (rows, n) each. g = dy * weight, (rows, n)."""
    return {"own": forward.rstd * g,
            "mean": -forward.rstd * g.mean([1], keepdim=True) * norma.ones_like(g),
            "spread": -forward.rstd * forward.xhat * (g * forward.xhat).mean([1], keepdim=True)}

terms = terms_of(forward, g)
print(f"mean(g) = {g.mean().item():.3f}, sum(g * xhat) = {(g * forward.xhat).sum().item():.3f}")
for name, numbers in terms.items():
    show(name, numbers)
show("dx", terms["own"] + terms["mean"] + terms["spread"])

leaf = x.detach().requires_grad_()
norma.layer_norm(leaf, [5], weight.reshape([5]), eps=0).backward(dy)
show("Norma", leaf.grad)

# %% prose
# The last line is what `normalize_backward` of Norma gives.
# ->
# The last line is the gradient of Norma's `layer_norm`.

# %% prose
# "Worst error" is the largest distance that `gradcheck` finds between a gradient and its central difference:
# ->
# "Worst error" is the largest distance that `gradcheck` finds between a gradient and its central difference.
#
# The cell must give Norma's tape a wrong gradient. It takes a function whose slopes are the chosen terms: `terms_of`
# with `x` in the place of `g`, and all else held fixed. (Each term is a table of factors times `g`. The table is the
# same when you exchange its rows and columns, so the way back through it is the way there.)

# %% text
def norm(x, left_out):
    """xhat of rows x, with a backward pass that may leave one term out."""
    forward = Forward(x.detach(), 1e-5)  # off the tape
    slopes = 0 * x
    for name, term in terms_of(forward, x).items():
        if name != left_out:
            slopes = slopes + term
    return forward.xhat + (slopes - slopes.detach())  # the values of xhat, and these slopes

def worst_error(left_out, x):
    """What gradcheck says, and the largest distance that it finds."""
    function = lambda x: norm(x, left_out)
    try:
        norma.gradcheck(function, [x])
        found = "passed"
    except norma.Error:
        found = "failed"
    return found, norma.gradcheck(function, [x], atol=1e6)  # allows all, and returns the largest distance

def train(left_out, steps=200):
    norma.manual_seed(6)
    x = norma.randn([4, 8], dtype=norma.float64)
    target = 2 * norma.randn([4, 8], dtype=norma.float64) + 1
    found, worst = worst_error(left_out, x.detach().requires_grad_())
    for step in range(steps + 1):
        now = Forward(x, 0)
        leaf = x.detach().requires_grad_()
        miss = norm(leaf, left_out) - target
        loss = (miss * miss).mean()
        loss.backward()
        x = x - leaf.grad
    print(f"{left_out:<10} {found:<9} {worst:12.6f} {loss.item():7.3f} {now.mean.mean().item():10.2f} "
          f"{(1 / now.rstd).mean().item():14.2f}")

print("left out   gradcheck  worst error    loss  mean of x  deviation of x")
for left_out in ["nothing", "own", "mean", "spread"]:
    train(left_out)

# %% prose
# Open `exercise.cpp`. It computes the backward pass of one row. Fill three gaps:
# ->
# The cells below compute the backward pass of one row. Fill three gaps. The cell after each says whether it is right:

# %% prose
# The tests use the row of this page, the central differences of lesson 4, and Norma's own norm. When your `dx` is the
# formula with one term left out, the test says which.
# ->
# The checks use the row of this page and Norma's tape. When your `dx` is the formula with one term left out, the
# check says which.

# %% gap 1
class Row:
    """A row of a norm: lists x, weight and dy of n numbers, and mean and rstd of the forward pass. The variance was
    var = sum((x - mean)²) / (n - correction)."""

    def __init__(self, x, weight, dy, mean, rstd, correction=0):
        self.x, self.weight, self.dy = x, weight, dy
        self.mean, self.rstd, self.correction = mean, rstd, correction
        self.n = len(x)

def sums_of(row):
    """sum(g) and sum(g * xhat), with g = dy * weight and xhat = (x - mean) * rstd."""
    # GAP 1: both sums. return sum_g, sum_g_xhat
    ### BEGIN SOLUTION
    sum_g = sum_g_xhat = 0
    for x, weight, dy in zip(row.x, row.weight, row.dy):
        sum_g += dy * weight
        sum_g_xhat += dy * weight * (x - row.mean) * row.rstd
    return sum_g, sum_g_xhat
    ### END SOLUTION

# %% check 1
def near(a, b):
    return abs(a - b) <= 1e-9 * (1 + abs(b))

page_row = Row([1, 3, 4, 5, 7], [2, 1, 3, 1, 2], [1, 2, 0, -1, 1], mean=4, rstd=0.5)
sum_g, sum_g_xhat = sums_of(page_row)
assert near(sum_g, 5), f"sum(g) of the page's row is 2 + 2 + 0 - 1 + 2 = 5, yours {sum_g}. g is dy * weight"
assert near(sum_g_xhat, -1.5), f"sum(g * xhat) of the page's row is -1.5, yours {sum_g_xhat}. xhat is (x - mean) * rstd"

# %% gap 2
def gradient_of_x(row, sum_g, sum_g_xhat):
    """dx, a list: the gradient of x, by the last formula of "Backward" on this page."""
    # GAP 2: with n - correction in the third term.
    ### BEGIN SOLUTION
    dx = []
    for x, weight, dy in zip(row.x, row.weight, row.dy):
        xhat = (x - row.mean) * row.rstd
        dx.append(row.rstd * (dy * weight - sum_g / row.n - xhat * sum_g_xhat / (row.n - row.correction)))
    return dx
    ### END SOLUTION

# %% check 2
def likely_slip(row, dx, sum_g, sum_g_xhat):
    """Says which slip gives this dx, if it is one that many people make."""
    spread = sum_g_xhat / (row.n - row.correction)
    mean_g = sum_g / row.n
    slips = {
        "without the mean term, - mean(g)": lambda g, xhat: row.rstd * (g - xhat * spread),
        "without the spread term, - xhat * sum(g * xhat) / n": lambda g, xhat: row.rstd * (g - mean_g),
        "without its first term, g": lambda g, xhat: row.rstd * (-mean_g - xhat * spread),
        "without the factor rstd in front of the bracket": lambda g, xhat: g - mean_g - xhat * spread,
        "with sums in the place of means": lambda g, xhat: row.rstd * (g - sum_g - xhat * sum_g_xhat)}
    for what, formula in slips.items():
        if all(near(dx[i], formula(row.dy[i] * row.weight[i], (row.x[i] - row.mean) * row.rstd)) for i in range(row.n)):
            return f"your dx is the formula {what}"
    return "compare the three terms for one element with the table of the page"

def check_dx(row, expected):
    sum_g, sum_g_xhat = sums_of(row)
    dx = gradient_of_x(row, sum_g, sum_g_xhat)
    assert len(dx) == row.n, f"dx must have as many elements as x: expected {row.n}, yours {len(dx)}"
    assert all(near(a, b) for a, b in zip(dx, expected)), \
        f"expected {expected}, yours {dx}. Likely: {likely_slip(row, dx, sum_g, sum_g_xhat)}"

check_dx(page_row, [0.275, 0.425, -0.5, -0.925, 0.725])

# What Norma's tape finds for a norm made of plain ops.
def by_norma(x, weight, dy, correction):
    centred = x - x.mean()
    y = centred / ((centred * centred).sum() / (x.numel() - correction) + 1e-3).sqrt() * weight
    return norma.grad(y, [x, weight], dy)

norma.manual_seed(7)
x, weight, dy = (norma.randn([6], dtype=norma.float64) for _ in range(3))
x.requires_grad = weight.requires_grad = True
for correction in [0, 1]:
    mean = x.mean().item()
    var = sum((value - mean) ** 2 for value in x.tolist()) / (6 - correction)
    random_row = Row(x.tolist(), weight.tolist(), dy.tolist(), mean, (var + 1e-3) ** -0.5, correction)
    check_dx(random_row, by_norma(x, weight, dy, correction)[0].tolist())

# %% gap 3
def add_parameter_gradients(row, dweight, dbias):
    """Adds this row's part to the lists dweight and dbias. All rows share one weight and one bias."""
    # GAP 3: the gradients of the parameters on this page, "Through (6)".
    ### BEGIN SOLUTION
    for i in range(row.n):
        dweight[i] += row.dy[i] * (row.x[i] - row.mean) * row.rstd
        dbias[i] += row.dy[i]
    ### END SOLUTION

# %% check 3
dweight, dbias = [0] * 5, [0] * 5
for times in [1, 2]:
    add_parameter_gradients(page_row, dweight, dbias)
    expected = [times * value for value in [-1.5, -1, 0, -0.5, 1.5]]
    assert all(near(a, b) for a, b in zip(dweight, expected)), \
        f"dweight after {times} rows: expected {expected}, yours {dweight}"
    expected = [times * value for value in page_row.dy]
    assert all(near(a, b) for a, b in zip(dbias, expected)), \
        f"dbias after {times} rows: expected {expected}, yours {dbias}"
dweight, dbias = [0] * 6, [0] * 6
add_parameter_gradients(random_row, dweight, dbias)
expected = by_norma(x, weight, dy, 1)[1].tolist()
assert all(near(a, b) for a, b in zip(dweight, expected)), f"dweight beside Norma's tape: {expected}, yours {dweight}"
