// Draws the tape: one residual block and its loss, as a graph for Graphviz.
//   plot_tape [FILE.dot]        then: dot -Tsvg FILE.dot > tape.svg

#include <norma/norma.h>

#include <cstdio>
#include <fstream>
#include <string>

using namespace norma;  // NOLINT: an example reads better without prefixes

int main(int argc, char** argv) {
  manual_seed(1);
  const Tensor x = randn({2, 16, 8, 8});
  Tensor weight = randn({16, 16, 3, 3}).set_requires_grad();
  Tensor gamma = ones({16}).set_requires_grad();
  Tensor beta = zeros({16}).set_requires_grad();

  // Three ops, three nodes: convolution; norm, addition and relu in one; the mean.
  const Tensor features = conv2d(x, weight, {}, {.padding = 1});
  const Tensor y = norm_act(features, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4}, gamma, beta,
                            {.activation = Activation::relu, .residual = x});
  const Tensor loss = mean(y);

  const Tape tape(loss);
  const std::string picture = tape.graphviz({{"weight", weight}, {"gamma", gamma}, {"beta", beta}});
  std::printf("%s\n", tape.summary().c_str());  // bytes that each node keeps for the backward pass
  if (argc < 2) {
    std::printf("%s", picture.c_str());
    return 0;
  }
  std::ofstream file(argv[1]);
  file << picture << std::flush;
  if (!file.good()) {
    std::fprintf(stderr, "cannot write %s\n", argv[1]);
    return 1;
  }
  std::printf("written: %s\n", argv[1]);
  return 0;
}
