#pragma once

#include "base/range.h"
#include "core/tensor.h"
#include "data/augment/random.h"
#include "data/augment/rectangles.h"

#include <cstdint>
#include <optional>

namespace norma::data {

/// The range of an alpha, which is 0 or at least kLeastMixAlpha.
inline constexpr Range<double> kMixAlpha{0, 1000};
/// For smaller alphas the logarithms that the shares are made of overflow.
inline constexpr double kLeastMixAlpha = 1e-6;

/// timm's Mixup in mode "batch": image i of a batch of n is mixed with image n - 1 - i, all with the same share and
/// box.
struct MixOptions {
  double mixup_alpha = 0;           ///< above 0: mixup is on, and draws an image's own share from Beta(alpha, alpha)
  double cutmix_alpha = 0;          ///< above 0: likewise for CutMix, which puts in a rectangle of the other image
  double probability = 1;           ///< that a batch is mixed
  double switch_probability = 0.5;  ///< that CutMix is taken, if both are on

  [[nodiscard]] bool any() const { return mixup_alpha > 0 || cutmix_alpha > 0; }
};

/// Throws Error "op: …" for an alpha that is neither 0 nor from kLeastMixAlpha to the end of kMixAlpha, and for
/// probabilities outside 0 to 1.
void check_mix(const char* op, const MixOptions& options);

/// The mixing drawn for one batch.
struct Mix {
  double lambda = 1;  ///< each image's own share, in [0, 1]
  bool cutmix = false;
  Rectangle box;  ///< with cutmix: the rectangle that comes from the other image
};

/// CutMix's box around a pixel, in images of these sizes: 1 - lambda of their area, less the part that the edges cut
/// off. If a side is odd, the half after the middle is the larger, as in timm 1.0.31.
Rectangle cutmix_box(int64_t height, int64_t width, double lambda, int64_t middle_row, int64_t middle_column);

/// Draws the mixing of a batch of images of these sizes. With CutMix lambda is the image's share outside the box, after
/// the edges cut the box off.
Mix draw_mix(Draw& draw, int64_t height, int64_t width, const MixOptions& options);

/// Mixes images (N, C, H, W) of float32 on the CPU in place: x_i becomes lambda x_i + (1 - lambda) x_{n-1-i}, or gets
/// the box of x_{n-1-i}. Any strides. `unmixed` is the number of an image in the first half that stays as it is, with
/// its partner. The middle image of an odd number always stays. Throws Error for other tensors, a lambda outside [0,
/// 1], and a box that is not in the images.
void mix_images_(Tensor& images, const Mix& mix, std::optional<int64_t> unmixed = {});

/// The targets of a mixed batch, (N, num_classes) in float32: lambda for the image's own label and 1 - lambda for the
/// other's. The share `label_smoothing` of each target is spread evenly over all classes. labels: (N) int64 on the CPU.
/// Throws Error for labels outside [0, num_classes), and a smoothing outside [0, 1).
Tensor mixed_targets(const Tensor& labels, int64_t num_classes, const Mix& mix, double label_smoothing = 0);

}  // namespace norma::data
