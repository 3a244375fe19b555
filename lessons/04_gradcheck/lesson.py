"""Lesson 4 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% note
# The page has C++'s names of floating numbers. `double` is Norma's `float64` and Python's own `float`, and `float` is
# Norma's `float32`.

# %% text
for x in [1, 2]:
    difference = ((x + 1e-4) ** 3 - (x - 1e-4) ** 3) / 2e-4
    print(f"x = {x}: 3 x is {3 * x:g}, 3 x * x is {3 * x * x:g}, and the difference says {difference:.4f}")

# %% text
import norma

def f(x):
    """x³ / (1 + x²), for a number or a tensor."""
    return x * x * x / (1 + x * x)

def slope_of_f(x):
    """By the rule for quotients."""
    below = 1 + x * x
    return (3 * x * x * below - x * x * x * 2 * x) / (below * below)

def one_sided(x, h):
    return (f(x + h) - f(x)) / h

def central(x, h):
    return (f(x + h) - f(x - h)) / (2 * h)

def in_float(x):
    return norma.tensor(x, dtype=norma.float32)

right = slope_of_f(0.75)
print(f"the slope of f at 0.75 is {right:.6f}\n")
print("step   one-sided  central  in float")
h = 1
for digits in range(1, 14):
    h /= 10
    line = f"{h:.0e}  {abs(one_sided(0.75, h) - right):9.0e}  {abs(central(0.75, h) - right):7.0e}"
    if digits <= 6:
        line += f"  {abs(central(in_float(0.75), in_float(h)).item() - right):8.0e}"
    print(line)

# %% prose
# In C++, each comparison with NaN is false.
# ->
# Each comparison with NaN is false.

# %% text
def float64(values):
    return norma.tensor(values, dtype=norma.float64, requires_grad=True)

def with_slopes_of(y, other):
    """A tensor with the values of y and, for backward, the slopes of another: what a wrong gradient looks like."""
    return y.detach() + (other - other.detach())

def report(name, function, *inputs):
    try:
        norma.gradcheck(function, list(inputs))
        print(f"{name}: passed")
    except norma.Error as error:
        print(f"{name}: FAILED\n  {str(error).removeprefix('gradcheck: ')}")

def wrong_centred(x):
    """x - mean(x), with a gradient that is twice too large."""
    centred = x - x.mean()
    return with_slopes_of(centred, 2 * centred)

x = float64([1, 5, 9])
print(f"x - mean(x) = {wrong_centred(x).detach()}")
report("wrong x - mean(x), outputs added up", lambda x: wrong_centred(x).sum(), x)
report("wrong x - mean(x), each output with a weight", wrong_centred, x)

# %% prose
# The function gets a list of tensors (`Tensors`) and returns one. Here is $x^3$ with the wrong gradient from the
# beginning, and its check at $x = 1$ and $x = 2$ at once:
# ->
# The function gets these tensors and returns one. Here is $x^3$ with the wrong gradient from the beginning. Its slopes
# are those of $1.5 \cdot x^2$:

# %% cpp
def cube(x):
    return x * x * x

def wrong_cube(x):
    """x³, with a gradient that forgets a square: 3 x in the place of 3 x²."""
    return with_slopes_of(cube(x), 1.5 * x * x)

# %% cpp

# %% prose
# `float64` makes a tensor of `double`, `wrong_cube` computes $x^3$ and has the gradient $3x$, and `report` prints:
# ->
# `float64` above makes a tensor of such numbers, and `report` prints what `gradcheck` says:

# %% text
report("cube", cube, float64([1, 2]))
report("wrong cube at 1", wrong_cube, float64([1]))
report("wrong cube at 1 and 2", wrong_cube, float64([1, 2]))

# %% text
def wrong_mean(x):
    """Its gradient is right: it is that of this wrong function."""
    return x.sum() / (x.numel() - 1)

report("a mean that divides by 2 where it should by 3", wrong_mean, float64([1, 5, 9]))
report("relu away from 0", norma.relu, float64([-1, 2]))
report("relu at 0", norma.relu, float64([-1, 0]))

# %% prose
# Fill three gaps in `exercise.cpp`:
# ->
# Fill three gaps below. The cell after each gap says whether it is right:

# %% gap 1
import math

def central_difference(f, x, i, h):
    """The central difference of f at x, a list of numbers, along element number i, with a step of h."""
    # GAP 1: f with x[i] + h in the place of x[i], minus f with x[i] - h there, divided by the distance between the two.
    # The other elements stay. list(x) is a copy, which you may change. Two steps of h lie between the two points.
    ### BEGIN SOLUTION
    above, below = list(x), list(x)
    above[i] += h
    below[i] -= h
    return (f(above) - f(below)) / (2 * h)
    ### END SOLUTION

# %% check 1
def g(x):
    return x[0] * x[0] * x[1] + 3 * x[2]

at = [1.5, -2, 0.25]
slopes = [2 * at[0] * at[1], at[0] * at[0], 3]  # those of g, by hand
for i in range(3):
    yours = central_difference(g, at, i, 1e-6)
    hint = ""
    if abs(yours - slopes[i] / 2) < 1e-4:
        hint = ", which is half of it: is one point x[i] itself?"
    elif abs(yours - slopes[i] * 2) < 1e-4:
        hint = ", which is twice that: the distance is 2 h"
    assert abs(yours - slopes[i]) < 1e-6, \
        f"x0² x1 + 3 x2, along element {i}: expected {slopes[i]:g}, yours {yours:g}{hint}"
assert at == [1.5, -2, 0.25], "your function has changed x: take a copy"
square = central_difference(lambda x: x[0] * x[0], [3], 0, 0.5)
assert abs(square - 6) < 1e-12, f"x² at 3 with a step of 0.5: expected 6, yours {square:g}. Go to both sides"

# %% gap 2
def near_enough(gradient, difference, atol, rtol):
    """True iff a gradient is near enough to a difference. False if one of them is NaN."""
    # GAP 2: the comparison of the page. A comparison with NaN is false: write yours so that this helps.
    ### BEGIN SOLUTION
    return abs(gradient - difference) <= atol + rtol * abs(difference)
    ### END SOLUTION

# %% check 2
for gradient, difference, expected in [(100, 100.5, True), (100, 102, False), (0.0005, 0, True), (0.002, 0, False),
                                       (-3, 3, False), (math.nan, 1, False), (1, math.nan, False)]:
    assert bool(near_enough(gradient, difference, 0.001, 0.01)) == expected, \
        f"gradient {gradient}, difference {difference}, atol 0.001, rtol 0.01: expected {expected}. (NaN: compare by <=)"

# %% gap 3
def wrong_elements(f, x, gradient):
    """The numbers of the elements whose gradient is wrong, from the smallest to the largest; [] if all are right. Takes
    steps of 1e-6, with atol = 1e-6 and rtol = 1e-4."""
    # GAP 3: for each element, compare its gradient with its central difference, and note the number of each that is not
    # near enough.
    ### BEGIN SOLUTION
    return [i for i in range(len(x)) if not near_enough(gradient[i], central_difference(f, x, i, 1e-6), 1e-6, 1e-4)]
    ### END SOLUTION

# %% check 3
for what, gradient, expected in [("a gradient that is right", slopes, []),
                                 ("one wrong element", [slopes[0], slopes[1] * 1.01, slopes[2]], [1]),
                                 ("a wrong sign", [-slopes[0], slopes[1], slopes[2]], [0]),
                                 ("a NaN", [slopes[0], math.nan, slopes[2]], [1]),
                                 ("a gradient that is 0 everywhere", [0, 0, 0], [0, 1, 2])]:
    yours = wrong_elements(g, at, gradient)
    assert yours == expected, f"{what}, {gradient}: wrong are the elements {expected}, yours {yours}"
