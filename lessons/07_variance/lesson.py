"""Lesson 7 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import math

def four_digits(x):
    """x rounded to 4 decimal digits, as by a calculator that has no more."""
    unit = 10 ** (math.floor(math.log10(abs(x))) - 3) if x else 1
    return round(x / unit) * unit

squares = [four_digits(x * x) for x in [1001, 1002, 1003]]
mean_of_squares = four_digits(sum(squares) / 3)
square_of_mean = four_digits(1002 * 1002)
print(f"with 4 digits: E[x²] = ({' + '.join(str(square) for square in squares)}) / 3 = {mean_of_squares}, "
      f"E[x]² = {square_of_mean}, difference {four_digits(mean_of_squares - square_of_mean)}")

# %% prose
# A `float` (also called float32) keeps 24 binary digits, which is about 7 decimal ones.
# ->
# A `float` of C++, which is Norma's `float32`, keeps 24 binary digits, which is about 7 decimal ones. (Python's own
# numbers keep 53. So the cell rounds to float32 after each operation.)

# %% text
import ctypes

import norma

def numbers_around(offset, count=4096):
    """Floats around `offset`, between 2 below and 2 above: their variance is about 4 / 3."""
    norma.manual_seed(7)
    uniform = norma.rand([2 * count], dtype=norma.float64)[::2]  # every second one: these are the page's numbers
    return (offset + 4 * uniform - 2).to(norma.float32)

def in_float(x):
    return ctypes.c_float(x).value

def textbook_variance(x):
    """E[x²] - E[x]², all in float."""
    total = total_of_squares = 0
    for element in x.tolist():
        total = in_float(total + element)
        total_of_squares = in_float(total_of_squares + in_float(element * element))
    mean = in_float(total / x.numel())
    return in_float(in_float(total_of_squares / x.numel()) - in_float(mean * mean))

def true_mean(x):
    return math.fsum(x.tolist()) / x.numel()

def true_variance(x):
    mean = true_mean(x)
    return math.fsum((element - mean) ** 2 for element in x.tolist()) / x.numel()

print("mean     variance  E[x²] - E[x]² in float    m² · 2^-24")
for offset in [0, 10, 100, 1000, 10000, 100000]:
    x = numbers_around(offset)
    print(f"{offset:<7} {true_variance(x):9.4f} {textbook_variance(x):23.4f} {offset * offset * 2 ** -24:13.4f}")

# %% prose
# The program computes
# the variance of the same rows with each, and compares with the plain reference in the widest floating type.
# ->
# The cell computes
# the variance of the same rows with each, and compares with sums that are exact.

# %% text
def bound_of(error):
    """"1e-05": a power of ten that the error is below."""
    return f"{10.0 ** math.ceil(math.log10(abs(error))):.0e}" if error else "0"

def variance_by(statistics, x):
    """Batch norm of one channel leaves its variance behind, divided by n - 1."""
    mean, variance = norma.zeros([1]), norma.zeros([1])
    norma.batch_norm(x.view(1, 1, 1, x.numel()), mean, variance, training=True, momentum=1, statistics=statistics)
    return variance.item() * (x.numel() - 1) / x.numel()

def worst_output(statistics, x):
    """The largest error of layer norm's output."""
    mean, root = true_mean(x), math.sqrt(true_variance(x) + 1e-5)
    right = norma.tensor([(element - mean) / root for element in x.tolist()], dtype=norma.float64)
    y = norma.layer_norm(x, x.shape, eps=1e-5, statistics=statistics)
    return (y.to(norma.float64) - right).abs().max().item()

print(f"{'':15}  relative error of the variance        error of")
print(f"{'':15}  mean 0  mean 100  mean 1e4  mean 1e6   output")
for statistics in ["stable", "welford", "two_pass", "compensated", "sum_of_squares"]:
    line = f"{statistics:<15}"
    for offset in [0, 1e2, 1e4, 1e6]:
        x = numbers_around(offset)
        line += f" {bound_of(variance_by(statistics, x) / true_variance(x) - 1):>{7 if offset == 0 else 9}}"
    print(f"{line} {bound_of(worst_output(statistics, numbers_around(1e4))):>8}")

# %% prose
# `audit` does the same for every norm and every dtype, on more kinds of rows. For one norm and two dtypes:
# ->
# `audit` does the same for every norm and every dtype, on more kinds of rows. For one norm and two dtypes, in a shell:

# %% prose
# ./run audit --quick
# ->
# norma audit --quick

# %% text
def sum_of_ones(dtype, count):
    """How far a sum comes by adding 1, `count` times."""
    total = norma.tensor(0.0, dtype=dtype)
    for i in range(count):
        total = total + 1
    return total.item()

def next_bfloat16(value):
    """The smallest step that is not rounded away leads to it."""
    after = lambda step: norma.tensor(value + step, dtype=norma.bfloat16).item()
    step = value
    while after(step / 2) != value:
        step /= 2
    return after(step)

names = {"bfloat16": norma.bfloat16, "float16": norma.float16, "float32": norma.float32}
print("adding 1, 3000 times: " + ", ".join(f"{name} {sum_of_ones(dtype, 3000):g}" for name, dtype in names.items()))

