#include "models/state_dict_names.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "models/registry.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace norma::models {

namespace {

constexpr const char* kOp = "weights";
constexpr std::array<std::string_view, 4> kDialects = {"torchvision", "timm", "facebook", "huggingface"};
/// A training program's file holds the weights in one of these dicts, beside its optimizer and counts.
constexpr std::array<std::string_view, 5> kDicts = {"state_dict.", "model_state_dict.", "model.", "net.", "weights."};
constexpr std::array<std::string_view, 3> kWrappers = {"module.", "model.", "_orig_mod."};
/// Hugging Face's name of the network without its classifier.
constexpr std::array<std::string_view, 5> kBases = {"resnet.", "convnext.", "convnextv2.", "vit.", "deit."};
/// Its linear layers of queries, keys and values, which are one in timm.
constexpr std::array<std::string_view, 3> kQkv = {".attn.query.", ".attn.key.", ".attn.value."};
constexpr std::string_view kJoined = ".attn.qkv.";
/// The name that torch.optim.swa_utils.AveragedModel keeps beside the weights.
constexpr std::string_view kAverageCounter = "n_averaged";

/// What the dialects call a module or a tensor, in their order; "": they have none. # is the number of a block.
using Row = std::array<std::string, kDialects.size()>;

std::vector<Row> make_rows() {
  std::vector<Row> rows;
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < 2; ++i) {  // the stem, or the two layers that lead into a stage
      rows.push_back({fmt::format("features.{}.{}", 2 * stage, i),
                      stage == 0 ? fmt::format("stem.{}", i) : fmt::format("stages.{}.downsample.{}", stage, i),
                      fmt::format("downsample_layers.{}.{}", stage, i),
                      stage > 0 ? fmt::format("encoder.stages.{}.downsampling_layer.{}", stage, i)
                      : i == 0  ? "embeddings.patch_embeddings"
                                : "embeddings.layernorm"});
      rows.push_back(
          {fmt::format("layer{}.#.downsample.{}", stage + 1, i), fmt::format("layer{}.#.downsample.{}", stage + 1, i),
           "", fmt::format("encoder.stages.{}.layers.#.shortcut.{}", stage, i == 0 ? "convolution" : "normalization")});
    }
    for (const Row& part :
         {Row{"layer_scale", "gamma", "gamma", "layer_scale_parameter"}, Row{"block.0", "conv_dw", "dwconv", "dwconv"},
          Row{"block.2", "norm", "norm", "layernorm"}, Row{"block.3", "mlp.fc1", "pwconv1", "pwconv1"},
          Row{"block.5", "mlp.fc2", "pwconv2", "pwconv2"}, Row{"", "mlp.grn.weight", "grn.gamma", "grn.weight"},
          Row{"", "mlp.grn.bias", "grn.beta", "grn.bias"}}) {
      rows.push_back({part[0].empty() ? "" : fmt::format("features.{}.#.{}", 2 * stage + 1, part[0]),
                      fmt::format("stages.{}.blocks.#.{}", stage, part[1]),
                      fmt::format("stages.{}.#.{}", stage, part[2]),
                      fmt::format("encoder.stages.{}.layers.#.{}", stage, part[3])});
    }
    for (int i = 0; i < 3; ++i) {
      for (const auto& [own, theirs] : {std::pair("conv", "convolution"), std::pair("bn", "normalization")}) {
        const std::string name = fmt::format("layer{}.#.{}{}", stage + 1, own, i + 1);
        rows.push_back({name, name, "", fmt::format("encoder.stages.{}.layers.#.layer.{}.{}", stage, i, theirs)});
      }
    }
  }
  for (const Row& part :
       {Row{"ln_1", "norm1", "", "layernorm_before"}, Row{"self_attention.in_proj_weight", "attn.qkv.weight"},
        Row{"self_attention.in_proj_bias", "attn.qkv.bias"},
        Row{"self_attention.out_proj", "attn.proj", "", "attention.output.dense"},
        Row{"", "attn.query", "", "attention.attention.query"}, Row{"", "attn.key", "", "attention.attention.key"},
        Row{"", "attn.value", "", "attention.attention.value"}, Row{"ln_2", "norm2", "", "layernorm_after"},
        Row{"mlp.0", "mlp.fc1", "", "intermediate.dense"}, Row{"mlp.3", "mlp.fc2", "", "output.dense"},
        Row{"mlp.linear_1", "mlp.fc1"}, Row{"mlp.linear_2", "mlp.fc2"}}) {
    const auto behind = [](const char* block, const std::string& name) { return name.empty() ? name : block + name; };
    rows.push_back({behind("encoder.layers.encoder_layer_#.", part[0]), behind("blocks.#.", part[1]), "",
                    behind("encoder.layer.#.", part[3])});
  }
  for (const char* const timm_only : {"norm1_post", "norm1_in", "norm1_out", "norm2_post", "norm2_in", "norm2_out",
                                      "attn.q_norm", "attn.k_norm", "ls1", "ls2"}) {
    rows.push_back({"", fmt::format("blocks.#.{}", timm_only), "", ""});
  }
  rows.insert(rows.end(), {{"conv1", "conv1", "", "embedder.embedder.convolution"},
                           {"bn1", "bn1", "", "embedder.embedder.normalization"},
                           {"fc", "fc", "", "classifier.1"},
                           {"classifier.0", "head.norm", "norm", "layernorm"},
                           {"classifier.2", "head.fc", "head", "classifier"},
                           {"class_token", "cls_token", "", "embeddings.cls_token"},
                           {"encoder.pos_embedding", "pos_embed", "", "embeddings.position_embeddings"},
                           {"encoder.ln", "norm", "", "layernorm"},
                           {"", "fc_norm", "", ""},
                           {"", "patch_embed.norm", "", ""},
                           {"", "norm_pre", "", ""},
                           {"heads.head", "head", "", "classifier"}});
  // Before the row of a ConvNeXt's stem, whose name at Hugging Face is the beginning of this one.
  rows.insert(rows.begin(), {"conv_proj", "patch_embed.proj", "", "embeddings.patch_embeddings.projection"});
  return rows;
}

