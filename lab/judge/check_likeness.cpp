#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "lab/judge/subject.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace norma::lab {

namespace {

/// Far above what float64 rounds, and below what another eps does to numbers whose deviation is 0.001.
constexpr double kMost = 1e-6;

/// A layer in float64 whose parameters are as they begin: a norm without a weight is like one whose weight is 1.
std::shared_ptr<nn::Module> begin(const Subject& subject, const Tensor& x) {
  std::shared_ptr<nn::Module> layer = subject.make_new(x);
  layer->to(DType::float64);
  return layer;
}

/// A parameter of both norms.
struct Shared {
  std::string name;
  Tensor ours;
  Tensor theirs;
  bool is_offset;  ///< one of the two is 1 less
};

bool all_are(const Tensor& x, double number) {
  return std::ranges::all_of(x.to_vector<double>(), [number](double value) { return value == number; });
}

/// The parameters that both have by name and size, with the same random numbers around 1 in both. One that begins at 0
/// where the other begins at 1 stands for 1 + itself, and gets 1 less.
std::vector<Shared> shared_parameters(const nn::Module& ours, const nn::Module& theirs) {
  const NoGradGuard guard;
  Generator random(7);
  std::vector<Shared> result;
  for (const auto& [name, parameter] : ours.named_parameters()) {
    for (const auto& [other_name, other] : theirs.named_parameters()) {
      if (name == other_name && parameter.numel() == other.numel()) {
        const bool is_ours = all_are(parameter, 0) && all_are(other, 1);
        const bool is_theirs = all_are(parameter, 1) && all_are(other, 0);
        uniform_(parameter, 0.5, 1.5, random);
        copy_into(view(parameter, other.sizes()), other);
        if (is_ours || is_theirs) {
          Tensor offset = is_ours ? parameter : other;
          add_(offset, -1.0);
        }
        result.push_back({name, parameter, other, is_ours || is_theirs});
      }
    }
  }
  return result;
}

/// "; only one of the two has weight, bias; the two have gain of sizes [4] and [1]", or "".
std::string others(const nn::Module& ours, const nn::Module& theirs) {
  std::string alone;
  std::string unlike;
  const auto look_for = [&](const nn::NamedTensors& these, const nn::NamedTensors& those, bool compares) {
    for (const auto& [name, parameter] : these) {
      const auto other = std::ranges::find(those, name, [](const auto& entry) { return entry.first; });
      if (other == those.end()) {
        alone += (alone.empty() ? "; only one of the two has " : ", ") + name;
      } else if (compares && other->second.numel() != parameter.numel()) {
        unlike += fmt::format("{}{} of sizes {} and {}", unlike.empty() ? "; the two have " : ", ", name,
                              to_string(parameter.sizes()), to_string(other->second.sizes()));
      }
    }
  };
  look_for(ours.named_parameters(), theirs.named_parameters(), /* compares= */ true);
  look_for(theirs.named_parameters(), ours.named_parameters(), /* compares= */ false);
  return alone + unlike;
}

/// How far things of two norms are apart, as shares of the largest number of the second.
class Distances {
 public:
  void add(const std::string& what, const Tensor& ours, const Tensor& theirs) {
    const double distance = largest_difference(ours, theirs) / std::max(1e-6, largest(theirs));
    largest_ = std::max(largest_, distance);
    if (!(distance <= kMost)) {
      far_ += fmt::format("{}{} {:.0e}", far_.empty() ? "" : ", ", what, distance);
    }
  }
  [[nodiscard]] double largest_distance() const { return largest_; }
  [[nodiscard]] const std::string& far() const { return far_; }  ///< "output 1e-01", or ""

 private:
  double largest_ = 0;
  std::string far_;
};

}  // namespace

Finding check_likeness(const Subject& subject, const Subject& other) {
  double largest_distance = 0;
  std::string alone;
  for (const double deviation : {1.0, 1e-3}) {  // a small one shows what eps is and where it stands
    Tensor x = copy_of(random_input({3, subject.channels, 5, 4}, MemoryFormat::contiguous, /* mean= */ 2),
                       MemoryFormat::preserve, DType::float64);
    x = (x * deviation).detach();
    const auto ours = begin(subject, x);
    const auto theirs = begin(other, x);
    const std::vector<Shared> shared = shared_parameters(*ours, *theirs);
    const Results yours = apply_norm(*ours, x);
    const Results expected = apply_norm(*theirs, x);
    Distances distances;
    distances.add("output", yours.y, expected.y);
    distances.add("gradient of x", yours.dx, expected.dx);
    for (const Shared& one : shared) {
      const std::string what = "gradient of " + one.name;
      check(one.ours.grad().defined() == one.theirs.grad().defined(), what, "expected {}, got {}",
            one.theirs.grad().defined() ? "a gradient" : "none", one.ours.grad().defined() ? "one" : "none");
      if (one.ours.grad().defined()) {
        distances.add(what, one.ours.grad(), one.theirs.grad());
      }
    }
    ours->eval();
    theirs->eval();
    const NoGradGuard guard;
    distances.add("output in evaluation", (*ours)(x), (*theirs)(x));
    if (!distances.far().empty()) {
      return {CheckOutcome::failed,
              fmt::format("numbers with mean {:g} and deviation {:g}: {} away, as a share of the largest number; "
                          "expected at most {:.0e}",
                          2 * deviation, deviation, distances.far(), kMost)};
    }
    largest_distance = std::max(largest_distance, distances.largest_distance());
    alone = others(*ours, *theirs);
    for (const Shared& one : shared) {
      alone += one.is_offset ? "; " + one.name + " begins at 0 in one and at 1 in the other: taken for 1 + it" : "";
    }
  }
  return {CheckOutcome::passed, fmt::format("output and gradients within {:.0e}{}", largest_distance, alone)};
}

}  // namespace norma::lab
