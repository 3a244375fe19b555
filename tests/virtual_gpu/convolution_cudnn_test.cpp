#include "virtual_gpu/engines_cudnn.h"
#include "virtual_gpu/test_convolution_cudnn.h"

#include <algorithm>
#include <cmath>
#include <functional>

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

using Values = std::vector<double>;

/// The index of an element of four axes in memory.
size_t at(const std::vector<int64_t>& strides, int64_t a, int64_t b, int64_t c, int64_t d) {
  return static_cast<size_t>(a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]);
}

/// Calls term(y, x, w) with the places of all products of a convolution, by its definition.
void for_each_product(const ConvolutionCase& of, const std::function<void(size_t, size_t, size_t)>& term) {
  const Convolution& s = of.shape;
  const auto x = strides_of(of.x_sizes(), of.channels_last);
  const auto w = strides_of(of.w_sizes(), of.weight_channels_last);
  const auto y = strides_of(of.y_sizes(), of.channels_last);
  const int64_t inputs = s.c / s.groups, outputs = s.o / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.o; ++o)
      for (int64_t i = 0; i < s.oh; ++i)
        for (int64_t j = 0; j < s.ow; ++j)
          for (int64_t c = 0; c < inputs; ++c)
            for (int64_t p = 0; p < s.kh; ++p)
              for (int64_t q = 0; q < s.kw; ++q) {
                const int64_t row = i * s.stride_h - s.padding_h + p * s.dilation_h;
                const int64_t column = j * s.stride_w - s.padding_w + q * s.dilation_w;
                if (row >= 0 && row < s.h && column >= 0 && column < s.w) {
                  term(at(y, n, o, i, j), at(x, n, o / outputs * inputs + c, row, column), at(w, o, c, p, q));
                }
              }
}

/// The tensors of a case, and the call that computes it.
struct Computation {
  explicit Computation(const ConvolutionCase& wanted, Values (*make)(size_t, uint64_t) = some_numbers)
      : of(wanted),
        x(make(elements(of.x_sizes()), 1)),
        w(make(elements(of.w_sizes()), 2)),
        y(make(elements(of.y_sizes()), 3)),
        bias(make(static_cast<size_t>(of.shape.o), 4)) {}

  static size_t elements(const std::vector<int64_t>& sizes) {
    return static_cast<size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]);
  }
  Values& result() {
    return of.pass == ConvolutionPass::kForward ? y : of.pass == ConvolutionPass::kDataGradient ? x : w;
  }

  /// By the definition, in double, rounded once.
  Values expected(InputRounding rounding = InputRounding::kNone) {
    Values in_x = x, in_w = w, in_y = y;
    for (Values* one : {&in_x, &in_w, &in_y}) {
      round_inputs(rounding, *one);
    }
    Values sums(result().size(), 0.0);
    for_each_product(of, [&](size_t to_y, size_t to_x, size_t to_w) {
      switch (of.pass) {
        case ConvolutionPass::kForward: sums[to_y] += in_x[to_x] * in_w[to_w]; break;
        case ConvolutionPass::kDataGradient: sums[to_x] += in_y[to_y] * in_w[to_w]; break;
        case ConvolutionPass::kFilterGradient: sums[to_w] += in_y[to_y] * in_x[to_x]; break;
      }
    });
    const size_t pixels = static_cast<size_t>(of.shape.oh * of.shape.ow);
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = of.alpha * sums[i] + of.beta * result()[i];
      if (of.bias) {
        sums[i] += bias[of.channels_last ? i % bias.size() : i / pixels % bias.size()];
      }
      sums[i] = rounded(of.type, sums[i]);
    }
    return sums;
  }

  /// By an engine of cuDNN's stand-in.
  Values computed(int64_t engine) {
    const Made graph = graph_of(of);
    const Made plan = plan_of(graph, engine);
    REQUIRE(plan.text() == "");
    const DeviceNumbers device_x(of.type, x), device_w(of.type, w), device_y(of.type, y), device_bias(of.type, bias);
    const DeviceNumbers workspace(NumberType::kFloat64, static_cast<size_t>(workspace_of(plan) / 8 + 1));
    std::vector<int64_t> ids = {kX, kW, kY};
    std::vector<void*> pointers = {device_x.get(), device_w.get(), device_y.get()};
    if (of.bias) {
      ids.push_back(kBias);
      pointers.push_back(device_bias.get());
    }
    Made pack = pack_of(ids, pointers, workspace.get());
    pack.finalize();
    REQUIRE(pack.text() == "");
    const cudnnStatus_t status = cudnnBackendExecute(handle(), plan.get(), pack.get());
    CAPTURE(cudnn_text());
    REQUIRE(status == CUDNN_STATUS_SUCCESS);
    const DeviceNumbers& written = of.pass == ConvolutionPass::kForward        ? device_y
                                   : of.pass == ConvolutionPass::kDataGradient ? device_x
                                                                               : device_w;
    return written.values();
  }

  ConvolutionCase of;
  Values x, w, y, bias;
};