bool take(std::string_view& text, std::string_view prefix) {
  const bool found = text.starts_with(prefix);
  text.remove_prefix(found ? prefix.size() : 0);
  return found;
}

/// A name in another dialect, the number of its block in the place of #; "" if `pattern` is not of the name.
std::string translated(std::string_view name, std::string_view pattern, std::string_view other) {
  std::string_view block;
  const size_t at = pattern.find('#');
  if (at != std::string_view::npos) {
    if (!take(name, pattern.substr(0, at))) {
      return "";
    }
    block = name.substr(0, std::min(name.find_first_not_of("0123456789"), name.size()));
    name.remove_prefix(block.size());
    pattern.remove_prefix(at + 1);
  }
  if (pattern.empty() || !take(name, pattern) || (!name.empty() && name[0] != '.') ||
      (at != std::string_view::npos && block.empty())) {
    return "";
  }
  const size_t to = std::min(other.find('#'), other.size());
  return fmt::format("{}{}{}{}", other.substr(0, to), block, other.substr(std::min(to + 1, other.size())), name);
}

/// The rows of a dialect by the first word of their names.
using RowsByWord = std::map<std::string, std::vector<Row>, std::less<>>;

std::string_view first_word(std::string_view name) {
  return name.substr(0, name.find('.'));
}

const RowsByWord& rows_of(Dialect dialect) {
  static const std::array<RowsByWord, kDialects.size()> all = [] {
    std::array<RowsByWord, kDialects.size()> by_word;
    for (const Row& row : make_rows()) {
      for (size_t i = 0; i < by_word.size(); ++i) {
        by_word[i][std::string(first_word(row[i]))].push_back(row);
      }
    }
    return by_word;
  }();
  return all[static_cast<size_t>(dialect)];
}

/// "" if one of the dialects has no such name.
std::string translated(std::string_view name, Dialect from, Dialect to) {
  if (from == Dialect::huggingface) {
    for (const std::string_view base : kBases) {
      take(name, base);
    }
  }
  const RowsByWord& rows = rows_of(from);
  const auto found = rows.find(first_word(name));
  if (found == rows.end()) {
    return "";
  }
  for (const Row& row : found->second) {
    const std::string& other = row[static_cast<size_t>(to)];
    std::string result = other.empty() ? "" : translated(name, row[static_cast<size_t>(from)], other);
    if (!result.empty()) {
      return result;
    }
  }
  return "";
}

