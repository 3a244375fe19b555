#include "python/bindings/bindings.h"

#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <algorithm>

namespace norma::python {

namespace {

/// x[start:end:step] along one axis; a view.
Tensor sliced(const Tensor& x, int64_t axis, const nb::slice& range) {
  Py_ssize_t start = 0;
  Py_ssize_t stop = 0;
  Py_ssize_t step = 1;
  if (PySlice_Unpack(range.ptr(), &start, &stop, &step) < 0) {
    throw nb::python_error();
  }
  check(step >= 1, "getitem", "expected a step of at least 1 along axis {}, got {}", axis, step);
  PySlice_AdjustIndices(x.size(axis), &start, &stop, step);
  return slice(x, axis, start, std::max(start, stop), step);
}

bool is_ellipsis(const nb::handle& x) {
  return x.ptr() == Py_Ellipsis;
}

/// Integers, slices, None, … and one tensor of row numbers, as in NumPy. All but the last give views.
Tensor get_item(const Tensor& x, const nb::object& key) {
  std::vector<nb::object> parts;
  if (nb::isinstance<nb::tuple>(key)) {
    for (const nb::handle part : key) {
      parts.push_back(nb::borrow(part));
    }
  } else {
    parts.push_back(key);
  }
  int64_t taken = 0;
  int64_t ellipses = 0;
  int64_t tensors = 0;
  for (const nb::object& part : parts) {
    taken += part.is_none() || is_ellipsis(part) ? 0 : 1;
    ellipses += is_ellipsis(part) ? 1 : 0;
    tensors += nb::isinstance<Tensor>(part) ? 1 : 0;
  }
  check(taken <= x.rank(), "getitem", "expected at most {} indices, got {}", x.rank(), taken);
  check(ellipses <= 1, "getitem", "expected at most one …, got {}", ellipses);
  check(tensors <= 1, "getitem", "expected at most one tensor of row numbers, got {}", tensors);
  Tensor y = x;
  int64_t axis = 0;
  for (const nb::object& part : parts) {
    if (part.is_none()) {
      y = unsqueeze(y, axis++);
    } else if (is_ellipsis(part)) {
      axis += x.rank() - taken;
    } else if (nb::isinstance<nb::slice>(part)) {
      y = sliced(y, axis, nb::cast<nb::slice>(part));
      ++axis;
    } else if (nb::isinstance<Tensor>(part)) {
      y = index_select(y, axis++, nb::cast<Tensor>(part));
    } else {
      check(PyIndex_Check(part.ptr()) != 0 && PyBool_Check(part.ptr()) == 0, "getitem",
            "expected integers, slices, None, … or a tensor, got {}",
            nb::cast<std::string>(part.type().attr("__name__")));
      const Py_ssize_t index = PyNumber_AsSsize_t(part.ptr(), PyExc_IndexError);
      if (index == -1 && PyErr_Occurred() != nullptr) {
        throw nb::python_error();
      }
      if (index < -y.size(axis) || index >= y.size(axis)) {  // ends a loop of Python over a tensor
        throw nb::index_error(fmt::format("getitem: expected an index in [{}, {}) along axis {}, got {}", -y.size(axis),
                                          y.size(axis), axis, index)
                                  .c_str());
      }
      y = select(y, axis, index);
    }
  }
  return y;
}

}  // namespace

void add_indexing(nb::class_<Tensor>& tensor) {
  tensor.def(
      "__iter__",
      [](const Tensor& x) {
        check(x.rank() > 0, "iter", "expected a tensor of rank 1 or more, got one of rank 0");
        nb::list rows;
        for (int64_t i = 0; i < x.size(0); ++i) {
          rows.append(select(x, 0, i));
        }
        return nb::iter(rows);
      },
      nb::sig("def __iter__(self) -> typing.Iterator[Tensor]"));
  tensor.def("__getitem__", &get_item, nb::arg("key"),
             "x[1, ..., 2:5, None]: a view. x[rows] with an int64 tensor of rank 1: those rows, a copy.");
}

}  // namespace norma::python
