#include "core/cuda/staging.h"

#include "core/allocator.h"
#include "core/copy.h"
#include "core/factory.h"
#include "cuda_devices.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

// Copies between the host and a device that is as late as it may be: it works only when somebody waits for it.

using namespace norma::cuda;

namespace {

/// A device whose memory is the host's.
struct LateDevice {
  std::vector<std::function<void()>> work;  ///< given so far
  size_t done = 0;
  int64_t waits = 0;
  int64_t buffers = 0;

  void work_to(size_t end) {
    for (; done < end; ++done) {
      work[done]();
    }
  }
};

class LateBuffer final : public StagingBuffer {
 public:
  LateBuffer(LateDevice& device, size_t bytes) : device_(&device), memory_(bytes) {}

  std::byte* data() override {
    CHECK(is_done());
    return memory_.data();
  }
  void copy_to_device(void* device, size_t bytes) override {
    give([this, device, bytes] { std::memcpy(device, memory_.data(), bytes); });
  }
  void copy_from_device(const void* device, size_t bytes) override {
    give([this, device, bytes] { std::memcpy(memory_.data(), device, bytes); });
  }
  [[nodiscard]] bool is_done() const override { return device_->done >= end_; }
  void wait() override {
    device_->waits += is_done() ? 0 : 1;
    device_->work_to(end_);
  }

 private:
  void give(std::function<void()> copy) {
    device_->work.push_back(std::move(copy));
    end_ = device_->work.size();
  }

  LateDevice* device_;
  std::vector<std::byte> memory_;
  size_t end_ = 0;
};

class LateMemory final : public StagingMemory {
 public:
  explicit LateMemory(LateDevice& device, int64_t most = INT64_MAX) : device_(&device), most_(most) {}
  std::unique_ptr<StagingBuffer> make(size_t bytes) override {
    if (device_->buffers == most_) {
      throw norma::OutOfMemory("no memory of the host");
    }
    ++device_->buffers;
    return std::make_unique<LateBuffer>(*device_, bytes);
  }

 private:
  LateDevice* device_;
  int64_t most_;
};

constexpr size_t kBytes = 16;  // of a buffer

std::vector<uint8_t> numbers(size_t count, int first) {
  std::vector<uint8_t> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i] = static_cast<uint8_t>(first + static_cast<int>(i));
  }
  return result;
}

}  // namespace

TEST_CASE("cuda staging: the host does not wait for copies to the device while there are buffers") {
  LateDevice device;
  LateMemory memory(device);
  Staging staging(memory, kBytes, /* most= */ 6);
  std::vector<uint8_t> images(3 * kBytes + 5);
  std::vector<uint8_t> labels(3);
  const std::vector<uint8_t> of_images = numbers(images.size(), 10);
  const std::vector<uint8_t> of_labels = numbers(labels.size(), 200);
  std::vector<uint8_t> host = of_images;
  staging.from_host(images.data(), host.data(), host.size());
  std::fill(host.begin(), host.end(), uint8_t{0xFF});  // the host's memory is free at once
  host = of_labels;
  staging.from_host(labels.data(), host.data(), host.size());
  std::fill(host.begin(), host.end(), uint8_t{0xFF});
  CHECK(device.waits == 0);
  CHECK(device.buffers == 5);
  device.work_to(device.work.size());
  CHECK(images == of_images);
  CHECK(labels == of_labels);
  // The next copies have the same buffers.
  staging.from_host(images.data(), of_images.data(), of_images.size());
  CHECK(device.waits == 0);
  CHECK(device.buffers == 5);
}

TEST_CASE("cuda staging: the host waits for the oldest buffer where there are no more") {
  LateDevice device;
  LateMemory memory(device);
  Staging staging(memory, kBytes, /* most= */ 3);
  std::vector<uint8_t> there(5 * kBytes + 1);
  const std::vector<uint8_t> here = numbers(there.size(), 1);
  staging.from_host(there.data(), here.data(), here.size());
  CHECK(device.buffers == 3);
  CHECK(device.waits == 3);  // pieces 4, 5 and 6
  device.work_to(device.work.size());
  CHECK(there == here);
}

TEST_CASE("cuda staging: the host waits for the oldest buffer where it has no memory for another") {
  LateDevice device;
  LateMemory memory(device, /* most= */ 2);
  Staging staging(memory, kBytes, /* most= */ 6);
  std::vector<uint8_t> there(5 * kBytes + 1);
  const std::vector<uint8_t> here = numbers(there.size(), 1);
  staging.from_host(there.data(), here.data(), here.size());
  CHECK(device.buffers == 2);
  CHECK(device.waits == 4);  // pieces 3 to 6
  device.work_to(device.work.size());
  CHECK(there == here);
  LateDevice poor;
  LateMemory none(poor, /* most= */ 1);  // to_host() needs two
  Staging without(none, kBytes, /* most= */ 6);
  CHECK_THROWS_AS(without.from_host(there.data(), here.data(), here.size()), norma::OutOfMemory);
}

TEST_CASE("cuda staging: bytes come to the host behind the work that makes them") {
  for (const size_t count : {size_t{0}, size_t{1}, kBytes, kBytes + 1, 2 * kBytes, 7 * kBytes + 3}) {
    CAPTURE(count);
    LateDevice device;
    LateMemory memory(device);
    Staging staging(memory, kBytes, /* most= */ 2);
    std::vector<uint8_t> there(count);
    const std::vector<uint8_t> sent = numbers(count, 3);
    staging.from_host(there.data(), sent.data(), count);
    device.work.emplace_back([&] {
      for (uint8_t& byte : there) {
        ++byte;
      }
    });
    std::vector<uint8_t> here(count);
    staging.to_host(here.data(), there.data(), count);
    CHECK(here == numbers(count, 4));
  }
}

TEST_CASE("cuda staging: more copies in a row than there are buffers") {
  const norma::DefaultDeviceGuard guard(norma::kCpu);
  for (const norma::Device device : norma::test::cuda_devices()) {
    std::vector<norma::Tensor> copies;
    for (int64_t i = 0; i < 100; ++i) {
      copies.push_back(to_device(norma::full({3}, static_cast<double>(i)), device));
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      CHECK(copies[i].to_vector<double>() == std::vector<double>(3, static_cast<double>(i)));
    }
  }
}
