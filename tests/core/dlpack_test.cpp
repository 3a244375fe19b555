#include "core/dlpack.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "core/tape.h"

#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

using namespace norma;

namespace {

/// A tensor of another framework, which counts how often it is given back.
struct Foreign {
  std::vector<float> values;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int released = 0;
  DLManagedTensor managed{};

  Foreign(std::vector<float> numbers, std::vector<int64_t> shape, std::vector<int64_t> steps = {})
      : values(std::move(numbers)), sizes(std::move(shape)), strides(std::move(steps)) {
    managed.dl_tensor = {.data = values.data(),
                         .device = {kDLCPU, 0},
                         .ndim = static_cast<int>(sizes.size()),
                         .dtype = {kDLFloat, 32, 1},
                         .shape = sizes.data(),
                         .strides = strides.empty() ? nullptr : strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->released; };
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
};

std::string error_of(Foreign& foreign) {
  try {
    from_dlpack(&foreign.managed);
  } catch (const Error& error) {
    CHECK(foreign.released == 0);  // it stays the caller's
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("dlpack: memory of another framework is used in place, and given back with the last view") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  Foreign foreign({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {2, 3}, {6, 2});
  foreign.managed.dl_tensor.byte_offset = 4;
  Tensor x = from_dlpack(&foreign.managed);
  CHECK(x.sizes() == Sizes{2, 3});
  CHECK(x.strides() == Strides{6, 2});
  CHECK(x.to_vector<float>() == std::vector<float>{1, 3, 5, 7, 9, 11});
  foreign.values[3] = -3;
  CHECK(x.to_vector<float>()[1] == -3);
  fill_(x, 2);
  CHECK(foreign.values == std::vector<float>{0, 2, 2, 2, 4, 2, 6, 2, 8, 2, 10, 2});
  Tensor row = alias(x, {3}, {2}, 6);
  x = Tensor();
  CHECK(foreign.released == 0);
  row = Tensor();
  CHECK(foreign.released == 1);
}

TEST_CASE("dlpack: a gradient flows to foreign memory as to any leaf") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  Foreign foreign({1, 2, 3}, {3});
  Tensor x = from_dlpack(&foreign.managed);
  x.set_requires_grad();
  identity(x).backward(full({3}, 2));
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 2, 2});
}

TEST_CASE("dlpack: what goes out keeps sizes, strides, dtype and its memory, also when it outlives the tensor") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::int32,
                            DType::uint8, DType::boolean}) {
    CAPTURE(to_string(dtype));
    Tensor base = copy_of(arange(24).detach(), MemoryFormat::contiguous, dtype);
    const Tensor view = alias(base, {3, 2, 2}, {4, 12, 1}, 1);
    DLManagedTensor* const managed = to_dlpack(view);
    CHECK(managed->dl_tensor.data == view.raw_data());
    CHECK(managed->dl_tensor.ndim == 3);
    CHECK(managed->dl_tensor.strides[1] == 12);
    CHECK(managed->dl_tensor.dtype.bits == 8 * size_of(dtype));
    const std::vector<double> values = view.to_vector<double>();
    const std::weak_ptr<Storage> memory = base.storage();
    base = Tensor();
    Tensor back = from_dlpack(managed);
    CHECK(back.dtype() == dtype);
    CHECK(back.strides() == view.strides());
    CHECK(back.to_vector<double>() == values);
    back.bump_version();
    CHECK_FALSE(memory.expired());
  }
}

TEST_CASE("dlpack: either side may let go first") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  Tensor x = full({2, 2}, 3);
  const std::weak_ptr<Storage> memory = x.storage();
  DLManagedTensor* const managed = to_dlpack(x);
  x = Tensor();
  CHECK_FALSE(memory.expired());
  CHECK(static_cast<float*>(managed->dl_tensor.data)[3] == 3);
  managed->deleter(managed);
  CHECK(memory.expired());
}

TEST_CASE("dlpack: tensors without elements and of rank 0") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  Foreign none({}, {0, 3}, {-3, 1});
  none.managed.dl_tensor.data = nullptr;
  const Tensor x = from_dlpack(&none.managed);
  CHECK(x.sizes() == Sizes{0, 3});
  CHECK(x.numel() == 0);
  Foreign one({7}, {});
  CHECK(from_dlpack(&one.managed).item<float>() == 7);
  DLManagedTensor* const managed = to_dlpack(empty({3, 0}));
  CHECK(from_dlpack(managed).sizes() == Sizes{3, 0});
}

TEST_CASE("dlpack: what Norma cannot take is refused, and stays the caller's") {
  const DefaultDeviceGuard cpu(kCpu);  // other frameworks cannot touch what the emulated device has
  Foreign foreign({1, 2, 3, 4}, {4}, {-1});
  CHECK(error_of(foreign) == "from_dlpack: strides: expected none below 0, got -1 for axis 0; copy the array first");
  foreign.strides = {1};
  foreign.managed.dl_tensor.strides = foreign.strides.data();
  foreign.managed.dl_tensor.dtype = {kDLComplex, 64, 1};
  const std::string expected =
      "from_dlpack: dtype: expected float32, float64, float16, bfloat16, int64, int32, uint8 or bool, got ";
  CHECK(error_of(foreign) == expected + "complex64");
  foreign.managed.dl_tensor.dtype = {kDLFloat, 32, 4};
  CHECK(error_of(foreign) == expected + "float32x4");
  foreign.managed.dl_tensor.dtype = {kDLInt, 16, 1};
  CHECK(error_of(foreign) == expected + "int16");
  foreign.managed.dl_tensor.dtype = {kDLFloat, 32, 1};
  foreign.managed.dl_tensor.byte_offset = 2;
  CHECK(error_of(foreign) ==
        "from_dlpack: data: expected an address that 4 bytes divide, as float32 needs, got another; copy the array "
        "first");
  foreign.managed.dl_tensor.byte_offset = 0;
  foreign.managed.dl_tensor.device = {kDLMetal, 0};
  CHECK(error_of(foreign) == "from_dlpack: device: expected the CPU or CUDA, got DLPack's device type 8");
  Foreign deep({1}, std::vector<int64_t>(9, 1));
  CHECK(error_of(deep).find("at most 8") != std::string::npos);
  CHECK_THROWS_WITH(to_dlpack(Tensor()), "to_dlpack: x: expected a tensor, got none");
  const std::string emulated =
      "to_dlpack: x: expected a tensor on cpu or cuda, got one on cuda-emulated:0, whose memory other programs may not "
      "touch";
  CHECK_THROWS_WITH(to_dlpack(zeros({2}, {.device = kCudaEmulated})), emulated.c_str());
  CHECK_THROWS_WITH(dlpack_device(zeros({2}, {.device = kCudaEmulated})), emulated.c_str());
  CHECK(dlpack_device(zeros({2}, {.device = kCpu})) == std::pair(static_cast<int>(kDLCPU), 0));
}
