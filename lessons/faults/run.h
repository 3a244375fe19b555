#pragma once

// What the faults of training share: generated images, a small network, and a loop that prints its telemetry.

#include <norma/lab/lab.h>
#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

namespace norma::faults {

inline constexpr int64_t kBatch = 32;

/// Grey stripes in ten classes, by five angles and two widths, with a random place and noise. A network learns them in
/// a hundred steps.
class Stripes : public data::Dataset {
 public:
  explicit Stripes(int64_t size, uint64_t seed = 0) : seed_(seed) {
    info_ = {
        .name = "stripes", .size = size, .channels = 1, .height = kSide, .width = kSide, .mean = {0.5F}, .std = {0.2F}};
    for (int label = 0; label < 10; ++label) {
      info_.class_names.push_back(fmt::format("{} degrees, {}", label / 2 * 36, label % 2 == 0 ? "wide" : "narrow"));
    }
  }

  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, data::Image& image) const override {
    std::mt19937_64 random(seed_ * 1000003 + static_cast<uint64_t>(index));
    const auto label = static_cast<int64_t>(random() % 10);
    const double angle = static_cast<double>(label / 2) * std::numbers::pi / 5;
    const double wave = label % 2 == 0 ? 0.6 : 1.2;
    std::uniform_real_distribution<double> uniform(0, 1);
    const double start = uniform(random) * 2 * std::numbers::pi;
    image.channels = 1;
    image.height = kSide;
    image.width = kSide;
    image.pixels.clear();
    for (int64_t i = 0; i < kSide * kSide; ++i) {
      const double along =
          std::cos(angle) * static_cast<double>(i % kSide) + std::sin(angle) * static_cast<double>(i / kSide);
      image.pixels.push_back(
          static_cast<uint8_t>(128 + 50 * std::cos(wave * along + start) + 50 * (uniform(random) - 0.5)));
    }
    return label;
  }

 private:
  static constexpr int64_t kSide = 16;
  data::DatasetInfo info_;
  uint64_t seed_;
};

inline data::Loader batches_of(const std::shared_ptr<const data::Dataset>& images) {
  return {images,
          data::Transform(images->info(), {.image_size = 16, .channels = 1}),
          {.batch_size = kBatch, .num_workers = 0}};
}

/// Three convolutions with batch norm and relu, and a linear layer.
inline std::shared_ptr<nn::Sequential> small_network(int64_t classes) {
  const auto convolution = [](int64_t from, int64_t to) {
    return std::make_shared<nn::Conv2d>(from, to, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false});
  };
  return std::shared_ptr<nn::Sequential>(new nn::Sequential{
      convolution(1, 16), std::make_shared<nn::BatchNorm2d>(16), std::make_shared<nn::ReLU>(), convolution(16, 32),
      std::make_shared<nn::BatchNorm2d>(32), std::make_shared<nn::ReLU>(), convolution(32, 32),
      std::make_shared<nn::BatchNorm2d>(32), std::make_shared<nn::ReLU>(), std::make_shared<nn::AdaptiveAvgPool2d>(1),
      std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(32, classes)});
}

/// The telemetry of a loop of your own, in the order of its calls.
class Watch {
 public:
  Watch(nn::Module& model, int64_t steps) {
    recorder_.start({.model = model, .first_step = 0, .total_steps = steps, .batch_size = kBatch});
  }

  void begin() { seen_ = recorder_.begin_step(++step_); }
  void forward(const Tensor& loss) {
    loss_ = loss.item<float>();
    if (seen_) {
      seen_->after_forward(loss, /* grad_scale= */ 1);
    }
  }
  void backward() {
    if (seen_) {
      seen_->after_backward();
    }
  }
  void update() {
    if (seen_) {
      seen_->after_update();
    }
    seen_.reset();
    recorder_.end_step(step_, loss_, /* seconds= */ 0);
  }

  /// The loss over the run, and each layer's numbers in the last step.
  void print() const {
    const lab::Telemetry record = recorder_.result();
    const std::vector<lab::LossPoint>& losses = record.losses;
    for (size_t i = 0; i <= 4; ++i) {
      const lab::LossPoint& point = losses[i * (losses.size() - 1) / 4];
      std::printf("step %3lld: loss %.2f\n", static_cast<long long>(point.step), point.loss);
    }
    const auto largest =
        std::max_element(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });
    std::printf("largest loss %.2f in step %lld; a guess has ln(10) = 2.30\n", largest->loss,
                static_cast<long long>(largest->step));
    for (const lab::LayerHealth& layer : record.health.back().layers) {
      std::printf("%-12s output %5.2f ± %5.2f, largest %5.1f", layer.layer.c_str(), layer.output.mean,
                  layer.output.deviation, layer.output.largest);
      if (layer.gradient) {
        std::printf("; gradient: largest %.4f", layer.gradient->largest);
      }
      if (layer.gamma) {
        std::printf("; gamma %.2f", layer.gamma->mean);
      }
      if (layer.gap) {
        std::printf("; gap %.2f", layer.gap->mean);
      }
      std::printf("\n");
    }
  }

 private:
  lab::TelemetryRecorder recorder_;
  std::unique_ptr<train::ObservedStep> seen_;
  int64_t step_ = 0;
  double loss_ = 0;
};

/// Trains with the images in their order, calls `after_step` with the number of each step, and prints the telemetry.
inline void run_training(nn::Module& model, nn::Optimizer& optimizer,
                         const std::shared_ptr<const data::Dataset>& images,
                         const std::function<void(int64_t step)>& after_step = {}) {
  data::Loader batches = batches_of(images);
  Watch watch(model, images->info().size / kBatch);
  while (const auto batch = batches.next()) {
    watch.begin();
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(batch->images), batch->labels);
    watch.forward(loss);
    loss.backward();
    watch.backward();
    optimizer.step();
    watch.update();
    if (after_step) {
      after_step(batch->step);
    }
  }
  watch.print();
}

}  // namespace norma::faults