/// A tensor of timm's ConvNeXt `name` with the sizes that it has in a dialect; as it is if they do not fit.
/// `conv_mlp`: timm has convolutions in the MLPs.
Tensor with_sizes_of(const std::string& name, const Tensor& x, Dialect dialect, bool conv_mlp) {
  Sizes sizes = x.sizes();
  if (name.ends_with(".gamma")) {
    sizes = dialect == Dialect::torchvision ? Sizes{x.numel(), 1, 1} : Sizes{x.numel()};
  } else if (name.find(".mlp.grn.") != std::string::npos) {
    sizes = dialect == Dialect::timm ? Sizes{x.numel()} : Sizes{1, 1, 1, x.numel()};
  } else if ((name.ends_with(".mlp.fc1.weight") || name.ends_with(".mlp.fc2.weight")) && x.rank() >= 2) {
    sizes = dialect == Dialect::timm && conv_mlp ? Sizes{x.size(0), x.size(1), 1, 1} : Sizes{x.size(0), x.size(1)};
  }
  return x.sizes() == sizes || x.numel() != sizes.numel() ? x : reshape(x, sizes);
}

/// timm's ConvNeXts with two blocks in the first stage have convolutions in their MLPs.
bool has_conv_mlp(const nn::NamedTensors& timm) {
  return std::ranges::none_of(timm, [](const auto& tensor) {
    return tensor.first.starts_with("stages.0.blocks.2.") || tensor.first.starts_with("blocks.");
  });
}

/// What stands after a prefix of a file.
struct Prefixed {
  std::string prefix;
  std::vector<size_t> places = {};      ///< of the tensors in the file
  std::vector<std::string> names = {};  ///< of these: Norma's where a dialect has them, else the file's
  std::optional<Dialect> dialect = {};  ///< none: of no known network
  bool has_own_sizes = true;            ///< Norma's
};

Prefixed tensors_after(const nn::NamedTensors& tensors, const std::string& prefix) {
  Prefixed result{.prefix = prefix};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string_view name = tensors[i].first;
    if (name.starts_with(prefix) && name.substr(prefix.size()) != kAverageCounter) {
      result.places.push_back(i);
      result.names.emplace_back(name.substr(prefix.size()));
    }
  }
  return result;
}

/// Gives the names Norma's form if one dialect knows all of them, or enough for a known network.
void recognize(const nn::NamedTensors& tensors, Prefixed& rest) {
  for (const Dialect dialect : {Dialect::timm, Dialect::torchvision, Dialect::facebook, Dialect::huggingface}) {
    std::vector<std::string> names = rest.names;
    nn::NamedTensors blocks;  // by which recognize_model() knows a network
    size_t known = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (std::string own = translated(names[i], dialect, Dialect::timm); !own.empty()) {
        names[i] = std::move(own);
        ++known;
      }
      if (names[i].starts_with("stages.") || names[i].starts_with("layer") || names[i].starts_with("blocks.")) {
        blocks.emplace_back(names[i], tensors[rest.places[i]].second);
      }
    }
    if (dialect == Dialect::huggingface && !blocks.empty() && blocks.front().first.starts_with("blocks.")) {
      for (std::string& name : names) {  // a ViT's norm and classifier have the names of a ConvNeXt's there
        for (const auto& [theirs, own] :
             {std::pair<std::string, const char*>{"head.norm.", "norm."}, {"head.fc.", "head."}}) {
          if (name.starts_with(theirs)) {
            name.replace(0, theirs.size(), own);
          }
        }
      }
    }
    // "head.weight" and "norm.weight" alone may be of any network.
    const bool ends_alone = std::ranges::all_of(rest.names, [](const std::string& name) {
      return name == "head.weight" || name == "head.bias" || name.starts_with("norm.");
    });
    const bool of_two = (dialect == Dialect::timm || dialect == Dialect::torchvision) && !ends_alone;
    const bool telling = of_two || !blocks.empty();
    if ((known > 0 && known == names.size() && telling) || !recognize_model(blocks).empty()) {
      // Names of ResNets are torchvision's, too, and more people know them as those.
      const bool is_resnet = std::ranges::any_of(
          names, [](const std::string& name) { return name.starts_with("layer") || name.starts_with("fc."); });
      rest.dialect = is_resnet && dialect == Dialect::timm ? Dialect::torchvision : dialect;
      rest.has_own_sizes = dialect == Dialect::timm;
      rest.names = std::move(names);
      return;
    }
  }
}

