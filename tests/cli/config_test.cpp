#include "cli/program.h"
#include "data/image_file.h"
#include "json.h"
#include "train/checkpoint.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;
using test::write_file;

namespace {

/// What a training run says of a file of options; it does not come to training.
std::string complaint_of(const std::string& config, const std::string& arguments = "") {
  const TemporaryFolder folder;
  write_file(folder.path() / "c.toml", config);
  // A dataset that needs a folder: a file that is taken ends there.
  const Outcome outcome = run_norma(folder.path(), "train --config c.toml --dataset idx " + arguments, "timeout 60");
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  return outcome.err;
}

constexpr const char* kTaken = "norma: idx: expected a folder with IDX files (option --data-dir), got none\n";

}  // namespace

TEST_CASE("norma train --config: each wrong line is one line that says where it is") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"# one\nlrr = 1\n", "train: c.toml:2:1: unknown option 'lrr'; did you mean 'lr'?"},
      {"flip = 3\n", "train: c.toml:1:1: flip: expected true or false, got 3"},
      {"model = true\n", "train: c.toml:1:1: model: expected a name, got true"},
      {"lr = \"fast\"\n", "train: --lr: expected a number in (0, 1000], got fast"},
      {"lr = [1, 2]\n", "train: --lr: expected a number in (0, 1000], got 1,2"},
      {"data-dir = \"\"\n", "train: --data-dir: expected a path, got an empty text"},
      {"model = \"--flip\"\n", "train: unknown model '--flip'"},
      {"lr = 1979-05-27\n",
       "train: c.toml:1:6: lr: expected a text, a number, true, false or a list of texts or numbers"},
      {"lr = []\n", "train: c.toml:1:6: lr: expected a text, a number, true, false or a list of texts or numbers"},
      {"[train]\nlr = 1\n", "train: c.toml:1: expected a line option = value, got '[train]'"},
      {"a.b = 1\n", "train: c.toml:1: expected a line option = value, got 'a.b = 1'"},
      {"epochs = 1\nimages = 64\n", "train: --epochs excludes --images"},
      {"plugin = \"/none/x.so\"\n", "plugin: cannot open /none/x.so"},
      {"config = \"x\"\n", "train: c.toml:1:1: config: expected on the command line, got it in a file"},
      {"resume = \"x\"\n", "train: c.toml:1:1: resume: expected on the command line, got it in a file"},
  };
  for (const auto& [config, expected] : cases) {
    CAPTURE(config);
    const std::string text = complaint_of(config);
    CHECK_MESSAGE(text.starts_with("norma: " + expected), text);
    CHECK(text.ends_with("\n"));
    CHECK(text.find('\n') == text.size() - 1);
  }
  CHECK(complaint_of("lr 0.1\n").starts_with("norma: train: c.toml:1:4: "));
  CHECK(complaint_of("lr = 1\nlr = 2\n").starts_with("norma: train: c.toml:2:"));
  CHECK(complaint_of("lr = 0." + std::string(5000, '1')) ==
        "norma: train: c.toml:1: expected a line of at most 4000 bytes, got 5007\n");
  CHECK(test::complaint("train --config none.toml") ==
        "norma: train: cannot open none.toml: No such file or directory\n");
  CHECK(test::complaint("train --config -1") == "norma: train: cannot open -1: No such file or directory\n");
}

TEST_CASE("norma train --config: the command line comes first, also where options exclude each other") {
  CHECK(complaint_of("lr = 0.1\nflip = true\nbatch-size = 8\nimages = 64\nquiet = false\n") == kTaken);
  CHECK(complaint_of("batch-size = 0\nflip = true\n", "-b 8 --no-flip") == kTaken);
  CHECK(complaint_of("dataset = \"none\"\n") == kTaken);
  CHECK(complaint_of("images = 64\n", "--epochs 1") == kTaken);
  CHECK(complaint_of("no-flip = true\nflip = false\n").starts_with("norma: train: --flip: expected once"));
}

