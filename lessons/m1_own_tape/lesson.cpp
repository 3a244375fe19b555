// Milestone 1: a network of three layers learns to tell clothes apart, on a tape of our own.

#include "picture.h"
#include "training.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace {

void draw(const std::vector<int64_t>& sizes, const std::string& folder) {
  using lessons::Color;
  lessons::Picture picture(110, "The network",
                           "784 pixels, 128 numbers, 64 numbers, 10 scores, with a layer between each");
  const std::vector<std::string> names = {"pixels", "numbers", "numbers", "scores"};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double x = 4 + 92 * static_cast<double>(i);
    picture.box(x, 26, 60, 40, i == 0 ? Color::three : Color::one, true, fmt::format("{}", sizes[i]));
    picture.text(x + 30, 84, names[i], {.anchor = "middle"});
    if (i > 0) {
      picture.arrow(x - 31, 46, x - 1, 46);
      picture.text(x - 16, 16, i + 1 < sizes.size() ? "linear, relu" : "linear", {.size = 12, .anchor = "middle"});
    }
  }
  picture.save(folder, "network");
}

void run(const std::string& folder) {
  const std::vector<int64_t> sizes = {784, 128, 64, 10};
  draw(sizes, folder);

  norma::manual_seed(1);
  Network network(sizes);
  int64_t count = 0;
  for (const Tensor& parameter : network.parameters) {
    fmt::print("{} {}\n", parameter.rank() == 2 ? "weight" : "bias  ", norma::to_string(parameter.sizes()));
    count += parameter.numel();
  }
  fmt::print("together {} numbers to train\n\n", count);

  // What is on the tape for one batch.
  const Images train = load_images(norma::data::Split::train, 12000);
  const Images test = load_images(norma::data::Split::test, 2000);
  Tape tape;
  const size_t scores = network.record(tape, norma::narrow(train.pixels, 0, 0, 50));
  const size_t loss = cross_entropy(tape, scores, norma::narrow(train.one_hot, 0, 0, 50));
  backward(tape, loss);
  for (size_t i = 0; i < tape.entries.size(); ++i) {
    const Entry& entry = tape.entries[i];
    fmt::print("entry {:2}: sizes {}", i, norma::to_string(entry.value.sizes()));
    for (const size_t parent : entry.parents) {
      fmt::print("{}{}", parent == entry.parents[0] ? ", from " : " ", parent);
    }
    fmt::print("\n");
  }

  fmt::print("\nbefore training: measured accuracy {:.1f} %\n", network.accuracy(test));
  std::vector<lessons::Bar> bars;
  for (int epoch = 1; epoch <= 4; ++epoch) {
    const double mean_loss = network.train(train, 50, 0.05);
    const double accuracy = network.accuracy(test);
    fmt::print("epoch {}: measured loss {:.3f}, accuracy on new images {:.1f} %\n", epoch, mean_loss, accuracy);
    bars.push_back(
        {.name = fmt::format("after epoch {}", epoch), .value = accuracy, .text = fmt::format("{:.1f} %", accuracy)});
  }
  lessons::bar_chart("Accuracy", "A bar for each epoch; they grow", "measured accuracy on new images", bars)
      .save(folder, "accuracy");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(lessons::picture_folder(argc, argv));
  } catch (const norma::Error& error) {  // the images are not there
    fmt::print("{}\n", error.what());
    return 1;
  }
}
