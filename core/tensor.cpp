#include "core/tensor.h"

#include "core/copy.h"
#include "core/tape.h"

namespace norma {
namespace {

const TensorImpl& defined_impl(const std::shared_ptr<TensorImpl>& impl) {
  check(impl != nullptr, "tensor", "expected a tensor, got none");
  return *impl;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, const Sizes& sizes, const Strides& strides, int64_t offset,
               DType dtype)
    : impl_(std::make_shared<TensorImpl>()) {
  // Builds the texts only on failure, since they are slow to make.
  if (sizes.size() != strides.size()) {
    fail("tensor", "expected as many strides as sizes, got strides {} for sizes {}", strides, sizes);
  }
  for (int64_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] < 0) {
      fail("tensor", "expected sizes of at least 0, got {}", sizes);
    }
    if (strides[axis] < 0) {
      fail("tensor", "expected strides of at least 0, got {}", strides);
    }
    // Checked for empty tensors, too: loops and views may step over a whole axis.
    checked_mul("tensor", "strides", sizes[axis], strides[axis]);
  }
  const int64_t numel = checked_numel("tensor", sizes);
  const auto capacity = static_cast<int64_t>(storage->bytes() / size_of(dtype));
  if (offset < 0 || offset > capacity || reach(sizes, strides) > capacity - offset) {
    fail("tensor", "expected a view inside a storage of {} elements, got offset {}, sizes {}, strides {}", capacity,
         offset, sizes, strides);
  }
  impl_->storage = std::move(storage);
  impl_->sizes = sizes;
  impl_->strides = strides;
  impl_->offset = offset;
  impl_->numel = numel;
  impl_->dtype = dtype;
}

const Sizes& Tensor::sizes() const {
  return defined_impl(impl_).sizes;
}
const Strides& Tensor::strides() const {
  return defined_impl(impl_).strides;
}
int64_t Tensor::offset() const {
  return defined_impl(impl_).offset;
}
int64_t Tensor::numel() const {
  return defined_impl(impl_).numel;
}
int64_t Tensor::size(int64_t axis) const {
  return sizes()[normalize_axis("size", axis, rank())];
}
int64_t Tensor::stride(int64_t axis) const {
  return strides()[normalize_axis("stride", axis, rank())];
}
DType Tensor::dtype() const {
  return defined_impl(impl_).dtype;
}
Device Tensor::device() const {
  return defined_impl(impl_).storage->device();
}
const std::shared_ptr<Storage>& Tensor::storage() const {
  return defined_impl(impl_).storage;
}

bool Tensor::is_contiguous(MemoryFormat format) const {
  return format == MemoryFormat::channels_last ? is_channels_last_contiguous(sizes(), strides())
                                               : norma::is_contiguous(sizes(), strides());
}

MemoryFormat Tensor::suggest_memory_format() const {
  return norma::suggest_memory_format(sizes(), strides());
}

void* Tensor::device_pointer() const {
  const TensorImpl& impl = defined_impl(impl_);
  auto* bytes = static_cast<std::byte*>(impl.storage->data());
  // An empty tensor has no memory, and arithmetic on a null pointer is undefined.
  return bytes == nullptr ? nullptr : bytes + impl.offset * static_cast<int64_t>(size_of(impl.dtype));
}

void* Tensor::raw_data() const {
  const Device on = device();
  if (!is_host(on)) {
    fail("data", "tensor is on {}; copy it with to(kCpu)", norma::to_string(on));
  }
  return device_pointer();
}

void Tensor::check_dtype_is(DType expected) const {
  check(dtype() == expected, "data", "expected dtype {}, got {}", norma::to_string(expected),
        norma::to_string(dtype()));
}

template <class T>
T* Tensor::data() const {
  check_dtype_is(dtype_of<T>());
  return static_cast<T*>(raw_data());
}

template <class T>
T Tensor::item() const {
  check(numel() == 1, "item", "expected a tensor with one element, got sizes {}", sizes());
  return to_vector<T>()[0];
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor values = to_device(copy_of(detach(), MemoryFormat::contiguous, dtype_of<T>()), kCpu);
  const T* first = values.data<T>();
  return std::vector<T>(first, first + values.numel());
}

