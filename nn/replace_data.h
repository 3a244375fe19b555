#pragma once

#include "core/tensor.h"

namespace norma::nn {

/// Replaces x's storage by that of `data`, so that every handle on x sees it. The gradient stays as it is.
inline void replace_data(const Tensor& x, const Tensor& data) {
  TensorImpl& impl = x.impl();
  impl.storage = data.storage();
  impl.sizes = data.sizes();
  impl.strides = data.strides();
  impl.offset = data.offset();
  impl.dtype = data.dtype();
  impl.is_view = false;
}

}  // namespace norma::nn
