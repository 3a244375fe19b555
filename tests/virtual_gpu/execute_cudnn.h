#pragma once

#include "virtual_gpu/descriptor_cudnn.h"

#include <cudnn_graph.h>

/// What cudnnHandle_t points to.
struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace virtual_gpu {

/// What cudnnBackendFinalize does for each kind of descriptor: its checks, and what cuDNN itself finds: plans of a
/// heuristic, notes of an engine, the workspace of a plan. Throws Refusal.
void finalize(Descriptor& descriptor);

/// What cudnnBackendExecute does: checks a variant pack against its plan, and puts the work into the handle's stream.
/// Throws Refusal; what only shows when the work is done (memory that was freed, or never written) is a Fault in the
/// stream.
void execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack);

}  // namespace virtual_gpu
