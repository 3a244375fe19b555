// Lesson 3: a tape for numbers, from nothing; then Norma's tape, which does the same for tensors.
#include "optimizers.h"
#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace {

// --- the tape: 60 lines from here --------------------------------------------------------------------------------

/// Where an entry came from, and how steeply it follows.
struct Parent {
  size_t entry;
  double slope;  ///< by how much the result moves when this parent moves by 1 (and no other does)
};

struct Entry {
  std::string name;
  double value = 0;
  std::vector<Parent> parents;
  double gradient = 0;  ///< by how much the root moves when this entry moves by 1
};

class Tape {
 public:
  size_t record(const std::string& name, double value, const std::vector<Parent>& parents = {}) {
    entries.push_back({name, value, parents});
    return entries.size() - 1;
  }

  /// From the root back to the first entry: everything that used an entry comes after it on the tape, so its gradient
  /// is complete when the walk arrives.
  void backward(size_t root, bool tell = false) {
    for (Entry& entry : entries) {
      entry.gradient = 0;
    }
    entries[root].gradient = 1;
    for (size_t i = root + 1; i-- > 0;) {
      for (const Parent& parent : entries[i].parents) {
        const double part = entries[i].gradient * parent.slope;
        entries[parent.entry].gradient += part;
        if (tell) {
          fmt::print("entry {} ({}) gives entry {}: {:g} * {:g} = {:g}\n", i, entries[i].name, parent.entry,
                     entries[i].gradient, parent.slope, part);
        }
      }
    }
  }

  std::vector<Entry> entries;
};

/// A number that remembers its place on the tape.
struct Number {
  Tape* tape;
  size_t at;
  [[nodiscard]] double value() const { return tape->entries[at].value; }
  [[nodiscard]] double gradient() const { return tape->entries[at].gradient; }
};

Number leaf(Tape& tape, const std::string& name, double value) {
  return {&tape, tape.record(name, value)};
}
Number operator+(Number a, Number b) {
  return {a.tape, a.tape->record("add", a.value() + b.value(), {{a.at, 1}, {b.at, 1}})};
}
Number operator*(Number a, Number b) {
  return {a.tape, a.tape->record("mul", a.value() * b.value(), {{a.at, b.value()}, {b.at, a.value()}})};
}

// --- to here -----------------------------------------------------------------------------------------------------

double f(double a, double b) {
  return (a + b) * a;
}

/// The four entries with their values, slopes and gradients.
void draw(const Tape& tape, const std::string& folder) {
  using lessons::Color;
  lessons::Picture picture(190, "The tape of (a + b) * a",
                           "a and b lead to add; add and a lead to mul. Each has its value and its gradient");
  const std::vector<std::pair<double, double>> places = {{6, 20}, {6, 130}, {140, 110}, {262, 40}};
  for (size_t i = 0; i < tape.entries.size(); ++i) {
    for (const Parent& parent : tape.entries[i].parents) {
      const auto [x1, y1] = places[parent.entry];
      const auto [x2, y2] = places[i];
      picture.arrow(x1 + 92, y1 + 25, x2, y2 + 25, Color::faint);
      picture.text((x1 + 92 + x2) / 2, (y1 + y2) / 2 + 18, fmt::format("{:g}", parent.slope),
                   {.color = Color::two, .anchor = "middle", .bold = true});
    }
  }
  for (size_t i = 0; i < tape.entries.size(); ++i) {
    const auto [x, y] = places[i];
    picture.box(x, y, 92, 50, tape.entries[i].parents.empty() ? Color::three : Color::one);
    picture.text(x + 46, y + 20, fmt::format("{} = {:g}", tape.entries[i].name, tape.entries[i].value),
                 {.color = Color::paper, .anchor = "middle", .bold = true});
    picture.text(x + 46, y + 40, fmt::format("gradient {:g}", tape.entries[i].gradient),
                 {.color = Color::paper, .anchor = "middle"});
  }
  picture.save(folder, "tape");
}

}  // namespace

int main(int argc, char** argv) {
  fmt::print("f(3, 2) = {:g}\n", f(3, 2));
  fmt::print("a moves by 0.001: f = {:g}, slope {:g}\n", f(3.001, 2), (f(3.001, 2) - f(3, 2)) / 0.001);
  fmt::print("b moves by 0.001: f = {:g}, slope {:g}\n\n", f(3, 2.001), (f(3, 2.001) - f(3, 2)) / 0.001);

  Tape tape;
  const Number a = leaf(tape, "a", 3);
  const Number b = leaf(tape, "b", 2);
  const Number y = (a + b) * a;
  for (size_t i = 0; i < tape.entries.size(); ++i) {
    fmt::print("entry {}: {:<3} = {:g}\n", i, tape.entries[i].name, tape.entries[i].value);
    for (const Parent& parent : tape.entries[i].parents) {
      fmt::print("  from entry {}, slope {:g}\n", parent.entry, parent.slope);
    }
  }
  fmt::print("\n");
  tape.backward(y.at, /* tell= */ true);
  fmt::print("gradient of a: {:g}, of b: {:g}\n\n", a.gradient(), b.gradient());
  draw(tape, lessons::picture_folder(argc, argv));

  double w = 0;  // what makes (2 w - 6)² small?
  for (int step = 0; step < 5; ++step) {
    Tape steps;
    const Number weight = leaf(steps, "w", w);
    const Number error = weight * leaf(steps, "2", 2) + leaf(steps, "-6", -6);
    const Number loss = error * error;
    steps.backward(loss.at);
    fmt::print("step {}: w {:.4f}, loss {:7.4f}, gradient {:8.4f}\n", step, w, loss.value(), weight.gradient());
    w -= 0.1 * weight.gradient();
  }

  optimizers();
  norma::Tensor p = norma::scalar(3).set_requires_grad();
  norma::Tensor q = norma::scalar(2).set_requires_grad();
  const norma::Tensor r = (p + q) * p;
  fmt::print("\nNorma: {:g}\n{}", r.item<float>(), norma::Tape(r).summary());
  r.backward();
  fmt::print("gradient of p: {:g}, of q: {:g}\n", p.grad().item<float>(), q.grad().item<float>());
  ((p + q) * p).backward();
  fmt::print("after a second backward: {:g} and {:g}\n", p.grad().item<float>(), q.grad().item<float>());
}
