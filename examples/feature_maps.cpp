// Shows what a network sees: the channels of one layer's output as small grey pictures, side by side in a PNG.
//   feature_maps [IMAGE [WEIGHTS.safetensors [LAYER]]]        written: feature_maps.png
// LAYER is a name of the state dict: "layer1", "layer2.0.bn1", "stages.0". Without an image one is generated, and
// without weights they are random.

#include <norma/norma.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// The channels of (1, C, H, W) in rows and columns, each stretched from its least value, black, to its largest, white.
data::Image contact_sheet(const Tensor& features) {
  const int64_t channels = features.size(1);
  const int64_t height = features.size(2);
  const int64_t width = features.size(3);
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(channels))));
  const int64_t rows = (channels + columns - 1) / columns;
  const Tensor low = neg(max(neg(features), {2, 3}, {.keepdim = true}));
  const Tensor high = max(features, {2, 3}, {.keepdim = true});
  const std::vector<float> values = ((features - low) / (high - low + 1e-12)).to_vector<float>();

  data::Image sheet{.height = rows * (height + 1) - 1, .width = columns * (width + 1) - 1, .channels = 1, .pixels = {}};
  sheet.pixels.assign(static_cast<size_t>(sheet.height * sheet.width), 128);
  for (int64_t c = 0; c < channels; ++c) {
    const int64_t top = c / columns * (height + 1);
    const int64_t left = c % columns * (width + 1);
    for (int64_t i = 0; i < height * width; ++i) {
      const int64_t at = (top + i / width) * sheet.width + left + i % width;
      sheet.pixels[static_cast<size_t>(at)] =
          static_cast<uint8_t>(std::lround(255 * values[static_cast<size_t>(c * height * width + i)]));
    }
  }
  return sheet;
}

/// The rows of the last layer, by its name in a ResNet or a ConvNeXt.
int64_t classes_of(const nn::NamedTensors& weights) {
  for (const auto& [name, x] : weights) {
    if (name == "fc.bias" || name == "head.fc.bias") {
      return x.size(0);
    }
  }
  return 10;
}

data::Image generated_picture() {
  const auto shapes = data::make_dataset("shapes", {.image_size = 128, .size = 1});
  data::Image picture;
  shapes->load(0, picture);
  return picture;
}

int run(int argc, char** argv) {
  const data::Image picture =
      data::resize_and_crop(argc > 1 ? data::read_image(argv[1]) : generated_picture(), 224, 224);
  std::string name = "resnet18";
  nn::NamedTensors weights;
  if (argc > 2) {
    weights = train::load_weights(argv[2]).tensors;
    name = models::recognize_model(weights);
    check(!name.empty(), "feature_maps", "{}: expected the weights of a ResNet or ConvNeXt", argv[2]);
  }
  const auto model = models::create_model(name, {.num_classes = classes_of(weights)});
  if (!weights.empty()) {
    model->load_state_dict(weights);
  }
  model->eval();

  // A hook gets a layer's output.
  const std::string wanted = argc > 3 ? argv[3] : name.starts_with("resnet") ? "layer1" : "stages.0";
  Tensor features;
  for (const auto& [path, module] : model->named_modules()) {
    if (path == wanted) {
      module->register_forward_hook(
          [&](const nn::Module&, const Tensor&, const Tensor& output) { features = output.detach(); });
    }
  }
  const NoGradGuard no_grad;
  (*model)(data::image_to_tensor(picture, data::kImageNetMean, data::kImageNetStd));
  check(features.defined() && features.rank() == 4, "feature_maps", "{} has no layer '{}' with an image as its output",
        name, wanted);

  const data::Image sheet = contact_sheet(features);
  data::write_png("feature_maps.png", sheet);
  std::printf("%s of %s: %lld channels of %lld x %lld pixels in feature_maps.png, %lld x %lld\n", wanted.c_str(),
              name.c_str(), static_cast<long long>(features.size(1)), static_cast<long long>(features.size(2)),
              static_cast<long long>(features.size(3)), static_cast<long long>(sheet.height),
              static_cast<long long>(sheet.width));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
