// Lesson 11: RMS norm, the residual stream, and what depth does to it with norms at four places.
#include "network.h"
#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

/// How large the stream and the weights' gradients are, block by block.
void by_depth(const std::string& folder) {
  Generator generator(2);
  const Tensor x = norm(randn({kBatch, kWidth}, kFloat64, generator));
  const Tensor dy = randn({kBatch, kWidth}, kFloat64, generator);
  std::vector<lessons::Curve> streams;
  std::vector<lessons::Curve> gradients;
  const auto sizes_at = [](const lessons::Curve& curve) {
    std::string text;
    for (const size_t depth : {1, 8, 16, 32}) {
      text += fmt::format(" {:8.3g}", curve.points[depth - 1].second);
    }
    return text;
  };
  fmt::print("block               1        8       16       32\n");
  for (const auto& [placement, name] : kPlacements) {
    const Network network(placement, 1);
    const Tensors stream = network.streams(x);
    backward(end(placement, stream.back()), dy);
    const auto color = static_cast<lessons::Color>(static_cast<size_t>(lessons::Color::one) + streams.size());
    streams.push_back({.name = name, .points = {}, .color = color});
    gradients.push_back({.name = name, .points = {}, .color = color});
    for (size_t depth = 1; depth <= kDepth; ++depth) {
      streams.back().points.emplace_back(depth, rms(stream[depth]));
      gradients.back().points.emplace_back(depth, rms(network.weights[2 * depth - 1].grad()));
    }
    fmt::print("{:<5} stream  {}\n{:<5} gradient{}\n", name, sizes_at(streams.back()), name,
               sizes_at(gradients.back()));
  }
  const lessons::Axis block{.label = "block"};
  lessons::curve_chart("The stream", "Without a norm it grows to tens of thousands, with pre and peri to 5", block,
                       {.label = "root mean square of the stream", .logarithmic = true}, streams)
      .save(folder, "streams");
  lessons::curve_chart("The gradients",
                       "Without a norm: hundreds of thousands. With pre and peri they fall from 7 to 1", block,
                       {.label = "root mean square of a weight's gradient", .logarithmic = true}, gradients)
      .save(folder, "gradients");
}

/// The loss of the last of 150 steps of SGD, or "lost": the network learns what a smaller one computes.
std::string trained(Network network, double rate) {
  Generator data(4);
  const Network teacher(Placement::pre, 6, 2);
  const double scale = 1 / std::sqrt(static_cast<double>(kWidth));
  const Tensor readout = randn({kWidth, 1}, kFloat64, data) * scale;
  network.weights.push_back(zeros({kWidth, 1}, kFloat64).set_requires_grad());
  double recent = 0;
  for (int step = 0; step < 150; ++step) {
    const Tensor x = norm(randn({kBatch, kWidth}, kFloat64, data));
    const Tensor goal = matmul(norm(teacher.streams(x).back()), readout).detach();
    const Tensor error =
        matmul(end(network.placement, network.streams(x).back()), network.weights.back() * scale) - goal;
    const Tensor loss = mean(error * error);
    backward(loss);
    const NoGradGuard guard;
    for (Tensor& weight : network.weights) {
      add_(weight, weight.grad() * -rate);
      weight.set_grad({});
    }
    recent += step < 130 ? 0 : loss.item<double>() / 20;
    if (!(loss.item<double>() < 100)) {
      return "lost";
    }
  }
  return recent < 2 ? fmt::format("{:.2f}", recent) : "lost";
}

void sweep() {
  constexpr int kBlocks = 16;
  fmt::print("\nlearning rate     0.001    0.01     0.1     0.3       1       3\n");
  const auto row = [](const std::string& name, Placement placement, double factor) {
    fmt::print("{:<9} measured", name);
    for (const double rate : {0.001, 0.01, 0.1, 0.3, 1.0, 3.0}) {
      fmt::print(" {:>7}", trained(Network(placement, 5, kBlocks, factor), rate));
    }
    fmt::print("\n");
  };
  for (const auto& [placement, name] : kPlacements) {
    row(name, placement, 1);
  }
  row("none by s", Placement::none, branch_factor(kBlocks, /* pre= */ false));
  row("pre by s", Placement::pre, branch_factor(kBlocks, /* pre= */ true));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<double> x = {1, 3, 4, 5, 7};
  fmt::print("mean square {}, r {:.3f}\n", 20.0, 1 / std::sqrt(20.0));
  const auto print = [](const char* name, const std::vector<double>& numbers) {
    fmt::print("{:<5}", name);
    for (const double value : numbers) {
      fmt::print(" {:7.3f}", value);
    }
    fmt::print("\n");
  };
  print("x", x);
  print("y", rms_norm(from_vector(x, {5}), {5}, {}, {.eps = 0}).to_vector<double>());
  const std::vector<double> dx = rms_norm_backward(x, {1, 1, 1, 1, 1}, {1, 0, 0, 0, 0}, 0);
  print("dx", dx);
  fmt::print("sum(dx) {:.3f}, sum(dx x) {:.3f}\n\n", dx[0] + dx[1] + dx[2] + dx[3] + dx[4],
             std::abs(dx[0] * x[0] + dx[1] * x[1] + dx[2] * x[2] + dx[3] * x[3] + dx[4] * x[4]));
  by_depth(lessons::picture_folder(argc, argv));
  sweep();
}
