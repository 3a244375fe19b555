#include "data/loader.h"

#include "base/error.h"
#include "base/range.h"
#include "core/allocator.h"
#include "core/copy.h"
#include "core/cpu/host_memory.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/share.h"
#include "ops/image/normalize.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

// Keeps these numbers apart from those that other parts draw from the same seed.
constexpr uint64_t kOrderStream = uint64_t{1} << 61;

/// A random order of 0 … count - 1 by Fisher and Yates' method, given by seed and epoch.
std::vector<int64_t> shuffled(int64_t count, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = count - 1; i > 0; --i) {
    const auto bits = philox(seed, static_cast<uint64_t>(i), kOrderStream | static_cast<uint64_t>(epoch));
    const uint64_t wide = uint64_t{bits[0]} << 32 | bits[1];
    const auto j = static_cast<int64_t>(wide % static_cast<uint64_t>(i + 1));  // bias below i / 2^64
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

/// Throws Error if the next thread's stack finds no room; the system's own error would be that of too many threads. A
/// smaller batch would not help, so this is no OutOfMemory.
void check_room_for_stack(size_t started, int threads) {
  pthread_attr_t defaults;
  size_t bytes = 0;
  if (::pthread_getattr_default_np(&defaults) != 0) {
    return;
  }
  ::pthread_attr_getstacksize(&defaults, &bytes);
  ::pthread_attr_destroy(&defaults);
  // A thread's first allocation takes twice 64 MB for a moment (glibc); without that room the next thread finds none.
  constexpr size_t kHeapOfThread = size_t{128} << 20U;
  if (!has_room(bytes + kHeapOfThread)) {
    const auto in_use = static_cast<size_t>(allocator(kCpu).statistics().allocated);
    fail("loader", "num_workers: no stack for thread {} of {}: {}", started + 1, threads, no_room_text(bytes, in_use));
  }
}

/// The first `count` of x along axis 0.
Tensor first_images(const Tensor& x, int64_t count) {
  Sizes sizes = x.sizes();
  sizes[0] = count;
  return alias(x, sizes, x.strides(), x.offset());
}

}  // namespace

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

