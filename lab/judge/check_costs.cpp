#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "lab/bench/norm_sweep.h"
#include "lab/judge/subject.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

namespace norma::lab {

namespace {

/// The copies in a profile that move at least `bytes`, by pass.
std::map<OpPass, int> copies_in(const OpProfile& profile, double bytes) {
  std::map<OpPass, int> copies;
  for (const OpRecord& record : profile.records()) {
    if (record.work.op == "copy" && record.work.bytes >= bytes) {
      ++copies[record.pass];
    }
  }
  return copies;
}

/// Two steps of a network at 32x32 in channels_last.
void train_two_steps(nn::Module& model, const std::string& name) {
  nn::Sgd optimizer(nn::parameter_groups(model, /* weight_decay= */ 0), {.lr = 1e-3});
  const Tensor images = random_input({4, 3, 32, 32}, MemoryFormat::channels_last);
  const Tensor labels = arange(4);
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(images), labels);
    const double value = loss.item<float>();
    check(std::isfinite(value), name, "expected a finite loss, got {} in step {}", value, step);
    loss.backward();
    optimizer.step();
  }
}

}  // namespace

Finding check_copies(const Subject& subject) {
  std::string found;
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    Tensor x = random_input({4, subject.channels, 6, 5}, format);
    const auto layer = subject.make(x);
    const Tensor dy = random_input(x.sizes(), format);
    x.set_requires_grad();
    const OpProfile profile;
    Tensors inputs = layer->parameters();
    inputs.push_back(x);
    const Tensor y = (*layer)(x);
    grad({y}, inputs, {dy});  // backward() would copy a dy that comes as it is
    // A copy reads and writes. Copies of parts of x, or of one number per channel, do not count.
    for (const auto& [pass, count] : copies_in(profile, 1.5 * bytes_of(x))) {
      found += fmt::format("{}{}: {} {} of the whole input in the {} pass", found.empty() ? "" : "; ",
                           to_string(format), count, count == 1 ? "copy" : "copies", to_string(pass));
    }
  }
  return {found.empty() ? CheckOutcome::passed : CheckOutcome::failed, found};
}

Finding check_networks(const Subject& subject) {
  train::Recipe resnet;
  resnet.model = "resnet18";
  resnet.small_stem = true;
  train::Recipe convnext;
  convnext.model = "convnext_atto";
  convnext.patch_size = 4;
  train::Recipe vit;
  vit.model = "vit_tiny";
  vit.patch_size = 8;
  std::string refused;
  for (train::Recipe recipe : {resnet, convnext, vit}) {
    recipe.norm = nn::to_string(subject.choice);
    std::shared_ptr<nn::Module> model;
    try {
      model = train::make_model(recipe, /* num_classes= */ 10);
    } catch (const Error& error) {  // its groups do not divide all channels
      refused += fmt::format("{}{} cannot have it ({})", refused.empty() ? "" : "; ", recipe.model, error.what());
      continue;
    }
    train_two_steps(*model, recipe.model);
  }
  if (!refused.empty()) {
    return {CheckOutcome::noted, refused};
  }
  return {CheckOutcome::passed, "two steps of resnet18, convnext_atto and vit_tiny"};
}

Finding check_speed(const Subject& subject) {
  bench::SweepOptions options;
  options.norms = {nn::to_string(subject.choice)};
  options.dtypes = {"float32"};
  options.shapes = {"images"};
  options.batch_sizes = {16};
  options.channels = {64};
  options.image_sizes = {56};
  std::string text;
  for (const bench::SweepRow& row : bench::run_sweep(options).rows) {
    text += fmt::format("{}{} {} {:.0f} % ({:.0f} to {:.0f})", text.empty() ? "" : ", ", to_string(row.format),
                        row.backward ? "backward" : "forward", 100 * row.share(), 100 * row.share_low,
                        100 * row.share_high);
  }
  return {CheckOutcome::noted, text + " of a copy's rate (16, 64, 56, 56); in brackets half of all rounds"};
}

}  // namespace norma::lab
