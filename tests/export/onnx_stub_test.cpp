#include "error_text.h"
#include "export/networks.h"
#include "export/onnx.h"

#include <doctest/doctest.h>

using namespace norma;

TEST_CASE("onnx: a build without it says what to install") {
  CHECK_FALSE(has_onnx());
  test::SmallNetwork network("batch");
  CHECK(test::error_of([&] {
          export_onnx(network, zeros({1, 3, 8, 8}));
        }) == "export_onnx: expected a build with ONNX; install libonnx-dev and libprotobuf-dev, and build again");
  OnnxModel model;
  CHECK(test::error_of([&] { add_metadata(model, "name", "text"); }) ==
        "add_metadata: expected a build with ONNX; install libonnx-dev and libprotobuf-dev, and build again");
}
