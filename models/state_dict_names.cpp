#include "models/state_dict_names.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "models/registry.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>

namespace norma::models {

namespace {

constexpr const char* kOp = "convert";
constexpr std::array<std::string_view, 3> kWrappers = {"module.", "model.", "_orig_mod."};
/// The name that torch.optim.swa_utils.AveragedModel keeps beside the weights.
constexpr std::string_view kAverageCounter = "n_averaged";

/// Names of parts of a ConvNeXt's blocks in timm, Facebook's code and torchvision ("": it has none).
struct BlockPart {
  std::string_view timm;
  std::string_view facebook;
  std::string_view torchvision;
};
constexpr std::array<BlockPart, 11> kBlockParts = {{{"gamma", "gamma", "layer_scale"},
                                                    {"conv_dw.weight", "dwconv.weight", "block.0.weight"},
                                                    {"conv_dw.bias", "dwconv.bias", "block.0.bias"},
                                                    {"norm.weight", "norm.weight", "block.2.weight"},
                                                    {"norm.bias", "norm.bias", "block.2.bias"},
                                                    {"mlp.fc1.weight", "pwconv1.weight", "block.3.weight"},
                                                    {"mlp.fc1.bias", "pwconv1.bias", "block.3.bias"},
                                                    {"mlp.fc2.weight", "pwconv2.weight", "block.5.weight"},
                                                    {"mlp.fc2.bias", "pwconv2.bias", "block.5.bias"},
                                                    {"mlp.grn.weight", "grn.gamma", ""},
                                                    {"mlp.grn.bias", "grn.beta", ""}}};
/// Names of the parts of its head: norm and classifier.
constexpr std::array<BlockPart, 4> kHeadParts = {{{"head.norm.weight", "norm.weight", "classifier.0.weight"},
                                                  {"head.norm.bias", "norm.bias", "classifier.0.bias"},
                                                  {"head.fc.weight", "head.weight", "classifier.2.weight"},
                                                  {"head.fc.bias", "head.bias", "classifier.2.bias"}}};

std::string_view part_of(const BlockPart& part, Dialect dialect) {
  switch (dialect) {
    case Dialect::torchvision: return part.torchvision;
    case Dialect::timm: return part.timm;
    default: return part.facebook;
  }
}

/// Translates the end of a name from one dialect to another; none if there is no such part.
template <size_t N>
std::optional<std::string_view> translate(const std::array<BlockPart, N>& parts, std::string_view name, Dialect from,
                                          Dialect to) {
  for (const BlockPart& part : parts) {
    if (!name.empty() && part_of(part, from) == name) {
      return part_of(part, to);
    }
  }
  return std::nullopt;
}

/// Takes the number and the dot at the beginning of `text` off it; none if it does not begin so.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || end == text.data() + text.size() || *end != '.') {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return number;
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) {
    return false;
  }
  text.remove_prefix(prefix.size());
  return true;
}

/// "0.weight" … "1.bias": two layers in a row.
bool is_pair(std::string_view text) {
  return text == "0.weight" || text == "0.bias" || text == "1.weight" || text == "1.bias";
}

constexpr int64_t kStages = 4;

/// The place of a ConvNeXt's tensor in the network.
struct Place {
  enum class Kind { stem, downsample, block, head } kind = Kind::stem;
  int64_t stage = 0;
  int64_t block = 0;
  std::string rest;  ///< in timm's words
};

std::optional<Place> block_place(std::string_view rest, int64_t stage, Dialect from) {
  const std::optional<int64_t> block = take_number(rest);
  const auto part = translate(kBlockParts, rest, from, Dialect::timm);
  if (!block || !part) {
    return std::nullopt;
  }
  return Place{.kind = Place::Kind::block, .stage = stage, .block = *block, .rest = std::string(*part)};
}

/// The first of the four places has the stem; the others have the layers that halve the image before a stage.
std::optional<Place> between_place(std::string_view rest, int64_t stage) {
  if (!is_pair(rest)) {
    return std::nullopt;
  }
  return Place{
      .kind = stage == 0 ? Place::Kind::stem : Place::Kind::downsample, .stage = stage, .rest = std::string(rest)};
}

std::optional<Place> place_in_timm(std::string_view name) {
  if (take(name, "stem.")) {
    return between_place(name, 0);
  }
  if (!take(name, "stages.")) {
    return std::nullopt;
  }
  const std::optional<int64_t> stage = take_number(name);
  if (!stage || *stage >= kStages) {
    return std::nullopt;
  }
  if (take(name, "blocks.")) {
    return block_place(name, *stage, Dialect::timm);
  }
  return *stage > 0 && take(name, "downsample.") ? between_place(name, *stage) : std::nullopt;
}

std::optional<Place> place_in_facebook(std::string_view name) {
  const bool between = take(name, "downsample_layers.");
  if (!between && !take(name, "stages.")) {
    return std::nullopt;
  }
  const std::optional<int64_t> stage = take_number(name);
  if (!stage || *stage >= kStages) {
    return std::nullopt;
  }
  return between ? between_place(name, *stage) : block_place(name, *stage, Dialect::facebook);
}

