// Classifies a JPEG or PNG of yours, by a network with torchvision's or timm's weights.
//   classify WEIGHTS.safetensors IMAGE [CLASSES.txt]
// CLASSES.txt has a name in each line. In Python, with torchvision:
//   safetensors.torch.save_file(torchvision.models.resnet50(weights="DEFAULT").state_dict(), "resnet50.safetensors")
// Rotations noted in EXIF are not applied: the picture is read as it lies in the file.
// With fewer than two arguments the example makes a network with random weights and a picture, and classifies that.

#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// Writes untrained weights and a picture into a folder.
void write_inputs(const std::filesystem::path& folder) {
  nn::NamedTensors weights = models::create_model("resnet18", {.num_classes = 5, .seed = 3})->state_dict();
  std::sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  data::save_safetensors(folder / "weights.safetensors", weights);  // by name, as other programs write them
  data::Image picture{.height = 90, .width = 120, .channels = 3, .pixels = {}};
  for (int i = 0; i < 90 * 120; ++i) {
    for (const int value : {i % 120 * 2, i / 120 * 2, 90}) {
      picture.pixels.push_back(static_cast<uint8_t>(value));
    }
  }
  data::write_png(folder / "picture.png", picture);
}

/// The rows of the last layer, by its name in a ResNet or a ConvNeXt.
int64_t classes_of(const nn::NamedTensors& weights) {
  for (const auto& [name, x] : weights) {
    if (name == "fc.bias" || name == "head.fc.bias") {
      return x.size(0);
    }
  }
  fail("classify", "expected fc.bias or head.fc.bias among the weights, got none");
}

/// The network of these weights, found by the names and sizes of the tensors.
std::shared_ptr<nn::Module> load_model(const std::filesystem::path& file) {
  const nn::NamedTensors weights = train::load_weights(file).tensors;
  const std::string name = models::recognize_model(weights);
  check(!name.empty(), "classify", "{}: expected the weights of a ResNet or ConvNeXt", file.string());
  const int64_t classes = classes_of(weights);
  auto model = models::create_model(name, {.num_classes = classes, .initialize = false});
  model->load_state_dict(weights);
  model->to(MemoryFormat::channels_last);
  model->eval();
  std::printf("%s, %lld classes\n", name.c_str(), static_cast<long long>(classes));
  return model;
}

int classify(const std::filesystem::path& weights, const std::filesystem::path& picture,
             const std::filesystem::path& classes) {
  const std::shared_ptr<nn::Module> model = load_model(weights);
  std::vector<std::string> names;
  std::ifstream lines(classes);
  for (std::string line; std::getline(lines, line);) {
    names.push_back(line);
  }

  // As the weights' authors evaluated them: shorter side 256 pixels, the middle 224, ImageNet's mean and deviation.
  const data::Image image = data::resize_and_crop(data::read_image(picture), 256, 224);
  const Tensor x =
      to(data::image_to_tensor(image, data::kImageNetMean, data::kImageNetStd), MemoryFormat::channels_last);
  const NoGradGuard no_grad;
  const std::vector<float> chances = softmax((*model)(x), 1).to_vector<float>();

  std::vector<size_t> order(chances.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto best = order.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(5, order.size()));
  std::partial_sort(order.begin(), best, order.end(), [&](size_t a, size_t b) { return chances[a] > chances[b]; });
  std::for_each(order.begin(), best, [&](size_t i) {
    std::printf("%5.1f %%  %s\n", 100 * chances[i], i < names.size() ? names[i].c_str() : std::to_string(i).c_str());
  });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 2) {
      return classify(argv[1], argv[2], argc > 3 ? argv[3] : "");
    }
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("norma_classify_{}", std::random_device()());
    std::filesystem::create_directories(folder);
    write_inputs(folder);
    const int code = classify(folder / "weights.safetensors", folder / "picture.png", "");
    std::filesystem::remove_all(folder);
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
