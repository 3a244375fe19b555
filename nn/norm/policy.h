#pragma once

#include "nn/freeze.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::nn {

class Module;

// Chooses the norm of each layer. A policy is a TOML file of name patterns and norm specs (nn/norm/factory.h):
//
//   "layer4.*" = "group:32"
//   "bn1" = "layer2d[eps=1e-3]"
//   "layer[12].*.bn?" = "none"
//   freeze = "layer1.*,bn1.*"
//   placement = "pre"
//
// Patterns are those of matches_pattern() (nn/policy_file.h). The last line whose pattern matches a layer decides. The
// line `freeze` is for training: it lists patterns for freeze() (nn/freeze.h). The line `placement` says where the
// norms of the residual blocks stand; create_model() reads it (models/registry.h).

struct NormRule {
  std::string pattern;
  std::string norm;
  int64_t line = 0;  ///< number of the line in the file
};

/// The place of the norms in a residual block x + branch(x). Pre-LN and Post-LN are as Xiong et al. define them ("On
/// Layer Normalization in the Transformer Architecture", arXiv 2002.04745, 2020), Peri-LN as Kim et al. do (arXiv
/// 2502.02732, 2025).
enum class NormPlacement : uint8_t {
  inside,  ///< between the layers of the branch: in a ConvNeXt between the depthwise convolution and the MLP
  pre,     ///< Pre-LN, before the branch: x + branch(norm(x))
  post,    ///< Post-LN, behind the sum: norm(x + branch(x))
  peri,    ///< Peri-LN, at both ends of the branch: x + norm(branch(norm(x)))
};
inline constexpr std::array kNormPlacements = {NormPlacement::inside, NormPlacement::pre, NormPlacement::post,
                                               NormPlacement::peri};
std::string_view to_string(NormPlacement placement);

struct NormPolicy {
  std::string source;           ///< the file's name, for messages
  std::vector<NormRule> rules;  ///< in the order of the file
  std::vector<FreezePattern> freeze = {};
  std::optional<NormPlacement> placement = {};  ///< none: where the network has its norms
  int64_t placement_line = 0;                   ///< number of its line in the file
};

/// Reads a policy. Throws Error, with line and column, for text that is no TOML, for a value that is no norm spec, and
/// for a text without lines.
NormPolicy parse_norm_policy(std::string_view text, const std::string& source);
/// The text of a policy file. Throws Error when it cannot be read.
std::string read_norm_policy(const std::filesystem::path& file);

/// Options of a network, "eps" = "1e-6", for norms that have them and do not say otherwise.
using NormDefaults = std::vector<std::pair<std::string, std::string>>;

/// Replaces norm layers (class Norm of (N, channels, …), in a ChildSlot) of a model by those that the policy names, as
/// convert_norm() does. Returns how many were replaced. Throws Error, with file and line, for a pattern that matches no
/// norm layer, for one whose layers are all decided by later lines, for groups that do not divide a layer's channels,
/// and for a norm that needs more than a layer's single pixel; nothing has changed then.
int64_t apply_norm_policy(Module& model, const NormPolicy& policy, const NormDefaults& defaults = {});

}  // namespace norma::nn