constexpr ConvolutionPass kPasses[] = {ConvolutionPass::kForward, ConvolutionPass::kDataGradient,
                                       ConvolutionPass::kFilterGradient};
constexpr NumberType kTypes[] = {NumberType::kFloat64, NumberType::kFloat32, NumberType::kFloat16,
                                 NumberType::kBfloat16};

const Convolution kShapes[] = {
    {.n = 2, .c = 8, .h = 7, .w = 6, .o = 16, .kh = 3, .kw = 3, .oh = 7, .ow = 6, .padding_h = 1, .padding_w = 1},
    {.n = 3,
     .c = 3,
     .h = 9,
     .w = 11,
     .o = 5,
     .kh = 5,
     .kw = 2,
     .oh = 4,
     .ow = 9,
     .stride_h = 2,
     .padding_h = 1,
     .dilation_w = 2},
    {.n = 1,
     .c = 6,
     .h = 5,
     .w = 4,
     .o = 9,
     .kh = 1,
     .kw = 1,
     .oh = 2,
     .ow = 2,
     .stride_h = 3,
     .stride_w = 2,
     .groups = 3},
    {.n = 2,
     .c = 5,
     .h = 6,
     .w = 7,
     .o = 5,
     .kh = 3,
     .kw = 3,
     .oh = 6,
     .ow = 7,
     .padding_h = 2,
     .padding_w = 1,
     .dilation_h = 2,
     .groups = 5},
};

double greatest_difference(const Values& a, const Values& b) {
  double greatest = 0;
  double scale = 0;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    greatest = std::max(greatest, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return greatest / scale;
}

}  // namespace

TEST_CASE("virtual cuDNN: all passes are sums of products, in each type, layout and shape") {
  int compared = 0;
  for (const NumberType type : kTypes) {
    for (const ConvolutionPass pass : kPasses) {
      for (const Convolution& shape : kShapes) {
        for (const bool channels_last : {false, true}) {
          for (const bool bias : {false, true}) {
            if (bias && pass != ConvolutionPass::kForward) {
              continue;
            }
            Computation computation({.type = type,
                                     .pass = pass,
                                     .shape = shape,
                                     .channels_last = channels_last,
                                     .weight_channels_last = !channels_last,
                                     .bias = bias});
            CAPTURE(std::string(name_of(type)));
            CAPTURE(static_cast<int>(pass));
            CAPTURE(channels_last);
            CAPTURE(shape.c);
            CHECK(computation.computed(kDirect) == computation.expected());
            ++compared;
          }
        }
      }
    }
  }
  CHECK(compared == 4 * 4 * 4 * 2);
}

TEST_CASE("virtual cuDNN: alpha and beta") {
  for (const ConvolutionPass pass : kPasses) {
    Computation computation({.pass = pass, .alpha = 0.5, .beta = -2});
    CHECK(computation.computed(kDirect) == computation.expected());
  }
}

TEST_CASE("virtual cuDNN: alpha and beta are doubles for float64 alone, since engines for float32 read other bytes") {
  const ConvolutionCase of{};
  const auto shape = [&](const std::vector<int64_t>& sizes) { return strides_of(sizes, of.channels_last); };
  Made x = tensor(kX, of.type, of.x_sizes(), shape(of.x_sizes()));
  Made w = tensor(kW, of.type, of.w_sizes(), shape(of.w_sizes()));
  Made y = tensor(kY, of.type, of.y_sizes(), shape(of.y_sizes()));
  Made filter = convolution(of);
  for (Made* one : {&x, &w, &y, &filter}) {
    one->finalize();
  }
  Made made = operation(of, filter, x, w, y);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0);
  CHECK(made.finalize().text() ==
        "convolution forward: alpha and beta: expected CUDNN_TYPE_FLOAT for float32, got CUDNN_TYPE_DOUBLE");
}

TEST_CASE("virtual cuDNN: engines without notes give the same numbers, whatever their workspace") {
  for (const bool channels_last : {false, true}) {
    Computation computation({.channels_last = channels_last}, long_numbers);
    const Values expected = computation.expected();
    for (const int64_t engine : {0, 1, 28, 67, 70}) {
      if (engine != 67 || channels_last) {
        CAPTURE(engine);
        CHECK(greatest_difference(computation.computed(engine), expected) < 1.2e-7);
      }
    }
  }
}

