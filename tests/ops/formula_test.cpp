#include "ops/map_norm/reference.h"

#include "support.h"

#include <cmath>

using namespace norma;
using namespace norma::formula;

TEST_CASE("formula: derivatives of a few numbers") {
  Numbers numbers;
  const Number x = numbers.input(3);
  const Number y = numbers.input(2);
  const std::vector<Number> outputs = {x * x * x, constant(1) / sqrt(x), x * y - y, constant(4)};
  const Gradient cube = numbers.gradient({outputs[0]}, {1}, false);
  CHECK(cube.values[x.place] == 27);
  CHECK(std::abs(numbers.gradient({outputs[1]}, {1}, false).values[x.place] + 0.5L / (3 * std::sqrt(3.0L))) <= 1e-18L);
  const Gradient product = numbers.gradient({outputs[2]}, {5}, false);
  CHECK(product.values[y.place] == 10);
  CHECK(product.sizes[y.place] == 20);  // 5 * 3 and -5
  CHECK(numbers.gradient({outputs[2]}, {5}, true).sizes[y.place] == 10);
  CHECK(numbers.gradient({outputs[3]}, {1}, false).values[x.place] == 0);
}

TEST_CASE("formula: NaN reaches what comes from it, and nothing else") {
  Numbers numbers;
  const Number x = numbers.input(3);
  const Number nan = constant(std::numeric_limits<Wide>::quiet_NaN());
  CHECK((nan * nan).among == nullptr);
  CHECK(std::isnan(numbers.gradient({x * nan}, {1}, false).values[x.place]));
  const Number bad = numbers.input(std::numeric_limits<Wide>::quiet_NaN());
  const Gradient both = numbers.gradient({x * x, bad * bad}, {1, 1}, true);
  CHECK(both.values[x.place] == 6);
  CHECK(std::isnan(both.values[bad.place]));
  const Number flat = tanh(x * constant(std::numeric_limits<Wide>::infinity()));  // 0 times infinity
  CHECK(std::isnan(numbers.gradient({flat}, {1}, true).values[x.place]));
  CHECK(std::isnan(maximum(x, nan).value));
  CHECK(std::isnan(maximum(nan, x).value));
}

TEST_CASE("formula: the edge between the sides of a maximum") {
  Numbers numbers;
  const Number x = numbers.input(3);
  CHECK(maximum(x, constant(5)).value == 5);
  CHECK((numbers.edge.below && !numbers.edge.above));
  CHECK(maximum(x, constant(2)).place == x.place);
  CHECK(numbers.edge.above);
  CHECK(numbers.edge.nearest == 1);
}