/// Queries, keys and values with one name in the place of three, in that order.
void join_qkv(FoundWeights& found) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < found.tensors.size(); ++i) {
    places.emplace(found.tensors[i].first, i);
  }
  std::set<size_t> joined;
  for (const auto& [name, query] : places) {
    const size_t at = name.find(kQkv[0]);
    if (at == std::string::npos) {
      continue;
    }
    const auto name_with = [&, n = name](std::string_view part) {
      return std::string(n).replace(at, kQkv[0].size(), part);
    };
    const auto key = places.find(name_with(kQkv[1]));
    const auto value = places.find(name_with(kQkv[2]));
    if (key != places.end() && value != places.end()) {
      const auto tensor = [&](size_t place) { return found.tensors[place].second; };
      const Tensor all = cat({tensor(query), tensor(key->second), tensor(value->second)}, 0);
      found.tensors[query] = {name_with(kJoined), all};
      joined.insert({key->second, value->second});
    }
  }
  for (auto place = joined.rbegin(); place != joined.rend(); ++place) {
    found.tensors.erase(found.tensors.begin() + static_cast<std::ptrdiff_t>(*place));
    found.in_file.erase(found.in_file.begin() + static_cast<std::ptrdiff_t>(*place));
  }
}

FoundWeights weights_of(const nn::NamedTensors& tensors, Prefixed rest) {
  FoundWeights found{.dialect = rest.dialect, .prefix = std::move(rest.prefix)};
  size_t next = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, x] = tensors[i];
    if (next < rest.places.size() && rest.places[next] == i) {
      found.tensors.emplace_back(std::move(rest.names[next]), x);
      found.in_file.push_back(name);
      ++next;
    } else {
      found.left_out.push_back(name);
    }
  }
  if (!rest.has_own_sizes) {
    const bool conv_mlp = has_conv_mlp(found.tensors);
    for (auto& [name, x] : found.tensors) {
      x = with_sizes_of(name, x, Dialect::timm, conv_mlp);
    }
    join_qkv(found);
  }
  return found;
}

/// True iff a part of a prefix is the name of averages: "state_dict_ema.", "ema_model.module.".
bool is_of_averages(const std::string& prefix) {
  std::string words = "_" + prefix;
  std::ranges::replace(words, '.', '_');
  return words.find("_ema_") != std::string::npos;
}

/// The place of a prefix's dict among those that hold the weights; a file's own names come first.
size_t rank_of(const std::string& prefix) {
  const auto* const dict =
      std::ranges::find_if(kDicts, [&](std::string_view known) { return prefix.starts_with(known); });
  return prefix.empty() ? 0 : 1 + static_cast<size_t>(dict - kDicts.begin());
}

/// The dict that holds the weights, and the wrappers that all names in it have.
std::string prefix_of_all(const nn::NamedTensors& tensors, const FindOptions& options) {
  std::string prefix;
  size_t rank = kDicts.size() + 1;
  for (const auto& [name, x] : tensors) {
    const std::string dict = name.substr(0, name.find('.') + 1);
    if (!dict.empty() && options.has_dicts && is_of_averages(dict) == options.averages &&
        rank_of(dict) < rank + (options.averages ? 1 : 0)) {
      prefix = dict;
      rank = rank_of(dict);
    }
  }
  constexpr int kMostWrappers = 16;
  for (int count = 0; count < kMostWrappers; ++count) {
    const auto* const wrapper = std::ranges::find_if(kWrappers, [&](std::string_view known) {
      return std::ranges::all_of(tensors, [&, all = prefix + std::string(known)](const auto& tensor) {
        const std::string_view name = tensor.first;
        return !name.starts_with(prefix) || name.starts_with(all) || name.substr(prefix.size()) == kAverageCounter;
      });
    });
    if (wrapper == kWrappers.end()) {
      break;
    }
    prefix += *wrapper;
  }
  return prefix;
}

