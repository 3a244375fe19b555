// A norm that fades away while the network trains: TaperNorm (Kanavalau, Amo Alonso and Lall, "Gated Removal of
// Normalization in Transformers Enables Stable Training and Efficient Inference", 2026, arXiv 2602.10408).
//   y = g · γ · h / r + (1 - g) · c · γ' · h,      r = sqrt(mean(h²) + eps)
// The mean runs over the channels of each pixel, as in rms2d. γ and γ' have a number for each channel. The gate g is 1
// for warmup_steps forward passes in training, then goes to 0 by half a cosine within taper_steps. The passes with g =
// 1 take the factor c that makes c · γ · h most like γ · h / r, in least squares: c = E[|γ h|² / r] / E[|γ h|²]. After
// them γ' starts as γ, and is trained on its own.
//
// With g = 0 the layer multiplies each channel by c · γ', and that can be folded into the weights of a convolution or
// linear layer beside it: weight(o, i) · c · γ'(i) behind it, or c · γ'(o) · weight(o, i) before it, its bias likewise.
// The field keeps a true norm before the classifier, because nothing else holds the size of the logits.
#include <norma/norma.h>

#include <array>
#include <cmath>
#include <numbers>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

struct TaperOptions {
  double eps = 1e-6;
  double momentum = 0.1;      ///< share of the new batch in the averages that give c
  int64_t warmup_steps = 60;  ///< with taper_steps, four fifths of a comparison of the default length
  int64_t taper_steps = 100;
};

class TaperNorm : public nn::Module {
 public:
  TaperNorm(int64_t channels, const TaperOptions& options)
      : options_(options),
        weight_(register_parameter("weight", ones({channels}))),
        learned_(register_parameter("scale", zeros({channels}))),
        start_(register_buffer("scale_start", ones({channels}))),
        numerator_(register_buffer("numerator", zeros({}))),
        denominator_(register_buffer("denominator", zeros({}))),
        steps_(register_buffer("steps", zeros({}, {.dtype = DType::int64}))) {
    std::array<double, 11> terms{1};
    for (size_t k = 1; k < terms.size(); ++k) {
      terms[k] = terms[k - 1] / static_cast<double>(2 * k * (2 * k - 1));
    }
    cosine_terms_ = from_vector<double>({terms.begin(), terms.end()}, {static_cast<int64_t>(terms.size())});
  }

  Tensor forward(const Tensor& x) override {
    const Tensor h = norma::to(x, x.dtype() == DType::float64 ? DType::float64 : DType::float32);
    const Tensor weight = norma::to(weight_, h.dtype());
    if (is_training()) {
      learn(h.detach(), weight.detach());
    }
    const Tensor g = gate();
    const Tensor scale = norma::to((1 - g) * factor() * (start_ + learned_), h.dtype());
    const Tensor y = rms_norm_2d(h, g * weight, {.eps = options_.eps}) + h * view(scale, along_channels());
    return norma::to(y, x.dtype());
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("TaperNorm({}, eps={}, momentum={}, warmup_steps={}, taper_steps={})", weight_.numel(),
                       options_.eps, options_.momentum, options_.warmup_steps, options_.taper_steps);
  }

 private:
  // What follows a count of passes is made of tensor ops, never of numbers on the host: a CUDA graph that repeats a
  // training step repeats these, too.

  [[nodiscard]] Sizes along_channels() const { return {weight_.numel(), 1, 1}; }

  /// Counts a forward pass in training. Takes c's averages while the gate is 1, and γ' until it falls.
  void learn(const Tensor& h, const Tensor& weight) {
    const NoGradGuard guard;
    add_(steps_, 1);
    const Tensor squares = h * h;
    const Tensor over_r = rsqrt(mean(squares, {1}, {.keepdim = true}) + options_.eps);
    const Tensor weighted = mean(squares * view(weight * weight, along_channels()), {1}, {.keepdim = true});
    const Tensor tapers = greater(steps_, static_cast<double>(options_.warmup_steps));
    const auto follow = [&](const Tensor& average, const Tensor& now) {
      copy_into(where(tapers, average, average + options_.momentum * (now - average)), average);
    };
    follow(numerator_, mean(weighted * over_r));
    follow(denominator_, mean(weighted));
    copy_into(where(greater(steps_, static_cast<double>(options_.warmup_steps + 1)), start_, weight), start_);
  }

  /// c. The averages begin at 0, by which both are too small by one factor. It cancels.
  Tensor factor() {
    const NoGradGuard guard;
    return where(greater(denominator_, 0), numerator_ / denominator_, ones_like(denominator_));
  }

  /// g, in float64: cos²(z) with z = π/2 · the share of the taper that is over. cos(z) = Σ (-z²)^k / (2k)!, whose
  /// eleven terms have float64's precision up to π/2. What is left there is made 0.
  Tensor gate() {
    const NoGradGuard guard;
    cosine_terms_ = norma::to(cosine_terms_, steps_.device());  // a copy only after the layer has moved
    const Tensor z = clamp(norma::to(steps_, DType::float64) - static_cast<double>(options_.warmup_steps), 0,
                           static_cast<double>(options_.taper_steps)) *
                     (std::numbers::pi / 2 / static_cast<double>(options_.taper_steps));
    const Tensor powers = arange(cosine_terms_.numel(), DType::float64, steps_.device());
    const Tensor cosine = sum(pow(expand(-(z * z), powers.sizes()), powers) * cosine_terms_);
    return where(greater(z, std::numbers::pi / 2 * (1 - 1e-12)), zeros_like(z), cosine * cosine);
  }

  TaperOptions options_;
  Tensor weight_;       ///< γ
  Tensor learned_;      ///< γ' - start_: a parameter's gradient is 0 before the taper, so it stays 0
  Tensor start_;        ///< γ at the first pass of the taper
  Tensor numerator_;    ///< average of |γ h|² / r, over pixels, as a mean over channels
  Tensor denominator_;  ///< likewise of |γ h|²
  Tensor steps_;        ///< forward passes in training
  Tensor cosine_terms_;
};

TaperOptions read(const nn::NormChoice& choice) {
  TaperOptions options;
  options.eps = choice.number("eps", options.eps);
  check(std::isfinite(options.eps) && options.eps >= 0, "norm", "taper: eps: expected a number >= 0, got {}",
        options.eps);
  options.momentum = choice.number("momentum", options.momentum);
  check(options.momentum > 0 && options.momentum <= 1, "norm", "taper: momentum: expected a number in (0, 1], got {}",
        options.momentum);
  options.warmup_steps = choice.count("warmup_steps", options.warmup_steps);  // one at least, for c
  options.taper_steps = choice.count("taper_steps", options.taper_steps);
  return options;
}

}  // namespace

NORMA_PLUGIN {
  const auto make = [](const nn::NormChoice& choice, int64_t channels) {
    return std::make_shared<TaperNorm>(channels, read(choice));
  };
  nn::register_norm("taper", {.make = make,
                              .options = {"eps", "momentum", "warmup_steps", "taper_steps"},
                              .check = [](const nn::NormChoice& choice) { read(choice); }});
}
