#include "base/sha256.h"
#include "cli/program.h"
#include "data/safetensors.h"
#include "json.h"
#include "ops/shape/copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

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
  struct Example {
    const char* file;
    const char* norm;
    const char* how;
  };
  // Below, networks are trained with those of the first two and the last.
  for (const Example& one : {Example{"by_spec", "column", "--quick"},
                             {"by_ops", "absolute", "--quick"},
                             {"by_kernel", "image", ""},
                             {"taper", "taper", "--quick"}}) {
    const Outcome outcome = run_norma(
        folder.path(),
        fmt::format("check-norm --plugin {} --norms {} {} --quiet --threads 1", plugin(one.file), one.norm, one.how));
    CHECK_MESSAGE(outcome.code == 0, outcome.out, outcome.err);
    CHECK_MESSAGE(outcome.out.ends_with("\nnothing is wrong\n"), outcome.out);
    const bool all = one.how == std::string();
    CHECK_MESSAGE((outcome.out.find("\nnetworks                 ok") != std::string::npos) == all, outcome.out);
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
  CHECK(complaint("check-norm --norms batch --like bath") ==
        "norma: norm: unknown norm 'bath'; did you mean 'batch'?\n");
}

TEST_CASE("norma check-norm --like: a norm of one's own beside one of Norma's") {
  const TemporaryFolder folder;
  const std::string start =
      fmt::format("check-norm --plugin {} --norms column --quick --threads 1 ", plugin("by_spec"));
  const Outcome other = run_norma(folder.path(), start + "--like batch");
  CHECK(other.code == 1);
  CHECK_MESSAGE(other.out.find("\nlike batch               FAILED  numbers with mean 2 and deviation 1: output ") !=
                    std::string::npos,
                other.out);
  const Outcome itself = run_norma(folder.path(), start + "--like column");
  CHECK(itself.code == 0);
  CHECK_MESSAGE(itself.out.find("\nlike column              ok") != std::string::npos, itself.out);
}

TEST_CASE("norma compare --plugin: a norm of one's own beside ours, and --resume") {
  const TemporaryFolder folder;
  const std::string loaded = fmt::format(" --plugin {} --plugin {} ", plugin("by_spec"), plugin("by_ops"));
  const Outcome outcome = run_norma(
      folder.path(), "compare --models convnext_atto --norms column,absolute[eps=1e-3],batch --timing-rounds 1 " +
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
        fmt::format("norma: compare: norm 'column' comes from a plug-in, which is not loaded: add --plugin "
                    "{} --plugin {}\n",
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
  const Outcome attention =
      run_norma(folder.path(), "train --model vit_tiny --qk-norm column " + kTiny + "--output q" + loaded);
  CHECK_MESSAGE(attention.code == 0, attention.err);
  CHECK(run_norma(folder.path(), "eval --checkpoint q").err == without.err);
  // The run's own files name it.
  const std::string named =
      fmt::format("plug-in {} (sha256 {}), which '", plugin("by_spec"), sha256(read_file(plugin("by_spec"))));
  const Outcome resumed = run_norma(folder.path(), "train --resume o");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);
  CHECK_MESSAGE(resumed.out.starts_with(named + "o/last.safetensors' names\n"), resumed.out);
  const Outcome again = run_norma(folder.path(), "train --config o/args.toml --output p");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK_MESSAGE(again.out.starts_with(named + "o/args.toml' names\n"), again.out);
  CHECK(read_file(folder / "p/args.toml")
            .find(fmt::format("\nplugin = [\"{}#sha256={}\"]\n", plugin("by_spec"),
                              sha256(read_file(plugin("by_spec"))))) != std::string::npos);
  // Its norms stand in the help.
  CHECK(run_norma(folder.path(), "train --help" + loaded).out.find("column") != std::string::npos);
}

TEST_CASE("norma train --plugin: a norm that fades goes on half-way with the bits of a run in one piece") {
  const TemporaryFolder folder;
  const auto train = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), "train " + arguments + " --plugin " + plugin("taper"));
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  };
  const std::string run =
      "--model convnext_atto --norm 'taper[warmup_steps=2,taper_steps=4]' --sched constant --lr 0.01 "
      "--dataset shapes --batch-size 4 --test-images 4 --threads 1 --quiet --patch-size 4 --images ";
  train(run + "32 --output whole");
  train(run + "16 --output cut");
  const auto tensors_in = [&](const std::string& name) {
    std::map<std::string, std::vector<double>> tensors;
    for (const auto& [tensor, x] : data::load_safetensors(folder / (name + "/last.safetensors")).tensors) {
      tensors[tensor] = to(x, DType::float64).to_vector<double>();
    }
    return tensors;
  };
  CHECK(tensors_in("cut").at("stem.1.steps").at(0) == 4);  // the gate is 1/2
  train("--resume cut --images 32");
  const auto whole = tensors_in("whole");
  CHECK(whole.at("stem.1.steps").at(0) == 8);
  CHECK(whole.at("stem.1.scale").at(0) != 0);
  CHECK(tensors_in("cut") == whole);
}

