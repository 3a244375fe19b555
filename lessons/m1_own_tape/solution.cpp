// Milestone 1: the three gaps, filled.

#include "exercise.h"

std::size_t Tape::record(const Tensor& value, const std::vector<std::size_t>& parents, const Backward& backward) {
  entries.push_back({value, parents, backward, {}});
  return entries.size() - 1;
}

std::size_t relu(Tape& tape, std::size_t x) {
  const Tensor y = norma::relu(tape.entries[x].value);
  const Backward backward = [y](const Tensor& dy) -> std::vector<Tensor> {
    const Tensor passes = norma::to(norma::greater(y, 0), norma::DType::float32);  // 1 where y > 0, else 0
    return {dy * passes};
  };
  return tape.record(y, {x}, backward);
}

std::size_t linear(Tape& tape, std::size_t x, std::size_t w, std::size_t b) {
  const Tensor in = tape.entries[x].value;
  const Tensor weight = tape.entries[w].value;
  const Tensor y = norma::matmul(in, weight) + tape.entries[b].value;
  const Backward backward = [in, weight](const Tensor& dy) -> std::vector<Tensor> {
    // GAP 1: the sizes (B, O) (O, I), (I, B) (B, O) and (O) leave no other way to put them together.
    return {norma::matmul(dy, norma::transpose(weight, 0, 1)), norma::matmul(norma::transpose(in, 0, 1), dy),
            norma::sum(dy, {0})};
  };
  return tape.record(y, {x, w, b}, backward);
}

std::size_t cross_entropy(Tape& tape, std::size_t logits, const Tensor& one_hot) {
  const Tensor z = tape.entries[logits].value;
  const auto count = static_cast<double>(z.size(0));
  const Tensor loss = norma::sum(one_hot * norma::log_softmax(z, 1)) / -count;
  const Backward backward = [z, one_hot, count](const Tensor& dy) -> std::vector<Tensor> {
    // GAP 2: what was said, less what was right.
    return {(norma::softmax(z, 1) - one_hot) / count * dy};
  };
  return tape.record(loss, {logits}, backward);
}

void backward(Tape& tape, std::size_t root) {
  // GAP 3: as with numbers.
  for (Entry& entry : tape.entries) {
    entry.gradient = Tensor();
  }
  tape.entries[root].gradient = norma::ones_like(tape.entries[root].value);
  for (std::size_t i = root + 1; i-- > 0;) {
    const Entry& entry = tape.entries[i];
    if (!entry.gradient.defined() || entry.parents.empty()) {
      continue;
    }
    const std::vector<Tensor> gradients = entry.backward(entry.gradient);
    for (std::size_t p = 0; p < entry.parents.size(); ++p) {
      Tensor& gradient = tape.entries[entry.parents[p]].gradient;
      gradient = gradient.defined() ? gradient + gradients[p] : gradients[p];
    }
  }
}
