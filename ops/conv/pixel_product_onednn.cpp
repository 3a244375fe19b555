#include "base/error.h"
#include "core/buffer.h"
#include "core/parallel.h"
#include "ops/conv/pixel_product.h"
#include "ops/libraries/onednn/isa.h"
#include "ops/matmul/kernels.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace norma::kernels::pixel_product {

namespace {

bool strided(const Conv2dCase& conv) {
  return conv.stride_h > 1 || conv.stride_w > 1;
}

int64_t pixels(const Conv2dCase& conv) {
  return conv.n * conv.oh * conv.ow;
}

/// Calls f(row of y, row of x) for each row of pixels that the convolution reads, in parallel.
template <class F>
void for_each_row(const Conv2dCase& conv, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (conv.ow * conv.c));
  parallel_for(0, conv.n * conv.oh, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      f(row, row / conv.oh * conv.h + row % conv.oh * conv.stride_h);
    }
  });
}

int64_t pixel_bytes(const Conv2dCase& conv) {
  return conv.c * static_cast<int64_t>(size_of(conv.dtype));
}

/// Copies the pixels of x that the convolution reads, one after the other.
void gather(const Conv2dCase& conv, const std::byte* x, std::byte* met) {
  const int64_t bytes = pixel_bytes(conv);
  for_each_row(conv, [&](int64_t row, int64_t x_row) {
    for (int64_t j = 0; j < conv.ow; ++j) {
      std::copy_n(x + (x_row * conv.w + j * conv.stride_w) * bytes, bytes, met + (row * conv.ow + j) * bytes);
    }
  });
}

/// The reverse of gather(): dx is 0 at all other pixels.
void scatter(const Conv2dCase& conv, const std::byte* met, std::byte* dx) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (conv.w * conv.c));
  const int64_t bytes = pixel_bytes(conv);
  parallel_for(0, conv.n * conv.h, grain, [&](int64_t begin, int64_t end) {
    for (int64_t x_row = begin; x_row < end; ++x_row) {
      const int64_t i = x_row % conv.h;
      std::byte* to = dx + x_row * conv.w * bytes;
      if (i % conv.stride_h != 0 || i / conv.stride_h >= conv.oh) {
        std::fill_n(to, conv.w * bytes, std::byte{0});
        continue;
      }
      const std::byte* from = met + (x_row / conv.h * conv.oh + i / conv.stride_h) * conv.ow * bytes;
      for (int64_t j = 0; j < conv.w; ++j, to += bytes) {
        if (j % conv.stride_w == 0 && j / conv.stride_w < conv.ow) {
          std::copy_n(from + j / conv.stride_w * bytes, bytes, to);
        } else {
          std::fill_n(to, bytes, std::byte{0});
        }
      }
    }
  });
}

/// Calls f with x (pixels, c): x itself, or the pixels of it that are read.
template <class F>
void with_met_pixels(const Conv2dCase& conv, const void* x, F&& f) {
  if (!strided(conv)) {
    f(x);
    return;
  }
  const Buffer<std::byte> met(pixels(conv) * pixel_bytes(conv));
  gather(conv, static_cast<const std::byte*>(x), met.data());
  f(static_cast<const void*>(met.data()));
}

}  // namespace

bool serves(const Conv2dCase& conv) {
  const auto multiplies_bfloat16 = [] {
    const std::string_view instructions = onednn::bfloat16_instructions();
    return instructions == "AMX" || instructions == "AVX512_BF16";
  };
  const bool faster = conv.dtype == DType::float32 || (conv.dtype == DType::bfloat16 && multiplies_bfloat16());
  return faster && conv.channels_last && conv.groups == 1 && conv.kh == 1 && conv.kw == 1 && conv.padding_h == 0 &&
         conv.padding_w == 0;
}

// y (pixels, o) = x (pixels, c) weightᵀ
bool forward_act(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                 const Epilogue& epilogue, Storage* keep) {
  const MatmulCase product{.dtype = conv.dtype,
                           .m = pixels(conv),
                           .n = conv.o,
                           .k = conv.c,
                           .a_row = conv.c,
                           .a_column = 1,
                           .b_row = 1,
                           .b_column = conv.c,
                           .c_row = conv.o};
  bool done = false;
  with_met_pixels(conv, x, [&](const void* met) {
    done = matmul_onednn->multiply_act(product, met, weight, bias, y, epilogue, keep);
  });
  return done;
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep) {
  check(forward_act(conv, x, weight, bias, y, /* epilogue= */ {}, keep), "conv2d",
        "oneDNN: has no primitive for this product");
}

// dx = dy weight
void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  const MatmulCase product{.dtype = conv.dtype,
                           .m = pixels(conv),
                           .n = conv.c,
                           .k = conv.o,
                           .a_row = conv.o,
                           .a_column = 1,
                           .b_row = conv.c,
                           .b_column = 1,
                           .c_row = conv.c};
  if (!strided(conv)) {
    matmul_onednn->multiply(product, dy, weight, /* bias= */ nullptr, dx, /* keep= */ nullptr);
    return;
  }
  const Buffer<std::byte> met(pixels(conv) * pixel_bytes(conv));
  matmul_onednn->multiply(product, dy, weight, /* bias= */ nullptr, met.data(), /* keep= */ nullptr);
  scatter(conv, met.data(), static_cast<std::byte*>(dx));
}

// dweight = dyᵀ x
void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const MatmulCase product{.dtype = conv.dtype,
                           .m = conv.o,
                           .n = conv.c,
                           .k = pixels(conv),
                           .a_row = 1,
                           .a_column = conv.o,
                           .b_row = conv.c,
                           .b_column = 1,
                           .c_row = conv.c};
  with_met_pixels(conv, x, [&](const void* met) {
    matmul_onednn->multiply(product, dy, met, /* bias= */ nullptr, dweight, /* keep= */ nullptr);
  });
}

}  // namespace norma::kernels::pixel_product
