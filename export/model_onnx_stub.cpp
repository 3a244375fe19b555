#include "base/error.h"
#include "export/onnx.h"

#include <string_view>

namespace norma {

namespace {

[[noreturn]] void refuse(std::string_view op) {
  fail(op, "expected a build with ONNX; install libonnx-dev and libprotobuf-dev, and build again");
}

}  // namespace

bool has_onnx() {
  return false;
}

OnnxModel export_onnx(nn::Module& /* module */, const Tensor& /* example */, const OnnxOptions& /* options */) {
  refuse("export_onnx");
}

void add_metadata(OnnxModel& /* model */, const std::string& /* name */, const std::string& /* text */) {
  refuse("add_metadata");
}

}  // namespace norma