template <>
std::vector<bool> Tensor::to_vector<bool>() const {
  const std::vector<uint8_t> bytes = to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

#define NORMA_INSTANTIATE(T)           \
  template T* Tensor::data<T>() const; \
  template T Tensor::item<T>() const;  \
  template std::vector<T> Tensor::to_vector<T>() const;
NORMA_INSTANTIATE(float)
NORMA_INSTANTIATE(double)
NORMA_INSTANTIATE(int64_t)
NORMA_INSTANTIATE(int32_t)
NORMA_INSTANTIATE(uint8_t)
NORMA_INSTANTIATE(float16)
NORMA_INSTANTIATE(bfloat16)
#undef NORMA_INSTANTIATE
template bool* Tensor::data<bool>() const;

template <>
bool Tensor::item<bool>() const {
  return item<uint8_t>() != 0;
}

bool Tensor::requires_grad() const {
  return defined_impl(impl_).requires_grad;
}
bool Tensor::is_leaf() const {
  return defined_impl(impl_).node == nullptr;
}

Tensor& Tensor::set_requires_grad(bool value) {
  check(is_leaf(), "set_requires_grad", "expected a leaf, got the result of a recorded op; use detach()");
  if (value) {
    check_floating("set_requires_grad", "tensor", *this);
  }
  impl_->requires_grad = value;
  return *this;
}

const Tensor& Tensor::grad() const {
  return defined_impl(impl_).grad;
}

void Tensor::set_grad(const Tensor& gradient) {
  if (gradient.defined()) {
    check_like("set_grad", "gradient", gradient, sizes(), *this);
  }
  impl_->grad = gradient;
}

Tensor Tensor::detach() const {
  const TensorImpl& impl = defined_impl(impl_);
  Tensor result(impl.storage, impl.sizes, impl.strides, impl.offset, impl.dtype);
  result.impl_->is_view = impl.is_view;
  result.impl_->node_version = impl.storage->version();
  result.impl_->family = impl.storage->new_family();
  return result;
}

int64_t Tensor::version() const {
  return storage()->version();
}
void Tensor::bump_version() const {
  storage()->bump_version();
}

void Tensor::register_hook(GradientHook hook) const {
  check(requires_grad(), "register_hook", "expected a tensor that requires a gradient");
  if (is_leaf()) {
    impl_->hooks.push_back(std::move(hook));
  } else {
    impl_->node->output_hooks[impl_->output_index].push_back(std::move(hook));
  }
}

void Tensor::backward(const Tensor& gradient) const {
  norma::backward(*this, gradient);
}

Tensor alias(const Tensor& x, const Sizes& sizes, const Strides& strides, int64_t offset) {
  Tensor view(x.storage(), sizes, strides, offset, x.dtype());
  TensorImpl& impl = view.impl();
  impl.is_view = true;
  impl.node_version = x.impl().is_view ? x.impl().node_version : x.version();
  impl.family = x.impl().family;
  return view;
}

std::string describe(const Tensor& x) {
  if (!x.defined()) {
    return "none";
  }
  std::string layout;
  if (x.rank() == 4 && x.suggest_memory_format() == MemoryFormat::channels_last &&
      x.is_contiguous(MemoryFormat::channels_last)) {
    layout = " channels_last";
  } else if (!x.is_contiguous()) {
    layout = fmt::format(" strides {}", to_string(x.strides()));
  }
  return fmt::format("{} {}{}", to_string(x.dtype()), to_string(x.sizes()), layout);
}

void check_defined(std::string_view op, std::string_view argument, const Tensor& x) {
  check(x.defined(), op, "{}: expected a tensor, got none", argument);
}

void check_rank(std::string_view op, std::string_view argument, const Tensor& x, int64_t rank) {
  check_defined(op, argument, x);
  if (x.rank() != rank) {
    fail(op, "{}: expected rank {}, got rank {} (sizes {})", argument, rank, x.rank(), x.sizes());
  }
}

void check_sizes(std::string_view op, std::string_view argument, const Tensor& x, const Sizes& expected) {
  check_defined(op, argument, x);
  if (!(x.sizes() == expected)) {
    fail(op, "{}: expected sizes {}, got {}", argument, expected, x.sizes());
  }
}

void check_dtype(std::string_view op, std::string_view argument, const Tensor& x, DType expected) {
  check_defined(op, argument, x);
  check(x.dtype() == expected, op, "{}: expected dtype {}, got {}", argument, to_string(expected),
        to_string(x.dtype()));
}

void check_floating(std::string_view op, std::string_view argument, const Tensor& x) {
  check_defined(op, argument, x);
  check(is_floating(x.dtype()), op, "{}: expected a floating dtype, got {}", argument, to_string(x.dtype()));
}

void check_device(std::string_view op, std::string_view argument, const Tensor& x, Device expected) {
  check_defined(op, argument, x);
  if (!(x.device() == expected)) {
    fail(op, "{}: expected device {}, got {}", argument, to_string(expected), to_string(x.device()));
  }
}

void check_like(std::string_view op, std::string_view argument, const Tensor& x, const Sizes& expected,
                const Tensor& like) {
  check_sizes(op, argument, x, expected);
  check_dtype(op, argument, x, like.dtype());
  check_device(op, argument, x, like.device());
}

}  // namespace norma