TEST_CASE("norma train: args.toml starts the same run again" * doctest::test_suite("again")) {
  const TemporaryFolder folder;
  write_file(folder.path() / "policy.toml", "\"layer4.*\" = \"instance\"\n");
  const std::string plain =
      "train --model resnet18 --small-stem --dataset shapes --img-size 16 --images 16 -b 4 --test-images 8 --lr 1e-7 "
      "--seed 18446744073709551615 --no-channels-last --norm 'batch[eps=1e-3,momentum=0.2]' --norm-policy policy.toml "
      "--quiet --log-interval 2 --scale 0.25,1 --aa rand-m9-mstd0.5 --color-jitter 0.4 --reprob 0.25 --mixup 0.8 ";
  Outcome outcome = run_norma(folder.path(), plain + "--output first");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string text = read_file(folder.path() / "first/args.toml");
  CHECK(text.starts_with("# Options of a run: norma train --config args.toml\nmodel = \"resnet18\"\n"));
  for (const char* line :
       {"\nlr = 1e-07\n", "\nimages = 16\n", "\nsmall-stem = true\n", "\nchannels-last = false\n",
        "\nseed = \"18446744073709551615\"\n", "\nnorm = \"batch[eps=1e-3,momentum=0.2]\"\n",
        "\nnorm-policy = \"policy.toml\"\n", "\nscale = [0.25, 1]\n", "\naa = \"rand-m9-mstd0.5\"\n"}) {
    CHECK_MESSAGE(text.find(line) != std::string::npos, line);
  }
  CHECK(text.find("\nepochs") == std::string::npos);
  outcome = run_norma(folder.path(), "train --config first/args.toml --output second --quiet --log-interval 2");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(read_file(folder.path() / "second/args.toml") == text);
  CHECK(read_file(folder.path() / "first/last.safetensors") == read_file(folder.path() / "second/last.safetensors"));

  SUBCASE("lines that somebody has changed do not hold on resuming, and it says so") {
    outcome = run_norma(folder.path(), "train --resume first --quiet");
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK(outcome.err.empty());
    std::string changed = text;
    changed.replace(changed.find("lr = 1e-07"), 10, "lr = 0.25");
    write_file(folder.path() / "second/args.toml", changed + "lrr = 3\n");
    outcome = run_norma(folder.path(), "train --resume second --quiet");
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    const std::string rest = "' is not what the checkpoint has, which holds where the command line says nothing else\n";
    CHECK(outcome.err == "norma: train: warning: second/args.toml: 'lr = 0.25" + rest +
                             "norma: train: warning: second/args.toml: 'lrr = 3" + rest);
  }
  SUBCASE("a changed line is a difference on resuming") {
    outcome = run_norma(folder.path(), "train --resume second --config first/args.toml --lr 1 --quiet");
    CHECK(outcome.out.find("changed on resuming: lr 1e-07 → 1\n") != std::string::npos);
  }
  SUBCASE("a file of somebody else is left alone") {
    std::filesystem::create_directory(folder.path() / "third");
    write_file(folder.path() / "third/args.toml", "mine\n");
    outcome = run_norma(folder.path(), plain + "--output third");
    CHECK(outcome.code == 2);
    CHECK(outcome.err.find("args.toml") != std::string::npos);
    CHECK(read_file(folder.path() / "third/args.toml") == "mine\n");
  }
}

namespace {

/// The recipe that a run in `folder` was done by.
nlohmann::json recipe_in(const std::filesystem::path& folder) {
  return test::parse_json(train::load_checkpoint(folder / "last.safetensors").options.at("recipe"));
}

}  // namespace

