"""Lesson 10 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import norma

def accuracies(mean, seeds):
    """Of `seeds` runs of a norm whose true accuracy is `mean`. Runs deviate from it by 1 point."""
    return norma.randn([seeds], dtype=norma.float64) + mean

def comparisons(true_difference, seeds):
    """1000 times: the differences of two norms, seed by seed."""
    norma.manual_seed(10)
    for comparison in range(1000):
        reference = accuracies(85, seeds)
        yield accuracies(85 + true_difference, seeds) - reference

def more_than_a_point(differences):
    return abs(differences.mean().item()) > 1

over = sum(more_than_a_point(differences) for differences in comparisons(0, seeds=1))
print("two norms that are equally good, 1000 comparisons")
print(f" 1 seed: {over:5} differ by more than a point,   - intervals leave out 0")

# %% prose
# The program does not train: it draws random numbers.
# ->
# The cells do not train: they draw random numbers.

# %% prose
# when the two share no luck, as in the program's other
# numbers,
# ->
# when the two share no luck, as in the other cells,

# %% text
norma.manual_seed(12)
for r in [0.0, 0.5, 0.9]:
    # Two runs whose luck has this correlation share a part of it: √r of each run's.
    shared, one, other = (norma.randn([100000], dtype=norma.float64) for part in range(3))
    one = r ** 0.5 * shared + (1 - r) ** 0.5 * one
    other = r ** 0.5 * shared + (1 - r) ** 0.5 * other
    print(f"correlation {r:.1f}: the differences of pairs deviate by {(one - other).std().item():.2f} points")

# %% text
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
     2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]

def student_t(degrees):
    """For 1 to 30 degrees of freedom."""
    return T[degrees - 1]

def ends_of_interval(differences):
    k = differences.numel()
    mean, half = differences.mean().item(), student_t(k - 1) * differences.std().item() / k ** 0.5
    return mean - half, mean + half

mine, group = norma.tensor([91.0, 90, 92]), norma.tensor([90.0, 87, 90])
differences = mine - group
low, high = ends_of_interval(differences)
print(f"differences: mean {differences.mean().item():.1f}, deviation {differences.std().item():.1f}, "
      f"t {student_t(2):.3f}")
print(f"interval: {low:.2f} to {high:.2f}")

# %% text
def leaves_out_0(differences):
    low, high = ends_of_interval(differences)
    return low > 0 or high < 0

for seeds in [3, 5, 10]:
    tried = list(comparisons(0, seeds))
    print(f"{seeds:2} seeds: {sum(map(more_than_a_point, tried)):4} differ by more than a point, "
          f"{sum(map(leaves_out_0, tried)):3} intervals leave out 0")

# %% text
print("one norm is better by 2 points, 1000 comparisons")
for seeds in [2, 3, 5, 10]:
    print(f"{seeds:2} seeds: {sum(map(leaves_out_0, comparisons(2, seeds))):4} intervals leave out 0")

# %% text
def claims_a_difference():
    """One study of ten norms, all as good as the reference."""
    reference = accuracies(85, 5)
    return any([leaves_out_0(accuracies(85, 5) - reference) for norm in range(10)])

norma.manual_seed(12)
claims = sum(claims_a_difference() for study in range(1000))
print(f"ten norms, all as good as the reference, 5 seeds: {claims} of 1000 studies claim a difference")

# %% prose
# Open `exercise.cpp`. Fill three gaps:
# ->
# Fill three gaps below. The cell after each gap says whether it is right. (The cells above took mean and deviation from
# Norma. Compute yours with plain numbers.)

# %% gap 1
class Differences:
    """The differences norm - reference, seed by seed: how many there are, their mean, and their deviation
    sqrt(sum((difference - mean)²) / (count - 1))."""

    def __init__(self, count, mean, deviation):
        self.count, self.mean, self.deviation = count, mean, deviation

def differences_of(norm, reference):
    """Both lists have a number for each seed, in the same order; at least two."""
    # GAP 1: three numbers describe the differences. By what must the sum of the squared distances be divided?
    # return Differences(count, mean, deviation)
    ### BEGIN SOLUTION
    differences = [a - b for a, b in zip(norm, reference)]
    count = len(differences)
    mean = sum(differences) / count
    return Differences(count, mean, (sum((d - mean) ** 2 for d in differences) / (count - 1)) ** 0.5)
    ### END SOLUTION

# %% check 1
def close(a, b):
    return abs(a - b) < 1e-9

yours = differences_of([91, 90, 92], [90, 87, 90])
assert yours.count == 3, f"count: expected 3, yours is {yours.count}"
assert close(yours.mean, 2), f"the differences are 1, 3 and 2: expected the mean 2, yours is {yours.mean}"
hint = "You have divided by count, not by count - 1." if close(yours.deviation, (2 / 3) ** 0.5) else ""
assert close(yours.deviation, 1), \
    f"expected the deviation sqrt((1 + 1 + 0) / 2) = 1, yours is {yours.deviation}. {hint}"

# Both norms do well with the second seed, so their difference is the same with all seeds.
yours = differences_of([80, 90, 70], [79, 89, 69])
assert close(yours.mean, 1), f"80, 90, 70 and 79, 89, 69: mean: expected 1, yours is {yours.mean}"
assert close(yours.deviation, 0), \
    f"80, 90, 70 and 79, 89, 69: deviation: expected 0, yours is {yours.deviation}. Seeds go in pairs: take the " \
    "differences first, then their deviation"

# %% gap 2
def interval_of(differences):
    """The range in which the true difference lies, 19 times out of 20: (low, high)."""
    # GAP 2: how far does the interval go to each side of the mean?
    ### BEGIN SOLUTION
    half = student_t(differences.count - 1) * differences.deviation / differences.count ** 0.5
    return differences.mean - half, differences.mean + half
    ### END SOLUTION

# %% check 2
for count, mean, deviation, t in [(3, 2, 1, 4.303), (10, -1, 0.5, 2.262)]:
    half = t * deviation / count ** 0.5
    low, high = interval_of(Differences(count, mean, deviation))
    hint = f"{count} seeds have {count - 1} degrees of freedom"
    assert close(low, mean - half) and close(high, mean + half), \
        f"expected {mean} ± {t} * {deviation} / sqrt({count}), which is {mean - half} to {mean + half}; " \
        f"yours is {low} to {high}. {hint}"

# %% gap 3
def verdict_of(interval, margin):
    """What (low, high) says. margin: the difference in points that would not matter to anybody.

    "better": the whole interval is above 0. "worse": the whole interval is below 0. "matches": neither, and the whole
    interval lies between -margin and margin. "unknown": anything else. The runs are too few, or too noisy."""
    low, high = interval
    # GAP 3: the four cases above, in the order in which to try them.
    ### BEGIN SOLUTION
    if low > 0:
        return "better"
    if high < 0:
        return "worse"
    return "matches" if low > -margin and high < margin else "unknown"
    ### END SOLUTION

# %% check 3
for interval, right in [((0.2, 3), "better"), ((-3, -0.2), "worse"), ((-0.5, 0.8), "matches"),
                        ((-0.5, 1.5), "unknown"), ((-1.5, 0.5), "unknown"), ((-8, 9), "unknown"),
                        ((0.1, 0.3), "better"), ((-0.3, -0.1), "worse")]:
    yours = verdict_of(interval, 1)
    low, high = interval
    hint = "The whole interval is on one side of 0, so the margin does not count" if low > 0 or high < 0 else ""
    assert yours == right, f"interval {low} to {high}, margin 1: expected {right}, yours is {yours}. {hint}"

# %% prose
# The program of this lesson does it with one step of training
# for each run, so that you see that it works:
# ->
# The next cell does it with one step of training
# for each run, so that you see that it works. `mine` is a norm in Python, of each image as a whole:

# %% text
import contextlib
import io
import tempfile

from norma import nn

@norma.register_norm("mine")
class Mine(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(norma.ones([channels, 1, 1]))
        self.bias = nn.Parameter(norma.zeros([channels, 1, 1]))

    def forward(self, x):
        centred = x - x.mean([1, 2, 3], keepdim=True)
        var = (centred * centred).mean([1, 2, 3], keepdim=True)
        return centred * (var + 1e-5).rsqrt() * self.weight + self.bias

MODELS, NORMS = ["resnet18", "convnext_atto"], ["group:8", "mine"]
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
    comparison = norma.compare(folder, models=MODELS, norms=NORMS, seeds=[0, 1], dataset="shapes", img_size=16,
                               batch_size=16, images=16, test_images=50, timing_rounds=0, telemetry=False, quiet=True)

runs = comparison.results["cells"]
for model in MODELS:
    for norm in NORMS:
        right = [run["accuracy"] for run in runs if (run["model"], run["norm"]) == (model, norm)]
        print(f"{model:14} {norm:8} measured {100 * sum(right) / len(right):5.1f} % of the test images right")
print(f"the report has {len(runs)} runs")

# %% prose
# The next command takes as long
# as you choose, and uses your norm from milestone 2.
# ->
# The next call takes as long
# as you choose, and needs the images of Fashion-MNIST ([docs/data.md](../../docs/data.md)).

# %% prose
# ```sh
# cmake --build build/cpu-release --target lesson_m2_plugin_exercise
# ./run compare --models resnet18,convnext_atto --norms batch,group:8,mine --seeds 0,1,2 --budget 30m \
#   --plugin build/cpu-release/lessons/my_norm.so --output runs/mine
# ```
# ->
# ```python
# norma.compare("runs/mine", models=MODELS, norms=["batch", "group:8", "mine"], seeds=[0, 1, 2], budget="30m")
# ```

# %% prose
# Ctrl-C stops it, and the same command goes on.
# ->
# You may interrupt it, and the same call goes on.

# %% prose
# Your norm is
# plain loops, so expect a high tax.
# ->
# Your norm is
# made of plain ops, so expect a high tax.
