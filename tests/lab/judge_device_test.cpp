#include "lab/judge/audit.h"
#include "lab/judge/norms.h"

#include "core/device.h"
#include "json.h"

#include <doctest/doctest.h>
#include <cmath>
#include <string>

using namespace norma;
using namespace norma::lab::judge;

namespace {

Accuracy accuracy_on(Device device, const Case& c, const Norm& norm, DType dtype, Statistics statistics) {
  const DefaultDeviceGuard guard(device);
  const Inputs inputs = make_inputs(c, norm, dtype, /* quick= */ true);
  CHECK(inputs.x.device() == device);
  return Truth(norm, inputs).accuracy(apply(norm, inputs, statistics, Layout::contiguous));
}

/// Half a unit in the last place of 1.
double rounding(DType dtype) {
  return dtype == DType::bfloat16 ? 0x1p-9 : 0x1p-24;
}

}  // namespace

TEST_CASE("audit: CUDA's kernels are as exact as the CPU's") {
  for (const char* name : {"batch", "layer", "layer2d", "group"}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      for (const Statistics statistics : {Statistics::stable, Statistics::compensated}) {
        for (const char* case_name : {"offset_0", "offset_1e4", "huge_1e19"}) {
          const Case& c = case_called(case_name);
          if (!why_not_held(c, dtype).empty()) {
            continue;
          }
          const auto measured = [&](Device device) {
            return accuracy_on(device, c, norm_called(name), dtype, statistics);
          };
          const Accuracy cpu = measured(kCpu);
          const Accuracy cuda = measured(kCudaEmulated);
          for (Errors Accuracy::*which : {&Accuracy::output, &Accuracy::dx, &Accuracy::dweight, &Accuracy::dbias}) {
            // One rounding is nothing to compare.
            CHECK_MESSAGE((cuda.*which).worst <= std::max(2 * (cpu.*which).worst, rounding(dtype)), name, " ",
                          to_string(dtype), " ", to_string(statistics), " ", case_name);
            CHECK((cuda.*which).mean <= std::max(2 * (cpu.*which).mean, rounding(dtype)));
          }
          CHECK(cuda.wrong_outputs == 0);
          CHECK(cuda.wrong_gradients == 0);
        }
      }
    }
  }
}

TEST_CASE("audit: the report names the device") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  const Audit audit = run_audit(
      {.norms = {"rms2d"}, .statistics = {"stable"}, .dtypes = {"float32"}, .cases = {"offset_0"}, .quick = true});
  CHECK(audit.measurements.size() == 1);
  CHECK(test::parse_json(to_json(audit))["environment"]["device"] == "cuda-emulated:0");
}
