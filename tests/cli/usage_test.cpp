#include "cli/option.h"
#include "cli/program.h"
#include "core/simd/target.h"
#include "lab/compare/comparison.h"
#include "nn/norm/factory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <utility>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;

TEST_CASE("norma: help and version") {
  const TemporaryFolder folder;
  const Outcome help = run_norma(folder.path(), "--help");
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  for (const char* subcommand : {"compare", "report", "train", "eval", "average", "convert", "export", "run", "audit",
                                 "bench", "bench-norms", "data", "info", "completion", "man"}) {
    CHECK_MESSAGE(help.out.find(subcommand) != std::string::npos, subcommand);
    const Outcome its = run_norma(folder.path(), std::string(subcommand) + " --help");
    CHECK(its.code == 0);
    CHECK(its.out.find("--help") != std::string::npos);
  }
  CHECK(run_norma(folder.path(), "--version").out.starts_with("norma 0."));
  const Outcome nothing = run_norma(folder.path(), "");
  CHECK(nothing.code == 2);
  CHECK(nothing.out == help.out);
}

TEST_CASE("norma: networks of 32 pixels can have the norms of the examples in --help and docs/command.md") {
  const TemporaryFolder folder;
  const std::string texts = run_norma(folder.path(), "--help").out + run_norma(folder.path(), "compare --help").out +
                            test::read_file(test::source_folder() / "docs/command.md");
  const std::regex example(R"((?:norma|\./run) compare --models (resnet18|convnext_atto) --norms ('[^']*'|\S+))");
  std::set<std::pair<std::string, std::string>> grids;
  for (std::sregex_iterator found(texts.begin(), texts.end(), example), end; found != end; ++found) {
    grids.emplace((*found)[1].str(), (*found)[2].str());
  }
  REQUIRE(grids.size() >= 3);
  std::string quoted;  // a grid that a shell must read
  for (auto [model, norms] : grids) {
    CAPTURE(norms);
    if (norms.starts_with('\'')) {
      quoted = fmt::format("--models {} --norms {}", model, norms);
      norms = norms.substr(1, norms.size() - 2);
    }
    lab::ComparisonOptions options;
    options.recipe.dataset = "shapes";
    options.models = {model};
    options.norms = cli::split_list(norms);
    lab::rehearse_comparison(lab::plan_comparison(options));
  }
  REQUIRE(!quoted.empty());
  const Outcome outcome = run_norma(folder.path(), fmt::format("compare {} --dataset shapes --images 4 --batch-size 4 "
                                                               "--test-images 4 --timing-rounds 0 --output o",
                                                               quoted));
  CHECK_MESSAGE(outcome.code == 0, quoted, ": ", outcome.err);
}

TEST_CASE("norma: the help shows the defaults") {
  const TemporaryFolder folder;
  const std::string compare = run_norma(folder.path(), "compare --help").out;
  for (const std::string& norm : nn::norm_names()) {
    CHECK_MESSAGE(compare.find(norm) != std::string::npos, norm);
  }
  for (const char* text : {"resnet50,convnext_atto", "batch,layer2d,group", "25600", "0.002", "adamw", "onecycle"}) {
    CHECK_MESSAGE(compare.find(text) != std::string::npos, text);
  }
}

TEST_CASE("norma info: says what is there") {
  const TemporaryFolder folder;
  const Outcome info = run_norma(folder.path(), "info");
  CHECK(info.code == 0);
  for (const char* text : {"norma ", "devices ", "cpu", "threads ", "instruction sets ", "Eigen ", "zlib ", "OpenMP ",
                           "resnet50", "convnext_atto", "layer2d", "group:G", "fashion_mnist", "shapes", "eigen",
                           "for tests         cuda-emulated:0: memory that nobody but kernels may touch"}) {
    CHECK_MESSAGE(info.out.find(text) != std::string::npos, text);
  }
}

