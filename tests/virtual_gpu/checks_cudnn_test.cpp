#include "virtual_gpu/test_convolution_cudnn.h"

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
const std::vector<int64_t> kSizes = {2, 8, 7, 6};
const std::vector<int64_t> kPacked = strides_of(kSizes, false);

Made good_tensor(int64_t id, const std::vector<int64_t>& sizes, NumberType type = NumberType::kFloat32) {
  Made made = tensor(id, type, sizes, strides_of(sizes, false));
  made.finalize();
  REQUIRE(made.text() == "");
  return made;
}

/// The text that cuDNN has for a finished operation of these tensors.
std::string text_of_operation(const ConvolutionCase& of, const Made& x, const Made& w, const Made& y) {
  Made shape = convolution(of);
  shape.finalize();
  REQUIRE(shape.text() == "");
  Made made = operation(of, shape, x, w, y);
  return made.finalize().text();
}

}  // namespace

TEST_CASE("virtual cuDNN: attributes are checked when they are set and read") {
  SUBCASE("another type") {
    Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, 1.0).text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_UNIQUE_ID: expected values of CUDNN_TYPE_INT64, got "
          "CUDNN_TYPE_DOUBLE");
    CHECK(made.status() == CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  }
  SUBCASE("too many values") {
    Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::vector<int64_t>{1, 2}).text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_UNIQUE_ID: expected 1 value, got 2");
    CHECK(made.status() == CUDNN_STATUS_BAD_PARAM);
  }
  SUBCASE("no values") {
    Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(made.set(CUDNN_ATTR_TENSOR_STRIDES, std::vector<int64_t>{}).text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_STRIDES: expected 1 to 8 values, got 0");
  }
  SUBCASE("null") {
    const Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(cudnnBackendSetAttribute(made.get(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, nullptr) ==
          CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK(cudnn_text() == "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_UNIQUE_ID: expected values, got null");
  }
  SUBCASE("an attribute of other descriptors") {
    Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(
        made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<int64_t>{1, 1}).text() ==
        "CUDNN_BACKEND_TENSOR_DESCRIPTOR: attribute 102: expected one of such a descriptor that the virtual GPU knows");
  }
  SUBCASE("after finalize") {
    Made made = good_tensor(1, kSizes);
    CHECK(made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{2}).text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_UNIQUE_ID: expected to be set before "
          "cudnnBackendFinalize, got set after it");
  }
  SUBCASE("finalized twice") {
    CHECK(good_tensor(1, kSizes).finalize().text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: expected one cudnnBackendFinalize, got two");
  }
  SUBCASE("read before finalize") {
    const Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t value = 0, count = 0;
    CHECK(cudnnBackendGetAttribute(made.get(), CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &value) ==
          CUDNN_STATUS_NOT_INITIALIZED);
    CHECK(cudnn_text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_UNIQUE_ID: expected to be read after "
          "cudnnBackendFinalize, got read before it");
  }
  SUBCASE("an attribute that is only read") {
    Made made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    CHECK(made.set(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, int64_t{4}).text() ==
          "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: expected to be read "
          "only, got set");
  }
  SUBCASE("another kind of descriptor") {
    Made made(kForward);
    const Made other(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    CHECK(made.refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, other).text() ==
          "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: "
          "expected CUDNN_BACKEND_TENSOR_DESCRIPTOR, got CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR");
    CHECK(made.status() == CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  }
  SUBCASE("a destroyed descriptor") {
    Made made(kForward);
    cudnnBackendDescriptor_t gone = nullptr;
    {
      const Made other = good_tensor(1, kSizes);
      gone = other.get();
    }
    CHECK(made.refer(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, std::vector<cudnnBackendDescriptor_t>{gone}).text() ==
          "CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: descriptor: expected one that cudnnBackendCreateDescriptor "
          "made, got one that was destroyed");
    CHECK(cudnnBackendDestroyDescriptor(gone) == CUDNN_STATUS_BAD_PARAM);
    CHECK(cudnnBackendFinalize(nullptr) == CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    CHECK(cudnn_text() ==
          "cudnnBackendFinalize: descriptor: expected one that cudnnBackendCreateDescriptor made, got null");
  }
  SUBCASE("a descriptor that the virtual GPU does not know") {
    const Made made(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    CHECK(made.status() == CUDNN_STATUS_NOT_SUPPORTED);
    CHECK(made.text() == "cudnnBackendCreateDescriptor: the virtual GPU does not know descriptor type 18");
  }
}

TEST_CASE("virtual cuDNN: a finalized descriptor is complete") {
  SUBCASE("a tensor without an alignment") {
    Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, kSizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, kPacked)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{1});
    CHECK(made.finalize().text() ==
          "CUDNN_BACKEND_TENSOR_DESCRIPTOR: CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: expected a value before "
          "cudnnBackendFinalize");
  }
  SUBCASE("an operation with a tensor that is not finalized") {
    const Made x = tensor(kX, NumberType::kFloat32, kSizes, kPacked);
    CHECK(text_of_operation({}, x, good_tensor(kW, {16, 8, 3, 3}), good_tensor(kY, {2, 16, 7, 6})) ==
          "CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: "
          "expected a finalized descriptor, got CUDNN_BACKEND_TENSOR_DESCRIPTOR that was not when it was set");
  }
}

TEST_CASE("virtual cuDNN: tensors") {
  const auto text = [](const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t alignment) {
    return tensor(7, NumberType::kFloat32, sizes, strides, alignment).finalize().text();
  };
  CHECK(text(kSizes, {336, 42, 6}, 16) == "tensor 7: strides: expected 4, one for each dimension, got 3");
  CHECK(text({2, 8, 0, 6}, kPacked, 16) == "tensor 7: dimensions: expected at least 1 each, got (2, 8, 0, 6)");
  CHECK(text(kSizes, {336, 42, -6, 1}, 16) == "tensor 7: strides: expected at least 0 each, got (336, 42, -6, 1)");
  CHECK(text(kSizes, kPacked, 6) == "tensor 7: byte alignment: expected a multiple of 16, got 6");
  CHECK(text(kSizes, kPacked, 0) == "tensor 7: byte alignment: expected a multiple of 16, got 0");
  Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_INT8)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, kSizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, kPacked)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{1})
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  CHECK(made.finalize().text() == "tensor: data type: expected double, float, half or bfloat16, got cudnnDataType_t 3");
  CHECK(made.status() == CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

TEST_CASE("virtual cuDNN: convolutions and pointwise functions") {
  ConvolutionCase of;
  of.shape.stride_h = 0;
  CHECK(convolution(of).finalize().text() == "convolution: filter strides: expected at least 1 each, got (0, 1)");
  of.shape.stride_h = 1;
  of.shape.padding_w = -1;
  CHECK(convolution(of).finalize().text() == "convolution: paddings before: expected at least 0 each, got (1, -1)");
  of.shape.padding_w = 1;
  Made made = convolution(of);
  made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<int64_t>{1, 1, 1});
  CHECK(made.finalize().text() == "convolution: dilations: expected 2 values, one for each spatial axis, got 3");
  made = convolution(of);
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION);
  CHECK(made.finalize().text() == "convolution: mode: expected CUDNN_CROSS_CORRELATION, got 0");
  CHECK(made.status() == CUDNN_STATUS_NOT_SUPPORTED);
  Made function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_MUL)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .finalize();
  CHECK(function.text() == "pointwise: mode: expected CUDNN_POINTWISE_ADD, got 1");
}

