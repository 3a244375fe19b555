#include "train/largest_batch.h"

#include "core/allocator.h"
#include "core/error.h"
#include "core/factory.h"
#include "train/interrupt.h"

#include <fmt/format.h>

#include <cstdint>
#include <new>

namespace norma::train {

std::string largest_batch_text(const Recipe& recipe, int workers, Device device,
                               const std::function<void(const data::Batch&)>& step) {
  const MemoryFormat format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  for (int64_t count = recipe.batch_size / 2; count > 0; count /= 2) {
    if (interrupted()) {
      return "";
    }
    try {
      allocator(device).empty_cache();
      const auto batches = [&](int64_t n) {
        return zeros({n * count, kImageChannels, recipe.image_size, recipe.image_size},
                     {.device = kCpu, .format = format});
      };
      const Tensor waiting = batches(prefetched_batches(workers));  // what the loader holds
      step({.images = batches(1), .labels = zeros({count}, {.dtype = DType::int64, .device = kCpu})});
      if (recipe.batch_size % count != 0) {
        return fmt::format("; --batch-size {} would fit", count);
      }
      return fmt::format("; --batch-size {} --grad-accum-steps {} would fit, with as many images in an update", count,
                         recipe.grad_accum_steps * (recipe.batch_size / count));
    } catch (const OutOfMemory&) {
    } catch (const std::bad_alloc&) {
    } catch (const Error&) {  // one image may be too few for batch statistics
      return 2 * count < recipe.batch_size ? fmt::format("; {} did not fit either", 2 * count) : "";
    }
  }
  return "; a single one did not fit either";
}

}  // namespace norma::train