TEST_CASE("norma: NORMA_SIMD names what the kernels are for") {
  const TemporaryFolder folder;
  const std::string all = fmt::format("{}", fmt::join(simd::available_targets(), ", "));
  for (const std::string& name : simd::available_targets()) {
    const Outcome info = run_norma(folder.path(), "info", "NORMA_SIMD=" + name);
    CHECK(info.code == 0);
    CHECK(info.out.find(fmt::format("kernels           for {}, of {}\n", name, all)) != std::string::npos);
  }
  const Outcome wrong = run_norma(folder.path(), "info", "NORMA_SIMD=mmx");
  CHECK(wrong.code == 2);
  CHECK(wrong.out.empty());
  CHECK(wrong.err == fmt::format("norma: NORMA_SIMD: expected one of {}, got 'mmx'\n", all));
}

TEST_CASE("norma: unknown names give one line with the nearest known one") {
  CHECK(complaint("trian") == "norma: unknown subcommand 'trian'; did you mean 'train'?\n");
  CHECK(complaint("--versoin") == "norma: unknown option '--versoin'; did you mean '--version'?\n");
  CHECK(complaint("train --modle resnet18") == "norma: train: unknown option '--modle'; did you mean '--model'?\n");
  CHECK(complaint("train --modle=resnet18") == "norma: train: unknown option '--modle'; did you mean '--model'?\n");
  CHECK(complaint("run --wieghts x") == "norma: run: unknown option '--wieghts'; did you mean '--weights'?\n");
  CHECK(complaint("train resnet18") == "norma: train: unexpected argument 'resnet18'\n");
  CHECK(complaint("train --norm 'layer2d[affine=false,offset=true]'") ==
        "norma: norm: layer2d: offset: expected false where affine=false leaves out the weight, got true\n");
  CHECK(complaint("train --model resnet19") == "norma: train: unknown model 'resnet19'; did you mean 'resnet18'?\n");
  CHECK(complaint("compare --models resnet18,convnext_ato") ==
        "norma: compare: unknown model 'convnext_ato'; did you mean 'convnext_atto'?\n");
  CHECK(complaint("train --dataset fashion_mnst") ==
        "norma: train: unknown dataset 'fashion_mnst'; did you mean 'fashion_mnist'?\n");
  CHECK(complaint("train --opt adam") == "norma: train: unknown optimizer 'adam'; did you mean 'adamw'?\n");
  CHECK(complaint("train --sched cosin") == "norma: train: unknown schedule 'cosin'; did you mean 'cosine'?\n");
}

TEST_CASE("norma: unknown norms and norm options") {
  CHECK(complaint("train --norm bath").find("unknown norm 'bath'; did you mean 'batch'?\n") != std::string::npos);
  CHECK(complaint("compare --norms batch,bath").find("unknown norm 'bath'; did you mean 'batch'?\n") !=
        std::string::npos);
  CHECK(complaint("train --norm 'batch[ep=1e-3]'").find("did you mean 'eps'?\n") != std::string::npos);
}

TEST_CASE("norma: unknown convolutions") {
  const std::string text = "norma: conv_layer: unknown convolution 'stdconv'; did you mean 'std_conv'?\n";
  CHECK(complaint("train --conv-layer stdconv") == text);
  CHECK(complaint("compare --conv-layer stdconv") == text);
  CHECK(complaint("eval --checkpoint x --model resnet18 --conv-layer stdconv") == text);
}

