#include "core/dlpack.h"

#include "base/not_copied.h"
#include "core/device.h"

#include <dlpack/dlpack.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>

namespace norma {

namespace {

constexpr uint8_t kBool = 6;  // kDLBool of DLPack 0.8 and later

struct Code {
  DType dtype;
  uint8_t code;
  uint8_t bits;
};
constexpr std::array kCodes{Code{DType::float32, kDLFloat, 32}, Code{DType::float64, kDLFloat, 64},
                            Code{DType::float16, kDLFloat, 16}, Code{DType::bfloat16, kDLBfloat, 16},
                            Code{DType::int64, kDLInt, 64},     Code{DType::int32, kDLInt, 32},
                            Code{DType::uint8, kDLUInt, 8},     Code{DType::boolean, kBool, 8}};

DType dtype_of(const DLDataType& type) {
  const auto* const found = std::ranges::find_if(
      kCodes, [&](const Code& c) { return c.code == type.code && c.bits == type.bits && type.lanes == 1; });
  if (found != kCodes.end()) {
    return found->dtype;
  }
  constexpr std::array kKinds{"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  const std::string kind = type.code < kKinds.size() ? kKinds[type.code] : fmt::format("type{}:", type.code);
  fail("from_dlpack", "dtype: expected float32, float64, float16, bfloat16, int64, int32, uint8 or bool, got {}{}{}",
       kind, type.bits, type.lanes == 1 ? "" : fmt::format("x{}", type.lanes));
}

Device device_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost: return kCpu;
    case kDLCUDA:
    case kDLCUDAManaged: {
      const Device cuda{.type = DeviceType::cuda, .index = device.device_id};
      check_available("from_dlpack", cuda);
      return cuda;
    }
    default:
      fail("from_dlpack", "device: expected the CPU or CUDA, got DLPack's device type {}",
           static_cast<int>(device.device_type));
  }
}

DLDevice dl_device_of(Device device) {
  switch (device.type) {
    case DeviceType::cpu: return {kDLCPU, 0};
    case DeviceType::cuda: return {kDLCUDA, device.index};
    case DeviceType::cuda_emulated: break;
  }
  fail("to_dlpack", "x: expected a tensor on cpu or cuda, got one on {}, whose memory other programs may not touch",
       to_string(device));
}

/// Memory may go from one side to the other when this returns: the work of both on it is done. A fault of the device
/// is no reason to keep it, and whoever uses the device next is told. While a graph is recorded nothing can be waited
/// for: the memory goes back at once.
void finish_work(Device device) noexcept {
  try {
    synchronize(device);
  } catch (const std::exception&) {
  }
}

/// What an exported tensor keeps alive.
struct Exported : NotCopied {
  explicit Exported(Tensor tensor) : x(std::move(tensor)) { x.storage()->begin_sharing(); }
  ~Exported() { x.storage()->end_sharing(); }

  Tensor x;
  DLManagedTensor managed{};

  /// Norma's next kernels may get the memory, in another stream than the taker's.
  static void release(DLManagedTensor* self) {
    auto* const exported = static_cast<Exported*>(self->manager_ctx);
    finish_work(exported->x.device());
    delete exported;
  }
};

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& x) {
  check_defined("to_dlpack", "x", x);
  const DLDevice device = dl_device_of(x.device());
  synchronize(x.device());
  auto exported = std::make_unique<Exported>(x.detach());
  TensorImpl& impl = exported->x.impl();
  const auto* const code = std::ranges::find(kCodes, impl.dtype, &Code::dtype);
  exported->managed.dl_tensor = {.data = exported->x.device_pointer(),
                                 .device = device,
                                 .ndim = static_cast<int>(impl.sizes.size()),
                                 .dtype = {.code = code->code, .bits = code->bits, .lanes = 1},
                                 .shape = impl.sizes.begin(),
                                 .strides = impl.strides.begin(),
                                 .byte_offset = 0};
  exported->managed.manager_ctx = exported.get();
  exported->managed.deleter = Exported::release;
  return &exported.release()->managed;
}

std::pair<int, int> dlpack_device(const Tensor& x) {
  check_defined("to_dlpack", "x", x);
  const DLDevice device = dl_device_of(x.device());
  return {device.device_type, device.device_id};
}

Tensor from_dlpack(DLManagedTensor* managed) {
  check(managed != nullptr, "from_dlpack", "managed: expected a tensor, got none");
  const DLTensor& given = managed->dl_tensor;
  const DType dtype = dtype_of(given.dtype);
  const Device device = device_of(given.device);
  Sizes sizes;
  Strides strides;
  for (int axis = 0; axis < given.ndim; ++axis) {
    sizes.push_back(given.shape[axis]);
  }
  strides = given.strides == nullptr ? contiguous_strides(sizes) : Strides();
  const int64_t numel = checked_numel("from_dlpack", sizes);
  for (int axis = 0; given.strides != nullptr && axis < given.ndim; ++axis) {
    // An axis without steps may have any stride.
    const bool steps = numel > 0 && sizes[axis] > 1;
    check(!steps || given.strides[axis] >= 0, "from_dlpack",
          "strides: expected none below 0, got {} for axis {}; copy "
          "the array first",
          given.strides[axis], axis);
    strides.push_back(steps ? given.strides[axis] : std::max<int64_t>(given.strides[axis], 0));
  }
  auto* const first = static_cast<std::byte*>(given.data) + (given.data == nullptr ? 0 : given.byte_offset);
  check(reinterpret_cast<uintptr_t>(first) % size_of(dtype) == 0, "from_dlpack",
        "data: expected an address that {} bytes divide, as {} needs, got another; copy the array first",
        size_of(dtype), to_string(dtype));
  const size_t bytes = numel == 0 ? 0 : static_cast<size_t>(reach(sizes, strides)) * size_of(dtype);
  synchronize(device);  // Norma's kernels do not wait for the default stream
  // Until nothing can fail any more, `managed` is the caller's.
  const auto owner = std::make_shared<DLManagedTensor*>(nullptr);
  auto storage = std::make_shared<Storage>(numel == 0 ? nullptr : first, bytes, device, [owner, device] {
    if (*owner != nullptr && (*owner)->deleter != nullptr) {
      finish_work(device);  // Norma's kernels may not have come to the memory yet
      (*owner)->deleter(*owner);
    }
  });
  storage->begin_sharing();  // for good: nobody says when the other side has let go of it
  Tensor x(std::move(storage), sizes, strides, /* offset= */ 0, dtype);
  *owner = managed;
  return x;
}

}  // namespace norma
