#pragma once

#include "virtual_gpu/graph_cudnn.h"
#include "virtual_gpu/numbers.h"

#include <cudnn_graph.h>

#include <cstdint>
#include <vector>

namespace virtual_gpu {

/// One of the ways in which the virtual GPU's cuDNN computes a convolution. Its notes are true: an engine with the note
/// of tensor cores does give other numbers than one without, so that a program that asks for what its rules forbid gets
/// numbers that a test finds.
struct Engine {
  int64_t index = 0;  ///< CUDNN_ATTR_ENGINE_GLOBAL_INDEX
  const char* text = "";
  std::vector<cudnnBackendNumericalNote_t> numerical = {};
  std::vector<cudnnBackendBehaviorNote_t> behaviour = {};
  InputRounding rounding = InputRounding::kNone;
  /// The errors of its results in units of the type's epsilon, relative to the largest one.
  double noise = 0;
  bool varies = false;  ///< each call makes other errors
  bool (*takes)(const ConvolutionGraph& graph) = nullptr;
  int64_t (*workspace)(const ConvolutionGraph& graph) = nullptr;
  bool refused_late = false;  ///< its plan is not supported although the heuristic offers it
};

/// The engines that a mode of the heuristic offers for a graph, best first. The ones that break rules come first, as
/// they are often the fastest on a GPU.
std::vector<const Engine*> offered(const ConvolutionGraph& graph, cudnnBackendHeurMode_t mode);

/// The engine of this number. Throws Refusal where there is none, or it does not take the graph.
const Engine& engine_of(int64_t index, const ConvolutionGraph& graph);

}  // namespace virtual_gpu