TEST_CASE("norma: values that are none") {
  CHECK(complaint("train --lr fast") == "norma: train: --lr: expected a number in (0, 1000], got fast\n");
  CHECK(complaint("train --lr -1") == "norma: train: --lr: expected a number in (0, 1000], got -1\n");
  CHECK(complaint("train --batch-size 0") ==
        "norma: train: --batch-size: expected a whole number from 1 to 1048576, got 0\n");
  CHECK(complaint("train --threads -1") == "norma: train: --threads: expected a whole number from 0 to 1024, got -1\n");
  CHECK(complaint("train --workers -1") == "norma: train: --workers: expected a whole number from 0 to 256, got -1\n");
  CHECK(complaint("train --log-interval 0") ==
        "norma: train: --log-interval: expected a whole number from 1 to 1000000000, got 0\n");
  CHECK(complaint("compare --seeds 1,x") ==
        "norma: compare: --seeds: expected a whole number from 0 to 18446744073709551615, got x\n");
  CHECK(complaint("compare --batch-sizes 4,0") ==
        "norma: compare: --batch-sizes: expected a whole number from 1 to 1048576, got 0\n");
  CHECK(complaint("compare --lr fast") == "norma: compare: --lrs: expected a number in (0, 1000], got fast\n");
  CHECK(complaint("compare --formats channels_last,nchw") ==
        "norma: compare: --formats: expected contiguous or channels_last, got nchw\n");
  CHECK(complaint("compare --precisions float32,") ==
        "norma: compare: --precisions: expected a name, got an empty text\n");
  CHECK(complaint("compare --format contiguous --no-channels-last") ==
        "norma: compare: --formats excludes --channels-last\n");
  for (const char* wrong : {"10", "m", "-5m", "0s", "1e3s", "5 m", "99999999h", "nanm"}) {
    CHECK(complaint(fmt::format("compare --budget '{}'", wrong)) ==
          fmt::format("norma: compare: --budget: expected a time as 90s, 15m or 2h, got {}\n", wrong));
  }
  CHECK(complaint("compare --lrs 0.1,0.1") == "norma: compare: lrs: expected each once, got 0.1 twice\n");
  CHECK(complaint("compare --norms batch,batch") == "norma: compare: norms: expected each once, got batch twice\n");
  CHECK(complaint("eval") == "norma: eval: --checkpoint is required\n");
  CHECK(complaint("run") == "norma: run: --model is required\n");
}

TEST_CASE("norma: groups that do not divide the channels") {
  const std::string text =
      complaint("train --model resnet18 --norm group:7 --dataset shapes --images 8 --batch-size 4 --output o");
  CHECK_MESSAGE(text.find("num_channels must be divisible by num_groups, got num_channels 64, num_groups 7\n") !=
                    std::string::npos,
                text);
}

TEST_CASE("norma: one value per channel in training") {
  // 32 x 32 images leave one pixel at the end of ResNet-18, and the batch is one image.
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(
      folder.path(), "train --model resnet18 --norm batch --dataset shapes --images 2 --batch-size 1 --output o");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.starts_with("norma: batch_norm: "), outcome.err);
  CHECK_MESSAGE(outcome.err.find("per channel") != std::string::npos, outcome.err);
}

TEST_CASE("norma: missing and broken data") {
  for (const std::string command : {"train", "compare"}) {
    CHECK(complaint(command + " --dataset shapes --data-dir d") ==
          "norma: " + command + ": data-dir: expected none for dataset 'shapes', which is generated, got 'd'\n");
  }
  CHECK(complaint("train --dataset idx --data-dir nowhere").find("nowhere") != std::string::npos);
  const TemporaryFolder folder;
  test::write_file(folder / "train-images-idx3-ubyte", test::idx_bytes({10, 28, 28}, "short"));
  test::write_file(folder / "train-labels-idx1-ubyte", test::idx_bytes({10}, std::string(10, '\1')));
  const Outcome outcome = run_norma(folder.path(), "train --dataset idx --data-dir .");
  CHECK(outcome.code == 2);
  CHECK_MESSAGE(outcome.err.find("train-images-idx3-ubyte") != std::string::npos, outcome.err);
  CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
}

TEST_CASE("norma: threads that wait spin briefly, unless the environment says something else") {
  const TemporaryFolder folder;
  const auto spin_count = [&](const std::string& environment) {
    const std::string text =
        run_norma(folder.path(), "--version",
                  "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose OMP_NUM_THREADS=1 " + environment)
            .err;
    const std::string name = "GOMP_SPINCOUNT = '";
    const size_t at = text.rfind(name);  // the program that has started itself again comes last
    REQUIRE_MESSAGE(at != std::string::npos, text);
    return text.substr(at + name.size(), text.find('\'', at + name.size()) - at - name.size());
  };
  CHECK(spin_count("") == "10000");
  CHECK(spin_count("GOMP_SPINCOUNT=7") == "7");
  CHECK(spin_count("OMP_WAIT_POLICY=passive") == "0");
}
