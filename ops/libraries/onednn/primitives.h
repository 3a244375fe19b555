#pragma once

#include "core/dtype.h"
#include "ops/half/bfloat16.h"
#include "ops/libraries/onednn/onednn.h"

namespace norma::onednn {

// Primitive descriptors, made the same way for oneDNN 2 (which wants an operation descriptor first) and 3.

/// True iff primitives do a dtype: float32, and bfloat16 if they are used for it.
inline bool does_dtype(DType dtype) {
  return dtype == DType::float32 || (dtype == DType::bfloat16 && uses_bfloat16_primitives());
}

/// oneDNN's name of float32 or bfloat16.
inline dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

struct ConvolutionGeometry {
  dnnl::memory::dims stride;
  dnnl::memory::dims dilation;  ///< as oneDNN counts it: 0 for a dense kernel
  dnnl::memory::dims padding;   ///< on both sides
};

/// The descriptor of a forward convolution. `bias` may be empty.
inline dnnl::convolution_forward::primitive_desc convolution_forward(
    dnnl::prop_kind kind, const dnnl::memory::desc& src, const dnnl::memory::desc& weights,
    const dnnl::memory::desc& bias, const dnnl::memory::desc& dst, const ConvolutionGeometry& g,
    const dnnl::post_ops& after = {}) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), kind,     algorithm,  src,       weights,   bias,
          dst,      g.stride, g.dilation, g.padding, g.padding, attributes(after)};
#else
  return {{kind, algorithm, src, weights, bias, dst, g.stride, g.dilation, g.padding, g.padding},
          attributes(after),
          engine()};
#endif
}

inline dnnl::convolution_backward_data::primitive_desc convolution_backward_data(
    const dnnl::memory::desc& diff_src, const dnnl::memory::desc& weights, const dnnl::memory::desc& diff_dst,
    const ConvolutionGeometry& g, const dnnl::convolution_forward::primitive_desc& hint) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(),   algorithm, diff_src,  weights, diff_dst,    g.stride,
          g.dilation, g.padding, g.padding, hint,    attributes()};
#else
  return {{algorithm, diff_src, weights, diff_dst, g.stride, g.dilation, g.padding, g.padding},
          attributes(),
          engine(),
          hint};
#endif
}

inline dnnl::convolution_backward_weights::primitive_desc convolution_backward_weights(
    const dnnl::memory::desc& src, const dnnl::memory::desc& diff_weights, const dnnl::memory::desc& diff_dst,
    const ConvolutionGeometry& g, const dnnl::convolution_forward::primitive_desc& hint) {
  constexpr auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine(),   algorithm, src,       diff_weights, diff_dst,    g.stride,
          g.dilation, g.padding, g.padding, hint,         attributes()};
#else
  return {{algorithm, src, diff_weights, diff_dst, g.stride, g.dilation, g.padding, g.padding},
          attributes(),
          engine(),
          hint};
#endif
}

/// The descriptor of a matrix product. `bias` may be empty.
inline dnnl::matmul::primitive_desc matmul(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                           const dnnl::memory::desc& bias, const dnnl::memory::desc& c,
                                           const dnnl::post_ops& after = {}) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, bias, c, attributes(after)};
#else
  return {{a, b, bias, c}, attributes(after), engine()};
#endif
}

}  // namespace norma::onednn