TEST_CASE("norma compare --plugin: a mistake in the options of a plug-in's norm is one line") {
  const auto error = [](const std::string& options) {
    return complaint(fmt::format("compare --norms 'taper[{}]' --plugin {}", options, plugin("taper")));
  };
  CHECK(error("warmup_steps=-1") == "norma: norm: taper: warmup_steps: expected a positive whole number, got '-1'\n");
  CHECK(error("warmup_step=5") == "norma: norm: taper: unknown option 'warmup_step'; did you mean 'warmup_steps'?\n");
}

TEST_CASE("norma --plugin: what cannot be loaded") {
  const auto error = [](const std::string& file) { return complaint("compare --plugin " + file); };
  const std::string name = plugin("no_norm");
  CHECK(error("none.so") == "norma: plugin: cannot open none.so: No such file or directory\n");
  CHECK(error(plugin("no_plugin")) == "norma: plugin: " + plugin("no_plugin") +
                                          ": expected a plug-in of Norma, with NORMA_PLUGIN in one of its files\n");
  CHECK(error(plugin("other_abi")) == "norma: plugin: " + plugin("other_abi") +
                                          ": built for another Norma (plug-in version 5, here 4): build it anew\n");
  CHECK(error(name) ==
        "norma: plugin: " + name + ": expected it to register a norm with a name of its own, got none\n");
  CHECK(error(plugin("throwing")) == "norma: plugin: " + plugin("throwing") + ": my norm: not today\n");
  CHECK(error(plugin("taken_name")) == "norma: plugin: " + plugin("taken_name") +
                                           ": register_norm: name: expected one that is not built in, got 'batch'\n");
  CHECK(error("").find("--plugin: expected the name of a file") != std::string::npos);
}

TEST_CASE("norma --plugin: a pipe, another file and a library that ends early are refused before they are opened") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe.so").c_str(), 0600) == 0);
  const auto error = [&](const std::string& file) {
    const Outcome outcome = run_norma(folder.path(), "compare --plugin " + file, "timeout 20");
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  CHECK(error("pipe.so") == "norma: plugin: cannot open pipe.so: expected a regular file, got a pipe\n");
  test::write_file(folder / "text.so", "no library");
  CHECK(error("text.so") == "norma: plugin: text.so: expected a shared library, got another file\n");
  const std::string library = read_file(plugin("by_spec"));
  for (const size_t size :
       {size_t{5}, size_t{63}, size_t{64}, size_t{500}, size_t{4096}, library.size() / 2, library.size() - 1}) {
    CAPTURE(size);
    test::write_file(folder / "cut.so", library.substr(0, size));
    CHECK(error("cut.so") ==
          fmt::format("norma: plugin: cut.so: expected a whole shared library, got one that ends after {} bytes\n",
                      size));
  }
  std::string other = library;
  other[4] = '\1';  // of 32 bits
  test::write_file(folder / "other.so", other);
  CHECK(error("other.so") ==
        "norma: plugin: other.so: expected a shared library for this machine, got another program\n");
}

