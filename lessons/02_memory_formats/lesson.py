"""Lesson 2 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% text
import norma

nchw = norma.zeros([1, 3, 2, 2])
nhwc = nchw.to(memory_format="channels_last")

def describe(x):
    """What Norma says of a tensor, without its numbers."""
    return str(x).splitlines()[-1]

for name, x in [("NCHW", nchw), ("NHWC", nhwc)]:
    print(f"{name}: {describe(x)}, strides {list(x.strides)}")

# %% prose
# Its list `{0, 2, 3, 1}` names
# ->
# Its list `[0, 2, 3, 1]` names

# %% prose
# permute(nchw, {0, 2, 3, 1}): sizes
# ->
# permute(nchw, [0, 2, 3, 1]): sizes

# %% text
def share_memory(a, b):
    """Norma counts the changes of a block of memory, and every tensor on the block knows the count."""
    before = a.version
    b.bump_version()
    return a.version != before

permuted = nchw.permute([0, 2, 3, 1])
print(f"permute(nchw, [0, 2, 3, 1]): sizes {list(permuted.shape)}, strides {list(permuted.strides)}, "
      f"shares memory: {str(share_memory(nchw, permuted)).lower()}")

# %% text
norma.manual_seed(1)
x = norma.randn([8, 64, 56, 56])
size = 4 * x.numel()
print(f"x: {describe(x)}, {x.numel()} elements of 4 bytes: {size} bytes")
print(f"a copy reads and writes each byte: {2 * size} bytes move")

# %% prose
# Now we do four things with `x` on one core and look at the clock. `./run lesson 2` writes the times of your machine
# here. In the repository, they are those of an AMD EPYC (Zen 4):
# ->
# Now we do four things with `x` on one core and look at the clock. The cell writes the times of your machine. Before
# you run it, you see those of the page's C++ program on an AMD EPYC (Zen 4):

# %% text
import time

def plain_copy(x, target):
    """Reads in the order of memory, and writes all over the place."""
    for n in range(x.size(0)):
        for c in range(x.size(1)):
            target[n, c].copy_(x[n, c])  # all pixels p of a channel, one after the other

def microseconds(f):
    """The shortest of 20 runs: what disturbs a run makes it longer."""
    times = []
    for run in range(20):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return 1e6 * min(times)

def measure():
    target = norma.empty(x.shape, memory_format="channels_last")
    threads = norma.num_threads()
    norma.set_num_threads(1)
    for name, f in [("permute", lambda: x.permute([0, 2, 3, 1])),
                    ("copy in the same format", lambda: x.clone()),
                    ("copy to channels_last", lambda: x.to(memory_format="channels_last")),
                    ("the same, plain loops", lambda: plain_copy(x, target))]:
        print(f"{name:<24} measured {microseconds(f):9.1f} us")
    norma.set_num_threads(threads)

measure()

# %% prose
# a loop over the images `n`, in it one over the channels `c`, and in that one over the pixels `p` of the image.
# `count_c` is the number of channels, and `count_hw` is the number of pixels, $H \cdot W$. This is the line inside:
# ->
# a loop over the images `n`, in it one over the channels `c`, and in that one over the pixels `p` of the image. The two
# outer loops are Python's. The inner one is that of `copy_`, which reads a plane of one channel and writes it.

# %% cpp

# %% cpp
last = x.permute([0, 2, 3, 1]).contiguous()
back = norma.layer_norm(last, [64]).permute([0, 3, 1, 2])

# %% text
print(f"x:                  {describe(x)}")
print(f"norm and back:      {describe(back)}")
print(f"relu after it:      {describe(back.relu())}")
print(f"layer_norm_2d(x):   {describe(norma.layer_norm_2d(x))}")
print(f"x + norm and back:  {describe(x + back)}")
print(f"norm and back + x:  {describe(back + x)}")

# %% prose
# Fill three gaps in `exercise.cpp`:
# ->
# Fill three gaps below. The cell after each gap says whether it is right:

# %% prose
# Then copy your `to_nhwc` and `strides_of` into `lesson.cpp`, above `measure`, and `enum class Format` with them. Give
# `rows` in `measure` one line more, like the one of `plain_copy`. It calls `to_nhwc` with `x.data<float>()`,
# `target.data<float>()` and the four sizes. `./run lesson 2` shows its time. Which order of the loops is the fastest on
# your machine?
# ->
# Then change `plain_copy` above: give its inner loop the rows `h` in the place of the channels, and copy `x[n, :, h]`,
# a row of all channels. Run its cell again. Which order of the loops is the faster one on your machine?

# %% gap 1
def strides_of(sizes, format):
    """The strides of a batch of images that fills its memory without gaps. `format` is "nchw" or "nhwc"; sizes and
    strides are those of N, C, H, W in this order, for both formats."""
    n, c, h, w = sizes
    # GAP 1: return the four strides, those of N, C, H and W. The fastest axis has stride 1; each slower axis steps over
    # everything that is faster.
    ### BEGIN SOLUTION
    return [c * h * w, h * w, w, 1] if format == "nchw" else [h * w * c, 1, w * c, c]
    ### END SOLUTION

# %% check 1
FORMATS = {"nchw": "contiguous", "nhwc": "channels_last"}  # Norma's names of them
SIZES = [[2, 3, 4, 5], [1, 3, 2, 2], [4, 1, 5, 3], [2, 6, 1, 1]]

for sizes in SIZES:
    for format, name in FORMATS.items():
        expected = list(norma.zeros(sizes, memory_format=name).strides)
        yours = list(strides_of(sizes, format))
        assert yours == expected, f"sizes [N, C, H, W] = {sizes} in {format}: expected {expected}, yours {yours}"

# %% gap 2
def to_nhwc(numbers, n, c, h, w):
    """Copies a batch of images from NCHW to NHWC: takes a list of n * c * h * w numbers, and returns one."""
    result = [None] * len(numbers)
    # GAP 2: copy each element. Four loops go over its image, channel, row and column. Two sums of index * stride say
    # where it is in `numbers`, and where it belongs in `result`. Use strides_of, or write the strides down.
    ### BEGIN SOLUTION
    a = strides_of([n, c, h, w], "nchw")
    b = strides_of([n, c, h, w], "nhwc")
    for i in range(n):
        for row in range(h):
            for column in range(w):
                for channel in range(c):
                    place = i * b[0] + channel * b[1] + row * b[2] + column * b[3]
                    result[place] = numbers[i * a[0] + channel * a[1] + row * a[2] + column * a[3]]
    return result
    ### END SOLUTION

# %% check 2
n, c, h, w = 2, 3, 4, 5
yours = to_nhwc(list(range(n * c * h * w)), n, c, h, w)
assert len(yours) == n * c * h * w, f"sizes {[n, c, h, w]}: expected {n * c * h * w} numbers, got {len(yours)}"
for i, channel, row, column in [(i, j, k, l) for i in range(n) for j in range(c) for k in range(h) for l in range(w)]:
    source = ((i * c + channel) * h + row) * w + column
    place = ((i * h + row) * w + column) * c + channel
    assert yours[place] == source, \
        f"element (n, c, h, w) = {(i, channel, row, column)} of sizes {[n, c, h, w]}: it is at place {source} of " \
        f"nchw, and belongs to place {place} of nhwc. There, yours has what was at {yours[place]} (None: nothing)"

# %% gap 3
def bytes_moved(sizes, strides, format):
    """The number of bytes that are read and written to bring a float32 tensor into `format`: 0 if it lies in that
    format already. An axis of size 1 takes no step, so its stride does not matter."""
    # GAP 3: compare the strides with those of the format, but only along axes that are longer than 1. If all agree, no
    # byte moves. Else each element is read once and written once, and a float32 has 4 bytes.
    ### BEGIN SOLUTION
    wanted = strides_of(sizes, format)
    if all(sizes[i] == 1 or strides[i] == wanted[i] for i in range(4)):
        return 0
    n, c, h, w = sizes
    return 2 * 4 * n * c * h * w
    ### END SOLUTION

# %% check 3
for sizes in SIZES:
    for begin in FORMATS.values():
        for format, name in FORMATS.items():
            y = norma.zeros(sizes, memory_format=begin)
            expected = 0 if y.is_contiguous(name) else 2 * 4 * y.numel()
            yours = bytes_moved(sizes, list(y.strides), format)
            hint = "it must be copied: 4 bytes of each element are read, and 4 are written" if expected else \
                "it lies in this format already: look at the axes of size 1"
            assert yours == expected, \
                f"sizes {sizes}, strides {list(y.strides)}, to {format}: expected {expected}, yours {yours}; {hint}"
assert bytes_moved([1, 2, 2, 2], [16, 8, 4, 2], "nchw") == 64, \
    "every second column of a wider tensor: its strides are not those of the format, so 64 bytes move"
assert bytes_moved([2, 2, 2, 2], [16, 4, 2, 1], "nchw") == 128, \
    "every second image of a batch: one axis whose stride differs is enough"
