#include "virtual_gpu/engines_cudnn.h"

#include "virtual_gpu/refusal.h"

#include <algorithm>

namespace virtual_gpu {

namespace {

int64_t elements(const GraphTensor& tensor) {
  int64_t count = 1;
  for (const int64_t size : tensor.sizes) {
    count *= size;
  }
  return count;
}

int64_t bytes(const GraphTensor& tensor) {
  return elements(tensor) * bytes_of(tensor.type);
}

bool is_half(const ConvolutionGraph& graph) {
  return bytes_of(graph.x.type) == 2;
}
bool is_float32(const ConvolutionGraph& graph) {
  return graph.x.type == NumberType::kFloat32;
}
bool is_channels_last(const ConvolutionGraph& graph) {
  return graph.x.strides[1] == 1 && graph.shape.c > 1;
}
/// Loads of 16 bytes need tensors that begin at a multiple of them, and whole vectors of channels.
bool has_vectors(const ConvolutionGraph& graph) {
  const int64_t vector = 16 / bytes_of(graph.x.type);
  const auto tensors = graph.tensors();
  return graph.shape.c / graph.shape.groups % vector == 0 && graph.shape.o % vector == 0 &&
         std::all_of(tensors.begin(), tensors.end(), [](const GraphTensor& one) { return one.alignment % 16 == 0; });
}

bool takes_all(const ConvolutionGraph& /* graph */) {
  return true;
}
bool takes_channels_last(const ConvolutionGraph& graph) {
  return is_channels_last(graph);
}
bool takes_tensor_cores(const ConvolutionGraph& graph) {
  return (is_half(graph) || is_float32(graph)) && has_vectors(graph);
}
bool takes_float32_vectors(const ConvolutionGraph& graph) {
  return is_float32(graph) && has_vectors(graph);
}
bool takes_half(const ConvolutionGraph& graph) {
  return is_half(graph);
}
bool is_dense(const ConvolutionGraph& graph) {
  const Convolution& shape = graph.shape;
  return shape.stride_h == 1 && shape.stride_w == 1 && shape.dilation_h == 1 && shape.dilation_w == 1;
}
bool takes_winograd(const ConvolutionGraph& graph) {
  return is_dense(graph) && graph.shape.kh == 3 && graph.shape.kw == 3;
}
bool takes_gradients(const ConvolutionGraph& graph) {
  return graph.pass != ConvolutionPass::kForward;
}

int64_t no_workspace(const ConvolutionGraph& /* graph */) {
  return 0;
}
/// Room for a copy of each tensor in the layout that the engine wants.
int64_t transposed(const ConvolutionGraph& graph) {
  return bytes(graph.x) + bytes(graph.w) + bytes(graph.y);
}
int64_t transposed_unless_channels_last(const ConvolutionGraph& graph) {
  return is_channels_last(graph) ? 0 : transposed(graph);
}
/// Room for one image's patches.
int64_t patches(const ConvolutionGraph& graph) {
  return graph.shape.taps() * graph.shape.oh * graph.shape.ow * bytes_of(graph.compute);
}
/// Room for the transforms of all tensors, in complex numbers.
int64_t spectra(const ConvolutionGraph& graph) {
  return 2 * (elements(graph.x) + elements(graph.w) + elements(graph.y)) * bytes_of(graph.compute);
}
int64_t partial_sums(const ConvolutionGraph& graph) {
  return elements(graph.result()) * bytes_of(graph.compute);
}

/// In the order of the heuristic's first mode.
const std::vector<Engine>& engines() {
  static const std::vector<Engine> all = {
      {.index = 38,
       .text = "tensor cores",
       .numerical = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
       .rounding = InputRounding::kTf32,
       .takes = takes_tensor_cores,
       .workspace = transposed_unless_channels_last},
      {.index = 41,
       .text = "tensor cores in bfloat16",
       .numerical = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
       .rounding = InputRounding::kBfloat16,
       .takes = takes_float32_vectors,
       .workspace = no_workspace},
      {.index = 42,
       .text = "narrowed inputs",
       .numerical = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS},
       .rounding = InputRounding::kBfloat16,
       .takes = takes_float32_vectors,
       .workspace = no_workspace},
      {.index = 5,
       .text = "FFT",
       .numerical = {CUDNN_NUMERICAL_NOTE_FFT},
       .noise = 64,
       .takes = is_dense,
       .workspace = spectra},
      {.index = 6,
       .text = "Winograd",
       .numerical = {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4},
       .noise = 64,
       .takes = takes_winograd,
       .workspace = no_workspace},
      {.index = 3,
       .text = "atomic sums",
       .numerical = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
       .noise = 64,
       .varies = true,
       .takes = takes_gradients,
       .workspace = no_workspace},
      {.index = 62,
       .text = "narrow sums",
       .numerical = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION},
       .noise = 8,
       .takes = takes_half,
       .workspace = no_workspace},
      {.index = 70,
       .text = "compiled at the first use",
       .behaviour = {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
       .takes = takes_all,
       .workspace = no_workspace},
      {.index = 44, .text = "refused late", .takes = takes_all, .workspace = no_workspace, .refused_late = true},
      {.index = 67, .text = "transposed", .takes = takes_channels_last, .workspace = transposed},
      {.index = 28, .text = "direct", .takes = takes_all, .workspace = no_workspace},
      {.index = 0,
       .text = "plain",
       .numerical = {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP},
       .takes = takes_all,
       .workspace = no_workspace},
      // The fallback's own.
      {.index = 1, .text = "patches", .takes = takes_all, .workspace = patches},
      {.index = 4,
       .text = "partial sums",
       .numerical = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
       .noise = 64,
       .varies = true,
       .takes = takes_all,
       .workspace = partial_sums},
  };
  return all;
}

constexpr int64_t kFallback[] = {4, 1, 28, 0};
constexpr int64_t kOnlyFallback[] = {4, 1};

template <class Indices>
bool contains(const Indices& indices, int64_t index) {
  return std::find(std::begin(indices), std::end(indices), index) != std::end(indices);
}

const Engine* find_engine(int64_t index) {
  const auto found =
      std::find_if(engines().begin(), engines().end(), [index](const Engine& one) { return one.index == index; });
  return found == engines().end() ? nullptr : &*found;
}

}  // namespace

std::vector<const Engine*> offered(const ConvolutionGraph& graph, cudnnBackendHeurMode_t mode) {
  std::vector<const Engine*> all;
  if (mode == CUDNN_HEUR_MODE_FALLBACK) {
    for (const int64_t index : kFallback) {
      all.push_back(find_engine(index));
    }
  } else {
    for (const Engine& engine : engines()) {
      if (!contains(kOnlyFallback, engine.index)) {
        all.push_back(&engine);
      }
    }
  }
  all.erase(std::remove_if(all.begin(), all.end(), [&](const Engine* one) { return !one->takes(graph); }), all.end());
  return all;
}

const Engine& engine_of(int64_t index, const ConvolutionGraph& graph) {
  const Engine* const found = find_engine(index);
  expect(found != nullptr, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND,
         "engine: global index: expected one that a heuristic offered, got {}", index);
  expect(found->takes(graph), CUDNN_STATUS_NOT_SUPPORTED, "engine {} ({}): not for {}", index, found->text,
         graph.text());
  return *found;
}

}  // namespace virtual_gpu