TEST_CASE("norma train --resume, --config: the code of a plug-in that a file names runs only where it is the user's") {
  const TemporaryFolder folder;
  const std::string library = (folder / "mine.so").string();
  std::filesystem::copy_file(plugin("by_spec"), library);
  std::string hash = sha256(read_file(library));
  const std::string train = "train --model convnext_atto --norm column " + kTiny;
  REQUIRE(run_norma(folder.path(), train + "--output o --plugin mine.so").code == 0);
  const auto refused = [&](const std::string& arguments) {
    const Outcome outcome = run_norma(folder.path(), "train " + arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  const auto text = [&](const std::string& by, const std::string& reason) {
    return fmt::format(
        "norma: train: '{}' names the plug-in {} (sha256 {}), which is code and is not loaded, since {}: --plugin {} "
        "loads it\n",
        by, library, hash, reason, library);
  };
  const std::string dry = "a dry run loads none that a file names";
  CHECK(refused("--resume o --dry-run") == text("o/last.safetensors", dry));
  CHECK(refused("--resume o/model_best.safetensors --dry-run") == text("o/model_best.safetensors", dry));
  CHECK(refused("--config o/args.toml --dry-run") == text("o/args.toml", dry));
  CHECK(refused("--config o/args.toml --dry-run=1") == text("o/args.toml", dry));
  CHECK(refused("--resume o --dry-run=true") == text("o/last.safetensors", dry));
  CHECK(run_norma(folder.path(), "train --resume o --dry-run --plugin mine.so").code == 0);

  std::filesystem::permissions(folder / "o", std::filesystem::perms::all);
  CHECK(refused("--resume o") == text("o/last.safetensors", "'o' can be written by every user"));
  std::filesystem::permissions(folder / "o", std::filesystem::perms::owner_all | std::filesystem::perms::group_write);
  CHECK(refused("--resume o") == text("o/last.safetensors", "'o' can be written by its group"));
  std::filesystem::permissions(folder / "o", std::filesystem::perms::owner_all);
  if (::geteuid() == 0) {
    REQUIRE(::chown((folder / "o").c_str(), 12345, 12345) == 0);
    CHECK(refused("--resume o") == text("o/last.safetensors", "'o' belongs to another user"));
    CHECK(refused("--resume o/last.safetensors") == text("o/last.safetensors", "'o' belongs to another user"));
    CHECK(refused("--config o/args.toml --output p") == text("o/args.toml", "'o' belongs to another user"));
    CHECK(run_norma(folder.path(), "train --resume o --plugin mine.so").code == 0);
    REQUIRE(::chown((folder / "o").c_str(), 0, 0) == 0);
    REQUIRE(::chown((folder / "o/args.toml").c_str(), 12345, 12345) == 0);
    CHECK(refused("--config o/args.toml --output p") == text("o/args.toml", "'o/args.toml' belongs to another user"));
    REQUIRE(::chown((folder / "o/args.toml").c_str(), 0, 0) == 0);
    REQUIRE(::chown(library.c_str(), 12345, 12345) == 0);
    CHECK(refused("--config o/args.toml --output p") ==
          text("o/args.toml", "'" + library + "' belongs to another user"));
    REQUIRE(::chown(library.c_str(), 0, 0) == 0);
  }

  // Another library of that name is not the one of the run.
  std::filesystem::copy_file(plugin("by_ops"), library, std::filesystem::copy_options::overwrite_existing);
  const std::string recorded = "the recorded SHA-256 is " + hash;
  hash = sha256(read_file(library));
  CHECK(refused("--resume o") == text("o/last.safetensors", recorded));
  CHECK(refused("--config o/args.toml --output p") == text("o/args.toml", recorded));
  std::filesystem::copy_file(plugin("by_spec"), library, std::filesystem::copy_options::overwrite_existing);
  hash = sha256(read_file(library));
  std::filesystem::remove(folder / "o/args.toml");
  const Outcome resumed = run_norma(folder.path(), "train --resume o --images 12");
  CHECK_MESSAGE(resumed.code == 0, resumed.err);

  // With another library, which has the norm too, the run says so.
  test::write_file(folder / "other.so", read_file(library) + "x");
  const Outcome other = run_norma(folder.path(), "train --resume o --images 16 --plugin other.so");
  CHECK_MESSAGE(other.code == 0, other.err);
  CHECK(other.out.find(fmt::format("changed on resuming, so that bits may differ: plug-ins "
                                   R"([{{"file":"{}","sha256":"{}","norms":["column"]}}] → [{{"file":"{}",)",
                                   library, hash, (folder / "other.so").string())) != std::string::npos);
}

TEST_CASE(
    "norma train --config: a plug-in is loaded by its whole path and SHA-256, or by --plugin on the command line") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "d");
  const std::string first = (folder / "d/a.so").string();
  const std::string second = (folder / "d/b.so").string();
  std::filesystem::copy_file(plugin("by_spec"), first);
  std::filesystem::copy_file(plugin("by_ops"), second);
  const auto recorded = [](const std::string& file) {
    return fmt::format("{}#sha256={}", file, sha256(read_file(file)));
  };
  const std::string train = "train --config d/a.toml --model convnext_atto --norm absolute " + kTiny;
  const auto refused = [&](const std::string& list, const std::string& library, const std::string& reason,
                           const std::string& words) {
    test::write_file(folder / "d/a.toml", fmt::format("plugin = [{}]\n", list));
    const Outcome outcome = run_norma(folder.path(), train + "--output o");
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(
        outcome.err ==
        fmt::format("norma: train: 'd/a.toml' names the plug-in {} (sha256 {}), which is code and is not loaded, since "
                    "{}: --plugin {} loads it\n",
                    library, sha256(read_file(library)), reason, words));
    CHECK_FALSE(std::filesystem::exists(folder / "o"));
  };
  // A name of the user's own files, and one of an archive that was unpacked and brings its library along.
  refused("\"" + second + "\"", second, "no SHA-256 of it is recorded there", second);
  refused("\"b.so#sha256=" + sha256(read_file(second)) + "\"", second, "its name there is no absolute path", second);
  // A name that is another file in each folder.
  refused("\"/proc/self/cwd/d/b.so#sha256=" + sha256(read_file(second)) + "\"", second,
          "its name there leads over links", second);
  refused(fmt::format("\"{}\", \"{}\"", recorded(first), second), second, "no SHA-256 of it is recorded there",
          first + " --plugin " + second);
  CHECK(run_norma(folder.path(), train + "--output o --plugin d/b.so").code == 0);

  // Two of them: the loader of the system must not take the second for the first.
  test::write_file(folder / "d/a.toml", fmt::format("plugin = [\"{}\", \"{}\"]\n", recorded(first), recorded(second)));
  const Outcome both = run_norma(folder.path(), train + "--output p");
  CHECK_MESSAGE(both.code == 0, both.err);
  CHECK(read_file(folder / "p/args.toml")
            .find(fmt::format("\nplugin = [\"{}\", \"{}\"]\n", recorded(first), recorded(second))) !=
        std::string::npos);
  // The same library by two names is one.
  std::filesystem::create_hard_link(second, folder / "c.so");
  const Outcome twice =
      run_norma(folder.path(), fmt::format("{}--output q --plugin {} --plugin c.so", train, recorded(second)));
  CHECK_MESSAGE(twice.code == 0, twice.err);
  CHECK(complaint(fmt::format("train --plugin {}#sha256=", second)) ==
        fmt::format("norma: plugin: {}#sha256=: expected the digits of a SHA-256 behind #sha256=, got none\n", second));
  CHECK(
      complaint(fmt::format("train --plugin {}#sha256=12ab", second)) ==
      fmt::format("norma: plugin: {}: expected a file with SHA-256 12ab, got {}\n", second, sha256(read_file(second))));
}

