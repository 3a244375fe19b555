#include "export/torch_norms.h"

#include "base/error.h"

#include <fmt/format.h>

#include <functional>
#include <map>

namespace norma::exporter {

namespace {

using nn::NormChoice;

constexpr const char* kDynamicTanh = R"(class DynamicTanh(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha, self.weight, self.bias = (nn.Parameter(torch.ones(size)) for size in (1, channels, channels))

    def forward(self, x):
        return torch.tanh(self.alpha * x) * self.weight[:, None, None] + self.bias[:, None, None]
)";

constexpr const char* kDynamicErf = R"(class DynamicErf(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return torch.erf(self.alpha * x + self.shift) * self.weight[:, None, None] + self.bias[:, None, None]
)";

constexpr const char* kSeedNorm = R"(class SeedNorm(nn.Module):
    def __init__(self, channels, eps):
        super().__init__()
        self.eps = eps
        self.weight, self.alpha, self.beta = (nn.Parameter(torch.ones(channels)) for _ in range(3))

    def forward(self, x):
        weight, alpha, beta = (p[:, None, None] for p in (self.weight, self.alpha, self.beta))
        scale = weight + torch.tanh((x * beta).sum(1, keepdim=True)) * alpha
        return scale * x * torch.rsqrt(x.square().mean(1, keepdim=True) + self.eps)
)";

/// ", name=value" unless the value is `otherwise`, PyTorch's.
std::string argument(const NormChoice& norm, const std::string& name, const std::string& otherwise) {
  const auto found = norm.options.find(name);
  if (found == norm.options.end() || found->second.empty() || found->second == otherwise) {
    return "";
  }
  const std::string& value = found->second;
  const std::string text = value == "true" ? "True" : value == "false" ? "False" : value == "none" ? "None" : value;
  return fmt::format(", {}={}", name, text);
}

std::string eps(const NormChoice& norm) {
  return argument(norm, "eps", "");
}

std::string affine(const NormChoice& norm) {
  return argument(norm, "affine", "true");
}

bool drops_bias(const NormChoice& norm) {
  return norm.flag("affine", true) && !norm.flag("bias", true);
}

std::string groups(const NormChoice& norm) {
  return norm.groups               ? fmt::format("{}", *norm.groups)
         : norm.channels_per_group ? fmt::format("channels // {}", *norm.channels_per_group)
                                   : "max(n for n in range(1, 33) if channels % n == 0)";
}

PythonNorm batch(const NormChoice& norm) {
  return {.call = "nn.BatchNorm2d(channels" + eps(norm) + argument(norm, "momentum", "0.1") + affine(norm) +
                  argument(norm, "track_running_stats", "true") + ")",
          .note = norm.name == "batch" ? "" : norm.name,
          .drops_bias = drops_bias(norm)};
}

PythonNorm ghost_batch(const NormChoice& norm) {
  check(norm.flag("track_running_stats", true), "export_torch",
        "norm: ghost_batch: expected running statistics, since PyTorch has no ghost batches, got none");
  return batch(norm);
}

PythonNorm frozen_batch(const NormChoice& norm) {
  return {.call = "FrozenBatchNorm2d(channels" + eps(norm) + ")",
          .import = "from torchvision.ops import FrozenBatchNorm2d"};
}

PythonNorm instance(const NormChoice& norm) {
  return {.call = "nn.InstanceNorm2d(channels" + eps(norm) + argument(norm, "momentum", "0.1") +
                  argument(norm, "affine", "false") + argument(norm, "track_running_stats", "false") + ")",
          .drops_bias = drops_bias(norm)};
}

PythonNorm group(const NormChoice& norm) {
  return {.call = fmt::format("nn.GroupNorm({}, channels{}{})", groups(norm), eps(norm), affine(norm)),
          .drops_bias = drops_bias(norm)};
}

/// A layer of timm.layers that takes the channels and these arguments.
PythonNorm of_timm(const NormChoice& norm, const std::string& layer, const std::string& arguments) {
  return {.call = fmt::format("{}(channels{})", layer, arguments),
          .import = "from timm.layers import " + layer,
          .drops_bias = drops_bias(norm)};
}

using Writer = std::function<PythonNorm(const NormChoice& norm)>;

const std::map<std::string, Writer>& writers() {
  static const std::map<std::string, Writer> all = {
      {"batch", batch},
      {"sync_batch", batch},
      {"ghost_batch", ghost_batch},
      {"batch_renorm", batch},
      {"frozen_batch", frozen_batch},
      {"instance", instance},
      {"group", group},
      {"layer2d", [](const NormChoice& norm) { return of_timm(norm, "LayerNorm2d", eps(norm) + affine(norm)); }},
      {"rms2d", [](const NormChoice& norm) { return of_timm(norm, "RmsNorm2d", eps(norm) + affine(norm)); }},
      {"simple2d", [](const NormChoice& norm) { return of_timm(norm, "SimpleNorm2d", eps(norm) + affine(norm)); }},
      {"evonorm_b0",
       [](const NormChoice& norm) {
         return of_timm(norm, "EvoNorm2dB0", eps(norm) + argument(norm, "momentum", "0.1"));
       }},
      {"evonorm_s0",
       [](const NormChoice& norm) { return of_timm(norm, "EvoNorm2dS0", ", groups=" + groups(norm) + eps(norm)); }},
      {"frn", [](const NormChoice& norm) { return of_timm(norm, "FilterResponseNormTlu2d", eps(norm)); }},
      {"grn",
       [](const NormChoice& norm) {
         return PythonNorm{.call = fmt::format("GlobalResponseNorm(channels{}, channels_last=False)", eps(norm)),
                           .import = "from timm.layers.grn import GlobalResponseNorm"};
       }},
      {"local_response",
       [](const NormChoice& norm) {
         return PythonNorm{.call = fmt::format("nn.LocalResponseNorm({}{}{}{})", norm.options.at("size"),
                                               argument(norm, "alpha", ""), argument(norm, "beta", ""),
                                               argument(norm, "k", ""))};
       }},
      {"dyt",
       [](const NormChoice& /*norm*/) {
         return PythonNorm{.call = "DynamicTanh(channels)", .definition = kDynamicTanh};
       }},
      {"derf",
       [](const NormChoice& /*norm*/) {
         return PythonNorm{.call = "DynamicErf(channels)", .definition = kDynamicErf};
       }},
      {"seednorm",
       [](const NormChoice& norm) {
         return PythonNorm{.call = fmt::format("SeedNorm(channels{})", eps(norm)), .definition = kSeedNorm};
       }},
      {"none", [](const NormChoice& /*norm*/) { return PythonNorm{.call = "nn.Identity()"}; }},
  };
  return all;
}

}  // namespace

std::optional<PythonNorm> python_norm(const nn::NormChoice& norm) {
  const auto found = writers().find(norm.name);
  if (found == writers().end()) {
    return std::nullopt;
  }
  check(!norm.flag("offset", false) && norm.count("groups", 1) == 1, "export_torch",
        "norm: {}: expected offset=false and one group, as in timm's layer, got {}", norm.name, to_string(norm));
  return found->second(norm);
}

}  // namespace norma::exporter
