#include "core/parallel.h"
#include "ops/norm_table.h"
#include "ops/shape/view.h"

// The bits of norms depend neither on the number of threads nor on the other images of a batch.

using namespace norma;
using namespace norma::test;

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return !a.defined() || max_difference(a, b) == 0;
}

/// The specs that cover every loop, with groups of four channels and with one group.
std::vector<SpecCase> threaded_norms(const Sizes& sizes) {
  std::vector<SpecCase> all{{"groups of four", sizes, {.reduce = {1, 2, 3}, .affine = {1}, .groups = sizes[1] / 4}},
                            {"one group", sizes, {.reduce = {1, 2, 3}, .affine = {1}}}};
  for (const SpecCase& c : image_norms(sizes)) {
    if (c.name != "rms of images" && c.name != "simple" && c.name != "group") {
      all.push_back(c);
    }
  }
  return all;
}

void check_threads(const Sizes& sizes, DType dtype, Activation activation, bool with_residual) {
  CAPTURE(to_string(sizes));
  CAPTURE(to_string(dtype));
  CAPTURE(with_residual);
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    CAPTURE(to_string(layout));
    for (const SpecCase& c : threaded_norms(sizes)) {
      CAPTURE(c.name);
      const NormOperands of = in_layout(operands_of(c, dtype, with_residual), layout);
      Tensors first;
      for (const int threads : {1, 2, 3}) {
        CAPTURE(threads);
        set_num_threads(threads);
        const Tensors results = norm_results(c.spec, of, activation);
        first = threads == 1 ? results : first;
        for (size_t i = 0; i < results.size(); ++i) {
          CAPTURE(i);
          CHECK(same_bits(results[i], first[i]));
        }
      }
    }
  }
}

void check_images_alone(const Sizes& sizes) {
  for (const NormSpec& spec : {NormSpec{.reduce = {1}, .eps = 1e-6}, NormSpec{.reduce = {2, 3}},
                               NormSpec{.reduce = {1, 2, 3}, .affine = {1}, .groups = 2}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
        CAPTURE(to_string(spec.reduce));
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        const NormOperands drawn = operands_of({"", sizes, spec}, dtype, /* with_residual= */ true);
        for (const auto& [activation, with_residual] :
             {std::pair{Activation::identity, false}, std::pair{Activation::relu, false},
              std::pair{Activation::relu, true}, std::pair{Activation::gelu, false}}) {
          CAPTURE(to_string(activation));
          CAPTURE(with_residual);
          NormOperands of = in_layout(drawn, layout);
          if (!with_residual) {
            of.residual = {};
          }
          const Tensors all = norm_results(spec, of, activation);
          for (const int64_t image : {int64_t{0}, sizes[0] - 1}) {
            const auto one = [&](const Tensor& x) { return x.defined() ? narrow(x, 0, image, 1) : Tensor(); };
            NormOperands alone_of = of;
            for (Tensor* operand : {&alone_of.x, &alone_of.residual, &alone_of.dy}) {
              *operand = one(*operand);
            }
            const Tensors alone = norm_results(spec, alone_of, activation);
            for (size_t i = 0; i < all.size(); ++i) {
              if (all[i].defined() && all[i].sizes() == sizes) {  // the gradients of weights are those of all images
                CHECK(same_bits(one(all[i]), alone[i]));
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("norms: the same bits for 1, 2 and 3 threads: dtypes, memory formats, activations" *
          doctest::test_suite("again")) {
  const int before = num_threads();
  // Images shared among threads, an image for each, sets that fit no vector, those of more columns than a tile has.
  for (const Sizes& sizes : {Sizes{3, 64, 48, 40}, Sizes{2, 48, 14, 14}, Sizes{4, 36, 7, 7}, Sizes{4, 64, 7, 7}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      if (default_device() != kCpu && dtype != DType::float32) {
        continue;  // for time: the kernels of other devices do not know the host's threads
      }
      check_threads(sizes, dtype, Activation::identity, /* with_residual= */ false);
      check_threads(sizes, dtype, Activation::relu, /* with_residual= */ true);
    }
  }
  for (const Sizes& sizes : {Sizes{6, 32, 16, 16}, Sizes{20, 320, 2, 2}, Sizes{3, 8, 64, 64}, Sizes{300, 64, 3, 3}}) {
    check_threads(sizes, DType::float32, Activation::identity, /* with_residual= */ false);
  }
  set_num_threads(before);
}

// Results of 4 MB and more are stored around the caches (ops/norm/cpu/loops.h). Runs of 49 elements are taken in
// strips, whose vectors lie elsewhere in each image.
TEST_CASE("norm: images have the bits of each image alone, streamed or not, in strips or not, every walk") {
  const DefaultDeviceGuard on_cpu(kCpu);  // whose stores they are; other devices cut their work by the number of images
  constexpr int64_t kImages = 9;
  for (const Sizes& sizes : {Sizes{kImages, 64, 61, 64}, Sizes{kImages, 190, 7, 7}}) {  // 8.6 MB in float32, 335 KB
    CAPTURE(to_string(sizes));
    check_images_alone(sizes);
  }
}
