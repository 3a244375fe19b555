#include "train/batch_feed.h"

#include <utility>

namespace norma::train {

BatchFeed::BatchFeed(std::function<std::optional<data::Batch>()> load, Device device)
    : load_(std::move(load)), upload_(device) {}

std::optional<data::Batch> BatchFeed::next() {
  return std::exchange(sent_, false) ? std::exchange(next_, std::nullopt) : take();
}

void BatchFeed::send_next() {
  if (upload_.is_beside() && !sent_) {
    next_ = take();
    sent_ = true;
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