std::optional<Place> place_in_torchvision(std::string_view name) {
  if (!take(name, "features.")) {
    return std::nullopt;
  }
  const std::optional<int64_t> index = take_number(name);
  if (!index || *index >= 2 * kStages) {
    return std::nullopt;
  }
  return *index % 2 == 0 ? between_place(name, *index / 2) : block_place(name, *index / 2, Dialect::torchvision);
}

std::optional<Place> place_of(const std::string& name, Dialect dialect) {
  if (const auto part = translate(kHeadParts, name, dialect, Dialect::timm)) {
    return Place{.kind = Place::Kind::head, .rest = std::string(*part)};
  }
  switch (dialect) {
    case Dialect::torchvision: return place_in_torchvision(name);
    case Dialect::timm: return place_in_timm(name);
    default: return place_in_facebook(name);
  }
}

/// The name of the tensor at a place; "" if the dialect has no such tensor.
std::string name_of(const Place& place, Dialect dialect) {
  const bool timm = dialect == Dialect::timm;
  const bool facebook = dialect == Dialect::facebook;
  switch (place.kind) {
    case Place::Kind::head: return std::string(translate(kHeadParts, place.rest, Dialect::timm, dialect).value());
    case Place::Kind::stem: return (timm ? "stem." : facebook ? "downsample_layers.0." : "features.0.") + place.rest;
    case Place::Kind::downsample:
      return timm       ? fmt::format("stages.{}.downsample.{}", place.stage, place.rest)
             : facebook ? fmt::format("downsample_layers.{}.{}", place.stage, place.rest)
                        : fmt::format("features.{}.{}", 2 * place.stage, place.rest);
    default: {
      const std::string_view part = translate(kBlockParts, place.rest, Dialect::timm, dialect).value();
      return part.empty() ? ""
             : timm       ? fmt::format("stages.{}.blocks.{}.{}", place.stage, place.block, part)
             : facebook   ? fmt::format("stages.{}.{}.{}", place.stage, place.block, part)
                          : fmt::format("features.{}.{}.{}", 2 * place.stage + 1, place.block, part);
    }
  }
}

/// Adds or removes axes of size 1 at the end or at the beginning; the others stay.
Tensor with_sizes(const std::string& name, const Tensor& x, const Sizes& sizes) {
  check(x.numel() == sizes.numel(), kOp, "tensor '{}': expected {} elements, for sizes {}, got sizes {}", excerpt(name),
        sizes.numel(), to_string(sizes), to_string(x.sizes()));
  return x.sizes() == sizes ? x : reshape(x, sizes);
}

/// The sizes of a block's tensor in a dialect, from those that it has; `conv_mlp`: timm has convolutions there.
Sizes sizes_of(const Place& place, const Tensor& x, Dialect dialect, bool conv_mlp) {
  if (place.kind != Place::Kind::block) {
    return x.sizes();
  }
  if (place.rest == "gamma") {
    return dialect == Dialect::torchvision ? Sizes{x.numel(), 1, 1} : Sizes{x.numel()};
  }
  if (place.rest.starts_with("mlp.grn.")) {
    return dialect == Dialect::facebook ? Sizes{1, 1, 1, x.numel()} : Sizes{x.numel()};
  }
  if ((place.rest == "mlp.fc1.weight" || place.rest == "mlp.fc2.weight") && x.rank() >= 2) {
    return dialect == Dialect::timm && conv_mlp ? Sizes{x.size(0), x.size(1), 1, 1} : Sizes{x.size(0), x.size(1)};
  }
  return x.sizes();
}

/// True iff timm's network with these tensors has convolutions in its MLPs. Tensors from timm show it; for others
/// recognize_model() finds timm's network.
bool has_conv_mlp(const nn::NamedTensors& timm, Dialect from) {
  const auto has_convolution = [](const nn::NamedTensors& tensors) {
    return std::any_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
      return tensor.first.ends_with(".mlp.fc1.weight") && tensor.second.rank() == 4;
    });
  };
  const std::string model = from == Dialect::timm ? "" : recognize_model(timm);
  return has_convolution(model.empty() ? timm
                                       : create_model(model, {.num_classes = 1, .initialize = false})->state_dict());
}

bool is_resnet_name(std::string_view name) {
  for (const std::string_view prefix : {"conv1.", "bn1.", "layer1.", "layer2.", "layer3.", "layer4.", "fc."}) {
    if (name.starts_with(prefix)) {
      return true;
    }
  }
  return false;
}

/// "; it is timm's" for a name that another dialect knows.
std::string other_dialect(const std::string& name) {
  for (const Dialect dialect : {Dialect::torchvision, Dialect::timm, Dialect::facebook}) {
    if (place_of(name, dialect)) {
      return fmt::format("; it is one of {}'s: --from {}", to_string(dialect), to_string(dialect));
    }
  }
  return "";
}

