#pragma once

#include "data/loader.h"
#include "nn/module.h"
#include "parallel/process_group.h"
#include "train/precision.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// A bit for each image of a test set, in its order: true iff a network's answer was right.
using ImageBits = std::vector<bool>;

/// The number of right answers.
int64_t count_right(const ImageBits& bits);

/// Two hexadecimal digits for each eight images. Image 0 is the highest bit of the first digit, as in
/// numpy.unpackbits(). Bits after the last image are 0.
std::string to_hex(const ImageBits& bits);

/// The inverse, for this number of images. Throws Error "where: …" for another number of digits, for what is no digit,
/// and for bits after the last image.
ImageBits image_bits_from_hex(std::string_view where, int64_t images, std::string_view digits);

struct Evaluation {
  double accuracy = 0;  ///< share of images whose largest logit is that of their label, in [0, 1]
  double loss = 0;      ///< mean cross-entropy, without label smoothing
  /// Share of images whose label has one of the five largest logits; none with fewer than six classes.
  std::optional<double> top5 = {};
  /// Whether the answer to each image is right. The images are in the order in which they are read, the same for all
  /// runs on the same test images; `accuracy` is the mean of these bits.
  ImageBits right = {};
  int64_t images = 0;
  int64_t skipped_images = 0;  ///< Dataset::skipped(); evaluate() leaves it to callers, who have the dataset
  double seconds = 0;
  bool complete = false;  ///< false: interrupted() came before the end, and the figures are of a part
};

/// The results of evaluate() for a batch.
struct EvaluatedBatch {
  const std::vector<int64_t>& labels;
  const std::vector<int64_t>& answers;  ///< the class of the largest logit
  int64_t images = 0;                   ///< so far, with these
  double loss = 0;                      ///< mean so far
};

struct EvaluateOptions {
  std::function<void(const EvaluatedBatch&)> on_batch = {};  ///< called after each batch; not with a group
  /// Not null: each process has its part of each batch (LoaderOptions::part), and all get the figures of the whole.
  parallel::ProcessGroup* group = nullptr;
};

/// Runs the model in evaluation mode over all batches, without gradients, and restores its mode. `model` is in the
/// precision (convert_model()); the images are converted, and the loss is computed in float32 or wider. Throws
/// OutOfMemory with the size of the batches if one does not fit.
Evaluation evaluate(nn::Module& model, data::Loader& batches, const Precision& precision = {},
                    const EvaluateOptions& options = {});

// All processes of a run call the next three together.
struct TrainingState;

/// Evaluates a network of the run on its test images. `workers` are the loader's threads.
Evaluation evaluate_on_test_images(TrainingState& run, nn::Module& model, int workers);

/// Evaluates a network of the run on so many of its training images, or on all if there are fewer. They are the same
/// ones at every seed, and come as test images do, without augmentation, so that training and test loss differ by the
/// images alone.
Evaluation evaluate_on_training_images(TrainingState& run, nn::Module& model, int64_t images, int workers);

/// Puts the moving averages of the run's tensors into another network of its kind. Expects TrainingState::ema.
void load_averages(TrainingState& run, nn::Module& model);

/// "no test images of 1 of 3 classes: bee", from DatasetInfo::empty_classes of the test images; "" for none.
std::string empty_classes_text(const data::DatasetInfo& test);

/// "2 images could not be decoded, and the next ones took their place: …", from Dataset::skipped(); "" for none.
std::string skipped_text(const data::Dataset& dataset);

/// Precise batch norm (Wu and Johnson, "Rethinking Batch in BatchNorm", 2021): replaces the running statistics of all
/// batch norms by mean and variance of the population, all images of up to `max_batches` batches together, under the
/// present weights: an average over batches would lack the variance between them. 200 is fvcore's default, too. Frozen
/// statistics (Module::freeze_statistics()) stay. Batch renorm runs as batch norm. All else runs as in evaluation;
/// instance norms and EvoNorm B0 keep their running statistics. Modes, momenta, renorm's bounds and num_batches_tracked
/// are restored, and after an exception the statistics, too. Returns the number of batches used. Throws Error when the
/// model has no batch norm with running statistics that are not frozen, or the loader no batch.
int64_t recalibrate(nn::Module& model, data::Loader& batches, int64_t max_batches = 200);

/// Throws the Error of recalibrate() for a model without such batch norms.
void check_recalibrates(const nn::Module& model);

}  // namespace norma::train
