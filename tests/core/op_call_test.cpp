#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/op.h"
#include "core/op_profile.h"
#include "core/tape.h"

#include <doctest/doctest.h>

using namespace norma;

TEST_CASE("copy call: a profile knows how the elements lay before and after") {
  const Tensor x = ones({2, 3, 4, 5});
  const OpProfile profile;
  const uint64_t number = next_node_number();
  const Tensor y = copy_of(x, MemoryFormat::channels_last, DType::float64);
  REQUIRE(profile.records().size() == 1);
  const auto* call = std::any_cast<CopyCall>(&profile.records()[0].work.call);
  REQUIRE(call != nullptr);
  CHECK(call->sizes == x.sizes());
  CHECK(call->from == x.strides());
  CHECK(call->to == y.strides());
  CHECK(call->from_dtype == DType::float32);
  CHECK(call->to_dtype == DType::float64);
  CHECK(call->node == number);
}

TEST_CASE("node numbers: an op has the number that came next before it") {
  const Tensor x = ones({2}).set_requires_grad();
  const uint64_t number = next_node_number();
  const Tensor y = identity(x);
  CHECK(y.impl().node->sequence == number);
  CHECK(next_node_number() > number);
}

TEST_CASE("events: the host's clock shows what an op takes where ops end before their function returns") {
  CHECK(host_clock_will_do(kCpu));
  CHECK(host_clock_will_do(kCudaEmulated));
}
