#include "models/registry.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

#include <map>

using namespace norma;
using namespace norma::models;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

ModelOptions small() {
  return {.num_classes = 4, .patch_size = 2, .seed = 1};
}

}  // namespace

TEST_CASE("convnextv2: names and sizes of a block as in timm") {
  const auto block = [](const std::string& name) {
    const auto model = create_model(name, {.initialize = false});
    std::string text;
    for (const auto& [path, x] : model->state_dict()) {
      if (path.starts_with("stages.0.blocks.1.")) {
        text += path.substr(18) + to_string(x.sizes()) + " ";
      }
    }
    return text;
  };
  // timm.create_model("convnextv2_atto").state_dict(); the MLP of the four smallest is made of 1x1 convolutions
  CHECK(block("convnextv2_atto") ==
        "conv_dw.weight[40, 1, 7, 7] conv_dw.bias[40] norm.weight[40] norm.bias[40] mlp.fc1.weight[160, 40, 1, 1] "
        "mlp.fc1.bias[160] mlp.grn.weight[160] mlp.grn.bias[160] mlp.fc2.weight[40, 160, 1, 1] mlp.fc2.bias[40] ");
  CHECK(block("convnextv2_tiny") ==
        "conv_dw.weight[96, 1, 7, 7] conv_dw.bias[96] norm.weight[96] norm.bias[96] mlp.fc1.weight[384, 96] "
        "mlp.fc1.bias[384] mlp.grn.weight[384] mlp.grn.bias[384] mlp.fc2.weight[96, 384] mlp.fc2.bias[96] ");
}

TEST_CASE("convnextv2: the global response norm stands between the activation and the second layer") {
  const auto model = create_model("convnextv2_atto", small());
  std::map<std::string, std::pair<Tensor, Tensor>> seen;
  for (const auto& [path, module] : model->named_modules()) {
    const std::string block = "stages.1.blocks.0.mlp.";
    if (path.starts_with(block)) {
      module->register_forward_hook(
          [&seen, name = path.substr(block.size())](const nn::Module&, const Tensor& in, const Tensor& out) {
            seen[name] = {in, out};
          });
    }
  }
  (*model)(random_tensor({2, 3, 16, 16}, 1, DType::float32));
  CHECK(seen["grn"].first.is_same(seen["act"].second));
  CHECK(seen["fc2"].first.is_same(seen["grn"].second));
}

TEST_CASE("convnextv2: starts as the first version without layer scale, and learns") {
  const auto first = create_model("convnext_atto", {.num_classes = 4, .patch_size = 2, .layer_scale = 0, .seed = 1});
  const auto second = create_model("convnextv2_atto", small());
  const Tensor x = random_tensor({2, 3, 16, 16}, 1, DType::float32);
  CHECK(max_difference((*second)(x), (*first)(x)) == 0);

  cross_entropy((*second)(x), from_vector<int64_t>({0, 1}, {2})).backward();
  for (const auto& [path, parameter] : second->named_parameters()) {
    CAPTURE(path);
    REQUIRE(parameter.grad().defined());
    if (path.find(".grn.") != std::string::npos) {
      CHECK(largest_number(parameter.grad()) > 0);
    }
  }
  const auto scaled = create_model("convnextv2_atto", {.num_classes = 4, .layer_scale = 0.5, .initialize = false});
  CHECK(scaled->parameter_count() == create_model("convnextv2_atto", {.num_classes = 4})->parameter_count() + 1840);
}