TEST_CASE("norma --plugin: each one names a file, whose name may have commas and blanks") {
  const TemporaryFolder folder;
  const std::string library = (folder / "a, b.so").string();
  std::filesystem::copy_file(plugin("by_spec"), library);
  const std::string train = "train --model convnext_atto --norm column " + kTiny;
  for (const char* given : {"--output o --plugin 'a, b.so'", "--output q '--plugin=a, b.so'"}) {
    const Outcome outcome = run_norma(folder.path(), train + given);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
  }
  const Outcome without = run_norma(folder.path(), "eval --checkpoint o");
  CHECK(without.err ==
        "norma: eval: norm 'column' comes from a plug-in, which is not loaded: add --plugin '" + library + "'\n");
  // The files of the run name it as one, too.
  const Outcome again = run_norma(folder.path(), "train --config o/args.toml --output p");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK_MESSAGE(again.out.starts_with("plug-in " + library + " (sha256 "), again.out);
  CHECK(complaint(fmt::format("train --plugin {} {}", plugin("by_spec"), plugin("by_ops"))) ==
        "norma: train: unexpected argument '" + plugin("by_ops") + "'\n");
}

TEST_CASE("norma: results and commands that repeat a run name the plug-in by its whole path and its hash") {
  const TemporaryFolder folder;
  std::filesystem::copy_file(plugin("by_spec"), folder / "mine.so");
  const std::string library = (folder / "mine.so").string();
  const nlohmann::json record = {
      {"file", library}, {"sha256", sha256(read_file(library))}, {"norms", nlohmann::json::array({"column"})}};
  const Outcome compared = run_norma(folder.path(), "compare --models convnext_atto --norms column --timing-rounds 0 " +
                                                        kTiny + "--output c --plugin mine.so");
  CHECK_MESSAGE(compared.code == 0, compared.err);
  const nlohmann::json results = test::parse_json(read_file(folder / "c/results.json"));
  CHECK(results["environment"]["plugins"] == nlohmann::json::array({record}));
  CHECK(read_file(folder / "c/report.md").find(" --plugin " + library) != std::string::npos);
  CHECK(run_norma(folder.path(), "report c").code == 0);
  CHECK(test::parse_json(read_file(folder / "c/results.json"))["environment"] == results["environment"]);

  REQUIRE(
      run_norma(folder.path(), "train --model convnext_atto --norm column " + kTiny + "--output o --plugin ./mine.so")
          .code == 0);
  const auto metadata = data::load_safetensors_metadata(folder / "o/last.safetensors");
  const nlohmann::json options = test::parse_json(metadata.at("options"));
  CHECK(test::parse_json(options["plugins"].get<std::string>()) == nlohmann::json::array({record}));
  REQUIRE(run_norma(folder.path(), "eval --checkpoint o --plugin mine.so --json e.json").code == 0);
  CHECK(test::parse_json(read_file(folder / "e.json"))["settings"]["plugins"] == nlohmann::json::array({record}));
}

