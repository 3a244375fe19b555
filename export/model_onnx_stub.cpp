#include "core/error.h"
#include "export/onnx.h"

namespace norma {

bool has_onnx() {
  return false;
}

std::string export_onnx(nn::Module& /* module */, const Tensor& /* example */, const OnnxOptions& /* options */) {
  fail("export_onnx", "expected a build with ONNX; install libonnx-dev and libprotobuf-dev, and build again");
}

}  // namespace norma
