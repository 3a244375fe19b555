#pragma once

#include <norma/norma.h>

#include <cstddef>
#include <functional>
#include <vector>

// A tape whose entries are tensors. Norma's functions compute with plain numbers here: no tensor asks for a gradient,
// so Norma's own tape stays empty.

using norma::Tensor;

/// From the gradient of a result to the gradients of its parents, in the order of the parents. A gradient has the sizes
/// of the tensor that it belongs to.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

struct Entry {
  Tensor value;
  std::vector<std::size_t> parents;
  Backward backward;  ///< none for a leaf
  Tensor gradient;    ///< what backward() finds; undefined if the root does not depend on this entry
};

struct Tape {
  std::vector<Entry> entries;

  /// Puts an entry at the end and returns its number.
  std::size_t record(const Tensor& value, const std::vector<std::size_t>& parents = {}, const Backward& backward = {});
};

/// max(x, 0), element by element. This one is written.
std::size_t relu(Tape& tape, std::size_t x);

/// A linear layer: x w + b, with x (B, I), w (I, O), b (O); the result has sizes (B, O). b is added to each row.
std::size_t linear(Tape& tape, std::size_t x, std::size_t w, std::size_t b);

/// The mean loss of B images, a tensor of rank 0. logits (B, C) are the scores of the C classes. `one_hot` (B, C) has a
/// 1 at the right class of each image, else 0; it is no entry, since nobody wants its gradient.
std::size_t cross_entropy(Tape& tape, std::size_t logits, const Tensor& one_hot);

/// Fills in the gradient of every entry that the entry `root` depends on. The root has one element.
void backward(Tape& tape, std::size_t root);
