"""Lesson 3 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
def f(a, b):
    return (a + b) * a

print(f"f(3, 2) = {f(3, 2):g}")
print(f"a moves by 0.001: f = {f(3.001, 2):g}, slope {(f(3.001, 2) - f(3, 2)) / 0.001:g}")
print(f"b moves by 0.001: f = {f(3, 2.001):g}, slope {(f(3, 2.001) - f(3, 2)) / 0.001:g}")

# %% cpp
class Parent:
    """Where an entry came from, and how steeply it follows."""

    def __init__(self, entry, slope):
        self.entry = entry
        self.slope = slope  # by how much the result moves when this parent moves by 1 (and no other does)

class Entry:
    def __init__(self, name, value, parents):
        self.name = name
        self.value = value
        self.parents = [Parent(entry, slope) for entry, slope in parents]
        self.gradient = 0  # by how much the root moves when this entry moves by 1

class Tape:
    def __init__(self):
        self.entries = []

    def record(self, name, value, parents=()):
        self.entries.append(Entry(name, value, parents))
        return len(self.entries) - 1

# %% cpp
class Number:
    """A number that remembers its place on the tape."""

    def __init__(self, tape, at):
        self.tape = tape
        self.at = at

    @property
    def value(self):
        return self.tape.entries[self.at].value

    @property
    def gradient(self):
        return self.tape.entries[self.at].gradient

    def __add__(a, b):
        return Number(a.tape, a.tape.record("add", a.value + b.value, [(a.at, 1), (b.at, 1)]))

    def __mul__(a, b):
        return Number(a.tape, a.tape.record("mul", a.value * b.value, [(a.at, b.value), (b.at, a.value)]))

def leaf(tape, name, value):
    return Number(tape, tape.record(name, value))

# %% text
tape = Tape()
a = leaf(tape, "a", 3)
b = leaf(tape, "b", 2)
y = (a + b) * a
for i, entry in enumerate(tape.entries):
    print(f"entry {i}: {entry.name:<3} = {entry.value:g}")
    for parent in entry.parents:
        print(f"  from entry {parent.entry}, slope {parent.slope:g}")

# %% text
def walk_back(tape, root, tell=False):
    """From the root back to the first entry: everything that used an entry comes after it on the tape, so its gradient
    is complete when the walk arrives."""
    for entry in tape.entries:
        entry.gradient = 0
    tape.entries[root].gradient = 1
    for i in range(root, -1, -1):
        entry = tape.entries[i]
        for parent in entry.parents:
            part = entry.gradient * parent.slope
            tape.entries[parent.entry].gradient += part
            if tell:
                print(f"entry {i} ({entry.name}) gives entry {parent.entry}: "
                      f"{entry.gradient:g} * {parent.slope:g} = {part:g}")

walk_back(tape, y.at, tell=True)
print(f"gradient of a: {a.gradient:g}, of b: {b.gradient:g}")

# %% text
w = 0
for step in range(5):
    steps = Tape()
    weight = leaf(steps, "w", w)
    error = weight * leaf(steps, "2", 2) + leaf(steps, "-6", -6)
    loss = error * error
    walk_back(steps, loss.at)
    print(f"step {step}: w {w:.4f}, loss {loss.value:7.4f}, gradient {weight.gradient:8.4f}")
    w -= 0.1 * weight.gradient

# %% text
def after_40_steps(optimizer, rate, times):
    w, m, s = [0, 0], [0, 0], [0, 0]
    for step in range(1, 41):
        for i, g in enumerate([times * 2 * (w[0] - 3), times * 50 * (w[1] - 1)]):
            m[i] = {"SGD": 0, "momentum": 0.8, "Adam": 0.9}[optimizer] * m[i] + (0.1 if optimizer == "Adam" else 1) * g
            s[i] = 0.999 * s[i] + 0.001 * g * g
            adam = m[i] / (1 - 0.9 ** step) / ((s[i] / (1 - 0.999 ** step)) ** 0.5 + 1e-8)  # m and s began as 0
            w[i] -= rate * (adam if optimizer == "Adam" else m[i])
    print(f"{optimizer:<9} rate {rate:4g}, loss times {times:3g}: u {w[0]:6.4g}, v {w[1]:10.4g}")

for name, rate, times in [("SGD", .03, 1), ("SGD", .05, 1), ("momentum", .03, 1), ("Adam", .1, 1), ("Adam", .1, 100)]:
    after_40_steps(name, rate, times)

# %% prose
# `scalar` makes a tensor of one number, and `set_requires_grad` says that we want its gradient:
# ->
# `tensor` makes a tensor of a number, and `requires_grad` says that we want its gradient:

# %% cpp
import norma

p = norma.tensor(3.0, requires_grad=True)
q = norma.tensor(2.0, requires_grad=True)
r = (p + q) * p

# %% text
print(f"Norma: {r.item():g}")
print(norma.Tape(r).summary(), end="")
r.backward()
print(f"gradient of p: {p.grad.item():g}, of q: {q.grad.item():g}")
((p + q) * p).backward()
print(f"after a second backward: {p.grad.item():g} and {q.grad.item():g}")

# %% prose
# | our tape | Norma's tape |
# ->
# | our tape | Norma's tape, in C++ |

# %% prose
# | `Parent::entry` |
# ->
# | `Parent.entry` |

# %% prose
# | `Parent::slope` |
# ->
# | `Parent.slope` |

# %% prose
# | `Tape::backward` |
# ->
# | `walk_back` |

# %% prose
# A tensor takes part when you call `set_requires_grad()`.
# ->
# A tensor takes part when its `requires_grad` is true.

# %% prose
# `exercise.h` has the same tape in plain structs. Fill three gaps in `exercise.cpp`:
# ->
# The same tape again. Fill three gaps below. The cell after each gap says whether it is right:

# %% prose
# 3. `backward`: the walk, as in the three steps above. The root need not be the last entry.
# ->
# 3. `backward`: the walk, as in the three steps above. The root need not be the last entry. (`walk_back` of this page
#    does it. Write yours without looking.)

# %% gap 1
import math

def value_of(tape, at):
    return tape.entries[at].value

def divide(tape, a, b):
    """a / b, for the numbers of two entries. Records one entry with two parents, a first, and returns its number."""
    x = value_of(tape, a)
    y = value_of(tape, b)
    # GAP 1: the value is x / y. Find the slopes of a and b; the page has a table of slopes. Then:
    # return tape.record("div", x / y, [(a, slope of a), (b, slope of b)])
    ### BEGIN SOLUTION
    return tape.record("div", x / y, [(a, 1 / y), (b, -x / (y * y))])
    ### END SOLUTION

# %% check 1
def slope_at(f, x, step=1e-5):
    """By how much f moves when x moves by 1, from a step to both sides."""
    return (f(x + step) - f(x - step)) / (2 * step)

def check_near(what, yours, expected):
    assert abs(yours - expected) <= 1e-6 * (1 + abs(expected)), f"{what}: expected {expected:.6g}, yours {yours:.6g}"

for x, y in [(3, 2), (-1, 4), (0.5, -0.25)]:
    tape = Tape()
    quotient = divide(tape, tape.record("x", x), tape.record("y", y))
    slopes = [parent.slope for parent in tape.entries[quotient].parents]
    what = f"a / b at a = {x:g}, b = {y:g}"
    assert len(slopes) == 2, f"{what}: expected two parents, got {len(slopes)}"
    check_near(f"{what}: its value", value_of(tape, quotient), x / y)
    check_near(f"{what}: the slope of a. Move a alone: how does a / b follow?", slopes[0], slope_at(lambda v: v / y, x))
    check_near(f"{what}: the slope of b. Its sign: does a / b grow with b?", slopes[1], slope_at(lambda v: x / v, y))

# %% gap 2
def tanh_of(tape, a):
    """The hyperbolic tangent of an entry. Records one entry with one parent and returns its number."""
    r = math.tanh(value_of(tape, a))
    # GAP 2: record "tanh" with the value r and one slope. It can be computed from r, the result, alone.
    ### BEGIN SOLUTION
    return tape.record("tanh", r, [(a, 1 - r * r)])
    ### END SOLUTION

# %% check 2
for x in [0.0, 0.5, -1.25, 3.0]:
    tape = Tape()
    parents = tape.entries[tanh_of(tape, tape.record("x", x))].parents
    assert len(parents) == 1, f"tanh at {x:g}: expected one parent, got {len(parents)}"
    check_near(f"tanh at {x:g}: the slope. It is 1 less the square of the result, not of the input", parents[0].slope,
               slope_at(math.tanh, x))

# %% gap 3
def backward(tape, root):
    """Fills in the gradient of every entry: by how much the entry `root` moves when that entry moves by 1."""
    # GAP 3: set all gradients to 0, and that of the root to 1. Then walk from the root back to entry 0. Each entry
    # gives each of its parents its own gradient times the slope. A parent may get several gifts: it adds them up.
    ### BEGIN SOLUTION
    for entry in tape.entries:
        entry.gradient = 0
    tape.entries[root].gradient = 1
    for entry in reversed(tape.entries[:root + 1]):
        for parent in entry.parents:
            tape.entries[parent.entry].gradient += entry.gradient * parent.slope
    ### END SOLUTION

# %% check 3
def gradients(tape, root):
    backward(tape, root)
    return [entry.gradient for entry in tape.entries]

tape = Tape()
first = tape.record("a", 1)
second = tape.record("b", 10, [(first, 2)])
third = tape.record("c", 100, [(second, 3)])
assert gradients(tape, third) == [6, 3, 1], "c is made from b with slope 3, b from a with slope 2: 3 * 2, 1 * 3, 1"

tape = Tape()
a = tape.record("a", 3)
b = tape.record("b", 2)
total = tape.record("sum", 5, [(a, 1), (b, 1)])
product = tape.record("product", 15, [(total, 3), (a, 5)])
assert gradients(tape, product) == [8, 3, 3, 1], "a gets 5 from the product and 3 from the sum. Do you add them up?"

tape = Tape()
a = tape.record("a", 1)
b = tape.record("b", 1, [(a, 4)])
later = tape.record("c", 1, [(a, 100), (b, 100)])
backward(tape, later)
assert gradients(tape, b) == [4, 1, 0], "a second walk, whose root is not the last entry. Do you set all to 0 first?"
