#include "cli/program.h"
#include "data/safetensors.h"
#include "models/registry.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

const std::string kTrain =
    "train --model convnext_atto --patch-size 4 --norm batch --dataset shapes -b 4 --images 16 --test-images 8 --quiet "
    "--output o ";

}  // namespace

TEST_CASE("norma eval: --use-ema takes the averaged weights of a run, and without them it is an error") {
  const TemporaryFolder folder;
  const Outcome trained = run_norma(folder.path(), kTrain + "--lr 0.01 --model-ema --model-ema-decay 0.5");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const auto figures = [](const std::string& text, const std::string& before, const std::string& between) {
    const size_t at = text.rfind(before);
    REQUIRE_MESSAGE(at != std::string::npos, text);
    const size_t accuracy = at + before.size();
    const size_t loss = text.find(between, accuracy) + between.size();
    return text.substr(accuracy, 4) + " " + text.substr(loss, 6);
  };
  const std::string plain = figures(trained.out, "test accuracy ", "test loss ");
  const std::string averaged = figures(trained.out, "with averaged weights ", " %, ");
  CHECK(plain != averaged);
  const Outcome by_weights = run_norma(folder.path(), "eval --checkpoint o");
  CHECK(figures(by_weights.out, "accuracy ", "loss ") == plain);
  const Outcome by_averages = run_norma(folder.path(), "eval --checkpoint o --use-ema");
  REQUIRE_MESSAGE(by_averages.code == 0, by_averages.err);
  CHECK(figures(by_averages.out, "accuracy ", "loss ") == averaged);

  std::filesystem::remove_all(folder / "o");
  REQUIRE(run_norma(folder.path(), kTrain).code == 0);
  const Outcome none = run_norma(folder.path(), "eval --checkpoint o --use-ema");
  CHECK(none.code == 2);
  CHECK_MESSAGE(none.err.find("o/last.safetensors") != std::string::npos, none.err);
}

TEST_CASE("norma average: --best takes the weights whose accuracy ranks them, and train says whose it is") {
  const TemporaryFolder folder;
  const Outcome trained = run_norma(folder.path(), kTrain + "--model-ema");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  CHECK(trained.out.find(" % with averaged weights (eval --use-ema), after step ") != std::string::npos);
  const Outcome best = run_norma(folder.path(), "average o --best 1 --output best.safetensors");
  REQUIRE_MESSAGE(best.code == 0, best.err);
  CHECK(best.out.ends_with("the average of the averaged weights (--model-ema) of 1 checkpoint: best.safetensors\n"));
  const std::string file = best.out.substr(0, best.out.find(':'));
  REQUIRE(run_norma(folder.path(), "average " + file + " --use-ema --output ema.safetensors").code == 0);
  const auto best_weights = data::load_safetensors(folder / "best.safetensors").tensors;
  const auto averages = data::load_safetensors(folder / "ema.safetensors").tensors;
  REQUIRE(best_weights.size() == averages.size());
  for (size_t i = 0; i < averages.size(); ++i) {
    CHECK(best_weights[i].second.to_vector<double>() == averages[i].second.to_vector<double>());
  }
}

TEST_CASE("norma train: --tensorboard writes an event file with curves and the norms' weights") {
  const TemporaryFolder folder;
  const Outcome trained = run_norma(folder.path(), kTrain + "--tensorboard --model-ema");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "o")) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      CHECK(events.empty());
      events = read_file(entry.path());
    }
  }
  for (const char* tag :
       {"brain.Event:2", "loss/train", "loss/test", "accuracy/test", "loss/ema_test", "accuracy/ema_test",
        "images_per_second", "lr", "norm/stem.1.weight", "norm/stages.3.blocks.1.norm.bias"}) {
    CHECK_MESSAGE(events.find(tag) != std::string::npos, tag);
  }
}

TEST_CASE("norma average: of one checkpoint it is the weights alone, bit by bit, as other programs want them") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTrain + "--model-ema").code == 0);
  const data::NamedTensors all = data::load_safetensors(folder / "o/last.safetensors").tensors;
  const auto check_alone = [&](const std::string& prefix, const std::string& arguments) {
    REQUIRE(run_norma(folder.path(), "average o/last.safetensors --output w.safetensors" + arguments).code == 0);
    const data::NamedTensors weights = data::load_safetensors(folder / "w.safetensors").tensors;
    CHECK(weights.size() ==
          models::create_model("convnext_atto", {.num_classes = 10, .norm = "batch"})->state_dict().size());
    for (const auto& [name, x] : weights) {
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == prefix + name; });
      REQUIRE_MESSAGE(same != all.end(), name);
      CHECK_MESSAGE(x.to_vector<double>() == same->second.to_vector<double>(), name);
    }
    std::filesystem::remove(folder / "w.safetensors");
  };
  check_alone("", "");
  check_alone("ema.", " --use-ema");
}