/// The place of each tensor of a ConvNeXt.
std::vector<Place> places_of(const nn::NamedTensors& tensors, Dialect from) {
  std::vector<Place> places;
  for (const auto& [name, x] : tensors) {
    const std::optional<Place> place = place_of(name, from);
    check(place.has_value(), kOp, "tensor '{}': expected a name of {}'s ConvNeXt{}{}", excerpt(name), to_string(from),
          from == Dialect::facebook ? "" : " or ResNet", place ? "" : other_dialect(name));
    places.push_back(*place);
  }
  return places;
}

nn::NamedTensors convnext(const nn::NamedTensors& tensors, Dialect from, Dialect to) {
  const std::vector<Place> places = places_of(tensors, from);
  nn::NamedTensors timm;
  for (size_t i = 0; i < tensors.size(); ++i) {
    timm.emplace_back(name_of(places[i], Dialect::timm), tensors[i].second);
  }
  const bool conv_mlp = has_conv_mlp(timm, from);
  nn::NamedTensors result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = name_of(places[i], to);
    check(!name.empty(), kOp, "tensor '{}': {} has no ConvNeXt V2", excerpt(tensors[i].first), to_string(to));
    const Tensor& x = tensors[i].second;
    result.emplace_back(name, with_sizes(tensors[i].first, x, sizes_of(places[i], x, to, conv_mlp)));
  }
  return result;
}

}  // namespace

const char* to_string(Dialect dialect) {
  switch (dialect) {
    case Dialect::torchvision: return "torchvision";
    case Dialect::timm: return "timm";
    default: return "facebook";
  }
}

std::vector<std::string> dialect_names() {
  return {to_string(Dialect::torchvision), to_string(Dialect::timm), to_string(Dialect::facebook)};
}

nn::NamedTensors unwrapped_state_dict(const nn::NamedTensors& tensors) {
  nn::NamedTensors result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const auto& tensor) { return tensor.first != kAverageCounter; });
  size_t wrapped = 0;  // the wrappers' characters, taken off at the end, as there may be very many
  for (bool again = !result.empty(); again;) {
    again = false;
    for (const std::string_view wrapper : kWrappers) {
      const bool all = std::all_of(result.begin(), result.end(), [&](const auto& tensor) {
        const std::string_view name = std::string_view(tensor.first).substr(wrapped);
        return name.starts_with(wrapper) && name.size() > wrapper.size();
      });
      wrapped += all ? wrapper.size() : 0;
      again = again || all;
    }
  }
  for (auto& [name, x] : result) {
    name.erase(0, wrapped);
  }
  return result;
}

std::optional<Dialect> recognize_dialect(const nn::NamedTensors& tensors) {
  const nn::NamedTensors plain = unwrapped_state_dict(tensors);
  const auto all = [&](const auto& is_known) {
    return std::all_of(plain.begin(), plain.end(), [&](const auto& tensor) { return is_known(tensor.first); });
  };
  if (all([](const std::string& name) { return is_resnet_name(name); })) {
    return Dialect::torchvision;
  }
  for (const Dialect dialect : {Dialect::timm, Dialect::torchvision, Dialect::facebook}) {
    if (all([&](const std::string& name) { return place_of(name, dialect).has_value(); })) {
      return dialect;
    }
  }
  return std::nullopt;
}

Renamed rename_state_dict(const nn::NamedTensors& tensors, Dialect from, Dialect to) {
  Renamed result;
  nn::NamedTensors weights;
  for (const auto& tensor : tensors) {
    if (tensor.first == kAverageCounter) {
      result.dropped.push_back(tensor.first);
    } else {
      weights.push_back(tensor);
    }
  }
  const nn::NamedTensors plain = unwrapped_state_dict(weights);
  const bool is_resnet =
      std::any_of(plain.begin(), plain.end(), [](const auto& tensor) { return is_resnet_name(tensor.first); });
  if (is_resnet) {
    for (const Dialect dialect : {from, to}) {
      check(dialect != Dialect::facebook, kOp, "tensor '{}': expected a ConvNeXt, as facebook has no ResNet",
            excerpt(plain.front().first));
    }
    for (const auto& [name, x] : plain) {
      check(is_resnet_name(name), kOp, "tensor '{}': expected a name of a ResNet, as others are", excerpt(name));
    }
  }
  result.tensors = is_resnet ? plain : convnext(plain, from, to);
  std::set<std::string_view> names;
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& [before, x] = weights[i];
    const auto& [after, y] = result.tensors[i];
    check(names.insert(after).second, kOp, "tensor '{}': '{}' would be there twice", excerpt(before), excerpt(after));
    if (before != after) {
      result.changed.emplace_back(before, after);
    }
    if (!(x.sizes() == y.sizes())) {
      result.reshaped.push_back(
          fmt::format("{}: {} → {}", after, norma::to_string(x.sizes()), norma::to_string(y.sizes())));
    }
  }
  return result;
}

}  // namespace norma::models