TEST_CASE("virtual cuDNN: operations have tensors that fit") {
  const Made x = good_tensor(kX, kSizes);
  const Made w = good_tensor(kW, {16, 8, 3, 3});
  const Made y = good_tensor(kY, {2, 16, 7, 6});
  CHECK(text_of_operation({}, x, w, y) == "");
  CHECK(text_of_operation({}, x, good_tensor(kW, {16, 5, 3, 3}), y) ==
        "convolution forward: x: expected a multiple of w's 5 channels, got 8");
  CHECK(text_of_operation({}, x, good_tensor(kW, {15, 4, 3, 3}), y) ==
        "convolution forward: w: expected a multiple of 2 groups, got 15 outputs");
  CHECK(text_of_operation({}, x, w, good_tensor(kY, {2, 16, 7, 5})) ==
        "convolution forward: y: expected shape (2, 16, 7, 6), got (2, 16, 7, 5)");
  CHECK(text_of_operation({}, x, good_tensor(kW, {16, 8, 3, 9}), y) ==
        "convolution forward: w: expected a window inside x's padded 8 pixels, got 9");
  Made overlapping = tensor(kY, NumberType::kFloat32, {2, 16, 7, 6}, {672, 42, 5, 1});
  overlapping.finalize();
  CHECK(text_of_operation({}, x, w, overlapping) ==
        "convolution forward: y: expected strides of separate elements, got (672, 42, 5, 1) for shape (2, 16, 7, 6)");
  // An input may have them.
  Made repeated = tensor(kX, NumberType::kFloat32, kSizes, {0, 42, 6, 1});
  repeated.finalize();
  CHECK(text_of_operation({}, repeated, w, y) == "");
  const ConvolutionCase gradient{.pass = ConvolutionPass::kDataGradient};
  CHECK(text_of_operation(gradient, repeated, w, y) ==
        "convolution data gradient: x: expected strides of separate elements, got (0, 42, 6, 1) for shape (2, 8, 7, "
        "6)");
}

