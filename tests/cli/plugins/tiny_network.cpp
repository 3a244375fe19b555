// A network whose steps take less than a millisecond and whose checkpoints have megabytes, with everything that a
// resumed run must have again: running statistics, and dropping, which draws from the default generator.
#include "core/random.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/plugin.h"
#include "nn/sequential.h"

#include <memory>

namespace {

using namespace norma;

std::shared_ptr<nn::Module> tiny(const models::ModelOptions& options) {
  manual_seed(options.seed);
  auto network = std::make_shared<nn::Sequential>();
  network->push_back(std::make_shared<nn::Conv2d>(options.in_channels, 8, 3, nn::Conv2dOptions{.stride = 2}));
  network->push_back(nn::make_norm(options.norm, 8));
  network->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(Pair(8)));
  network->push_back(std::make_shared<nn::Flatten>());
  network->push_back(std::make_shared<nn::Linear>(8 * 8 * 8, 256));
  network->push_back(std::make_shared<nn::Dropout>(0.2));
  network->push_back(std::make_shared<nn::Linear>(256, options.num_classes));
  return network;
}

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("tiny_norm",
                    [](int64_t channels) { return nn::make_norm("batch", channels); });  // it must have one
  models::register_model("tiny_network", {.make = tiny});
}
