// Tensors, views, memory formats, the tape and gradients, in the order in which you meet them.

#include <norma/norma.h>

#include <cstdio>
#include <memory>
#include <string>

using namespace norma;  // NOLINT: an example reads better without prefixes

void print_layout(const std::string& name, const Tensor& x) {
  std::printf("%s: %s %s, strides %s\n", name.c_str(), std::string(to_string(x.dtype())).c_str(),
              to_string(x.sizes()).c_str(), to_string(x.strides()).c_str());
}

int main() {
  // A tensor is a handle: sizes and strides over shared storage.
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  std::printf("x = %s\n", to_string(x).c_str());
  std::printf("its transpose is a view of the same memory: %s\n", describe(transpose(x, 0, 1)).c_str());

  // The memory format of an image batch lies in its strides; the sizes stay N, C, H, W.
  manual_seed(1);
  const Tensor images = randn({2, 3, 8, 8});
  const Tensor nhwc = to(images, MemoryFormat::channels_last);
  std::printf("images: %s\nnhwc:   %s\n", describe(images).c_str(), describe(nhwc).c_str());
  // Every op keeps the format of its input, norms included.
  std::printf("layer_norm_2d(nhwc): %s\n\n", describe(layer_norm_2d(nhwc)).c_str());

  // The tape records ops on tensors that require a gradient, with the tensors that their backward pass will need.
  Tensor weight = randn({64, 3, 3, 3}).set_requires_grad();
  const Tensor features = conv2d(nhwc, weight, {}, {.padding = 1});
  const Tensor normed = group_norm(features, /* num_groups= */ 32);
  const Tensor y = relu(normed);
  const Tensor loss = mean(mul(y, y));
  std::printf("%s\n", Tape(loss).summary().c_str());

  // docs/walkthrough.md follows this group_norm through the code.
  print_layout("features", features);
  print_layout("normed", normed);
  const std::shared_ptr<Node> node = Tape(normed).nodes().back();
  for (const SavedTensor& saved : node->saved) {
    print_layout(node->name + " saves", saved.value());
  }

  // backward() walks the tape from last to first and adds to the .grad of every leaf.
  loss.backward();
  std::printf("\nloss %.4f, gradient of the weight: %s\n", loss.item<float>(), describe(weight.grad()).c_str());

  // Central differences in float64 show if that gradient is right.
  const GradcheckResult checked = gradcheck([](const Tensors& inputs) { return Tensors{group_norm(inputs[0], 2)}; },
                                            {randn({2, 4, 3, 3}, {.dtype = DType::float64}).set_requires_grad()});
  std::printf("gradcheck of group_norm: %s\n", checked ? "passed" : checked.message.c_str());
  return checked ? 0 : 1;
}
