// A small network with dropout in front of its last layer is trained, and evaluated twice.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

class Network : public nn::Module {
 public:
  explicit Network(int64_t classes)
      : body_(register_module("body", faults::small_network(32))),
        head_(register_module("head", std::make_shared<nn::Linear>(32, classes))) {}

  Tensor forward(const Tensor& x) override { return (*head_)(dropout((*body_)(x), 0.2, /* training= */ true)); }
  [[nodiscard]] std::string name() const override { return "Network"; }

 private:
  std::shared_ptr<nn::Sequential> body_;
  std::shared_ptr<nn::Linear> head_;
};

}  // namespace

int main() {
  constexpr int64_t kSteps = 20;
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const auto model = std::make_shared<Network>(images->info().num_classes());
  const auto test_images = std::make_shared<faults::Stripes>(128, /* seed= */ 1);
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 5e-4), {.lr = 0.1});
  faults::run_training(*model, optimizer, images);
  const auto evaluate = [&] {
    data::Loader test_batches = faults::batches_of(test_images);
    return train::evaluate(*model, test_batches);
  };
  const train::Evaluation first = evaluate();
  const train::Evaluation second = evaluate();
  std::printf("evaluated: loss %.4f, accuracy %.3f\n", first.loss, first.accuracy);
  std::printf("evaluated: loss %.4f, accuracy %.3f, %s\n", second.loss, second.accuracy,
              first.loss == second.loss ? "the same" : "another loss of the same weights");
}