TEST_CASE("virtual cuDNN: tensor cores round float32 to TF32, and leave 16-bit numbers as they are") {
  Computation wide({}, long_numbers);
  CHECK(greatest_difference(wide.computed(38), wide.expected(InputRounding::kTf32)) < 1.2e-7);
  CHECK(greatest_difference(wide.computed(38), wide.expected()) > 1e-4);
  CHECK(greatest_difference(wide.computed(41), wide.expected(InputRounding::kBfloat16)) < 1.2e-7);
  CHECK(greatest_difference(wide.computed(42), wide.expected(InputRounding::kBfloat16)) < 1.2e-7);
  Computation narrow({.type = NumberType::kFloat16});
  CHECK(narrow.computed(38) == narrow.expected());
}

TEST_CASE("virtual cuDNN: FFT and Winograd give other numbers than sums, the same in each call") {
  for (const int64_t engine : {5, 6}) {
    Computation computation({});
    const Values first = computation.computed(engine);
    CHECK(first == computation.computed(engine));
    const double difference = greatest_difference(first, computation.expected());
    CHECK(difference > 2e-6);
    CHECK(difference < 1e-5);
  }
}

TEST_CASE("virtual cuDNN: an engine that is not deterministic gives other numbers in each call") {
  Computation computation({.pass = ConvolutionPass::kFilterGradient}, long_numbers);
  const Values first = computation.computed(3);
  CHECK(first != computation.computed(3));
  CHECK(greatest_difference(first, computation.expected()) < 1e-5);
}

TEST_CASE("virtual cuDNN: narrow sums lose digits") {
  Computation computation({.type = NumberType::kBfloat16});
  const double difference = greatest_difference(computation.computed(62), computation.expected());
  CHECK(difference > 1e-2);
  CHECK(difference < 0.1);
}

TEST_CASE("virtual cuDNN: NaN and infinity go through") {
  Computation computation({});
  computation.x[0] = std::numeric_limits<double>::quiet_NaN();
  computation.x[150] = std::numeric_limits<double>::infinity();
  const Values expected = computation.expected();
  const Values computed = computation.computed(kDirect);
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  CHECK(std::any_of(expected.begin(), expected.end(), [](double value) { return std::isnan(value); }));
  CHECK(std::any_of(expected.begin(), expected.end(), [](double value) { return std::isinf(value); }));
  CHECK(std::equal(computed.begin(), computed.end(), expected.begin(), expected.end(), same));
}

TEST_CASE("virtual cuDNN: the heuristic offers engines with true notes, and one whose plan is refused") {
  const Made graph = graph_of(ConvolutionCase{.pass = ConvolutionPass::kFilterGradient, .channels_last = true});
  Made heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A)
      .finalize();
  REQUIRE(heuristic.text() == "");
  int64_t bound = 0;
  constexpr auto kResults = CUDNN_ATTR_ENGINEHEUR_RESULTS;
  cudnnBackendGetAttribute(heuristic.get(), kResults, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &bound, nullptr);
  std::vector<Made> made;
  std::vector<cudnnBackendDescriptor_t> all;
  for (int64_t i = 0; i < bound; ++i) {
    made.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    all.push_back(made.back().get());
  }
  int64_t found = 0;
  REQUIRE(cudnnBackendGetAttribute(heuristic.get(), kResults, CUDNN_TYPE_BACKEND_DESCRIPTOR, bound, &found,
                                   all.data()) == CUDNN_STATUS_SUCCESS);
  CHECK(found == bound - 1);  // as in cuDNN, the first answer is a bound
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < found; ++i) {
    Made engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t into = engine.get();
    int64_t count = 0;
    REQUIRE(cudnnBackendGetAttribute(all[static_cast<size_t>(i)], CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &into) == CUDNN_STATUS_SUCCESS);
    indices.push_back(-1);
    REQUIRE(cudnnBackendGetAttribute(into, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                                     &indices.back()) == CUDNN_STATUS_SUCCESS);
    std::array<cudnnBackendNumericalNote_t, 4> notes{};
    REQUIRE(cudnnBackendGetAttribute(into, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes.size(),
                                     &count, notes.data()) == CUDNN_STATUS_SUCCESS);
    const auto end = notes.cbegin() + count;
    const auto has = [&](cudnnBackendNumericalNote_t note) { return std::find(notes.cbegin(), end, note) != end; };
    CHECK(has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) == (indices.back() == 38 || indices.back() == 41));
    CHECK(has(CUDNN_NUMERICAL_NOTE_FFT) == (indices.back() == 5));
    CHECK(has(CUDNN_NUMERICAL_NOTE_WINOGRAD) == (indices.back() == 6));
    CHECK(has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == (indices.back() == 3));
  }
  CHECK(indices == std::vector<int64_t>{38, 41, 42, 5, 6, 3, 70, 44, 67, 28, 0});
  const Made refused = plan_of(graph, 44);
  CHECK(refused.status() == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(refused.text() ==
        "plan: engine 44 (refused late) refuses convolution filter gradient: (2, 8, 7, 6) * (16, 8, 3, 3) -> (2, 16, "
        "7, 6), float32");
}