TEST_CASE("norma train: args.toml makes the same recipe again") {
  const TemporaryFolder folder;
  write_file(folder / "norms.toml", "\"stages.2.*\" = \"instance\"\n");
  write_file(folder / "casts.toml", "\"batch_norm\" = \"float32\"\n");
  for (const char* name : {"train/a/1.png", "train/a/2.png", "train/b/1.png", "train/b/2.png", "val/a/1.png"}) {
    const std::filesystem::path file = folder / "pictures" / name;
    std::filesystem::create_directories(file.parent_path());
    data::write_png(file, {.height = 1, .width = 2, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}});
  }
  // Between them, options of all kinds.
  const std::vector<std::string> runs = {
      "--model convnext_atto --patch-size 2 --layer-scale 1e-5 --norm batch[eps=1e-3] --norm-policy norms.toml "
      "--conv-layer std_conv --drop-path 0.1 --dataset imagefolder --data-dir pictures --skip-bad-images --img-size 16 "
      "--random-crop 2 "
      "--flip "
      "--vflip 0.1 --color-jitter 0.2 --reprob 0.2 --remode rand --recount 2 --crop-pct 0.9 --interpolation bicubic "
      "--mixup 0.2 --aug-repeats 2 --mixup-prob "
      "0.7 "
      "--mixup-switch-prob 0.3 -b 4 --epochs 2 --no-channels-last --opt lamb --lr-base 1e-6 --lr-base-size 512 "
      "--lr-base-scale linear --weight-decay 0.02 --norm-weight-decay 0.01 --bias-weight-decay 0.03 --opt-betas "
      "0.8,0.9 --opt-eps 1e-5 --momentum 0.8 --sched cosine --warmup-epochs 0.5 --warmup-lr 1e-7 "
      "--warmup-prefix --min-lr 1e-9 --cooldown-epochs 0.5 --decay-epochs 2 --decay-rate 0.2 --no-sched-on-updates "
      "--smoothing 0.1 --bce-loss --bce-target-thresh 0.2 --model-ema --model-ema-decay 0.9 --model-ema-warmup --seed "
      "7",
      "--model resnet18 --small-stem --zero-init-last --dataset shapes --img-size 16 --scale 0.3,1 "
      "--ratio 0.5,2 --hflip 0.4 --aa ta_wide --train-interpolation bicubic --cutmix 1 -b 4 --images 8 --test-images 4 "
      "--lr 1e-5 --layer-decay 0.7 --grad-accum-steps 2 --skip-nonfinite --max-nonfinite 3 --decay-milestones 3,5 "
      "--clip-grad 1 --clip-mode agc "
      "--precision amp_bfloat16 --cast-policy casts.toml --cast linear=float32,relu=keep",
  };
  for (const std::string& run : runs) {
    for (const std::string& words :
         {run + " --output first", std::string("--config first/args.toml --output second")}) {
      const Outcome outcome = run_norma(folder.path(), "train --quiet " + words);
      REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    }
    const nlohmann::json first = recipe_in(folder / "first");
    const nlohmann::json second = recipe_in(folder / "second");
    for (const auto& [name, value] : first.items()) {
      CHECK_MESSAGE(second.at(name) == value, name);
    }
    std::filesystem::remove_all(folder / "first");
    std::filesystem::remove_all(folder / "second");
  }
}

TEST_CASE("norma train: none takes back what a file says") {
  const TemporaryFolder folder;
  write_file(folder / "norms.toml", "\"layer4.*\" = \"instance\"\n");
  write_file(folder / "casts.toml", "\"batch_norm\" = \"float32\"\n");
  write_file(folder / "c.toml",
             "dataset = \"shapes\"\nimg-size = 16\nimages = 4\nbatch-size = 4\ntest-images = 4\nsched = \"cosine\"\n"
             "warmup-lr = 1e-6\nbce-loss = true\nbce-target-thresh = 0.2\naa = \"ta_wide\"\ncolor-jitter = 0.4\n"
             "patch-size = 2\nlayer-scale = 1e-5\nnorm-policy = \"norms.toml\"\ncast-policy = \"casts.toml\"\n"
             "precision = \"amp_bfloat16\"\n");
  std::string words = "train --config c.toml --quiet --output o";
  for (const char* name : {"warmup-lr", "bce-target-thresh", "aa", "color-jitter", "patch-size", "layer-scale",
                           "norm-policy", "cast-policy"}) {
    words += fmt::format(" --{} none", name);
  }
  const Outcome outcome = run_norma(folder.path(), words);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const nlohmann::json recipe = recipe_in(folder / "o");
  for (const char* name : {"warmup_lr", "bce_target_thresh", "patch_size", "layer_scale"}) {
    CHECK_MESSAGE(recipe.at(name).is_null(), name);
  }
  for (const char* name :
       {"aa", "color_jitter", "norm_policy", "norm_policy_file", "cast_policy", "cast_policy_file"}) {
    CHECK_MESSAGE(recipe.at(name) == "", name);
  }
  CHECK(test::complaint("train --warmup-lr fast") ==
        "norma: train: --warmup-lr: expected a number from 0 to 1000, or none, got fast\n");
}
