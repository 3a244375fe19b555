#include "core/copy.h"
#include "data/safetensors.h"
#include "json.h"
#include "nn/norm_cases.h"
#include "paths.h"

#include <unordered_map>

using namespace norma;
using namespace norma::test;

namespace {

/// The file that tests/reference/make_norms.py writes; what its tensors are stands there.
class TorchReference {
 public:
  TorchReference() {
    const data::Safetensors file =
        data::load_safetensors(test::source_folder() / "tests" / "reference" / "norms.safetensors");
    for (const auto& [name, tensor] : file.tensors) {
      tensors_[name] = to_device(tensor, default_device());
    }
    cases_ = test::parse_json(file.metadata.at("cases"));
  }

  [[nodiscard]] const nlohmann::json& cases() const { return cases_; }
  /// The tensor of a case; undefined where it has none.
  [[nodiscard]] Tensor get(size_t at, const std::string& name) const {
    const nlohmann::json& shared = cases_[at]["shared"];
    const auto found = tensors_.find(shared.value(name, fmt::format("{}/{}", at, name)));
    return found == tensors_.end() ? Tensor{} : found->second;
  }

 private:
  std::unordered_map<std::string, Tensor> tensors_;
  nlohmann::json cases_;
};

Sizes sizes_from(const nlohmann::json& list) {
  Sizes sizes;
  for (const nlohmann::json& size : list) {
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

NormCase case_from(const nlohmann::json& entry) {
  NormCase c{.kind = entry["kind"], .sizes = sizes_from(entry["sizes"])};
  c.shape = sizes_from(entry.value("shape", nlohmann::json::array()));
  c.groups = entry.value("groups", 1);
  c.eps = entry.value("eps", 0.0);
  if (entry.contains("momentum")) {
    c.momentum = entry["momentum"].is_null() ? std::nullopt : std::optional(entry["momentum"].get<double>());
  }
  c.affine = entry.value("affine", false);
  c.track_running_stats = entry.value("track_running_stats", false);
  c.training = entry["mode"] == "train";
  if (c.kind == "response") {
    c.window = entry["size"];
    c.response = {.alpha = entry["alpha"], .beta = entry["beta"], .k = entry["k"]};
  }
  return c;
}

/// The largest |dy * xhat|: dweight is the sum of those.
double largest_weight_term(const NormCase& c, NormInputs in) {
  in.weight = in.bias = {};
  const std::vector<double> xhat = definition(c, in).at("y");
  const std::vector<double> dy = in.dy.to_vector<double>();
  double result = 0;
  for (size_t i = 0; i < dy.size(); ++i) {
    result = std::max(result, std::abs(dy[i] * xhat[i]));
  }
  return result;
}

/// The largest number that PyTorch makes each result of, by the result's name. It computes x · scale + shift, so that
/// these are larger than the result where the numbers of a set are large against their deviation.
std::map<std::string, double> torch_terms(const NormCase& c, const NormInputs& in, bool channels_last) {
  if (c.kind == "response") {
    return {};
  }
  const auto largest_of = [](const Tensor& x, double otherwise) {
    return x.defined() ? largest(x.to_vector<double>()) : otherwise;
  };
  ReferenceExtras given;
  if (in.running_mean.defined()) {
    given.given_mean = in.running_mean.to_vector<double>();
    given.given_var = in.running_var.to_vector<double>();
  }
  const ReferenceNorm norm = reference_norm(in.x, spec_of(c), {}, {}, given);
  const std::vector<double> x = in.x.to_vector<double>();
  double scale = 0;
  double scaled = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    const double rstd = 1 / std::sqrt(norm.var[i] + c.eps);
    scale = std::max(scale, rstd);
    scaled = std::max({scaled, std::abs(x[i]) * rstd, std::abs(norm.mean[i]) * rstd});
  }
  if (c.kind == "group" && channels_last) {
    // PyTorch takes E[x²] - E[x]² here, of which bfloat16 may leave nothing.
    scaled *= in.x.dtype() == DType::bfloat16 ? INFINITY : scaled;
  }
  const double weight = largest_of(in.weight, 1);
  const double dy = largest_of(in.dy, 0);
  return {{"y", scaled * weight + largest_of(in.bias, 0)},
          {"dx", scaled * scaled * scale * weight * dy},
          {"dweight", scaled * dy},
          {"dbias", dy},
          {"running_mean", 2 * largest(x)}};  // of the training step on 2 x
}

/// What PyTorch is known by, and how far it may be from `exact`.
struct Torch {
  Tensor result;
  DType dtype;  ///< of the input: PyTorch rounds sums to it too
  double term;  ///< torch_terms()
};

constexpr double kTorchSteps = 8;

/// Each element: at most 1.5 times PyTorch's worst error, and one rounding step of the largest value; where the values
/// are sums, which PyTorch carries in float64 and we after four terms, also two of the largest term. PyTorch itself is
/// at most kTorchSteps of its terms away, so that a wrong reference does not loosen the rest.
void check_against(const std::string& label, const Tensor& ours, const Torch& torch, const std::vector<double>& exact,
                   double largest_term = 0) {
  CAPTURE(label);
  REQUIRE(ours.sizes() == torch.result.sizes());
  CHECK(distance(torch.result, exact) <=
        kTorchSteps * rounding_step(torch.dtype, std::max(largest(exact), torch.term)));
  const double allowed = 1.5 * distance(torch.result, exact);
  const std::vector<double> values = ours.to_vector<double>();
  // CUDA's kernels begin with other elements and add up in another order: one step more.
  const double steps = default_device() == kCpu ? 1 : 2;
  const double step = steps * rounding_step(ours.dtype(), largest(exact)) +
                      (largest_term > 0 ? 2 * rounding_step(ours.dtype(), largest_term) : 0);
  double worst = 0;  // beyond what is allowed
  for (size_t i = 0; i < values.size(); ++i) {
    const double excess = std::abs(values[i] - exact[i]) - allowed - step;
    worst = excess <= worst ? worst : std::isnan(excess) ? INFINITY : excess;
  }
  CHECK_MESSAGE(worst == 0, label << ": PyTorch's error " << distance(torch.result, exact) << ", ours "
                                  << distance(ours, exact) << ", values up to " << largest(exact));
}

}  // namespace

TEST_CASE("norms: no further from float64 than PyTorch") {
  const TorchReference reference;
  std::map<std::string, int> counts;
  int results = 0;
  for (size_t at = 0; at < reference.cases().size(); ++at) {
    const nlohmann::json& entry = reference.cases()[at];
    const NormCase c = case_from(entry);
    const auto tensor = [&](const std::string& name) { return reference.get(at, name); };
    const NormInputs fresh{.x = tensor("x"), .dy = tensor("dy"), .weight = tensor("weight"), .bias = tensor("bias")};
    NormInputs in = fresh;
    if (c.track_running_stats && !c.training) {
      in.running_mean = tensor("running_mean");
      in.running_var = tensor("running_var");
    }
    const DType parameters = entry["dtype"] == "mixed" ? DType::float32 : in.x.dtype();
    const std::string dtype = entry["dtype"];
    std::map<std::string, double> terms = torch_terms(c, in, entry["layout"] == "channels_last");

    for (const Layout layout : kLayouts) {
      const std::string label = fmt::format("{} {} {} (case {})", test::to_string(c), dtype, to_string(layout), at);
      CAPTURE(label);
      if (c.track_running_stats) {
        NormCase training = c;
        training.training = true;
        const std::shared_ptr<nn::Module> layer = make_layer(training, fresh, parameters);
        for (const double factor : {1.0, 2.0, -0.5}) {
          layer->forward(in_layout(to(mul(to(in.x, DType::float64), factor), in.x.dtype()), layout));
        }
        for (const auto& [name, buffer] : layer->named_buffers()) {
          if (name == "num_batches_tracked") {
            CHECK(buffer.item<int64_t>() == tensor(name).item<int64_t>());
          } else {
            check_against(label + " " + name, buffer, {tensor(name), in.x.dtype(), terms[name]},
                          tensor(name + "64").to_vector<double>());
            ++results;
          }
        }
      }
      const std::shared_ptr<nn::Module> layer = make_layer(c, in, parameters);
      for (const auto& [name, ours] : run_layer(*layer, in, layout)) {
        if (!name.starts_with("running_")) {
          check_against(label + " " + name, ours, {tensor(name), in.x.dtype(), terms[name]},
                        tensor(name + "64").to_vector<double>(), name == "dweight" ? largest_weight_term(c, in) : 0);
          ++results;
        }
      }
      ++counts[dtype];
    }
  }
  std::string summary;
  for (const auto& [dtype, count] : counts) {
    summary += fmt::format(" {} {}", dtype, count);
  }
  MESSAGE("cases against PyTorch:" << summary << "; results compared: " << results);
  CHECK(counts["float32"] >= 600);
  CHECK(counts["bfloat16"] >= 600);
  CHECK(counts["mixed"] >= 200);
}

TEST_CASE("norms: the definitions are those of PyTorch's float64, and so are the layers") {
  const TorchReference reference;
  int statistics = 0;
  for (size_t at = 0; at < reference.cases().size(); ++at) {
    const nlohmann::json& entry = reference.cases()[at];
    const NormCase c = case_from(entry);
    const auto wide = [&](const std::string& name) {
      const Tensor x = reference.get(at, name);
      return x.defined() ? to(x, DType::float64) : x;
    };
    NormInputs in{.x = wide("x"), .dy = wide("dy"), .weight = wide("weight"), .bias = wide("bias")};
    if (c.track_running_stats && !c.training) {
      in.running_mean = wide("running_mean");
      in.running_var = wide("running_var");
    }
    CAPTURE(test::to_string(c));
    if (c.track_running_stats) {
      NormCase training = c;
      training.training = true;
      const NormInputs fresh{.x = in.x, .dy = in.dy, .weight = in.weight, .bias = in.bias};
      const std::shared_ptr<nn::Module> layer = make_layer(training, fresh, DType::float64);
      for (const double factor : {1.0, 2.0, -0.5}) {
        layer->forward(mul(in.x, factor));
      }
      for (const auto& [name, buffer] : layer->named_buffers()) {
        if (name.starts_with("running_")) {
          CAPTURE(name);
          const std::vector<double> exact = wide(name + "64").to_vector<double>();
          CHECK(distance(buffer, exact) <= 1e-11 * (1 + largest(exact)));
          ++statistics;
        }
      }
    }
    const NormValues defined = definition(c, in);
    const NormResults ours = run_layer(*make_layer(c, in, DType::float64), in, Layout::contiguous);
    for (const auto& [name, result] : ours) {
      if (!name.starts_with("running_")) {
        CAPTURE(name);
        const std::vector<double> exact = wide(name + "64").to_vector<double>();
        const double tolerance = 1e-11 * (1 + largest(exact));
        CHECK(distance(result, exact) <= tolerance);
        CHECK(distance(from_vector(defined.at(name), result.sizes()), exact) <= tolerance);
      }
    }
  }
  CHECK(statistics >= 500);
}
