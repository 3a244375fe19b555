// Norms that throw what is no std::exception, also in their backward pass, a text of 10,000 letters, or end the
// program.
#include "core/op.h"
#include "nn/norm/factory.h"
#include "nn/plugin.h"
#include "ops/pointwise/pointwise.h"

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

using namespace norma;

class Odd final : public nn::Module {
 public:
  explicit Odd(char what) : what_(what) {}
  Tensor forward(const Tensor& x) override {
    if (what_ == 'n') {
      throw 42;
    }
    if (what_ == 'b') {
      return Op("odd").record({x}, x * 2.0, {},
                              [](const Tensor& /*dy*/, const BackwardContext& /*context*/) -> Tensors { throw 42; });
    }
    if (what_ == 't') {
      throw std::runtime_error(std::string(10'000, 'x'));
    }
    std::exit(0);
    return x;
  }
  [[nodiscard]] std::string name() const override { return "Odd"; }

 private:
  char what_;
};

}  // namespace

NORMA_PLUGIN {
  for (const auto& [name, what] : {std::pair("number", 'n'), {"text", 't'}, {"exits", 'e'}, {"backward", 'b'}}) {
    nn::register_norm(name, [what = what](int64_t) { return std::make_shared<Odd>(what); });
  }
  nn::register_norm("made", [](int64_t) -> std::shared_ptr<nn::Module> { throw 7; });
}
