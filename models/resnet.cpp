#include "models/resnet.h"

#include "models/residual.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"

namespace norma::models {
namespace {

using nn::make_norm;
using ModulePointer = std::shared_ptr<nn::Module>;

constexpr std::array<int64_t, 4> kWidths = {64, 128, 256, 512};
constexpr double kReluGamma = 1.7139588594436646;  // sqrt(2 / (1 - 1 / pi)), for scaled_std_conv
constexpr int64_t kExpansion = 4;                  // output of a bottleneck block over its width

// The settings that all blocks of one network share.
struct Build {
  nn::NormChoice norm;
  std::string conv_layer;
  Generator& generator;
  bool zero_init_last;
  bool initialize;
};

ModulePointer convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride, const Build& build) {
  auto conv = nn::make_conv(build.conv_layer, in, out, kernel,
                            {.stride = stride, .padding = kernel / 2, .bias = false, .initialize = false}, kReluGamma);
  if (build.initialize) {
    nn::kaiming_normal_(conv->weight(), nn::Fan::out, nn::kReluGain, build.generator);
  }
  return conv;
}

// The norm before the addition. With weight 0 the block starts as the identity (Goyal et al., 2017).
ModulePointer last_norm(int64_t channels, const Build& build) {
  ModulePointer norm = make_norm(build.norm, channels);
  if (build.zero_init_last) {
    bool found = false;
    for (const auto& [name, x] : norm->named_parameters()) {
      if (name == "weight") {
        nn::constant_(x, -nn::weight_offset(*norm));
        found = true;
      }
    }
    check(found, "model", "zero_init_last: expected a norm with a weight, got {}", norm->name());
    check(nn::weight_is_factor(*norm), "model",
          "zero_init_last: expected a norm whose output its weight scales, got {}", norm->name());
  }
  return norm;
}

// One op, so that backward saves only the input and the statistics, no tensor between norm and relu.
Tensor conv_norm_relu(nn::Module& conv, nn::Module& norm, const Tensor& x) {
  return nn::conv_norm_act(conv, norm, x, {.activation = Activation::relu});
}

struct BlockShape {
  int64_t in;
  int64_t width;
  int64_t stride;
  double drop_path;
};

// relu(f(x) + shortcut(x)), where f is two 3x3 convolutions or a bottleneck.
class Block : public nn::Module {
 public:
  Block(const BlockShape& shape, bool bottleneck, const Build& build) : bottleneck_(bottleneck) {
    const int64_t width = shape.width;
    const int64_t out = bottleneck ? kExpansion * width : width;
    if (bottleneck) {
      conv1_ = register_module("conv1", convolution(shape.in, width, 1, 1, build));
      bn1_ = register_slot("bn1", make_norm(build.norm, width));
      conv2_ = register_module("conv2", convolution(width, width, 3, shape.stride, build));
      bn2_ = register_slot("bn2", make_norm(build.norm, width));
      conv3_ = register_module("conv3", convolution(width, out, 1, 1, build));
      bn3_ = register_slot("bn3", last_norm(out, build));
    } else {
      conv1_ = register_module("conv1", convolution(shape.in, width, 3, shape.stride, build));
      bn1_ = register_slot("bn1", make_norm(build.norm, width));
      conv2_ = register_module("conv2", convolution(width, out, 3, 1, build));
      bn2_ = register_slot("bn2", last_norm(out, build));
    }
    if (shape.stride != 1 || shape.in != out) {
      downsample_ = register_module(
          "downsample", std::make_shared<nn::Sequential>(std::initializer_list<ModulePointer>{
                            convolution(shape.in, out, 1, shape.stride, build), make_norm(build.norm, out)}));
    }
    if (shape.drop_path > 0) {
      drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(shape.drop_path));
    }
  }

  Tensor forward(const Tensor& x) override {
    Tensor y = conv_norm_relu(*conv1_, *bn1_, x);
    if (bottleneck_) {
      y = conv_norm_relu(*conv2_, *bn2_, y);
    }
    nn::Module& conv = bottleneck_ ? *conv3_ : *conv2_;
    nn::Module& norm = bottleneck_ ? *bn3_ : *bn2_;
    const Tensor shortcut = downsample_ ? (*downsample_)(x) : x;
    if (drop_path_) {
      return relu(add((*drop_path_)(norm(conv(y))), shortcut));
    }
    return nn::conv_norm_act(conv, norm, y, {.activation = Activation::relu, .residual = shortcut});
  }

  [[nodiscard]] std::string name() const override { return bottleneck_ ? "Bottleneck" : "BasicBlock"; }

 private:
  bool bottleneck_;
  ModulePointer conv1_, conv2_, conv3_, downsample_, drop_path_;
  nn::ChildSlot bn1_, bn2_, bn3_;
};

}  // namespace

ResNet::ResNet(const std::string& name, const ResNetConfig& config, const ModelOptions& options) : name_(name) {
  check(!options.patch_size, "model", "patch_size: {} has no patches; small_stem is its stem for small images", name);
  check(!options.layer_scale, "model", "layer_scale: {} has no layer scale", name);
  Generator generator(options.seed);
  const Build build{.norm = nn::parse_norm(options.norm.empty() ? std::string(kResNetNorm) : options.norm),
                    .conv_layer = options.conv_layer,
                    .generator = generator,
                    .zero_init_last = options.zero_init_last,
                    .initialize = options.initialize};

  conv1_ = register_module("conv1", options.small_stem ? convolution(options.in_channels, kWidths[0], 3, 1, build)
                                                       : convolution(options.in_channels, kWidths[0], 7, 2, build));
  bn1_ = register_slot("bn1", make_norm(build.norm, kWidths[0]));
  if (!options.small_stem) {
    maxpool_ = register_module("maxpool",
                               std::make_shared<nn::MaxPool2d>(Pool2dOptions{.kernel = 3, .stride = 2, .padding = 1}));
  }
  int64_t blocks = 0;
  for (const int64_t count : config.layers) {
    blocks += count;
  }
  int64_t in = kWidths[0];
  int64_t done = 0;
  for (size_t stage = 0; stage < layers_.size(); ++stage) {
    auto layer = std::make_shared<nn::Sequential>();
    layer->set_grad_checkpointing(options.grad_checkpointing);
    for (int64_t i = 0; i < config.layers[stage]; ++i, ++done) {
      const double rate = drop_path_rate(options.drop_path, done, blocks);
      const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      layer->push_back(
          std::make_shared<Block>(BlockShape{.in = in, .width = kWidths[stage], .stride = stride, .drop_path = rate},
                                  config.bottleneck, build));
      in = config.bottleneck ? kExpansion * kWidths[stage] : kWidths[stage];
    }
    layers_[stage] = register_module(fmt::format("layer{}", stage + 1), layer);
  }
  avgpool_ = register_module("avgpool", std::make_shared<nn::AdaptiveAvgPool2d>(1));
  fc_ = register_module("fc",
                        std::make_shared<nn::Linear>(in, options.num_classes, nn::LinearOptions{.initialize = false}));
  if (options.initialize) {
    nn::default_init_(fc_->weight(), fc_->bias(), generator);
  }
}

Tensor ResNet::forward(const Tensor& x) {
  Tensor y = conv_norm_relu(*conv1_, *bn1_, x);
  if (maxpool_) {
    y = (*maxpool_)(y);
  }
  for (const auto& layer : layers_) {
    y = (*layer)(y);
  }
  return (*fc_)(flatten((*avgpool_)(y), 1));
}

}  // namespace norma::models
