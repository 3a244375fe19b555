#pragma once

#include "exercise.h"

#include <norma/norma.h>

#include <cmath>
#include <cstring>
#include <vector>

// A network of three layers on the tape of exercise.h, and images to train it with.

/// Images as rows: pixels (N, 784), about -0.8 to 2; one_hot (N, 10); labels (N).
struct Images {
  Tensor pixels;
  Tensor one_hot;
  Tensor labels;
};

/// The first `count` images of Fashion-MNIST.
inline Images load_images(norma::data::Split split, int64_t count) {
  const auto dataset = norma::data::make_dataset("fashion_mnist", {.split = split});
  const norma::data::DatasetInfo& info = dataset->info();
  const auto pixels = static_cast<size_t>(info.image_bytes());
  std::vector<float> values;
  std::vector<float> one_hot(static_cast<size_t>(count * info.num_classes()), 0);
  std::vector<int64_t> labels;
  norma::data::Image image;
  for (int64_t i = 0; i < count; ++i) {
    labels.push_back(dataset->load(i, image));
    one_hot[static_cast<size_t>(i * info.num_classes() + labels.back())] = 1;
    for (size_t p = 0; p < pixels; ++p) {
      values.push_back((static_cast<float>(image.pixels[p]) / 255 - info.mean[0]) / info.std[0]);
    }
  }
  return {norma::from_vector<float>(values, {count, info.image_bytes()}),
          norma::from_vector<float>(one_hot, {count, info.num_classes()}),
          norma::from_vector<int64_t>(labels, {count})};
}

/// Three linear layers with a relu between them. parameters: the weight and the bias of each layer.
struct Network {
  std::vector<Tensor> parameters;

  /// Random weights; `sizes` are those of the input, the hidden layers and the output.
  explicit Network(const std::vector<int64_t>& sizes) {
    for (size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
      const double spread = std::sqrt(2.0 / static_cast<double>(sizes[layer]));
      parameters.push_back(norma::randn({sizes[layer], sizes[layer + 1]}) * spread);
      parameters.push_back(norma::zeros({sizes[layer + 1]}));
    }
  }

  /// Records the whole network, and first its parameters, as entries 0, 1, …; returns the number of the scores.
  size_t record(Tape& tape, const Tensor& pixels) const {
    for (const Tensor& parameter : parameters) {
      tape.record(parameter);
    }
    size_t x = tape.record(pixels);
    for (size_t p = 0; p < parameters.size(); p += 2) {
      x = linear(tape, x, p, p + 1);
      x = p + 2 < parameters.size() ? relu(tape, x) : x;
    }
    return x;
  }

  /// One walk over all images, `batch` at a time. Returns the mean loss.
  double train(const Images& images, int64_t batch, double rate) {
    double total = 0;
    const int64_t steps = images.pixels.size(0) / batch;
    for (int64_t step = 0; step < steps; ++step) {
      Tape tape;
      const size_t scores = record(tape, norma::narrow(images.pixels, 0, step * batch, batch));
      const size_t loss = cross_entropy(tape, scores, norma::narrow(images.one_hot, 0, step * batch, batch));
      backward(tape, loss);
      for (size_t p = 0; p < parameters.size(); ++p) {
        if (tape.entries[p].gradient.defined()) {
          parameters[p] = parameters[p] - tape.entries[p].gradient * rate;
        }
      }
      total += static_cast<double>(tape.entries[loss].value.item<float>());
    }
    return total / static_cast<double>(steps);
  }

  /// The share of images whose right class has the largest score, in per cent.
  [[nodiscard]] double accuracy(const Images& images) const {
    Tape tape;
    const size_t scores = record(tape, images.pixels);
    const Tensor hits = norma::equal(norma::argmax(tape.entries[scores].value, 1), images.labels);
    const auto right = norma::sum(norma::to(hits, norma::DType::int64)).item<int64_t>();
    return 100.0 * static_cast<double>(right) / static_cast<double>(images.labels.numel());
  }
};