TEST_CASE("virtual cuDNN: graphs") {
  const ConvolutionCase of;
  const Made x = good_tensor(kX, kSizes);
  const Made w = good_tensor(kW, {16, 8, 3, 3});
  const Made y = good_tensor(kY, {2, 16, 7, 6});
  Made sum = tensor(kSum, NumberType::kFloat32, {2, 16, 7, 6}, strides_of({2, 16, 7, 6}, false));
  sum.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true).finalize();
  Made shape = convolution(of);
  shape.finalize();
  const auto finished = [](Made made) {
    made.finalize();
    REQUIRE(made.text() == "");
    return made;
  };
  const auto text = [](const Made& first, const Made& second) {
    return graph_of({first.get(), second.get()}).finalize().text();
  };
  const Made to_sum = finished(operation(of, shape, x, w, sum));
  const Made bias = good_tensor(kBias, {1, 16, 1, 1});
  CHECK(text(to_sum, finished(addition(of, sum, bias, y))) == "");
  CHECK(text(finished(addition(of, sum, bias, y)), to_sum) == "");
  CHECK(graph_of({to_sum.get()}).finalize().text() ==
        "graph: virtual tensor 5: expected 1 operation to write it and 1 to read it, got 1 and 0");
  CHECK(text(to_sum, finished(addition(of, sum, good_tensor(kX, {1, 16, 1, 1}), y))) ==
        "graph: unique id 1: expected one tensor, got (2, 8, 7, 6) and (1, 16, 1, 1)");
  const Made in_place = finished(operation({.pass = ConvolutionPass::kForward, .shape = {.o = 8}}, shape, x,
                                           good_tensor(kW, {8, 8, 3, 3}), good_tensor(kX, kSizes)));
  CHECK(graph_of({in_place.get()}).finalize().text() ==
        "graph: unique id 1: expected an output of its own, got an input's id");
  CHECK(addition(of, sum, good_tensor(kBias, {1, 15, 1, 1}), y).finalize().text() ==
        "pointwise: b: expected the sizes of (2, 16, 7, 6), or 1, got (1, 15, 1, 1)");
  CHECK(addition(of, sum, bias, x).finalize().text() == "pointwise: y: expected shape (2, 16, 7, 6), got (2, 8, 7, 6)");
}

TEST_CASE("virtual cuDNN: what a heuristic does not support") {
  const ConvolutionCase of;
  const Made x = good_tensor(kX, kSizes);
  const Made w = good_tensor(kW, {16, 8, 3, 3});
  const Made y = good_tensor(kY, {2, 16, 7, 6});
  const auto heuristic_of = [](const Made& made_operation) {
    Made graph = graph_of({made_operation.get()});
    graph.finalize();
    REQUIRE(graph.text() == "");
    Made made(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    made.refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A);
    made.finalize();
    return made;
  };
  Made wide(convolution(of));
  wide.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_DOUBLE).finalize();
  Made made = operation(of, wide, x, w, y);
  made.finalize();
  const Made other_sums = heuristic_of(made);
  CHECK(other_sums.status() == CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  CHECK(other_sums.text() == "convolution forward: compute type: expected float32 for float32, got float64");
  Made shape = convolution(of);
  shape.finalize();
  Made mixed = operation(of, shape, x, w, good_tensor(kY, {2, 16, 7, 6}, NumberType::kFloat16));
  mixed.finalize();
  CHECK(heuristic_of(mixed).text() ==
        "convolution forward: expected one type for x, w and y, got float32, float32 and float16");
}

TEST_CASE("virtual cuDNN: plans for a device that is not there") {
  Made properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const std::string json = R"({"deviceVer": 900})";
  REQUIRE(cudnnBackendSetAttribute(properties.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                   static_cast<int64_t>(json.size()) + 1, json.c_str()) == CUDNN_STATUS_SUCCESS);
  properties.finalize();
  REQUIRE(properties.text() == "");
  const Made graph = graph_of(ConvolutionCase{});
  const auto plan_for_properties = [&](int64_t index) {
    Made engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.refer(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index).finalize();
    Made configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    configuration.refer(CUDNN_ATTR_ENGINECFG_ENGINE, engine).finalize();
    Made plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.refer(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
        .refer(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, properties)
        .finalize();
    return plan;
  };
  const Made plan = plan_for_properties(kDirect);
  CHECK(plan.text() == "");
  CHECK(plan_for_properties(70).text() == "plan: engine 70 (compiled at the first use) needs a device");
  Made pack = pack_of({kX}, {nullptr}, nullptr);
  pack.finalize();
  CHECK(cudnnBackendExecute(handle(), plan.get(), pack.get()) == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(cudnn_text() == "cudnnBackendExecute: expected a plan with a handle, got one for properties");
}
