#pragma once

#include "core/tensor.h"
#include "nn/module.h"

#include <cstdint>
#include <memory>

namespace norma::nn {

// Activation checkpointing. (The file that keeps a training, train/checkpoint.h, has nothing to do with it.)

/// module(x) whose tape keeps x and nothing else. When backward() comes to it, the module's forward pass runs again,
/// with recording on, and what it records is walked and dropped before backward() goes on: memory for one more forward
/// pass (Chen et al., "Training deep nets with sublinear memory cost", 2016). It is torch.utils.checkpoint.checkpoint
/// with use_reentrant=False and one tensor in place of its arguments.
///
/// Outputs and gradients have the bits of module(x). The second pass has what the first had: random numbers of the
/// default generator, buffers (such as running statistics), autocast, modes (training or evaluation, frozen
/// statistics), frozen parameters, TF32, and part of a batch (ops/random/batch_part.h). It leaves no trace in any of
/// these, so running statistics change once.
///
/// Without gradients, or if neither x nor a parameter of the module requires one, it is module(x). Higher derivatives
/// (create_graph) and checkpoints inside of the module work. Hooks of the module itself run once, those of the modules
/// inside run in both passes, and can ask checkpoint_pass() which one it is. Hooks on gradients that those of the
/// first pass register do not run: its tape is dropped at once. No other thread may use the module meanwhile.
///
/// Throws Error without a module, or if it changes x in place; in backward() if x or a parameter has changed in place
/// since, if a module inside was replaced, or if the module gives another size or dtype, or reads a tensor that
/// requires a gradient and is neither x nor a parameter that did before.
Tensor checkpoint(const std::shared_ptr<Module>& module, const Tensor& x);

/// The kind of forward pass that runs on this thread.
enum class CheckpointPass : uint8_t {
  none,   ///< the thread is in no checkpoint()
  first,  ///< the tape of this forward pass will be dropped
  again,  ///< backward() runs it; with checkpoints inside of checkpoints more than once
};
CheckpointPass checkpoint_pass();

}  // namespace norma::nn
