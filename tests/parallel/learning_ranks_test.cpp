#include "core/memory_format.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/norm.h"
#include "nn/optim/optimizers.h"
#include "nn/sequential.h"
#include "ops/loss/loss.h"
#include "parallel/gradient_reducer.h"
#include "parallel/group.h"
#include "support.h"

#include <string>
#include <vector>

using namespace norma;

namespace {

std::shared_ptr<nn::Module> network() {
  return std::make_shared<nn::Sequential>(std::initializer_list<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Conv2d>(3, 8, 3, nn::Conv2dOptions{.padding = 1}), std::make_shared<nn::LayerNorm2d>(8),
      std::make_shared<nn::ReLU>(), std::make_shared<nn::AdaptiveAvgPool2d>(1), std::make_shared<nn::Flatten>(),
      std::make_shared<nn::Linear>(8, 5)});
}

/// Three steps, with images of each rank's own. The gradients travel in several buckets.
void learn(nn::Module& model, parallel::ProcessGroup& group) {
  nn::AdamW optimizer(nn::parameter_groups(model, 0.05), {.lr = 0.02});
  parallel::GradientReducer reducer(group, optimizer.parameters(), {.bucket_bytes = 200});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor x = copy_of(test::random_tensor({2, 3, 6, 5}, 10 * group.rank() + step, DType::float32),
                             MemoryFormat::channels_last);
    const Tensor classes = from_vector(std::vector<int64_t>{step, group.rank() % 5}, {2});
    backward(cross_entropy(model(x), classes), {},
             {.on_leaf = [&](const Tensor& leaf, const Tensor& gradient) { reducer.take(leaf, gradient); }});
    reducer.finish();
    optimizer.step();
  }
}

}  // namespace

TEST_CASE("ranks: a network has the same weights wherever its gradients travel, and on all ranks") {
  const std::shared_ptr<nn::Module> model = network();
  const std::shared_ptr<nn::Module> other = network();
  for (const auto& [name, x] : model->named_parameters()) {
    test::host_group()->broadcast(x.detach());
  }
  const std::vector<float> before = model->named_parameters().front().second.to_vector<float>();
  other->load_state_dict(model->state_dict());
  learn(*model, test::group());
  learn(*other, *test::host_group());
  const nn::NamedTensors found = model->named_parameters();
  const nn::NamedTensors expected = other->named_parameters();
  CHECK(found.front().second.to_vector<float>() != before);
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(found[i].first);
    const std::vector<float> weights = found[i].second.to_vector<float>();
    CHECK(weights == expected[i].second.to_vector<float>());
    const Tensor first = found[i].second.detach();
    test::group().broadcast(first);
    CHECK(first.to_vector<float>() == weights);
  }
}