class Loader::Implementation {
 public:
  Implementation(std::shared_ptr<const Dataset> dataset, Transform transform, const LoaderOptions& options)
      : dataset_(std::move(dataset)), transform_(std::move(transform)), options_(options) {
    check(dataset_ != nullptr, "loader", "dataset: expected a dataset, got none");
    check_range("loader", "batch_size", options.batch_size, Range<int64_t>{1, kMaxBatchSize});
    check(options.total_images >= 0, "loader", "total_images: expected at least 0, got {}", options.total_images);
    check_range("loader", "num_workers", options.num_workers, Range<int64_t>{0, kMaxWorkers});
    check_range("loader", "prefetch", options.prefetch, Range<int64_t>{1, 65'536});
    check_range("loader", "repeats", options.repeats, Range<int64_t>{1, kMaxRepeats});
    check_mix("loader", options.mix);
    if (options.bytes) {
      const double erasing = transform_.options().augmentation.erasing.probability;
      check(erasing == 0, "loader", "bytes: expected a transform without random erasing, got one of probability {}",
            erasing);
      table_ = transform_.table();
    }
    const auto& [number, parts] = options.part;
    check(parts >= 1 && number >= 0 && number < parts, "loader", "part: expected one of 0 to parts - 1, got {} of {}",
          number, parts);
    check(parts == 1 || !options.bytes || !options.mix.any(), "loader",
          "part: expected no bytes where images are mixed, got both");
    check(options.first_step >= 0, "loader", "first_step: expected at least 0, got {}", options.first_step);
    const int64_t size = dataset_->info().size;
    const int64_t batch = options.batch_size;
    epoch_images_ = options.drop_last ? size / batch * batch : size;
    check(epoch_images_ > 0, "loader",
          "batch_size: expected at most {}, the images of {}, to drop the last batch, got {}", size,
          dataset_->info().name, batch);
    check_range("loader", "epochs", options.epochs,
                Range<int64_t>{1, std::numeric_limits<int64_t>::max() / epoch_images_});
    epoch_batches_ = (epoch_images_ + batch - 1) / batch;
    num_images_ = options.total_images > 0 ? options.total_images : options.epochs * epoch_images_;
    const int64_t rest = num_images_ % epoch_images_;
    if (options.drop_last) {
      num_images_ -= rest % batch;
    }
    check(num_images_ > 0, "loader", "total_images: expected at least {}, a batch, to drop the last one, got {}", batch,
          options.total_images);
    num_steps_ = num_images_ / epoch_images_ * epoch_batches_ + (num_images_ % epoch_images_ + batch - 1) / batch;
    check(options.first_step <= num_steps_, "loader", "first_step: expected at most {}, got {}", num_steps_,
          options.first_step);
    next_to_make_ = next_to_take_ = options.first_step;
    slots_.resize(static_cast<size_t>(options.prefetch));
    try {
      for (int i = 0; i < options.num_workers; ++i) {
        workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
      }
    } catch (const std::system_error& error) {
      check_room_for_stack(workers_.size(), options.num_workers);
      fail("loader", "num_workers: the system gives {} of {} threads: {}", workers_.size(), options.num_workers,
           error.code().message());
    }
  }

  std::optional<Batch> next() {
    if (failure_ != nullptr) {
      std::rethrow_exception(failure_);
    }
    if (next_to_take_ == num_steps_) {
      return std::nullopt;
    }
    Slot slot;
    if (workers_.empty()) {
      slot = make_slot(next_to_take_);
      ++next_to_take_;
    } else {
      std::unique_lock lock(mutex_);
      Slot& waiting = slots_[slot_of(next_to_take_)];
      filled_.wait(lock, [&] { return waiting.full; });
      slot = std::exchange(waiting, {});
      ++next_to_take_;
      lock.unlock();
      emptied_.notify_all();
    }
    if (slot.failure != nullptr) {
      failure_ = slot.failure;
      std::rethrow_exception(failure_);
    }
    return std::move(slot.batch);
  }

  [[nodiscard]] int64_t batch_size() const { return options_.batch_size; }
  [[nodiscard]] int64_t batches_per_epoch() const { return epoch_batches_; }
  [[nodiscard]] int64_t num_steps() const { return num_steps_; }
  [[nodiscard]] int64_t num_images() const { return num_images_; }

 private:
  struct Slot {
    bool full = false;
    Batch batch;
    std::exception_ptr failure;
  };
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  [[nodiscard]] size_t slot_of(int64_t step) const { return static_cast<size_t>(step % options_.prefetch); }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (true) {
      // A step may begin when its slot is free, that is, when the step that had the slot last has been taken.
      const bool go_on = emptied_.wait(
          lock, stop, [&] { return next_to_make_ == num_steps_ || next_to_make_ < next_to_take_ + options_.prefetch; });
      if (!go_on || stop.stop_requested() || next_to_make_ == num_steps_) {
        return;
      }
      const int64_t step = next_to_make_++;
      lock.unlock();
      Slot slot = make_slot(step);
      lock.lock();
      slots_[slot_of(step)] = std::move(slot);
      filled_.notify_one();
    }
  }

  Slot make_slot(int64_t step) {
    Slot slot;
    slot.full = true;
    try {
      slot.batch = make_batch(step);
    } catch (...) {
      slot.failure = std::current_exception();
    }
    return slot;
  }

  Batch make_batch(int64_t step) {
    const int64_t epoch = step / epoch_batches_;
    const int64_t index = step % epoch_batches_;
    const int64_t first = index * options_.batch_size;
    const int64_t left_in_epoch = std::min(epoch_images_, num_images_ - epoch * epoch_images_) - first;
    const int64_t total = std::min(options_.batch_size, left_in_epoch);
    const auto& [part, parts] = options_.part;
    const Share share = share_of(total, part, parts);
    const int64_t own = share.count;
    // A part is followed by the images that it is mixed with, so that image i is mixed with image count - 1 - i here,
    // too.
    const int64_t count = parts > 1 && options_.mix.any() ? 2 * own : own;
    const auto in_batch = [&](int64_t i) {
      return i < own ? share.first + i : total - 1 - share.first - (count - 1 - i);
    };
    const DatasetInfo& info = dataset_->info();
    const TransformOptions& shape = transform_.options();

    Batch batch;
    batch.table = table_;
    batch.epoch = epoch;
    batch.index = index;
    batch.step = step;
    batch.first = share.first;
    batch.total = total;
    batch.images =
        empty({count, shape.channels, shape.image_size, shape.image_size},
              {.dtype = options_.bytes ? DType::uint8 : DType::float32, .device = kCpu, .format = options_.format});
    batch.labels = empty({count}, {.dtype = DType::int64, .device = kCpu});
    const Strides& strides = batch.images.strides();
    auto* const labels = batch.labels.data<int64_t>();
    const Order order = options_.shuffle && !info.endless ? order_of(epoch) : nullptr;
    Image image;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t place = (first + in_batch(i)) / options_.repeats;
      const int64_t repeat = (first + in_batch(i)) % options_.repeats;
      int64_t number = order != nullptr ? (*order)[static_cast<size_t>(place)] : place;
      if (info.endless) {
        number += epoch * info.size;  // each epoch has new images
      }
      const AugmentationKey key{.seed = options_.seed, .epoch = epoch, .index = number * options_.repeats + repeat};
      Rectangle window;
      labels[i] = transform_.load(*dataset_, number, key, image, window);
      const std::array<int64_t, 3> steps{strides[1], strides[2], strides[3]};
      if (options_.bytes) {
        transform_.apply(image, key, batch.images.data<uint8_t>() + i * strides[0], steps, &window);
      } else {
        transform_.apply(image, key, batch.images.data<float>() + i * strides[0], steps, &window);
      }
    }
    if (options_.mix.any()) {
      Draw draw({.seed = options_.seed, .epoch = epoch, .index = index}, DrawFor::mix);
      const Mix mix = draw_mix(draw, shape.image_size, shape.image_size, options_.mix);
      if (options_.bytes) {
        batch.mix = mix;
      } else {
        // The middle one of an odd number is its own partner, and would only be rounded.
        const bool odd = total % 2 == 1;
        mix_images_(batch.images, mix, odd ? std::optional(total / 2 - share.first) : std::nullopt);
      }
      batch.targets = mixed_targets(batch.labels, info.num_classes(), mix);
    }
    if (count > own) {
      for (Tensor* const x : {&batch.images, &batch.labels, &batch.targets}) {
        *x = first_images(*x, own);
      }
    }
    return batch;
  }

