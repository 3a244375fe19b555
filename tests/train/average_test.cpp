#include "train/weights.h"

#include "core/factory.h"
#include "files.h"
#include "train/checkpoint.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::TemporaryFolder;

namespace {

Checkpoint checkpoint(int64_t step, const std::vector<float>& weight, int64_t count) {
  return {.model = {{"fc.weight", from_vector<float>(weight, {static_cast<int64_t>(weight.size())})},
                    {"bn.num_batches_tracked", scalar(static_cast<double>(count), DType::int64)}},
          .optimizer = {{"step", scalar(static_cast<double>(step), DType::int64)}},
          .step = step,
          .model_name = "resnet18",
          .options = {{"recipe", "{}"}, {kClassNamesKey, R"(["ant", "bee"])"}}};
}

}  // namespace

TEST_CASE("average: in float64, with the counters and the description of the newest") {
  const TemporaryFolder folder;
  // In float32, 1e8 + 1 is 1e8: a sum there would lose the small ones.
  save_checkpoint(folder / "a", checkpoint(20, {1e8F, 1}, 7));
  save_checkpoint(folder / "b", checkpoint(30, {1, 2}, 9));
  save_checkpoint(folder / "c", checkpoint(10, {-1e8F, 6}, 5));
  const Checkpoint mean = average_checkpoints({folder / "a", folder / "b", folder / "c"});
  REQUIRE(mean.model.size() == 2);
  CHECK(mean.model[0].first == "bn.num_batches_tracked");  // wide dtypes come first in the files
  CHECK(mean.model[0].second.to_vector<int64_t>() == std::vector<int64_t>{9});
  CHECK(mean.model[1].second.dtype() == DType::float32);
  CHECK(mean.model[1].second.to_vector<float>() == std::vector<float>{1.0F / 3, 3});
  CHECK(mean.step == 30);
  CHECK(mean.model_name == "resnet18");
  CHECK(mean.options.at("recipe") == "{}");
  CHECK(mean.options.at("averaged").find((folder / "c").string()) != std::string::npos);
  CHECK(mean.optimizer.empty());
  CHECK(average_checkpoints({folder / "b"}).model[1].second.to_vector<float>() == std::vector<float>{1, 2});
}

TEST_CASE("average: files with weights only, counters are the last file's") {
  const TemporaryFolder folder;
  for (const auto& [name, step] : {std::pair<std::string, int64_t>{"a", 4}, {"b", 2}}) {
    data::save_safetensors(folder / name, checkpoint(0, {static_cast<float>(step)}, step).model);
  }
  const Checkpoint mean = average_checkpoints({folder / "a", folder / "b"});
  CHECK(mean.step == -1);
  CHECK(mean.model[0].second.to_vector<int64_t>() == std::vector<int64_t>{2});
  CHECK(mean.model[1].second.to_vector<float>() == std::vector<float>{3});
}

TEST_CASE("average: what differs is named") {
  const TemporaryFolder folder;
  save_checkpoint(folder / "a", checkpoint(20, {1, 2}, 7));
  const std::string b = (folder / "b").string();
  const std::string a = (folder / "a").string();
  const auto error = [&](const std::function<void(Checkpoint&)>& change) {
    Checkpoint other = checkpoint(30, {1, 2}, 9);
    change(other);
    save_checkpoint(b, other);
    return error_of([&] { average_checkpoints({a, b}); });
  };
  CHECK(error([](Checkpoint& c) { c.model[0].second = ones({3}); }) ==
        "average: " + b + ": tensor 'fc.weight': expected sizes [2], as in " + a + ", got [3]");
  CHECK(error([](Checkpoint& c) { c.model[0].second = ones({2}, {.dtype = DType::bfloat16}); }) ==
        "average: " + b + ": tensor 'fc.weight': expected dtype float32, as in " + a + ", got bfloat16");
  CHECK(error([](Checkpoint& c) { c.model[0].first = "fc.bias"; }) ==
        "average: " + b + ": tensor 'fc.bias': expected 'fc.weight', as in " + a);
  CHECK(error([](Checkpoint& c) { c.model.pop_back(); }) ==
        "average: " + b + ": tensor 'fc.weight': expected 'bn.num_batches_tracked', as in " + a);
  CHECK(error([](Checkpoint& c) { c.model.emplace_back("z", ones({1})); }) ==
        "average: " + b + ": tensor 'z': " + a + " has none of this name");
  CHECK(error([](Checkpoint& c) { c.model_name = "resnet50"; }) ==
        "average: " + b + ": model: expected 'resnet18', as in " + a + ", got 'resnet50'");
  CHECK(error([](Checkpoint& c) {
          c.norm = "batch";  // as its own norm is
          c.options["recipe"] = R"({"norm": "batch"})";
        }) == "no error");
  CHECK(error([](Checkpoint& c) { c.norm = "group"; }) ==
        "average: " + b + ": norm: expected 'batch', as in " + a + ", got 'group'");
  // Networks of the same tensors that compute something else.
  CHECK(error([](Checkpoint& c) { c.options["recipe"] = R"({"conv_layer": "std_conv"})"; }) ==
        "average: " + b + ": conv-layer: expected 'conv', as in " + a + ", got 'std_conv'");
  CHECK(error([](Checkpoint& c) { c.options["recipe"] = R"({"qk_norm": "group:8"})"; }) ==
        "average: " + b + ": qk-norm: expected '', as in " + a + ", got 'group:8'");
  CHECK(error([](Checkpoint& c) { c.options["recipe"] = R"({"norm_policy": "[[rule]]"})"; }) ==
        "average: " + b + ": norm-policy: expected that of " + a + ", got another");
  CHECK(error([](Checkpoint& c) { c.options[kClassNamesKey] = R"(["bee", "ant"])"; }) ==
        "average: " + b + ": expected the classes of " + a + ", in their order, got others");
  CHECK(error([](Checkpoint& c) { c.options.erase(kClassNamesKey); }) == "no error");  // of an earlier version
  CHECK(error([](Checkpoint& c) {
          c.model[0].second = from_vector<float>({1, std::numeric_limits<float>::quiet_NaN()}, {2});
        }) == "average: " + b + ": tensor 'fc.weight': expected finite numbers, got 1 of 2 that are NaN or infinite");
  data::save_safetensors(b, {{"fc.weight", ones({2})}});
  CHECK(error_of([&] {
          average_checkpoints({a, b});
        }) == "average: " + b + ": expected a checkpoint, as " + a + " is, got weights only");
  CHECK(error_of([] { average_checkpoints({}); }) == "average: expected checkpoints, got none");
}
