#include "data/batch.h"

#include "core/copy.h"
#include "ops/image/normalize.h"

namespace norma::data {

Tensor images_on(const Batch& batch, Device device) {
  Tensor images = to_device(batch.images, device);
  if (images.dtype() != DType::uint8) {
    return images;
  }
  const auto& [lambda, cutmix, box] = batch.mix;
  return normalize_images(
      images, to_device(batch.table, device),
      {.lambda = lambda, .cutmix = cutmix, .top = box.top, .left = box.left, .height = box.height, .width = box.width});
}

}  // namespace norma::data