# %% text
for value in [1, 100, 1000]:
    print(f"after {value} the next bfloat16 is {next_bfloat16(value):.10g}")

# %% prose
# Open `exercise.cpp`. Fill three gaps; each is a function template, for float and double:
# ->
# Fill three gaps below. The cell after each gap says whether it is right. Your functions get Python's numbers, and then
# float32 tensors of one number, with which you compute in the same way:

# %% prose
# A part may have no elements, and 0 / 0 is NaN.
# ->
# A part may have no elements, and 0 / 0 is an error.

# %% gap 1
class Moments:
    """What is known of some elements: how many there are, their mean, and the sum of their squared distances from it.
    The variance is m2 / count."""

    def __init__(self, count=0, mean=0, m2=0):
        self.count, self.mean, self.m2 = count, mean, m2

def two_passes(x):
    """The moments of a list."""
    # GAP 1: one loop for the mean, a second one for the sum of (element - mean)². Then: return Moments(count, mean, m2)
    ### BEGIN SOLUTION
    mean = sum(x) / len(x)
    return Moments(len(x), mean, sum((element - mean) * (element - mean) for element in x))
    ### END SOLUTION

# %% check 1
def check_moments(what, yours, count, mean, m2):
    assert yours.count == count, f"{what}: expected count {count}, yours is {yours.count}"
    assert abs(yours.mean - mean) < 1e-12, f"{what}: expected mean {mean}, yours is {yours.mean}"
    hint = ". You have divided it by the count" if m2 and abs(yours.m2 * count - m2) < 1e-12 else ""
    assert abs(yours.m2 - m2) < 1e-12, f"{what}: expected m2 {m2}, yours is {yours.m2}{hint}"

def check_far_from_zero(most, offsets, moments_of):
    """Checks moments in float; `most` is the relative error that is allowed."""
    for offset in offsets:
        x = numbers_around(offset, 1024)
        moments = moments_of(list(x))
        right, yours = true_variance(x), float(moments.m2) / float(moments.count)
        assert abs(yours - right) <= most * right, \
            f"1024 floats around {offset:g}: their variance is {right}, yours is {yours}. " + \
            ("Do you subtract two large numbers, such as squares?" if offset else "Here no digits get lost.")

page_row = [1, 3, 4, 5, 7]  # of lesson 6
check_moments("1, 3, 4, 5, 7", two_passes(page_row), 5, 4, 20)
check_far_from_zero(1e-3, [0, 1e3, 1e4], two_passes)

# %% gap 2
def take_in(so_far, x):
    """Welford's way: takes one more element into the moments so far, and returns nothing."""
    # GAP 2: Welford's way. In which order must the three numbers change?
    ### BEGIN SOLUTION
    so_far.count += 1
    before = x - so_far.mean
    so_far.mean = so_far.mean + before / so_far.count
    after = x - so_far.mean
    so_far.m2 = so_far.m2 + before * after
    ### END SOLUTION

# %% check 2
def by_welford(x):
    moments = Moments()
    for element in x:
        take_in(moments, element)
    return moments

assert by_welford([1]).m2 != 1, "after the number 1, m2 is 1: `after` must be taken from the new mean"
check_moments("after the number 1", by_welford([1]), 1, 1, 0)
check_moments("after the numbers 1 and 3", by_welford([1, 3]), 2, 2, 2)
check_moments("after 1, 3, 4, 5, 7", by_welford(page_row), 5, 4, 20)
check_far_from_zero(1e-2, [0, 1e3, 1e4], by_welford)

# %% gap 3
def merged(a, b):
    """Chan's way: the moments of all elements of a and b; either may have none."""
    # GAP 3: the formulas of the page. Mind a count of 0: it must not divide. Then: return Moments(count, mean, m2)
    ### BEGIN SOLUTION
    count = a.count + b.count
    if count == 0:
        return Moments()
    distance = b.mean - a.mean
    return Moments(count, a.mean + distance * b.count / count,
                   a.m2 + b.m2 + distance * distance * a.count * b.count / count)
    ### END SOLUTION

# %% check 3
def by_halves(x):
    """Halves, and halves of these, are merged: as threads do that each have a part."""
    half = len(x) // 2
    return merged(by_halves(x[:half]), by_halves(x[half:])) if half else Moments(1, x[0], 0)

a, b = Moments(2, 2, 2), Moments(3, 6, 14)  # of 1 and 3, and of 4, 5 and 9
check_moments("merged(1 3, 4 5 9)", merged(a, b), 5, 4.4, 35.2)
check_moments("merged(4 5 9, 1 3)", merged(b, a), 5, 4.4, 35.2)
check_moments("merged(1 3, nothing)", merged(a, Moments()), 2, 2, 2)
check_moments("merged(nothing, 1 3)", merged(Moments(), a), 2, 2, 2)
check_moments("merged(nothing, nothing), where nothing may be divided", merged(Moments(), Moments()), 0, 0, 0)
check_far_from_zero(1e-3, [0, 1e3, 1e5], by_halves)