/// Where networks may begin: what stands before the name of a first convolution.
std::vector<std::string> possible_prefixes(const nn::NamedTensors& tensors) {
  const auto shorter = [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  };
  std::set<std::string, decltype(shorter)> prefixes(shorter);
  for (const auto& [name, x] : tensors) {
    for (const std::string_view first :
         {"conv1.weight", "stem.0.weight", "features.0.0.weight", "downsample_layers.0.0.weight",
          "embedder.embedder.convolution.weight", "embeddings.patch_embeddings.weight",
          "embeddings.patch_embeddings.projection.weight", "patch_embed.proj.weight", "conv_proj.weight"}) {
      if (name.ends_with(first)) {
        std::string prefix = name.substr(0, name.size() - first.size());
        for (const std::string_view base : kBases) {  // the classifier stands beside it
          prefix.resize(prefix.size() - (prefix.ends_with(base) ? base.size() : 0));
        }
        if (prefix.empty() || prefix.back() == '.') {
          prefixes.insert(std::move(prefix));
        }
      }
    }
  }
  constexpr size_t kMost = 100;  // blocks have such convolutions, too
  std::vector<std::string> result(prefixes.begin(), prefixes.end());
  result.resize(std::min(result.size(), kMost));
  return result;
}

}  // namespace

const char* to_string(Dialect dialect) {
  return kDialects[static_cast<size_t>(dialect)].data();
}

std::vector<std::string> dialect_names() {
  return {kDialects.begin(), kDialects.end()};
}

FoundWeights find_weights(const std::string& file, const nn::NamedTensors& tensors, const FindOptions& options) {
  const std::string part = "." + options.prefix + (options.prefix.ends_with('.') ? "" : ".");
  const auto wanted = [&](const std::string& prefix) {
    return (options.prefix.empty() || ("." + prefix).find(part) != std::string::npos) &&
           (!options.averages || is_of_averages(prefix));
  };
  // A tensor stands after a few of the prefixes: "", "encoder.", "encoder.layer1.0.". A made-up file in which it
  // stands after a hundred ends the search, whose time stays in proportion to the file.
  constexpr size_t kMostTimes = 16;
  size_t looked_at = 0;
  std::vector<Prefixed> networks;
  std::string seen;
  for (const std::string& prefix : possible_prefixes(tensors)) {
    Prefixed found = tensors_after(tensors, prefix);
    looked_at += found.places.size();
    if (looked_at > kMostTimes * tensors.size()) {
      break;
    }
    recognize(tensors, found);
    if (found.dialect) {
      seen += (seen.empty() ? "" : ", ") + excerpt(prefix);
      if (wanted(prefix)) {
        networks.push_back(std::move(found));
      }
    }
  }
  const auto better = [&](const Prefixed& a, const Prefixed& b) {
    const auto rank = [&](const Prefixed& network) {
      return std::pair(is_of_averages(network.prefix) != options.averages, rank_of(network.prefix));
    };
    return rank(a) < rank(b);
  };
  std::ranges::stable_sort(networks, better);
  check(networks.size() < 2 || better(networks[0], networks[1]), kOp,
        "{}: expected the weights of one network, got several, behind {}; --weights-prefix names one", file, seen);
  if (!networks.empty()) {
    return weights_of(tensors, std::move(networks[0]));
  }
  const std::string prefix = prefix_of_all(tensors, options);
  check(!options.averages || is_of_averages(prefix), kOp,
        "{}: expected averages of the weights (state_dict_ema, model_ema, …), got none", file);
  check(wanted(prefix), kOp,
        "{}: --weights-prefix: expected one that stands before the names of a network ({}), got '{}'", file,
        seen.empty() ? "there is none" : seen, options.prefix);
  Prefixed rest = tensors_after(tensors, prefix);
  recognize(tensors, rest);
  return weights_of(tensors, std::move(rest));
}

bool is_in_network(std::string_view name) {
  return rows_of(Dialect::timm).contains(first_word(name));
}

nn::NamedTensors renamed(const nn::NamedTensors& tensors, Dialect to) {
  nn::NamedTensors result;
  const bool conv_mlp = has_conv_mlp(tensors);
  for (const auto& [own, x] : tensors) {
    if (const size_t at = own.find(kJoined); to == Dialect::huggingface && at != std::string::npos && x.rank() > 0) {
      const int64_t third = x.size(0) / 3;
      for (size_t i = 0; i < kQkv.size(); ++i) {
        const std::string part = std::string(own).replace(at, kJoined.size(), kQkv[i]);
        result.emplace_back(translated(part, Dialect::timm, to), narrow(x, 0, static_cast<int64_t>(i) * third, third));
      }
      continue;
    }
    std::string name = translated(own, Dialect::timm, to);
    check(!name.empty(), "convert", "tensor '{}': {} has none of this name, or of a network like this", excerpt(own),
          to_string(to));
    result.emplace_back(std::move(name), with_sizes_of(own, x, to, conv_mlp));
  }
  return result;
}

}  // namespace norma::models