  /// Workers may be in two neighbouring epochs at once, so the last two orders are kept.
  Order order_of(int64_t epoch) {
    const std::lock_guard lock(orders_mutex_);
    Order order = orders_[epoch];
    if (order == nullptr) {
      order = std::make_shared<const std::vector<int64_t>>(shuffled(dataset_->info().size, options_.seed, epoch));
      orders_[epoch] = order;
      if (orders_.size() > 2) {
        orders_.erase(orders_.begin());
      }
    }
    return order;
  }

  std::shared_ptr<const Dataset> dataset_;
  Transform transform_;
  LoaderOptions options_;
  Tensor table_;  ///< with options_.bytes
  int64_t epoch_images_ = 0;
  int64_t epoch_batches_ = 0;
  int64_t num_images_ = 0;
  int64_t num_steps_ = 0;
  std::exception_ptr failure_;  ///< of a batch that next() asked for

  std::mutex orders_mutex_;
  std::map<int64_t, Order> orders_;

  std::mutex mutex_;
  std::condition_variable_any filled_;   ///< the consumer waits for its step
  std::condition_variable_any emptied_;  ///< workers wait for a free slot
  std::vector<Slot> slots_;              ///< step s lies in slot s modulo prefetch
  int64_t next_to_make_ = 0;
  int64_t next_to_take_ = 0;
  std::vector<std::jthread> workers_;  ///< last member: the threads end before the members that they use
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, Transform transform, const LoaderOptions& options)
    : implementation_(std::make_unique<Implementation>(std::move(dataset), std::move(transform), options)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

std::optional<Batch> Loader::next() {
  return implementation_->next();
}
int64_t Loader::batch_size() const {
  return implementation_->batch_size();
}

int64_t Loader::batches_per_epoch() const {
  return implementation_->batches_per_epoch();
}
int64_t Loader::num_steps() const {
  return implementation_->num_steps();
}
int64_t Loader::num_images() const {
  return implementation_->num_images();
}

}  // namespace norma::data
