"""Lesson 1 in Python: the cells of its notebook (lessons/notebooks.py)."""

# %% prose
# We count from 0, as C++ does.
# ->
# We count from 0, as Python does.

# %% prose
# In the program, this is one line:
# ->
# In Python, this is one line:

# %% cpp
def place(x, i, j):
    return x.storage_offset() + i * x.strides[0] + j * x.strides[1]

# %% text
import norma

def show(name, x):
    print(f"{name}: sizes {list(x.shape)}, strides {list(x.strides)}, offset {x.storage_offset()}")
    for i in range(x.size(0)):
        for j in range(x.size(1)):
            print(f"  ({i}, {j}) is {x[i, j].item():g}, at place {place(x, i, j)}")

x = norma.tensor([[10.0, 11, 12], [13, 14, 15]])
show("x", x)

# %% text
transposed = x.transpose(0, 1)
show("transposed", transposed)

# %% text
def share_block(a, b):
    """Norma counts the changes of a block, and every tensor on the block knows the count."""
    before = a.version
    b.bump_version()
    return a.version != before

print(f"x and its transpose share one block: {str(share_block(x, transposed)).lower()}")
transposed[2, 1].copy_(norma.tensor(99.0))
print(f"99 is written to (2, 1) of the transpose; (1, 2) of x is now {x[1, 2].item():g}")
transposed[2, 1].copy_(norma.tensor(15.0))

# %% prose
# (The program then writes the 15 back, so below you see it again.)
# ->
# (The last line of the cell writes the 15 back, so below you see it again.)

# %% prose
# Take columns 0 and 2 of `x`, which is start 0, end 3, step 2:
# ->
# Take columns 0 and 2 of `x`, which is start 0, end 3, step 2 (in Python: `x[:, 0:3:2]`):

# %% text
sliced_columns = x[:, 0:3:2]
show("sliced", sliced_columns)

# %% text
repeated = x[1:2].expand(3, 3)
show("expanded", repeated)
print(f"it has {repeated.numel()} elements, and its memory holds {x.numel()}")

# %% text
print(f"view of x with sizes [6]: strides {list(x.view(6).strides)}")
try:
    transposed.view(6)
except norma.Error as error:
    print(f"view of its transpose: {error}")
copied = transposed.reshape(6)
print(f"reshape copies: {copied}")
print(f"the copy shares the block: {str(share_block(copied, x)).lower()}")

# %% prose
# its elements are of type `float`, which has 32 bits, and its sizes are `[6]`.
# ->
# its elements are floating numbers of 32 bits, and its sizes are `[6]`.

# %% prose
# Open `exercise.cpp`. It has a small struct, `View`, with sizes, strides and an offset. Fill three gaps:
# ->
# The cells below have a small class, `View`, with sizes, strides and an offset. Fill three gaps. The cell after each
# gap says whether it is right:

# %% prose
# 1. `place`: the formula above, for any number of axes.
# ->
# 1. `place_in`: the formula above, for any number of axes.

# %% prose
# Any other change is an error.
# ->
# Any other change is an error: `raise ValueError("…")`.

# %% prose
# The tests compare your views with Norma's. When all three pass, look at how Norma does it:
# ->
# The checks compare your views with Norma's. When all three pass, look at how Norma does it, in C++:

# %% gap 1
class View:
    """A tensor without its memory: what this lesson is about."""

    def __init__(self, sizes, strides, offset):
        self.sizes = list(sizes)  # how many elements along each axis
        self.strides = list(strides)  # how many places one step along each axis goes
        self.offset = offset  # the place of element (0, 0, …)

def place_in(view, index):
    """The place in memory of the element at `index`, which has one number for each axis."""
    # GAP 1: the place of the element at `index`. Start at the offset; then, for each axis, go index steps of its
    # stride.
    ### BEGIN SOLUTION
    return view.offset + sum(i * stride for i, stride in zip(index, view.strides))
    ### END SOLUTION

# %% check 1
def view_of(x):
    return View(x.shape, x.strides, x.storage_offset())

def text_of(view):
    return f"sizes {view.sizes}, strides {view.strides}, offset {view.offset}"

places = norma.arange(24).view(2, 3, 4)  # its element at place p is p

for tensor in [places, places.transpose(0, 2), places[:, 1:3]]:
    for i, j, k in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)]:
        yours, expected = place_in(view_of(tensor), [i, j, k]), tensor[i, j, k].item()
        assert yours == expected, \
            f"element {(i, j, k)} of a view with {text_of(view_of(tensor))}: expected {expected}, yours {yours}. " \
            "place = offset + index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2]"

# %% gap 2
def sliced(view, axis, start, end, step):
    """Elements start, start + step, … below end of one axis; the other axes stay. No element moves."""
    result = View(view.sizes, view.strides, view.offset)
    # GAP 2: three things change: result.offset, result.sizes[axis] and result.strides[axis]. Where does the first
    # element lie now? `view` may have an offset already. How many elements are left, when `end` is not one of them? How
    # far is it to the next one? a // b rounds down: (a + b - 1) // b rounds up. Then: return result
    ### BEGIN SOLUTION
    result.offset += start * view.strides[axis]
    result.sizes[axis] = (end - start + step - 1) // step
    result.strides[axis] *= step
    return result
    ### END SOLUTION

# %% check 2
def check_same(what, yours, right):
    assert text_of(yours) == text_of(view_of(right)), \
        f"{what}: expected {text_of(view_of(right))}; yours {text_of(yours)}"

check_same("rows 1 and 2 (axis 1, start 1, end 3, step 1)", sliced(view_of(places), 1, 1, 3, 1), places[:, 1:3])
check_same("every second column (axis 2, start 0, end 4, step 2)", sliced(view_of(places), 2, 0, 4, 2),
           places[:, :, 0:4:2])
check_same("columns 0 and 2 of three (axis 2, start 0, end 3, step 2)", sliced(view_of(places), 2, 0, 3, 2),
           places[:, :, 0:3:2])
part = places[:, 1:3]
check_same("a slice of those rows 1 and 2, which have offset 4 already (axis 2, start 1, end 4, step 2)",
           sliced(view_of(part), 2, 1, 4, 2), part[:, :, 1:4:2])

# %% gap 3
def expanded(view, sizes):
    """The same view with axes of size 1 repeated, so that its sizes are `sizes`. Raises ValueError where an axis that
    is not of size 1 would have to change."""
    result = View(view.sizes, view.strides, view.offset)
    # GAP 3: for each axis whose size differs from sizes[axis]: raise ValueError("…") unless its size is 1, then give it
    # the new size and the stride with which every step stays at the same place. Then: return result
    ### BEGIN SOLUTION
    for axis, size in enumerate(sizes):
        if view.sizes[axis] != size:
            if view.sizes[axis] != 1:
                raise ValueError("expanded: only an axis of size 1 can be repeated")
            result.sizes[axis] = size
            result.strides[axis] = 0
    return result
    ### END SOLUTION

# %% check 3
row = places[:, 1:2]
check_same("the second row (sizes [2, 1, 4]) expanded to sizes [2, 5, 4]", expanded(view_of(row), [2, 5, 4]),
           row.expand(2, 5, 4))
check_same("nothing to repeat", expanded(view_of(row), [2, 1, 4]), row)
try:
    expanded(view_of(row), [6, 1, 4])
except ValueError:
    pass
else:
    raise AssertionError("an axis of size 2 cannot become one of size 6: raise ValueError")
