#include "train/same_run.h"

#include "core/excerpt.h"
#include "core/sha256.h"
#include "core/version.h"
#include "train/environment.h"
#include "train/recipe_option.h"
#include "train/training_state.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <utility>
#include <vector>

namespace norma::train {

namespace {

/// The SHA-256 of some images over the whole data set, with their labels.
std::string fingerprint(const data::Dataset& images) {
  constexpr int64_t kSamples = 16;
  const int64_t size = images.info().size;
  std::string bytes;
  data::Image image;
  for (int64_t i = 0; i < std::min(kSamples, size); ++i) {
    const int64_t label = images.load(i * size / std::min(kSamples, size), image);
    bytes += fmt::format("{} {} {} ", label, image.height, image.width);
    bytes.append(reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size());
  }
  return sha256(bytes);
}

std::string fingerprint(const nn::NamedTensors& tensors) {
  std::string of_each;
  for (const auto& [name, x] : tensors) {
    of_each += sha256_of(x);
  }
  return sha256(of_each);
}

std::vector<std::pair<std::string, std::string>> parsed(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = std::min(line.find('\t'), line.size() - 1);
    result.emplace_back(line.substr(0, tab), line.substr(tab + 1));
  }
  return result;
}

}  // namespace

std::string facts_of(const TrainingState& run) {
  std::vector<std::pair<std::string, std::string>> all{
      {"version", std::string(version())},
      {"libraries", versions_json()},
      {"byte order", std::endian::native == std::endian::little ? "little endian" : "big endian"},
      {"training images", fmt::format("{} of {}", run.train_set->info().size, run.train_set->info().name)},
      {"contents of the training images", fingerprint(*run.train_set)},
      {"contents of the test images", fingerprint(*run.test_set)},
      {"step", std::to_string(run.step)},
      {"weights", fingerprint(run.model->named_parameters())}};
  std::istringstream recipe(to_toml(run.recipe));
  for (std::string line; std::getline(recipe, line);) {
    if (const size_t sign = line.find(" = "); sign != std::string::npos && !line.starts_with("data-dir")) {
      all.emplace_back("--" + line.substr(0, sign), line.substr(sign + 3));
    }
  }
  std::string text;
  for (const auto& [name, value] : all) {
    text += fmt::format("{}\t{}\n", name, value);
  }
  return text;
}

std::string difference_of_facts(const std::string& first, const std::string& other) {
  const auto expected = parsed(first);
  const auto got = parsed(other);
  for (const auto& [name, value] : expected) {
    const auto found = std::ranges::find(got, name, &std::pair<std::string, std::string>::first);
    if (found == got.end() || found->second != value) {
      return fmt::format("{}: expected {}, as rank 0 has, got {}", name, excerpt(value),
                         found == got.end() ? "none" : excerpt(found->second));
    }
  }
  for (const auto& [name, value] : got) {
    if (std::ranges::find(expected, name, &std::pair<std::string, std::string>::first) == expected.end()) {
      return fmt::format("{}: expected none, as rank 0 has, got {}", name, excerpt(value));
    }
  }
  return "";
}

}  // namespace norma::train
