#include "train/initial_weights.h"

#include "core/copy.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "models/parameter_depths.h"
#include "models/state_dict_names.h"
#include "nn/norm/norm.h"
#include "train/checkpoint.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace norma::train {

namespace {

constexpr const char* kOp = "initial-checkpoint";

/// The tensors under Norma's names: timm's for ConvNeXt, and torchvision's, which are also timm's, for ResNet. Names of
/// no library stay as they are, since they may be a plug-in's, or those of a norm that no library has.
nn::NamedTensors with_own_names(const std::string& file, const nn::NamedTensors& tensors, std::string& library) {
  const std::optional<models::Dialect> dialect = models::recognize_dialect(tensors);
  if (!dialect) {
    return models::unwrapped_state_dict(tensors);
  }
  library = fmt::format(", under names of {}", models::to_string(*dialect));
  try {
    return models::rename_state_dict(tensors, *dialect, models::Dialect::timm).tensors;
  } catch (const Error& error) {
    fail(kOp, "{}: {}", file, error.what());
  }
}

/// The path of the module that a tensor of this name belongs, or would belong, to; "" for the network itself.
std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

std::set<std::string> paths_of_norms(const nn::Module& model) {
  std::set<std::string> paths;
  for (const auto& [path, module] : model.named_modules()) {
    if (dynamic_cast<const nn::Norm*>(module) != nullptr) {
      paths.insert(path);
    }
  }
  return paths;
}

std::string list_text(std::string_view before, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("; {}: {}", before, excerpt_list(names));
}

}  // namespace

std::string load_initial_weights(nn::Module& model, const Recipe& recipe) {
  const std::filesystem::path file = recipe.initial_checkpoint;
  std::string library;
  const nn::NamedTensors given =
      with_own_names(file.string(), load_weights(file, recipe.use_ema ? Weights::ema : Weights::model), library);
  check_finite(kOp, file.string(), given);
  const std::set<std::string> norms = paths_of_norms(model);
  const std::string head = models::classifier_path(model);
  std::map<std::string, Tensor> left(given.begin(), given.end());

  nn::NamedTensors dict;
  std::vector<std::string> anew;
  std::vector<std::string> unused;
  size_t taken = 0;
  const nn::NamedTensors own = model.state_dict();
  for (const auto& [name, x] : own) {
    const auto found = left.find(name);
    const bool fits = found != left.end() && found->second.numel() == x.numel();
    const bool of_head = module_of(name) == head;
    const bool of_norm = norms.contains(module_of(name));
    if (fits && !(of_head && recipe.reset_head)) {
      dict.emplace_back(name, found->second);
      ++taken;
    } else if (of_head ? recipe.reset_head || !recipe.strict : of_norm && !recipe.strict) {
      dict.emplace_back(name, copy_of(x.detach(), MemoryFormat::contiguous));
      if (!nn::is_counter(name)) {
        anew.push_back(name);
      }
    } else if (found != left.end()) {
      dict.emplace_back(name, found->second);  // load_tensors() refuses it
    }
    if (found != left.end()) {
      left.erase(found);
    }
  }
  for (const auto& [name, x] : given) {
    if (left.contains(name)) {
      if (norms.contains(module_of(name)) && !recipe.strict) {
        if (!nn::is_counter(name)) {
          unused.push_back(name);
        }
      } else {
        dict.emplace_back(name, x);  // likewise
      }
    }
  }
  load_tensors(model, recipe.model, file, dict, given);
  return fmt::format("{}: {} of {} tensors are taken from {}{}{}{}", kOp, taken, own.size(), file.string(), library,
                     list_text("start values", anew), list_text("not used", unused));
}

}  // namespace norma::train
