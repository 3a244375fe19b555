// Milestone 2: check-norm, first before a norm with a fault, then before ours.
#include <norma/lab/lab.h>
#include <norma/norma.h>

#include <fmt/format.h>

#include <memory>
#include <string>

#include "exercise.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

/// y = (x - mean) / sqrt(E[x²] - E[x]² + eps) for each image: the fault of lesson 7.
class TextbookNorm : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    const ReduceOptions keep{.keepdim = true};
    const Tensor m = mean(x, {1, 2, 3}, keep);
    const Tensor var = mean(x * x, {1, 2, 3}, keep) - m * m;
    return (x - m) * rsqrt(var + kEps);
  }
  [[nodiscard]] std::string name() const override { return "TextbookNorm"; }
};

void show(const std::string& norm) {
  fmt::print("{}:\n", norm);
  for (const lab::NormCheck& check : lab::check_norm(norm, {.quick = true}).checks) {
    const bool failed = check.outcome == lab::CheckOutcome::failed;
    fmt::print("  {:<24} {}\n", check.name,
               failed                                      ? "FAILED"
               : check.outcome == lab::CheckOutcome::noted ? "note"
                                                           : "ok");
  }
}

}  // namespace

int main() {
  nn::register_norm("textbook", [](int64_t) { return std::make_shared<TextbookNorm>(); });
  show("textbook");
  register_my_norm();
  show("mine");
}
