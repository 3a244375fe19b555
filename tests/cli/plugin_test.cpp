#include "cli/program.h"
#include "json.h"

#include <string>

using namespace norma;
using test::complaint;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

std::string plugin(const std::string& name) {
  return (test::plugin_folder() / (name + ".so")).string();
}

const std::string kTiny =
    "--dataset shapes --batch-size 4 --images 8 --test-images 4 --threads 1 --quiet --patch-size 4 ";

}  // namespace

TEST_CASE("norma check-norm: the norms of examples/my_norm are right") {
  const TemporaryFolder folder;
  for (const auto& [file, norm] : {std::pair("by_spec", "column"), {"by_ops", "absolute"}, {"by_kernel", "image"}}) {
    const Outcome outcome = run_norma(
        folder.path(), fmt::format("check-norm --plugin {} --norms {} --quiet --threads 1", plugin(file), norm));
    CHECK_MESSAGE(outcome.code == 0, outcome.out, outcome.err);
    CHECK_MESSAGE(outcome.out.ends_with("\nnothing is wrong\n"), outcome.out);
    CHECK_MESSAGE(outcome.out.find("\nnetworks                 ok") != std::string::npos, outcome.out);
  }
}

TEST_CASE("norma check-norm: what is wrong, and exit code 1") {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_norma(folder.path(), "check-norm --norms 'layer2d[statistics=sum_of_squares],group' --quick --threads 1");
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("\nexactness                FAILED  mean 1e4, deviation 1: expected an output within ") !=
        std::string::npos);
  CHECK(outcome.out.find("\nsomething is wrong: see FAILED\n") != std::string::npos);
  CHECK(outcome.out.ends_with("\nnothing is wrong\n"));
  CHECK(complaint("check-norm --norms bath") == "norma: norm: unknown norm 'bath'; did you mean 'batch'?\n");
}

TEST_CASE("norma compare --plugin: a norm of one's own beside ours, and --resume") {
  const TemporaryFolder folder;
  const std::string loaded = fmt::format(" --plugin {},{} ", plugin("by_spec"), plugin("by_ops"));
  const Outcome outcome = run_norma(
      folder.path(), "compare --models convnext_atto --norms column,absolute[eps=1e-3],batch --timing-rounds 2 " +
                         kTiny + loaded + "--output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  const nlohmann::json results = test::parse_json(read_file(folder / "o/results.json"));
  REQUIRE(results["cells"].size() == 3);
  for (const nlohmann::json& cell : results["cells"]) {
    CHECK(cell["state"] == "finished");
  }
  CHECK(results["cells"][1]["norm"] == "absolute[eps=1e-3]");
  CHECK(read_file(folder / "o/report.html").find("column") != std::string::npos);
  CHECK(run_norma(folder.path(), "compare --resume o" + loaded).code == 0);
  const Outcome without = run_norma(folder.path(), "compare --resume o");
  CHECK(without.code == 2);
  CHECK(without.err ==
        fmt::format("norma: resume: norm 'column' comes from a plug-in, which is not loaded: add --plugin "
                    "{},{}\n",
                    plugin("by_spec"), plugin("by_ops")));
}

TEST_CASE("norma train --plugin: a checkpoint is read again with it, and not without") {
  const TemporaryFolder folder;
  const std::string loaded = " --plugin=" + plugin("by_spec");
  const Outcome trained =
      run_norma(folder.path(), "train --model convnext_atto --norm column " + kTiny + "--output o" + loaded);
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o" + loaded);
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  const Outcome without = run_norma(folder.path(), "eval --checkpoint o");
  CHECK(without.code == 2);
  CHECK(without.err == "norma: eval: norm 'column' comes from a plug-in, which is not loaded: add --plugin " +
                           plugin("by_spec") + "\n");
  std::filesystem::rename(folder / "o/args.toml", folder / "elsewhere.toml");  // then nothing is known of a plug-in
  CHECK(run_norma(folder.path(), "eval --checkpoint o").err.find("unknown norm 'column'") != std::string::npos);
  std::filesystem::rename(folder / "elsewhere.toml", folder / "o/args.toml");
  // The run's own file names it.
  const Outcome resumed = run_norma(folder.path(), "train --resume o");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  const Outcome again = run_norma(folder.path(), "train --config o/args.toml --output p");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(read_file(folder / "p/args.toml").find("\nplugin = [\"" + plugin("by_spec") + "\"]\n") != std::string::npos);
  // Its norms stand in the help.
  CHECK(run_norma(folder.path(), "train --help" + loaded).out.find("column") != std::string::npos);
}

TEST_CASE("norma --plugin: what cannot be loaded") {
  const auto error = [](const std::string& file) { return complaint("compare --plugin " + file); };
  const std::string name = plugin("no_norm");
  CHECK(error("none.so").starts_with("norma: plugin: cannot load /"));
  CHECK(error("none.so").ends_with("none.so: cannot open shared object file: No such file or directory\n"));
  CHECK(error(plugin("no_plugin")) == "norma: plugin: " + plugin("no_plugin") +
                                          ": expected a plug-in of Norma, with NORMA_PLUGIN in one of its files\n");
  CHECK(error(plugin("other_abi")) == "norma: plugin: " + plugin("other_abi") +
                                          ": built for another Norma (plug-in version 2, here 1): build it anew\n");
  CHECK(error(name) ==
        "norma: plugin: " + name + ": expected it to register a norm with a name of its own, got none\n");
  CHECK(error(plugin("throwing")) == "norma: plugin: " + plugin("throwing") + ": my norm: not today\n");
  CHECK(error(plugin("taken_name")) == "norma: plugin: " + plugin("taken_name") +
                                           ": register_norm: name: expected one that is not taken, got 'batch'\n");
  CHECK(error("").find("--plugin: expected the name of a file") != std::string::npos);
}
