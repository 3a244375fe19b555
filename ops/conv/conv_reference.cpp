#include "ops/conv/kernels.h"

#include <algorithm>
#include <vector>

// A convolution by its definition. Read it before the fast ones, and compare them with it. It is the last in the order
// of implementations, and no case is left to it: only NORMA_CONV=reference chooses it.
//
//   y[n, o, oh, ow] = bias[o] + sum over c, kh, kw of x[n, c, h, w] * weight[o, c, kh, kw]
//   h = oh * stride + kh * dilation - padding, w likewise; x is 0 outside of the image
//
// where c counts the channels of the group of o. The gradients are sums of the same products: each product is in one
// output, so dx gets dy * weight, and dweight gets dy * x.

namespace norma::kernels {

namespace {

/// Calls f(element of x, element of weight, element of y) for every product.
template <class F>
void for_each_product(const Conv2dCase& p, F&& f) {
  // The place of element (a, b, i, j) of a tensor with the sizes (…, bs, is, js).
  const auto place = [](bool channels_last, int64_t a, int64_t b, int64_t i, int64_t j, int64_t bs, int64_t is,
                        int64_t js) {
    return channels_last ? ((a * is + i) * js + j) * bs + b : ((a * bs + b) * is + i) * js + j;
  };
  const int64_t group_c = p.c / p.groups;
  const int64_t group_o = p.o / p.groups;
  for (int64_t n = 0; n < p.n; ++n) {
    for (int64_t o = 0; o < p.o; ++o) {
      for (int64_t oh = 0; oh < p.oh; ++oh) {
        for (int64_t ow = 0; ow < p.ow; ++ow) {
          for (int64_t c = 0; c < group_c; ++c) {
            for (int64_t kh = 0; kh < p.kh; ++kh) {
              for (int64_t kw = 0; kw < p.kw; ++kw) {
                const int64_t h = oh * p.stride_h + kh * p.dilation_h - p.padding_h;
                const int64_t w = ow * p.stride_w + kw * p.dilation_w - p.padding_w;
                if (h >= 0 && h < p.h && w >= 0 && w < p.w) {
                  f(place(p.channels_last, n, o / group_o * group_c + c, h, w, p.c, p.h, p.w),
                    place(p.weight_channels_last, o, c, kh, kw, group_c, p.kh, p.kw),
                    place(p.channels_last, n, o, oh, ow, p.o, p.oh, p.ow));
                }
              }
            }
          }
        }
      }
    }
  }
}

/// Calls f(T{}) for the dtype of a case.
template <class F>
void dispatch(const Conv2dCase& conv, F&& f) {
  conv.dtype == DType::float64 ? f(double{}) : f(float{});
}

template <class T>
void round_to(const std::vector<double>& sums, void* result) {
  std::transform(sums.begin(), sums.end(), static_cast<T*>(result), [](double sum) { return static_cast<T>(sum); });
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage*) {
  dispatch(conv, [&]<class T>(T) {
    const auto* const xs = static_cast<const T*>(x);
    const auto* const weights = static_cast<const T*>(weight);
    const auto* const biases = static_cast<const T*>(bias);
    std::vector<double> sums(static_cast<size_t>(conv.y_numel()));
    for (size_t i = 0; bias != nullptr && i < sums.size(); ++i) {
      const auto element = static_cast<int64_t>(i);
      sums[i] = biases[conv.channels_last ? element % conv.o : element / (conv.oh * conv.ow) % conv.o];
    }
    for_each_product(conv, [&](int64_t i, int64_t k, int64_t j) {
      sums[static_cast<size_t>(j)] += static_cast<double>(xs[i]) * weights[k];
    });
    round_to<T>(sums, y);
  });
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  dispatch(conv, [&]<class T>(T) {
    const auto* const dys = static_cast<const T*>(dy);
    const auto* const weights = static_cast<const T*>(weight);
    std::vector<double> sums(static_cast<size_t>(conv.x_numel()));
    for_each_product(conv, [&](int64_t i, int64_t k, int64_t j) {
      sums[static_cast<size_t>(i)] += static_cast<double>(dys[j]) * weights[k];
    });
    round_to<T>(sums, dx);
  });
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  dispatch(conv, [&]<class T>(T) {
    const auto* const xs = static_cast<const T*>(x);
    const auto* const dys = static_cast<const T*>(dy);
    std::vector<double> sums(static_cast<size_t>(conv.weight_numel()));
    for_each_product(conv, [&](int64_t i, int64_t k, int64_t j) {
      sums[static_cast<size_t>(k)] += static_cast<double>(dys[j]) * xs[i];
    });
    round_to<T>(sums, dweight);
  });
}

bool supports(const Conv2dCase& conv, Conv2dPass) {
  return conv.dtype == DType::float32 || conv.dtype == DType::float64;
}

}  // namespace

constinit const Conv2dImplementation conv2d_reference{.name = "reference",
                                                      .supports = supports,
                                                      .forward = forward,
                                                      .input_gradient = input_gradient,
                                                      .weight_gradient = weight_gradient};

}  // namespace norma::kernels
