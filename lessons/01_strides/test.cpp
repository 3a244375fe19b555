// What your answers must do. Norma's own views say what is right.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace {

using norma::Tensor;

View view_of(const Tensor& x) {
  View view{.offset = x.offset()};
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    view.sizes.push_back(x.size(axis));
    view.strides.push_back(x.stride(axis));
  }
  return view;
}

std::string text(const View& view) {
  return fmt::format("sizes {}, strides {}, offset {}", view.sizes, view.strides, view.offset);
}

/// A block whose element at place p is p, read as sizes [2, 3, 4].
Tensor places() {
  return norma::view(norma::arange(24), {2, 3, 4});
}

void check_same(const std::string& what, const View& yours, const Tensor& right) {
  const View expected = view_of(right);
  INFO(what, "\n  expected ", text(expected), "\n  yours    ", text(yours));
  const bool views_agree =
      yours.offset == expected.offset && yours.sizes == expected.sizes && yours.strides == expected.strides;
  CHECK(views_agree);
}

}  // namespace

TEST_CASE("gap 1: the place of an element") {
  const Tensor x = places();
  for (const Tensor& tensor : {x, norma::transpose(x, 0, 2), norma::slice(x, 1, 1, 3)}) {
    const View view = view_of(tensor);
    for (const std::vector<int64_t>& index :
         {std::vector<int64_t>{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {1, 1, 1}}) {
      Tensor element = tensor;
      for (const int64_t i : index) {
        element = norma::select(element, 0, i);
      }
      INFO("element ", fmt::format("({})", fmt::join(index, ", ")), " of a view with ", text(view),
           "\n  place = offset + index[0] * strides[0] + index[1] * strides[1] + index[2] * strides[2]");
      CHECK(place(view, index) == element.item<int64_t>());
    }
  }
}

TEST_CASE("gap 2: a slice") {
  const Tensor x = places();
  check_same("rows 1 and 2 (axis 1, start 1, end 3, step 1)", sliced(view_of(x), 1, 1, 3, 1), norma::slice(x, 1, 1, 3));
  check_same("every second column (axis 2, start 0, end 4, step 2)", sliced(view_of(x), 2, 0, 4, 2),
             norma::slice(x, 2, 0, 4, 2));
  check_same("columns 0 and 2 of three (axis 2, start 0, end 3, step 2)", sliced(view_of(x), 2, 0, 3, 2),
             norma::slice(x, 2, 0, 3, 2));
  const Tensor part = norma::slice(x, 1, 1, 3);
  check_same("a slice of those rows 1 and 2, which have offset 4 already (axis 2, start 1, end 4, step 2)",
             sliced(view_of(part), 2, 1, 4, 2), norma::slice(part, 2, 1, 4, 2));
}

TEST_CASE("gap 3: an axis that is repeated") {
  const Tensor row = norma::slice(places(), 1, 1, 2);
  check_same("the second row (sizes [2, 1, 4]) expanded to sizes [2, 5, 4]", expanded(view_of(row), {2, 5, 4}),
             norma::expand(row, {2, 5, 4}));
  check_same("nothing to repeat", expanded(view_of(row), {2, 1, 4}), row);
  INFO("\n  an axis of size 2 cannot become one of size 6: throw std::invalid_argument");
  CHECK_THROWS_AS(expanded(view_of(row), {6, 1, 4}), std::invalid_argument);
}
