#include "train/batch_feed.h"

#include <utility>

namespace norma::train {

BatchFeed::BatchFeed(std::function<std::optional<data::Batch>()> load, Device device)
    : load_(std::move(load)), upload_(device) {}

std::optional<data::Batch> BatchFeed::next() {
  if (!std::exchange(sent_, false)) {
    return take();
  }
  if (failed_) {
    std::rethrow_exception(std::exchange(failed_, nullptr));
  }
  return std::exchange(next_, std::nullopt);
}

void BatchFeed::send_next() {
  if (upload_.is_beside() && !sent_) {
    sent_ = true;
    try {
      next_ = take();
    } catch (...) {  // the step under way is whole
      failed_ = std::current_exception();
    }
  }
}

std::optional<data::Batch> BatchFeed::take() {
  std::optional<data::Batch> batch = load_();
  if (batch && upload_.is_beside()) {
    batch->images = upload_(batch->images);
  }
  return batch;
}

}  // namespace norma::train