TEST_CASE("norma train, compare, check-norm: whatever a plug-in throws, and exit(), is a failure with a reason") {
  const TemporaryFolder folder;
  const std::string odd = " --plugin " + plugin("odd") + " ";
  const std::string number = "norm 'number': it threw something that is no std::exception";
  const auto run = [&](const std::string& words) { return run_norma(folder.path(), words + odd + kTiny); };
  for (const auto& [norm, text] : {std::pair("number", number),
                                   {"text", "norm 'text': " + std::string(400, 'x') + "…"},
                                   {"made", "norm 'made': it threw something that is no std::exception"}}) {
    CAPTURE(norm);
    const Outcome trained = run(std::string("train --model convnext_atto --output t --norm ") + norm);
    CHECK(trained.code == 2);
    CHECK(trained.err == "norma: " + text + "\n");
  }
  const Outcome compared = run("compare --models convnext_atto --norms number,batch --timing-rounds 0 --output c");
  CHECK(compared.code == 2);
  CHECK_MESSAGE(compared.err.find(number) != std::string::npos, compared.err);
  const Outcome backward = run("compare --models convnext_atto --norms backward,batch --timing-rounds 0 --output b");
  CHECK(backward.code == 1);
  const std::string reason = "odd: backward: it threw something that is no std::exception";
  CHECK_MESSAGE(backward.out.find("failed: " + reason) != std::string::npos, backward.out, backward.err);
  const auto cells = test::parse_json(read_file(folder / "b/results.json"))["cells"];
  REQUIRE(cells.size() == 2);
  CHECK(cells[0]["state"] == "failed");
  CHECK(cells[1]["state"] == "finished");
  const Outcome checked =
      run_norma(folder.path(), "check-norm --norms number --quick --threads 1 --quiet --plugin " + plugin("odd"));
  CHECK(checked.code == 1);
  CHECK_MESSAGE(checked.out.find(number) != std::string::npos, checked.out, checked.err);
  const Outcome ended = run("train --model convnext_atto --norm exits --output e");
  CHECK(ended.code == 1);
  CHECK(ended.err == "norma: ended by a call of exit() in the middle of the work: by a plug-in?\n");
}
