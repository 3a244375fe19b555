#pragma once

#include "core/event.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/telemetry.h"
#include "train/step_observer.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace norma::lab {

/// The findings of a step whose ops are timed.
struct StepFindings {
  StepTime time;
  std::vector<SavedBytes> saved;
  std::vector<LayoutCopy> ledger;
};

/// Times the parts and the ops of one step, adds up the memory of its tape, and finds its copies. It starts at
/// construction. `done` is called after the update.
class TimedStep : public train::ObservedStep {
 public:
  /// `table` must outlive it.
  TimedStep(const LayerTable& table, std::function<void(StepFindings)> done);

  void after_forward(const Tensor& loss, double grad_scale) override;
  void after_backward() override;
  void after_update() override;

 private:
  /// The records [begin, end) of the profile that a node's backward function made.
  struct Span {
    size_t begin;
    size_t end;
    uint64_t node;
  };
  /// The op and the layer that made a record.
  struct Origin {
    std::string op;
    size_t layer;
  };
  /// Lets each node note its records.
  void watch(const std::vector<std::shared_ptr<Node>>& nodes);
  [[nodiscard]] std::vector<Origin> origins() const;
  [[nodiscard]] StepTime times(const std::vector<Origin>& origins) const;
  /// True iff the copy changes the order of the elements, or copies a layer's images.
  [[nodiscard]] bool belongs_in_ledger(const CopyCall& copy, size_t layer) const;
  [[nodiscard]] std::vector<LayoutCopy> copies(const std::vector<Origin>& origins) const;

  const LayerTable& table_;
  std::function<void(StepFindings)> done_;
  OpProfile profile_;
  LayerLog log_;
  std::unordered_map<uint64_t, std::string> node_names_;
  std::vector<Span> spans_;
  std::vector<SavedBytes> saved_;
  size_t forward_records_ = 0;
  size_t backward_records_ = 0;  ///< forward and backward
  Event start_;
  Event forward_end_;
  Event backward_start_;
  Event backward_end_;
  Event update_start_;
  Event end_;
};

/// The bytes that each layer keeps for the backward pass, in the order of the layers; layers that keep nothing are left
/// out.
std::vector<SavedBytes> saved_by_layer(const Tape& tape, const LayerTable& table, const LayerLog& log);

}  // namespace norma::lab
