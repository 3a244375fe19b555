#pragma once

#include "base/not_copied.h"
#include "nn/module.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace norma::nn {

// Norms by name, as on the command line:
//   batch, sync_batch, frozen_batch, ghost_batch, batch_renorm, layer2d, group, instance, rms2d, simple2d,
//   local_response, evonorm_b0, evonorm_s0, frn, grn, dyt, derf, seednorm, none
//   group      32 groups, or the largest divisor of the channels below that; evonorm_s0 likewise
//   group:32   32 groups; an Error where they do not divide the channels
//   group/8    8 channels per group
//   batch[momentum=0.01,eps=1e-3], layer2d[statistics=sum_of_squares], group:8[affine=false]   options in brackets
// docs/norms.md has the options of each and their defaults, which are those of PyTorch and timm.

/// A parsed and checked norm spec.
struct NormChoice {
  std::string name;                            ///< "group"
  std::optional<int64_t> groups;               ///< the 32 of "group:32"
  std::optional<int64_t> channels_per_group;   ///< the 8 of "group/8"
  std::map<std::string, std::string> options;  ///< {"eps", "1e-3"}

  bool operator==(const NormChoice&) const = default;
  /// The number given for an option, or `otherwise`. Throws Error for a value that is not a number.
  [[nodiscard]] double number(const std::string& option, double otherwise) const;
  /// As number(), for a whole number above 0.
  [[nodiscard]] int64_t count(const std::string& option, int64_t otherwise) const;
  /// As number(), for true and false.
  [[nodiscard]] bool flag(const std::string& option, bool otherwise) const;
  /// The text given for an option, or `otherwise`.
  [[nodiscard]] std::string text(const std::string& option, const std::string& otherwise) const;
};

/// The text that parse_norm() reads: "group:8[eps=1e-3]".
std::string to_string(const NormChoice& choice);

/// The definition of one kind of norm.
struct NormDefinition {
  /// Makes the layer for an input (N, channels, H, W).
  std::function<std::shared_ptr<Module>(const NormChoice& choice, int64_t channels)> make;
  std::vector<std::string> options = {};  ///< names allowed in brackets
  bool takes_groups = false;              ///< ":32" and "/8" are allowed
  /// Statistics are taken over the pixels of one channel of one image, so one pixel leaves nothing to normalize.
  /// Networks then put layer2d behind global pooling.
  bool needs_pixels = false;
  /// The layer makes its parameters in its first forward pass, when it sees the size of images. Pass one image through
  /// a network with such a layer before training or loading it.
  bool lazy = false;
  /// Throws Error for a value that `make` would refuse, so that a mistake shows before anything is built. May be empty.
  std::function<void(const NormChoice& choice)> check = {};
};

/// Reads a norm spec. Throws Error for an unknown norm or option (with the nearest known name) and for a bad value.
NormChoice parse_norm(const std::string& text);

/// The choice with a network's own default for an option that the norm has and the choice does not set.
NormChoice with_default(NormChoice choice, const std::string& option, const std::string& value);

/// The choice with every option that its layer reads: "batch" and "batch[eps=1e-5]" give the same. Makes such a layer.
/// "group" and "group:32" differ: with few channels they are different norms. Some layers read options that
/// parse_norm() refuses for them; the result has the defaults of these.
NormChoice complete_choice(const NormChoice& choice);

/// A norm layer for `channels` channels. Throws Error when groups do not divide the channels.
std::shared_ptr<Module> make_norm(const NormChoice& choice, int64_t channels);
std::shared_ptr<Module> make_norm(const std::string& text, int64_t channels);

/// True iff a registered norm is lazy.
bool has_lazy_norms();
/// Passes one image of zeros with the sizes of `images`, (N, C, H, W), through a float32 network in evaluation mode, so
/// that lazy norms make their parameters. The network's modes stay as they were.
void make_lazy_parameters(Module& network, const Sizes& images);

/// All registered names, in the order of registration.
std::vector<std::string> norm_names();
/// The definition of a registered norm. Throws Error for an unknown name, with the nearest known one.
const NormDefinition& norm_definition(const std::string& name);
/// Adds a norm, or replaces one that was added, for every network and command. Throws Error for a built-in norm's name,
/// and for one that is empty or has one of the characters :/[],= or a space.
void register_norm(const std::string& name, NormDefinition definition);
/// While one is alive, register_norm() throws Error for a name that is already registered.
class NewNormsOnly : Temporarily<bool> {
 public:
  NewNormsOnly();
};
/// Adds a norm that has no options.
void register_norm(const std::string& name, std::function<std::shared_ptr<Module>(int64_t channels)> make);

/// Norms by name, in the order in which they are shown.
using NormRegistry = std::vector<std::pair<std::string, NormDefinition>>;

/// Every norm that can stand in a network in place of another.
NormRegistry built_in_norms();

}  // namespace norma::nn
