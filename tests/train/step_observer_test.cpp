#include "train/step_observer.h"

#include "base/error.h"
#include "core/allocator.h"
#include "files.h"
#include "session/trainer.h"
#include "small_runs.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

using namespace norma;
using namespace norma::train;

namespace {

/// Writes down all that it is told.
class Diary : public StepObserver {
 public:
  class Step : public ObservedStep {
   public:
    explicit Step(std::string& text) : text_(text) {}
    ~Step() override { text_ += ")"; }
    void after_forward(const Tensor& loss, double) override { text_ += loss.requires_grad() ? "f" : "?"; }
    void after_backward() override { text_ += "b"; }
    void after_update() override { text_ += "u"; }

   private:
    std::string& text_;
  };

  explicit Diary(int64_t fails_in = 0) : fails_in_(fails_in) {}

  void start(const ObservedRun& run) override {
    text += fmt::format("{} to {} of {};", run.first_step, run.total_steps, run.batch_size);
  }
  std::unique_ptr<ObservedStep> begin_step(int64_t step) override {
    text += fmt::format(" {}(", step);
    if (step == fails_in_) {
      throw OutOfMemory("as if");
    }
    return step % 2 == 0 ? nullptr : std::make_unique<Step>(text);
  }
  void end_step(int64_t step, double loss, double seconds) override {
    text += fmt::format("{}{}", step, loss > 0 && seconds > 0 ? "." : "?");
  }
  void evaluated(int64_t step, const Evaluation& test) override {
    text += fmt::format(" e{}{}", step, test.complete ? "" : "?");
  }

  std::string text;

 private:
  int64_t fails_in_;
};

TrainerOptions watched_by(const std::shared_ptr<StepObserver>& observer) {
  TrainerOptions options;
  options.quiet = true;
  options.observer = observer;
  return options;
}

}  // namespace

TEST_CASE("step observer: it is told of every step in order, and looks into those it wants") {
  const auto diary = std::make_shared<Diary>();
  Trainer(test::small_recipe(), watched_by(diary)).run();
  CHECK(diary->text == "0 to 3 of 4; 1(fbu)1. 2(2. 3(fbu)3. e3");
}

TEST_CASE("step observer: steps that look for a batch size that fits are not of the run") {
  const auto diary = std::make_shared<Diary>(2);
  CHECK_THROWS_AS(Trainer(test::small_recipe(), watched_by(diary)).run(), OutOfMemory);
  CHECK(diary->text == "0 to 3 of 4; 1(fbu)1. 2(");
}

TEST_CASE("step observer: a resumed run without steps left begins, too, and is evaluated") {
  Trainer trainer(test::small_recipe(), watched_by(nullptr));
  trainer.run();
  const auto diary = std::make_shared<Diary>();
  Trainer(test::small_recipe(), watched_by(diary), trainer.checkpoint()).run();
  CHECK(diary->text == "3 to 3 of 4; e3");
}
