#pragma once

#include "core/device.h"
#include "core/memory_format.h"
#include "core/tensor.h"
#include "data/augment/mix.h"
#include "data/dataset.h"
#include "data/transform.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace norma::data {

/// Images and labels on the CPU; the consumer copies them to its device.
struct Batch {
  /// (N, C, H, W) in LoaderOptions::format: float32, normalized and mixed. With LoaderOptions::bytes they are uint8,
  /// and images_on() normalizes and mixes them.
  Tensor images;
  Tensor table;       ///< with uint8: (C, 256), float32, the normalized value of each byte
  Mix mix;            ///< with uint8: how the images are still to be mixed
  Tensor labels;      ///< (N) int64
  Tensor targets;     ///< (N, classes) float32, the share of each class, if the run mixes images; else undefined
  int64_t epoch = 0;  ///< from 0
  int64_t index = 0;  ///< in the epoch, from 0
  int64_t step = 0;   ///< in the run, from 0, as LoaderOptions::first_step counts
  // With LoaderOptions::part a batch has the images of this process alone, and N may be 0.
  int64_t first = 0;  ///< the number of the first image in the whole batch
  int64_t total = 0;  ///< the images of the whole batch
};

/// The images of a batch in float32, normalized and mixed, on a device. The result has the same bits, whether the batch
/// has them as float32 or as uint8.
Tensor images_on(const Batch& batch, Device device);

inline constexpr int64_t kMaxBatchSize = 1 << 20;
inline constexpr int64_t kMaxWorkers = 256;

inline constexpr int64_t kMaxRepeats = 64;

/// One of `parts` processes that divide the images of each batch (core/share.h).
struct LoaderPart {
  int64_t number = 0;  ///< from 0
  int64_t parts = 1;
};

struct LoaderOptions {
  int64_t batch_size = 128;
  bool shuffle = false;      ///< a new order each epoch, given by seed and epoch
  bool drop_last = false;    ///< leave out the smaller batch at the end of an epoch
  int64_t epochs = 1;        ///< length of the run
  int64_t total_images = 0;  ///< length of the run in images, over as many epochs as it takes, instead of `epochs`
  /// Each image comes this many times in a row, each time augmented anew. An epoch keeps its length, so it shows this
  /// many times fewer images of the dataset (Hoffer et al., "Augment your batch", 2020; timm's RepeatAugSampler, which
  /// gives the copies to different devices).
  int64_t repeats = 1;
  uint64_t seed = 0;       ///< of the order, the augmentation and the mixing
  MixOptions mix = {};     ///< of the images of a batch; their targets have no label smoothing
  int64_t first_step = 0;  ///< start at this batch of the run, as if the earlier ones had been taken
  int num_workers = 1;     ///< background threads; 0: the thread that calls next() makes the batches
  int64_t prefetch = 4;    ///< the most batches that wait for the consumer
  MemoryFormat format = MemoryFormat::contiguous;
  /// Batches have images of uint8, a quarter of the size; images_on() normalizes and mixes them on the device. An error
  /// with random erasing, whose noise does not fit a byte.
  bool bytes = false;
  /// The share of each batch that this process gets. Its images are the same as if one process got the whole batch. To
  /// mix them, the loader also reads the images that they are mixed with. An error with both `bytes` and mixing.
  LoaderPart part = {};
};

/// Makes the batches of a run in the background. Their contents and order depend only on the dataset, the transform and
/// the options, not on num_workers or on time.
class Loader {
 public:
  /// Throws Error for invalid options, when the run would have no batch, and when the system does not give the threads.
  Loader(std::shared_ptr<const Dataset> dataset, Transform transform, const LoaderOptions& options = {});
  /// Stops the threads, even if batches are left.
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The next batch, or none at the end of the run. An exception thrown while a batch is made is thrown again at that
  /// batch's turn, and on every later call.
  std::optional<Batch> next();

  /// Images of each batch; the last of an epoch or of the run may have fewer.
  [[nodiscard]] int64_t batch_size() const;
  /// Batches of a whole epoch.
  [[nodiscard]] int64_t batches_per_epoch() const;
  /// Batches of the whole run, counted from step 0.
  [[nodiscard]] int64_t num_steps() const;
  /// Images of the whole run, counted from step 0.
  [[nodiscard]] int64_t num_images() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace norma::data
